"""The default's linear classifier of features, trained beside class sums."""

import pytest
import scipy.sparse as sp
import torch

import graphveil as gv
from graphveil.execution.sparse_rows import CsrRows
from graphveil.graph import csbm
from graphveil.methods import defaults, dpdgc
from graphveil.methods.linear_features import LinearClassifier, Trained, own_influence, shrink, train_linear
from graphveil.privacy.mechanisms import ByKind, ClippedTraining

# Of (x, 1), for rows of features that are scaled to norm 5.
LENGTHS = torch.full((30,), 26**0.5)


def planned(noise, steps=100):
    return ClippedTraining("features", ByKind(1, 0), noise, steps, "a test", role="features")


def logits_and_labels(rows=30, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, classes, generator=generator), torch.randint(classes, (rows,), generator=generator)


def test_own_influence_is_towards_the_label():
    logits, labels = logits_and_labels()
    moved = own_influence(logits, labels, LENGTHS, planned(40.0))
    assert (moved[torch.arange(len(labels)), labels] > 0).all()
    assert moved.sum(1).abs().max() < 1e-5
    length = defaults.OWN_INFLUENCE * defaults.LINEAR_RATE * 100 / 40 * 26**0.5
    assert moved.norm(dim=1) == pytest.approx(torch.full((30,), length), rel=1e-4)


def test_own_influence_depends_on_the_own_row_alone():
    logits, labels = logits_and_labels()
    before = own_influence(logits, labels, LENGTHS, planned(20.0))
    logits[3], labels[3] = 1e30, (labels[3] + 1) % 4
    after = own_influence(logits, labels, LENGTHS, planned(20.0))
    kept = torch.arange(30) != 3
    assert torch.equal(before[kept], after[kept])


def test_a_node_that_is_sure_of_its_label_stays_finite():
    sure = torch.tensor([[1e4, 0.0, 0.0]])
    assert not own_influence(sure, torch.tensor([0]), LENGTHS[:1], planned(20.0)).any()


def test_weights_that_noise_could_have_made_are_zero():
    model = LinearClassifier(torch.zeros(1, 4), 3)
    with torch.no_grad():
        model.out.weight.fill_(-0.9 * defaults.LINEAR_SHRINKAGE)
        model.out.weight[0, 0] = 2.0
    shrink(model, 1.0)
    assert float(model.out.weight[0, 0].detach()) == pytest.approx(2.0 - defaults.LINEAR_SHRINKAGE)
    assert int(model.out.weight.count_nonzero()) == 1


def test_it_is_trained_beside_scores_as_the_plan_says(monkeypatch):
    """Where the scores know the labels of the training nodes there is nothing left to learn."""
    graph = csbm(0.0, n=600, f=40, seed=0)
    right = {}
    for known in (0.0, 30.0):
        learnt = []

        def trained(data, base, *others, known=known, learnt=learnt):
            labels = torch.nn.functional.one_hot(data.target.labels, data.classes).float()
            learnt.append(train_linear(data, known * labels, *others))
            return learnt[-1]

        monkeypatch.setattr(dpdgc, "train_linear", trained)
        model = gv.Auto(gv.KNeighbor(1), 16.0, seed=0, show_progress=False).fit(graph)
        plan = model.certificate_.plan()
        assert learnt[0].planned == plan["first features"]
        assert learnt[0].mu == pytest.approx(
            2 * learnt[0].planned.steps ** 0.5 / plan["first features"].noise_multiplier
        )
        with torch.no_grad():
            right[known] = float((learnt[0].model(graph.features).argmax(1) == graph.labels).float().mean())
    assert right[0.0] > right[30.0] + 0.05


def test_two_trainings_are_joined_by_their_mu():
    like = torch.zeros(1, 4)
    both = []
    for value, noise in ((1.0, 20.0), (4.0, 40.0)):
        model = LinearClassifier(like, 3)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(value)
        both.append(Trained(model, planned(noise)))
    first, second = both
    assert (first.mu, second.mu) == (pytest.approx(1.0), pytest.approx(0.5))
    joined = first.joined(second)
    assert joined.planned == first.planned
    for parameter in joined.model.parameters():
        assert torch.allclose(parameter.detach(), torch.tensor((1.0 * 1 + 4.0 * 0.5) / 1.5))


def test_products_that_are_not_kept_are_the_same(monkeypatch):
    graph = csbm(0.0, n=400, f=6, seed=0)
    kept, again = (gv.Auto(gv.KNeighbor(1), 8.0, seed=0, steps=3) for _ in range(2))
    kept.fit(graph)
    monkeypatch.setattr("graphveil.methods.linear_features._MOST_BYTES", 1000)
    again.fit(graph)
    assert torch.equal(kept.logits_, again.logits_)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_row_of_logits_does_not_depend_on_the_other_rows(sparse):
    x = torch.randn(40_000, 5, generator=torch.Generator().manual_seed(0))
    model = LinearClassifier(x, 3)
    with torch.no_grad():
        model.out.weight.normal_(generator=torch.Generator().manual_seed(1))
        rows = CsrRows(sp.csr_array(x.numpy())) if sparse else x
        some = torch.arange(16_380, 33_001)
        assert torch.equal(model(rows)[some], model(rows[some]))
