from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphveil import noise
from graphveil.noise import normals


@pytest.fixture(scope="session")
def data_root() -> Path:
    root = Path(os.environ.get("GRAPHVEIL_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not root.is_dir():
        pytest.skip("no raw graphs: set GRAPHVEIL_DATA to the folder that holds them")
    return root


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("GRAPHVEIL_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium, for tests that look at pages; they are skipped where it is not installed."""
    from support.browser import Browser

    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module", params=["compiled", "torch"])
def arithmetic(request):
    """Noise sources of the module's tests draw by what is fastest, and by what is there on every machine."""
    if request.param == "compiled" and normals.compiled_library() is None:
        pytest.skip("normals.c is not built")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(noise, "fastest_normals", normals.TorchNormals)
            patch.setattr(noise, "fastest_keystream", noise.PackagedKeystream)
        yield request.param
