"""Whatever somebody types is a result, or one line and exit code 2."""

import os
import re
import subprocess
import sys
from io import StringIO

import pytest

import graphveil as gv
from graphveil.cli import main
from graphveil.graph import csbm, random_split, write_graph
from support.artifacts import GRAPH, fitted

LONG, HUGE = "x" * 300, str(10**30)
PLAN = ["plan", "--nodes", 1000, "--train-nodes", 100, "--classes", 3, "--features", 5, "--k", 1]
FOR = [*PLAN, "--epsilon", 4]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    write_graph(GRAPH, folder / "g.npz")
    words = ["train", folder / "g.npz", "--method", "mlp", "--steps", 1, "--out", folder / "run"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["graphveil", *map(str, words)])
        patch.setattr(sys, "stdout", StringIO())
        with pytest.raises(SystemExit):
            main()
    gv.load(folder / "run")
    return folder


@pytest.fixture
def refused(run, place, monkeypatch):
    monkeypatch.chdir(place)

    def refused(*words, message=""):
        before = sorted(place.rglob("*"))
        done = run(*words)
        assert done.returncode == 2, done
        assert re.sub("note: .*\n", "", done.stderr).count("\n") == 1, done.stderr
        assert message in done.stderr
        assert sorted(place.rglob("*")) == before

    return refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "-1"], "seed = -1"),
        (["--seed", 2**70], "seed = 11805916"),
        (["--seed", 2**63], "seed = 9223372036854775808"),
        (["--seed", "nan"], "'nan'"),
        (["--seed", "x"], "'x'"),
        (["--split-seed", "-1"], "split_seed = -1"),
        (["--split-seed", 2**70], "split_seed"),
        (["--device", "cuda:99"], "device = 'cuda:99'"),
        (["--device", "nonsense"], "device = 'nonsense'"),
        (["--device", "meta"], "device = 'meta'"),
        (["--device", ""], "device = ''"),
        (["--steps", HUGE], "steps"),
        (["--k", 10**20], "k = "),
        (["--checkpoint-every", "often"], "checkpoint_every"),
    ],
    ids=str,
)
@pytest.mark.parametrize("graph", ["csbm", "g.npz"])
def test_training(refused, graph, words, message):
    refused("train", graph, *words, message=message)


@pytest.mark.parametrize(
    "words",
    [
        [*FOR, "--nodes", HUGE],
        [*FOR, "--nodes", 10**400],
        [*FOR, "--nodes", 10**405, "--k", 10**400],
        [*FOR, "--k", 10**20],
        [*FOR, "--steps", HUGE],
        [*FOR, "--classes", 10**400],
        [*FOR, "--features", 10**400],
        [*FOR, "--train-nodes", 10**400],
        [*FOR, "--method", "dp-sage", "--level", "node", "--max-degree", 5, "--layers", 10**9],
        [*FOR, "--method", "gap", "--level", "edge", "--hops", 10**400],
        [*PLAN, "--noise", "1e-308"],
        [*PLAN, "--noise", "nan"],
    ],
    ids=lambda words: " ".join(map(str, words[11:]))[:40],
)
def test_numbers_that_no_graph_has(refused, words):
    refused(*words)


def test_more_than_the_memory(refused, monkeypatch):
    def allocate(*_, **__):
        return bytearray(2**62)

    monkeypatch.setattr("graphveil.methods.spending.make_plan", allocate)
    refused(*FOR, message="error: not enough memory")


@pytest.mark.parametrize(
    "words",
    [
        ["train", LONG],
        ["train", f"{LONG}.npz"],
        ["train", "cora", "--root", LONG],
        ["train", "g.npz", "--checkpoint", LONG],
        ["predict", LONG, "--all"],
        ["predict", "run", "--all", "--out", LONG],
        ["predict", "run", "--new", f"{LONG}.csv"],
        ["tokens", LONG, "--all"],
        ["tokens", "run", "--all", "--out", LONG],
        ["verify", LONG],
        ["serve", LONG, "--port", 0],
        ["shard", "g.npz", LONG],
        ["shard", LONG, "parts"],
        ["report", LONG],
        ["datasets", "cora", "--root", LONG],
        ["bench", f"{LONG}.toml"],
        ["bench", "table2", "--graphs", "g.npz", "--out", LONG],
        ["bench", "table2", "--graphs", f"{LONG}.npz"],
        ["audit", LONG],
        ["audit", "--out", LONG],
        ["audit", "--all", "--quick", "--out", LONG],
    ],
    ids=lambda words: " ".join(map(str, words))[:24],
)
def test_overlong_names(refused, words):
    refused(*words)


@pytest.mark.parametrize("out", ["/proc/x", "/sys/x", "g.npz/x"])
@pytest.mark.parametrize(
    "words",
    [
        ["bench", "table2", "--graphs", "g.npz", "--seeds", 1],
        ["audit", "--attack", "release", "--trials", 100],
        ["audit", "--all", "--quick"],
        ["report", "run"],
        ["report", "run", "--format", "png"],
        ["shard", "g.npz"],
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_places_that_take_no_files(refused, words, out):
    refused(*words, *([] if words[0] == "shard" else ["--out"]), out)


def test_a_device_is_not_replaced_by_a_report(refused, place):
    os.mkfifo(place / "fifo")
    refused("report", "run", "--out", "fifo", message="is not an ordinary file")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "table2", "--graphs", "g.npz", "--seeds", HUGE], "seeds"),
        (["bench", "table2", "--graphs", "g.npz", "--seeds", 10**9], "seeds"),
        (["bench", "table2", "--graphs", "g.npz", "--seeds", 1, "--threads", HUGE, "--out", "b"], "threads"),
        (["bench", "table2", "--graphs", "g.npz", "--seeds", 1, "--jobs", 10**9, "--out", "b"], "jobs"),
        (["audit", "--seed", -1], "seed = -1"),
        (["audit", "--seed", 2**70], "seed = "),
        (["audit", "--all", "--seed", -1, "--out", "a"], "seed = -1"),
        (["shard", "csbm", "parts", "--split-seed", -1], "seed = -1"),
    ],
    ids=str,
)
def test_other_numbers(refused, words, message):
    refused(*words, message=message)


JOB = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"RANK": "abc"}, "RANK = 'abc'"),
        ({"RANK": "-1"}, "RANK = '-1'"),
        ({"RANK": "1"}, "RANK = '1'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE = '0'"),
        ({"WORLD_SIZE": "9" * 30}, "WORLD_SIZE"),
        ({"MASTER_PORT": "no"}, "MASTER_PORT = 'no'"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT"),
        ({"MASTER_PORT": None}, "MASTER_PORT = None"),
        ({"MASTER_ADDR": None}, "MASTER_ADDR = None"),
        ({"WORLD_SIZE": None}, "WORLD_SIZE = None"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK = 'x'"),
    ],
    ids=str,
)
def test_the_environment_of_a_job(refused, monkeypatch, change, message):
    for name, value in {**JOB, **change}.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    refused("train", "csbm", "--steps", 1, message=message)


@pytest.mark.parametrize(
    "options",
    [
        {"seed": -1},
        {"seed": 2**70},
        {"seed": 1.5},
        {"seed": "1"},
        {"seed": 10**5000},
        {"device": "cuda:99"},
        {"device": "nonsense"},
        {"device": None},
        {"hidden": 10**9},
        {"hidden": 0},
        {"hidden": "8"},
        {"folds": 10**9},
        {"steps": 10**400},
        {"epochs": -1},
        {"dropout": 1.5},
        {"dropout": float("nan")},
        {"learning_rate": float("inf")},
    ],
    ids=lambda options: next(iter(options)),
)
def test_in_python(options):
    with pytest.raises(gv.InvalidInput, match=next(iter(options))) as raised:
        fitted("dpdgc", **options)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1000


def test_in_python_too():
    with pytest.raises(gv.InvalidInput, match="device"):
        gv.load("nowhere", device="nonsense")
    with pytest.raises(gv.InvalidInput, match="seed"):
        csbm(0.5, n=100, f=4, seed=-1)
    with pytest.raises(gv.InvalidInput, match="seed"):
        random_split([0, 1], seed=-1)
    with pytest.raises(gv.InvalidInput, match="hops"):
        gv.GAP(level=gv.Edge(), epsilon=1.0, hops=10**9).fit(GRAPH)
    with pytest.raises(gv.InvalidInput, match="a number of"):
        gv.KNeighbor(k=10**5000)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        ["predict", "run", "--all"],
        ["predict", "run", "--all", "--json"],
        ["tokens", "run", "--all"],
        ["plan", *map(str, FOR[1:]), "--json"],
        ["plan", *map(str, FOR[1:])],
        ["verify", "run", "--no-audits", "--json"],
        ["datasets", "csbm", "--json"],
        ["report", "run", "--json"],
        ["train", "g.npz", "--steps", "1", "--method", "mlp", "--json"],
        ["plan", "--help"],
    ],
    ids=lambda words: " ".join(words)[:24],
)
def test_output_that_cannot_be_written(place, words):
    child = os.fork()
    if not child:
        _main_into("/dev/full", place, words)
    _, status = os.waitpid(child, 0)
    said = (place / "stderr").read_text()
    (place / "stderr").unlink()
    assert os.waitstatus_to_exitcode(status) == 2, said
    assert said == "error: output: No space left on device\n"


def _main_into(output, place, words):
    """The command in a copy of this process, which has imported everything already."""
    code = 99
    try:
        os.chdir(place)
        os.dup2(os.open(output, os.O_WRONLY), 1)
        os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        sys.argv = ["graphveil", *words]
        main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stderr.flush()
        os._exit(code)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_and_python_adds_nothing_at_its_end(place):
    command = [sys.executable, "-m", "graphveil", "predict", "run", "--all"]
    with open("/dev/full", "w") as output:
        done = subprocess.run(command, cwd=place, stdout=output, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (2, "error: output: No space left on device\n")


@pytest.mark.slow
def test_a_reader_that_has_seen_enough(place):
    command = [sys.executable, "-m", "graphveil", "predict", "run", "--all", "--json"]
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(timeout=120) == 1
    assert said == b""
