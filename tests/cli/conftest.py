import subprocess
import sys
from types import SimpleNamespace

import pytest

from graphveil.cli import main


@pytest.fixture
def run(capsys, monkeypatch):
    """The command as a user runs it, but in this process: a new one takes seconds to load PyTorch."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["graphveil", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code or 0, stdout=out, stderr=err)

    return run


@pytest.fixture(scope="session")
def run_process():
    """The command in a process of its own, for what loading and ending print."""

    def run(*words):
        command = [sys.executable, "-m", "graphveil", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    return run
