import pytest

from graphveil.noise import keystream, normals, worker


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium, for tests that look at pages; they are skipped where it is not installed."""
    from support.browser import Browser

    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module", params=["compiled", "torch"])
def arithmetic(request):
    """Noise sources of the module's tests draw by what is fastest, and by what is there on every machine."""
    if request.param == "compiled" and normals.compiled_library() is None:
        pytest.skip("normals.c is not built")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(worker, "fastest_normals", normals.TorchNormals)
            patch.setattr(worker, "fastest_keystream", keystream.PackagedKeystream)
        yield request.param
