import pytest

from support.specs import tiny_graph, write_spec


@pytest.fixture(scope="session")
def tiny():
    return tiny_graph()


@pytest.fixture
def spec_path(tmp_path):
    return write_spec(tmp_path)
