import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

from graphveil.graph import Graph, csbm, write_graph


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "graph.npz"
    write_graph(csbm(0.5, n=300, f=6, seed=0), path)
    return path


@pytest.mark.slow
def test_json_has_the_promised_keys(run_process, folder):
    done = run_process("train", folder, "--seed", 0, "--steps", 3, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result = json.loads(done.stdout)
    for key in (
        "test_accuracy",
        "val_accuracy",
        "majority_accuracy",
        "test_balanced_accuracy",
        "test_average_precision",
        "test_auc",
        "test_macro_f1",
        "graph_used",
        "epsilon",
        "delta",
        "seconds",
        "peak_memory_mb",
        "certificate",
    ):
        assert key in result
    assert result["epsilon"] <= 8
    assert result["certificate"]["schema"].startswith("graphveil-certificate/")


def test_what_a_threshold_finds(run, folder, tmp_path):
    words = ("train", folder, "--seed", 0, "--steps", 3, "--positive", "0", "--threshold", 0.0)
    done = run(*words, "--out", tmp_path / "run")
    assert "(the majority class alone: 0." in done.stdout
    assert "By a threshold of 0, " in done.stdout
    evaluation = json.loads((tmp_path / "run" / "metrics.json").read_text())["evaluation"]
    assert (evaluation["positive"], evaluation["threshold"]) == (0, 0)
    assert [row[1] for row in evaluation["confusion"]] == [0, 0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--positive", "fraud"), "positive = 'fraud': must be one of the classes 0, 1"),
        (("--threshold", "2"), "threshold = 2.0: must be a probability"),
    ],
)
def test_a_class_or_threshold_that_cannot_be(run, folder, words, message):
    done = run("train", folder, *words)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(("phi", "used"), [(0.0, False), (1.0, True)])
def test_it_says_whether_the_graph_was_used_and_why(run, tmp_path, phi, used):
    write_graph(csbm(phi, n=2000, f=8, seed=0), tmp_path / "graph.npz")
    words = ("train", tmp_path / "graph.npz", "--seed", 0, "--steps", 20, "--epsilon", 16)
    result = json.loads(run(*words, "--json").stdout)
    assert result["graph_used"] is used
    learnt = result["certificate"]["learnt"]
    assert learnt[-1].startswith("The graph was used:" if used else "The graph was not used, because")
    shown = run(*words, "--out", tmp_path / "run").stdout
    assert shown.index(learnt[-1]) < shown.index("PRIVACY CERTIFICATE")
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.index(">In short</h2>") < page.index(learnt[-1]) < page.index(">Certificate</h2>")
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["graph_used"] is used


@pytest.mark.parametrize(("words", "used"), [(("mlp",), False), (("dpdgc", "--table", "labels"), True)], ids=str)
def test_methods_that_decide_nothing_say_what_they_are(run, folder, words, used):
    result = json.loads(run("train", folder, "--method", *words, "--seed", 0, "--steps", 3, "--json").stdout)
    assert (result["graph_used"], result["certificate"]["learnt"]) == (used, [])


@pytest.mark.parametrize("epsilon", [1, 8])
def test_a_directed_graph_that_is_left_says_why(run, tmp_path, epsilon):
    links = sp.random_array((300, 300), density=0.01, rng=np.random.default_rng(0)).tocoo()
    apart = links.coords[0] != links.coords[1]
    source = csbm(0.0, n=300, f=6, seed=0)
    masks = {name: getattr(source, name) for name in ("train_mask", "val_mask", "test_mask")}
    edges = np.stack(links.coords)[:, apart]
    graph = Graph.from_edge_index(edges, x=source.features, y=source.labels, directed=True, **masks)
    write_graph(graph, tmp_path / "graph.npz")
    words = ("train", tmp_path / "graph.npz", "--seed", 0, "--steps", 3, "--epsilon", epsilon, "--json")
    result = json.loads(run(*words).stdout)
    assert not result["graph_used"]
    links, why = result["certificate"]["learnt"]
    assert links.startswith("A node links to about")
    assert why.startswith("The graph was not used, because")


def test_a_run_folder_is_complete_and_never_overwritten(run, folder, tmp_path):
    out = tmp_path / "runs" / "first"
    assert run("train", folder, "--seed", 0, "--steps", 3, "--out", out).returncode == 0
    assert sorted(p.name for p in out.iterdir()) == [
        "certificate.json",
        "certificate.txt",
        "manifest.json",
        "metrics.json",
        "owner",
        "predictions.csv",
        "public",
        "report.html",
    ]
    again = run("train", folder, "--out", out)
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.npz/"], "nowhere.npz"),
        (["atlantis"], "atlantis"),
        (["csbm", "--epsilon", "0"], "epsilon = 0.0"),
        (["csbm", "--method", "magic"], "method = 'magic'"),
        (["csbm", "--level", "node"], "max_degree = None"),
        (["csbm", "--level", "node", "--max-degree", "2"], "breaks this promise"),
        (["csbm", "--level", "k-neighbor", "--k", "10000"], "k = 10000"),
        (["csbm", "--directed"], "directed = True"),
        (["nowhere.npz"], "path = 'nowhere.npz': there is no such file"),
        (["csbm", "--mmap", "."], "mmap = '.'"),
        (["csbm", "--method", "sage"], "level = 'k-neighbor'"),
        (["csbm", "--level", "none", "--epsilon", "8"], "epsilon = 8.0: level none protects nothing"),
        (["csbm", "--method", "mlp", "--delta", "5e-324"], "delta = 5e-324: must be at least"),
        (["csbm", "--method", "mlp", "--delta", "0.1"], "delta = 0.1: must be at most"),
        (["csbm", "--method", "mlp", "--cap-degrees", "--max-degree", "9"], "cap_degrees = True"),
        (["csbm", "--method", "mlp", "--public-edges", "7"], "public_edges = 7: the graph has more"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(run, words, message, tmp_path):
    out = tmp_path / "run"
    done = run("train", *words, "--out", out)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_tables_can_be_mapped_to_files(run, tmp_path):
    tables, files = tmp_path / "tables", tmp_path / "files"
    write_graph(csbm(0.5, n=300, f=6, seed=0), tables)
    files.mkdir()
    words = ("train", tables, "--seed", 0, "--steps", 3, "--json")
    mapped, usual = run(*words, "--mmap", files), run(*words)
    assert mapped.returncode == 0, mapped.stderr
    timed = ("seconds", "peak_memory_mb")
    assert [json.loads(done.stdout) | dict.fromkeys(timed) for done in (mapped, usual)] == [
        json.loads(usual.stdout) | dict.fromkeys(timed)
    ] * 2
    assert list(files.iterdir()) == []
    missing = run(*words, "--mmap", tmp_path / "nowhere")
    assert missing.returncode == 2
    assert missing.stderr.count("\n") == 1
    assert "nowhere': there is no such folder" in missing.stderr


@pytest.mark.slow
def test_ctrl_c_ends_cleanly(tmp_path, tmp_path_factory):
    out, kept = tmp_path / "run", tmp_path_factory.mktemp("kept") / "checkpoint"
    command = [sys.executable, "-m", "graphveil", "train", "csbm", "--steps", "100000", "--out", str(out)]
    command += ["--checkpoint", str(kept)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts in the background ignores Ctrl-C, and so would this process.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 120
        while not kept.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


def test_a_large_delta_is_a_warning_on_the_terminal_and_on_the_certificate(run, folder, tmp_path):
    words = ("train", folder, "--method", "mlp", "--seed", 0, "--steps", 2)
    done = run(*words, "--delta", "0.01", "--out", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("WARNING: delta 0.01 is more than 1 / 300")
    assert "WARNING: delta 0.01" in (tmp_path / "run" / "certificate.txt").read_text()
    assert json.loads(done.stdout)["certificate"]["warnings"]
    assert "WARNING" not in run(*words).stdout


def test_nothing_that_may_be_published_counts_the_edges(run, tmp_path):
    graph = csbm(0.5, n=300, f=6, d=9, seed=3)
    write_graph(graph, tmp_path / "graph.npz")
    words = ("train", tmp_path / "graph.npz", "--method", "gap", "--level", "edge", "--seed", 0, "--steps", 2)
    assert run(*words, "--public-edges", 54321, "--out", tmp_path / "run").returncode == 0
    published = [*(tmp_path / "run").glob("certificate.*"), *(tmp_path / "run" / "public").glob("*.[jm]*")]
    assert len(published) == 4
    for path in published:
        text = path.read_text()
        for count in (graph.num_edges, graph.num_edges // 2):
            assert not re.search(rf"(?<![\d.]){count}(?![\d.])", text), path
    assert "Declared: at most 54321 stored edges." in (tmp_path / "run" / "certificate.txt").read_text()


def without_features(path):
    """Two communities of people of whom nothing is known but links."""
    path.mkdir()
    labels = ["north", "south"] * 30
    (path / "nodes.csv").write_text("id,label\n" + "".join(f"p{i},{side}\n" for i, side in enumerate(labels)))
    pairs = [(i, (i + step) % 60) for i in range(60) for step in (2, 4, 6)]
    (path / "edges.csv").write_text("source,target\n" + "".join(f"p{a},p{b}\n" for a, b in pairs))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("auto", "--level", "k-neighbor"),
        ("auto", "--level", "edge"),
        ("dpdgc", "--level", "k-neighbor"),
        ("dpdgc", "--level", "k-neighbor", "--no-attributes"),
        ("dpdgc", "--level", "k-neighbor", "--table", "trained"),
        ("dpdgc", "--level", "node", "--max-degree", 9),
        ("dpdgc", "--level", "none"),
    ],
    ids=str,
)
def test_a_graph_without_features(run, tmp_path, words):
    path, out = without_features(tmp_path / "town"), tmp_path / "run"
    done = run("train", path, "--method", *words, "--steps", 3, "--seed", 0, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert result["certificate"]["facts"]["features"] == 0
    assert run("verify", out, "--no-audits").returncode == 0
    assert len((out / "predictions.csv").read_text().splitlines()) == 61


@pytest.mark.parametrize("method", ["mlp", "gap", "sage", "randedge", "dp-sage"])
def test_methods_that_need_features_say_so(run, tmp_path, method):
    level = {"sage": "none", "randedge": "edge"}.get(method, "k-neighbor")
    words = ["--max-degree", 9] if method in ("gap", "dp-sage") else []
    done = run("train", without_features(tmp_path / "town"), "--method", method, "--level", level, *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"features = 0: {method} learns from features; auto and dpdgc" in done.stderr
