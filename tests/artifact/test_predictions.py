"""New nodes: one draw for each, whoever asks, however often; more only if it is paid for."""

import multiprocessing
import re
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save as tensor_bytes

import graphveil as gv
from graphveil import artifact
from graphveil.artifact.contents import JOURNAL
from graphveil.artifact.predictions import FolderAnswers, Probabilities, read_new_nodes
from graphveil.graph.summary import FeatureColumn, Naming
from graphveil.methods import new_nodes
from graphveil.methods.new_nodes import epsilon_with
from support.artifacts import GRAPH, NEW, fitted

FORK = multiprocessing.get_context("fork")


def ask(folder, answers, ready):
    model = gv.load(folder)
    ready.wait()
    answers.put(model.predict_new(["x"], [[1.0] * 8], [[1, 2]]))


def asked_by_processes(folder, count):
    answers = FORK.SimpleQueue()
    ready = FORK.Barrier(count)
    processes = [FORK.Process(target=ask, args=(folder, answers, ready)) for _ in range(count)]
    for process in processes:
        process.start()
    rows = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    return np.stack(rows)


def test_processes_at_the_same_time_get_one_answer(folder, monkeypatch):
    compute = new_nodes._answers

    def slowly(*words):
        time.sleep(0.2)  # everybody else asks while this one is busy
        return compute(*words)

    monkeypatch.setattr(new_nodes, "_answers", slowly)
    answers = asked_by_processes(folder, 6)
    assert (answers == answers[0]).all()
    assert (folder / JOURNAL).read_text().count('"node": "x"') == 1


def test_a_twin_that_draws_again_is_caught(folder, monkeypatch):
    """The check above sees an artifact that forgets what it has answered."""

    @contextmanager
    def forgetful(self):
        self._last.clear()
        yield

    monkeypatch.setattr(FolderAnswers, "opened", forgetful)
    monkeypatch.setattr(FolderAnswers, "add", lambda self, answers: self._note(answers))
    answers = asked_by_processes(folder, 6)
    assert len(np.unique(answers[:, 0, 0])) == 6


def test_a_forked_source_does_not_repeat_its_noise(folder):
    model = gv.load(folder)
    model.fitted_.answers = type(model.fitted_.answers).__mro__[1]()  # kept in memory, so that both sides draw
    answers = FORK.SimpleQueue()

    def draw():
        answers.put(model.predict_new(["y"], [[1.0] * 8], [[1]]))

    child = FORK.Process(target=draw)
    child.start()
    theirs = answers.get()
    child.join()
    draw()
    assert not np.array_equal(theirs, answers.get())


def test_other_data_is_refused_unless_it_is_paid_for(tmp_path):
    model = fitted()
    twice = epsilon_with(model.plan_, "release", 2)
    assert twice > model.certificate_.epsilon
    model.save(tmp_path / "run", budget=twice + 1e-6)
    first = model.predict_new(**NEW)
    changed = {**NEW, "neighbors": [[1, 2], []]}
    with pytest.raises(gv.InvalidInput, match="answered before with other data"):
        model.predict_new(**changed)
    model = gv.load(tmp_path / "run")
    second = model.predict_new(**changed, update=True)
    assert not np.array_equal(second[0], first[0])
    assert np.array_equal(second[1], first[1])
    assert model.epsilon_spent == gv.load(tmp_path / "run").epsilon_spent == twice
    # Another node's second row joins the second table.
    model.predict_new(["ben"], [[0.5] * 8], [[7]], update=True)
    assert model.epsilon_spent == twice
    with pytest.raises(gv.BudgetExceeded, match="release 3 of release"):
        gv.load(tmp_path / "run").predict_new(**NEW, update=True)
    assert np.array_equal(gv.load(tmp_path / "run").predict_new(["anna"], NEW["features"][:1], [[1, 2]]), second[:1])


def test_without_a_budget_nothing_is_paid_for(folder):
    with pytest.raises(gv.BudgetExceeded):
        gv.load(folder).predict_new(["anna"], [[1.0] * 8], [[5]], update=True)
    model = fitted()
    model.predict_new(**NEW)
    with pytest.raises(gv.BudgetExceeded):
        model.predict_new(["anna"], [[1.0] * 8], [[5]], update=True)


def test_what_draws_no_noise_costs_nothing(tmp_path):
    mlp = fitted("mlp")
    mlp.save(tmp_path / "mlp")
    mlp.predict_new(**NEW)
    mlp.predict_new(["anna"], [[2.0] * 8], [[5]], update=True)
    assert mlp.epsilon_spent == mlp.certificate_.epsilon
    own = fitted()
    own.predict_new(**NEW, from_graph=False)
    own.predict_new(["anna"], [[2.0] * 8], [[5]], from_graph=False, update=True)
    own.predict_new(["anna"], [[2.0] * 8], [[5]], update=True)  # the first draw of this row
    assert own.epsilon_spent == own.certificate_.epsilon


@pytest.mark.parametrize("method", ["dpdgc", "gap", "dp-sage"])
def test_readers_are_counted_across_processes(method, tmp_path):
    counts = np.bincount(GRAPH.indices, minlength=120)
    busiest, bound = int(counts.argmax()), int(counts.max()) + 2  # two of them reserved
    fitted(method, gv.Node(bound)).save(tmp_path / "run")
    for name in ("a", "b"):
        gv.load(tmp_path / "run", graph=GRAPH).predict_new([name], [[1.0] * 8], [[busiest]])
    with pytest.raises(gv.InvalidInput, match=r"reserved_readers = 2: .* and 3 would read one"):
        gv.load(tmp_path / "run", graph=GRAPH).predict_new(["c"], [[1.0] * 8], [[busiest]])
    # Asking again is no new reader.
    gv.load(tmp_path / "run", graph=GRAPH).predict_new(["a"], [[1.0] * 8], [[busiest]])


def test_each_table_has_its_own_readers(tmp_path):
    counts = np.bincount(GRAPH.indices, minlength=120)
    busiest, bound = int(counts.argmax()), int(counts.max()) + 1
    model = fitted("dpdgc", gv.Node(bound), reserved_readers=1)
    model.save(tmp_path / "run", budget=50.0)
    model.predict_new(["a"], [[1.0] * 8], [[busiest]])
    model.predict_new(["a"], [[2.0] * 8], [[busiest]], update=True)
    with pytest.raises(gv.InvalidInput, match="reserved_readers = 1"):
        model.predict_new(["b"], [[1.0] * 8], [[busiest]])


def test_what_was_never_shown_is_overwritten(folder):
    with (folder / JOURNAL).open("ab") as file:
        file.write(b'{"node": "torn", "ques')
    answer = gv.load(folder).predict_new(["z"], [[1.0] * 8], [[3]])
    assert np.array_equal(gv.load(folder).predict_new(["z"], [[1.0] * 8], [[3]]), answer)
    assert b"torn" not in (folder / JOURNAL).read_bytes()


def test_a_journal_that_lost_answers_is_an_error(folder):
    model = gv.load(folder)
    lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    (folder / JOURNAL).write_bytes(lines[0])
    for ask_again in (lambda: gv.load(folder), lambda: model.predict_new(["q"], [[1.0] * 8], [[3]])):
        with pytest.raises(gv.InvalidInput, match="it was cut off"):
            ask_again()


def test_a_new_node_may_read_nobody(folder):
    assert gv.load(folder).predict_new(["alone"], [[1.0] * 8], [[]]).shape == (1, 2)


def test_no_new_nodes_is_an_empty_answer(folder):
    assert gv.load(folder).predict_new([], np.zeros((0, 8)), []).shape == (0, 2)


def test_a_journal_that_was_changed_since_it_was_read(folder):
    model = gv.load(folder)
    length = (folder / JOURNAL).stat().st_size
    gv.load(folder).predict_new(["x"], [[1.0] * 8], [[1, 2]])
    data = bytearray((folder / JOURNAL).read_bytes())
    data[length + 12] ^= 1
    (folder / JOURNAL).write_bytes(data)
    with pytest.raises(gv.InvalidInput, match="is not what the manifest states: it was changed"):
        model.predict_new(["y"], [[1.0] * 8], [[1, 2]])


FACTS = gv.PublicFacts(nodes=120, train_nodes=90, features=3, classes=2)
COLUMNS = Naming(columns=(FeatureColumn("age", "numeric"), FeatureColumn("job", "categorical", 2, ("baker", "smith"))))


def test_new_nodes_in_a_table(tmp_path):
    (tmp_path / "new.csv").write_text("job,id,neighbors,age\nsmith,zoe,3 17,1.5\nbaker,yan,,2\n")
    new = read_new_nodes(tmp_path / "new.csv", COLUMNS, FACTS)
    assert (new.ids, new.neighbors) == (["zoe", "yan"], [[3, 17], []])
    assert new.features.tolist() == [[1.5, 0, 1], [2, 1, 0]]


@pytest.mark.parametrize(
    ("naming", "table", "message"),
    [
        (Naming(), "id,neighbors,a,b\nzoe,,1,2\n", "columns = 2: must be 3 features beside id and neighbors"),
        (COLUMNS, "id,neighbors,age,job,more\nzoe,,1,smith,2\n", "columns = 'more': is no feature of this model"),
        (COLUMNS, "id,neighbors,age,job\nzoe,,1,clown\n", "row 1, column 'job' = 'clown': is not one of the"),
        (COLUMNS, "id,neighbors,age,job\nzoe,,old,smith\n", "row 1, column 'age' = 'old': must be a number"),
        (COLUMNS, "id,neighbors,job\nzoe,,smith\n", "there is no column 'age'"),
    ],
)
def test_tables_that_do_not_fit_the_model(tmp_path, naming, table, message):
    (tmp_path / "new.csv").write_text(table)
    with pytest.raises(gv.InvalidInput, match=message):
        read_new_nodes(tmp_path / "new.csv", naming, FACTS)


def test_rows_of_probabilities_are_those_of_all(folder):
    model = gv.load(folder)
    new = [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]]
    whole = np.concatenate([model.predict_proba(), np.array(new, np.float32)])
    rows = Probabilities(model.logits_, model.probabilities, new)
    assert rows.shape == whole.shape
    old = len(whole) - len(new)
    for first, last in ((0, len(whole)), (3, 4), (old - 1, old + 1), (old + 1, old + 9), (old, old)):
        assert np.array_equal(rows[first:last], whole[first:last])


def test_a_loaded_run_is_mapped(tmp_path):
    """What is not asked for stays on the disk: 64 MB of logits take far less memory."""
    nodes = 2**23
    tensors = {"logits": torch.zeros(nodes, 2), "sparse": torch.zeros(1, dtype=torch.uint8)}
    path = tmp_path / "large.safetensors"
    path.write_bytes(tensor_bytes(tensors))
    del tensors

    def anonymous():
        return int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[1])

    start = anonymous()
    found = artifact._tensors(path)
    assert float(found["logits"][nodes - 1].sum()) == 0
    assert anonymous() - start < 20_000
