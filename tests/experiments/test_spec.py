import pytest

from graphveil.errors import InvalidInput
from graphveil.experiments import SPECS, GraphRef, Run
from graphveil.privacy.levels import Edge, KNeighbor, Public


def test_identity_follows_every_field_and_no_path():
    run = Run(GraphRef("cora"), "dpdgc", KNeighbor(1), 16.0, "auto", 0, {"steps": 3})
    others = [
        Run(GraphRef("photo"), "dpdgc", KNeighbor(1), 16.0, "auto", 0, {"steps": 3}),
        Run(GraphRef("cora"), "mlp", KNeighbor(1), 16.0, "auto", 0, {"steps": 3}),
        Run(GraphRef("cora"), "dpdgc", KNeighbor(1, attributes=False), 16.0, "auto", 0, {"steps": 3}),
        Run(GraphRef("cora"), "dpdgc", KNeighbor(1), 8.0, "auto", 0, {"steps": 3}),
        Run(GraphRef("cora"), "dpdgc", KNeighbor(1), 16.0, 1e-5, 0, {"steps": 3}),
        Run(GraphRef("cora"), "dpdgc", KNeighbor(1), 16.0, "paper", 0, {"steps": 3}),
        Run(GraphRef("cora"), "dpdgc", KNeighbor(1), 16.0, "auto", 1, {"steps": 3}),
        Run(GraphRef("cora"), "dpdgc", KNeighbor(1), 16.0, "auto", 0, {"steps": 4}),
    ]
    assert len({run.key, *(other.key for other in others)}) == 9
    here, there = (Run(GraphRef("g", path, None, "c0ffee"), "mlp", Public(), None, "auto", 0) for path in ("a", "b"))
    assert here.key == there.key


def test_narrowing():
    spec = SPECS["table2"].narrowed(levels=["edge", "n5"], methods=["gap", "mlp"], seeds=3, unit="directed")
    runs = spec.runs()
    assert {run.level for run in runs} == {Edge("directed"), KNeighbor(5)}
    assert {run.method for run in runs} == {"gap", "mlp"}
    assert {run.seed for run in runs} == {0, 1, 2}
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert len(SPECS["figure-a"].narrowed(seeds=12).seeds) == 12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"methods": ["dpdgc", "magic"]}, "methods = 'magic': is not in this experiment; there are dpdgc, gap, sage"),
        ({"levels": ["N_7"]}, "levels = 'N_7': is not in this experiment; there are none, edge, N_1, N_5, N_25, node"),
        ({"seeds": 0}, "seeds = 0: must be at least 1"),
    ],
)
def test_narrowing_to_what_is_not_there(words, message):
    with pytest.raises(InvalidInput, match=message):
        SPECS["table2"].narrowed(**words)
