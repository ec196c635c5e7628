import json
import os
import signal
import subprocess
import sys
import time

import pytest

from graphveil.graph import csbm, write_graph


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "graph.npz"
    write_graph(csbm(0.5, n=300, f=6, seed=0), path)
    return path


def test_json_has_the_promised_keys(run_process, folder):
    done = run_process("train", folder, "--seed", 0, "--steps", 3, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result = json.loads(done.stdout)
    for key in ("test_accuracy", "val_accuracy", "epsilon", "delta", "seconds", "peak_memory_mb", "certificate"):
        assert key in result
    assert result["epsilon"] <= 8
    assert result["certificate"]["schema"].startswith("graphveil-certificate/")


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
