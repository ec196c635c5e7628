import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from graphveil.serve import tokens_of
from support.artifacts import NEW, fitted


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve") / "run"
    model = fitted()
    model.save(folder)
    model.predict_new(**NEW)
    tokens_of(folder)
    return folder


@pytest.fixture(scope="session")
def start(run, tmp_path_factory):
    """`graphveil serve` in a process of its own, on a free port."""
    import support.service  # noqa: F401 (skips where the extra is missing)

    started = []

    def start(*words):
        errors = (tmp_path_factory.mktemp("log") / "stderr").open("w+")
        command = [sys.executable, "-m", "graphveil", "serve", str(run), "--port", "0", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        started.append(process)
        line = process.stdout.readline()
        address = re.search(r"http://\S+:(\d+)", line)
        assert address, f"{line}{errors.read()}"
        return SimpleNamespace(process=process, port=int(address[1]), said=line, errors=errors)

    yield start
    for process in started:
        process.terminate()
        try:
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()


@pytest.fixture(scope="session")
def process(start):
    return start("--access-log")


@pytest.fixture(scope="session")
def service(process, run):
    from support.service import Service

    return Service(process.port, tokens_of(run), known=("3", "17", "anna"), unknown=("120", "03", "nobody"))


@pytest.fixture
def thread():
    """The service in a thread of this process, for what a test has to change in it."""
    from support.service import Service, in_thread, small_app

    app, tokens, names = small_app()
    with in_thread(app) as port:
        yield Service(port, tokens, known=names, unknown=("nobody",))
