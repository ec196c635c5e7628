import shutil

import pytest

from support.artifacts import save_with_new_nodes


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """A folder that nobody changes; copy it to change it."""
    return save_with_new_nodes(tmp_path_factory.mktemp("artifact") / "run")


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")
