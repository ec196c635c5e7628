import functools

import pytest

from graphveil import storage
from support.checkpoints import GRAPH, make


@pytest.fixture(scope="session")
def uninterrupted():
    """Models that were never killed, and kept no checkpoint."""
    return functools.cache(lambda case: make(case).fit(GRAPH))


@pytest.fixture
def quick_disk(monkeypatch):
    """Deaths of this process alone: what was written is there, forced to disk or not."""
    monkeypatch.setattr(storage.os, "fsync", lambda handle: None)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "unfinished"
