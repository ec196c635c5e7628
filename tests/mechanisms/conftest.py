import pytest

from graphveil.mechanisms import normals, randomness


@pytest.fixture(scope="module", params=["compiled", "torch"])
def arithmetic(request):
    """Noise sources of the module's tests draw by one and by the other of the two implementations."""
    if request.param == "compiled" and normals.compiled_library() is None:
        pytest.skip("normals.c is not built")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(randomness, "fastest_normals", normals.TorchNormals)
        yield request.param
