"""What all commands have in common: help, version, and how fast they start."""

import inspect
import json
import subprocess
import sys

import pytest

import graphveil as gv
from graphveil.cli import app
from graphveil.cli.options import METHOD_NAMES
from graphveil.methods import METHODS

SIZES = ["--nodes", 600, "--train-nodes", 450, "--features", 4, "--classes", 2]
COMMANDS = [command.callback for command in app.registered_commands]


def test_alone_it_prints_help(run):
    alone = run()
    assert alone.returncode == 0
    assert alone.stdout == run("--help").stdout
    for command in COMMANDS:
        assert f"\n  {command.__name__} " in alone.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_every_command_has_short_help(run, command):
    short = run(command.__name__, "-h")
    assert short.returncode == 0
    assert short.stdout == run(command.__name__, "--help").stdout
    assert short.stdout.startswith(f"Usage: graphveil {command.__name__} ")
    line = next(line for line in run("-h").stdout.splitlines() if line.startswith(f"  {command.__name__} "))
    assert not line.endswith("..."), "the first sentence of its help is too long for one line"


def test_shells_complete_commands_and_options(run_process, monkeypatch):
    monkeypatch.setenv("_GRAPHVEIL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("COMP_WORDS", "graphveil da")
    assert run_process().stdout == "datasets\n"
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("COMP_WORDS", "graphveil train --cap")
    assert run_process().stdout == "--cap-degrees\n"
    # What --install-completion writes, without asking which shell this is: tests may have none.
    monkeypatch.setenv("_GRAPHVEIL_COMPLETE", "source_bash")
    assert "_GRAPHVEIL_COMPLETE=complete_bash" in run_process().stdout


def test_the_version(run):
    assert run("--version").stdout == f"graphveil {gv.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_every_command_has_an_example(command):
    assert f"Example: graphveil {command.__name__}" in inspect.getdoc(command)


def test_help_names_every_method():
    assert set(METHOD_NAMES.split(", ")) == set(METHODS)


def test_help_loads_nothing_slow():
    """Start-up time is measured by `python -m benchmarks --only startup`; this says what must not be in it."""
    code = "import sys, graphveil.cli; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())
    assert "graphveil.cli.train" in loaded
    assert not loaded & {"numpy", "scipy", "torch", "rich", "matplotlib", "dp_accounting", "pyarrow"}


def test_a_plan_does_not_load_pytorch():
    words = ["graphveil", "plan", "--epsilon", "8", *map(str, SIZES)]
    code = f"import sys; sys.argv = {words}\nfrom graphveil.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "total: epsilon" in done.stdout
    assert "torch" not in done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("words", [(), ("--level", "edge"), ("--table", "labels")], ids=" ".join)
def test_plan_and_train_have_the_same_defaults(run, tmp_path, words):
    graph = tmp_path / "graph.npz"
    gv.write_graph(gv.graph.csbm(0.5, n=600, f=4, seed=0), graph)
    trained = json.loads(run("train", graph, *words, "--seed", 0, "--json").stdout)["certificate"]
    planned = json.loads(run("plan", *words, *SIZES, "--json").stdout)
    assert planned["method"] == trained["method"]
    assert planned["level"] == trained["level"]
    assert planned["epsilon"] == trained["epsilon"]
    assert planned["delta"] == trained["delta"]
