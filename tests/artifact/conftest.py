import shutil

import pytest

import graphveil as gv
from support.artifacts import NEW, fitted


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """A folder that nobody changes; copy it to change it."""
    folder = tmp_path_factory.mktemp("artifact") / "run"
    fitted().save(folder)
    gv.load(folder).predict_new(**NEW)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")
