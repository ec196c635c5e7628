import json
import math

import pytest

from graphveil import experiments
from graphveil.errors import InvalidInput
from graphveil.experiments import Spec, execution, read_spec, run_spec
from graphveil.privacy.certificate import Certificate
from graphveil.storage import read_journal

# Time, memory and date are measured; everything else must be a function of the run.
MEASURED = ("seconds", "total_seconds", "peak_memory_mb", "finished")


@pytest.fixture
def go(spec_path):
    def go(**options):
        return run_spec(read_spec(spec_path), spec_path.parent / "out", **{"jobs": 1, "threads": 1} | options)

    return go


@pytest.fixture
def lines(spec_path):
    return lambda: read_journal(spec_path.parent / "out" / "runs.jsonl")


@pytest.fixture
def count_runs(monkeypatch):
    """The keys of runs that were really made."""
    made, measure = [], execution._measure

    def counted(run, root):
        made.append(run.key)
        return measure(run, root)

    monkeypatch.setattr(execution, "_measure", counted)
    return made


def test_a_line_says_everything(go, lines):
    assert go().done == 6
    assert len(lines()) == 6
    private = [line for line in lines() if line["run"]["level"]["name"] == "k-neighbor"]
    for line in private:
        assert {"key", "run", "class_f1", "val_accuracy", "seconds", "versions", "threads"} <= set(line)
        assert 0 <= line["test_accuracy"] <= 1
        assert line["macro_f1"] == pytest.approx(sum(line["class_f1"]) / 2)
        assert line["peak_memory_mb"] > 50
        certificate = Certificate.from_json(json.dumps(line["certificate"]))
        assert 7.9 < certificate.epsilon <= 8
        assert certificate.delta == line["delta"] == 1e-4, "by the 200 nodes"
        assert line["run"]["delta"] == "auto"
        assert line["run"]["options"] == {"steps": 3, "epochs": 3, "hidden": 8}
    public = [line for line in lines() if line["run"]["level"]["name"] == "none"]
    assert all(math.isinf(Certificate.from_json(json.dumps(line["certificate"])).epsilon) for line in public)


def test_a_second_call_does_nothing_again(go, lines, count_runs):
    assert go().new == 6
    before = lines()
    again = go()
    assert (again.runs, again.done, again.failed, again.new) == (6, 6, 0, 0)
    assert lines() == before
    assert len(count_runs) == len(set(count_runs)) == 6


def test_a_kill_loses_the_run_in_flight_and_no_other(go, lines, count_runs, spec_path, capsys):
    class Killed(BaseException):
        pass

    def kill(run):
        if len(count_runs) == 4:
            raise Killed

    measure = execution._measure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "_measure", lambda run, root: kill(run) or measure(run, root))
        with pytest.raises(Killed):
            go()
    kept = lines()
    assert len(kept) == 4
    # The fifth line was on its way when the process was killed.
    with (spec_path.parent / "out" / "runs.jsonl").open("a") as file:
        file.write('{"key": "0123", "run": {"gra')
    assert go().new == 2
    assert "dropped a last line" in capsys.readouterr().err
    assert lines()[:4] == kept
    assert len(lines()) == 6
    assert len(count_runs) == len(set(count_runs)) == 6


def test_a_failed_run_is_recorded_and_stops_nobody(go, lines, monkeypatch):
    measure = execution._measure

    def sometimes(run, root):
        if run.method == "dpdgc":
            raise MemoryError("no room\nfor W")
        return measure(run, root)

    monkeypatch.setattr(execution, "_measure", sometimes)
    progress = go()
    assert (progress.done, progress.failed) == (4, 2)
    errors = [line["error"] for line in lines() if line["status"] == "failed"]
    assert errors == [{"kind": "MemoryError", "message": "no room for W"}] * 2
    monkeypatch.setattr(execution, "_measure", measure)
    assert (go().failed, go().new) == (2, 0)
    retried = go(retry_failed=True)
    assert (retried.done, retried.failed, retried.new) == (6, 0, 2)


@pytest.mark.slow
def test_results_follow_from_the_run_alone(go, lines, spec_path):
    go()
    first = lines()
    (spec_path.parent / "out" / "runs.jsonl").unlink()
    # In other processes and in another order of finishing.
    go(jobs=2)
    second = sorted(lines(), key=lambda line: [old["key"] for old in first].index(line["key"]))
    assert [_pure(line) for line in first] == [_pure(line) for line in second]
    assert len({line["probabilities"] for line in first}) == 6


def _pure(line):
    return {key: value for key, value in line.items() if key not in MEASURED}


def test_experiments_in_one_folder_share_their_runs(go, spec_path, count_runs):
    go()
    text = spec_path.read_text().replace('name = "small"', 'name = "larger"').replace("seeds = 2", "seeds = 3")
    spec_path.write_text(text)
    assert go().new == 3
    assert len(count_runs) == 9


def test_finished_runs_of_other_code_are_kept_and_mentioned(go, lines, monkeypatch, capsys):
    go()
    capsys.readouterr()
    assert go().new == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(experiments, "code_digest", lambda: "another")
    assert go().new == 0
    assert "note: 6 finished runs were made by other code" in capsys.readouterr().err


def test_the_papers_delta_counts_training_nodes_and_stored_edges(spec_path, tiny):
    spec_path.write_text(
        'graphs = ["tiny.npz"]\nseeds = 1\noptions.steps = 2\noptions.epochs = 2\n'
        '[[settings]]\nlevel = "edge"\nepsilon = 1\nmethods = ["gap"]\ndelta = "paper"\n'
        '[[settings]]\nlevel = "k-neighbor"\nk = 1\nepsilon = 1\nmethods = ["mlp"]\ndelta = "paper"\n'
        '[[settings]]\nlevel = "edge"\nepsilon = 1\nmethods = ["gap"]\n'
    )
    out = spec_path.parent / "out"
    run_spec(read_spec(spec_path), out, jobs=1, threads=1)
    edge, node, hidden = read_journal(out / "runs.jsonl")
    certificate = edge["certificate"]
    assert certificate["facts"]["edges"] == tiny.num_edges
    assert certificate["delta"] == edge["delta"] == float(f"1e-{len(str(tiny.num_edges))}")
    assert edge["run"]["delta"] == node["run"]["delta"] == "paper"
    assert node["delta"] == 1e-3, "150 training nodes"
    assert certificate["level"]["unit"] == "undirected"
    assert hidden["certificate"]["facts"]["edges"] is None
    assert hidden["delta"] == 1e-6, "200 * 199 possible edges"


def test_nothing_to_run(go, tmp_path):
    with pytest.raises(InvalidInput, match="has no runs left"):
        run_spec(Spec("empty", "Empty", graphs=(), settings=()), tmp_path)
    with pytest.raises(InvalidInput, match="jobs = 0"):
        go(jobs=0)


def test_progress_in_a_pipe_is_one_line_for_each_run(go, capsys, monkeypatch):
    measure = execution._measure

    def sometimes(run, root):
        if run.method == "dpdgc":
            raise MemoryError("no room")
        return measure(run, root)

    monkeypatch.setattr(execution, "_measure", sometimes)
    go()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("]")[0] for line in lines] == [f"[{number}/6" for number in range(1, 7)]
    assert sum("failed, MemoryError: no room" in line for line in lines) == 2
    assert sum(" % in " in line for line in lines) == 4
