import pytest

from graphveil.mechanisms import keystream, lane, normals


@pytest.fixture(scope="module", params=["compiled", "torch"])
def arithmetic(request):
    """Noise sources of the module's tests draw by what is fastest, and by what is there on every machine."""
    if request.param == "compiled" and normals.compiled_library() is None:
        pytest.skip("normals.c is not built")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(lane, "fastest_normals", normals.TorchNormals)
            patch.setattr(lane, "fastest_keystream", keystream.PackagedKeystream)
        yield request.param
