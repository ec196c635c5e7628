import tomllib
from pathlib import Path

import pytest

from graphveil.errors import InvalidInput
from graphveil.experiments import SPECS, GraphRef, Run, builtin_spec
from graphveil.privacy.levels import Edge, KNeighbor, Node, Public


def test_table_2_has_the_rows_of_the_paper():
    runs = SPECS["table2"].narrowed(seeds=1).runs()
    runs = [run for run in runs if run.options.get("table", "trained") == "trained"]
    rows = dict.fromkeys((type(run.level), getattr(run.level, "k", None), run.epsilon, run.method) for run in runs)
    assert len(runs) == 21 * 7
    assert list(rows) == [
        *((Public, None, None, method) for method in ("dpdgc", "gap", "sage", "mlp")),
        *((Edge, None, 1.0, method) for method in ("dpdgc", "gap", "randedge", "mlp")),
        *((KNeighbor, k, 16.0, method) for k in (1, 5, 25) for method in ("dpdgc", "gap", "mlp")),
        *((Node, None, 16.0, method) for method in ("dpdgc", "gap", "dp-sage", "mlp")),
    ]


def test_the_degree_promise_is_made_where_a_method_needs_it():
    for run in SPECS["table2"].narrowed(seeds=1).runs():
        at_node = isinstance(run.level, Node)
        needed = at_node or (run.method == "gap" and isinstance(run.level, KNeighbor))
        assert run.options.get("cap_degrees", False) == needed
        assert run.level.max_degree == 100 if at_node else run.options.get("max_degree") == (100 if needed else None)


def test_the_papers_experiments_keep_its_delta():
    for spec in SPECS.values():
        assert {setting.delta for setting in spec.settings} == {"paper"}
    for path in sorted((Path(__file__).parents[2] / "docs" / "results").glob("*/*.toml")):
        settings = tomllib.loads(path.read_text(encoding="utf-8"))["settings"]
        assert {setting["delta"] for setting in settings} == {"paper"}, path


def test_figures_sweep_what_their_captions_say():
    assert {run.epsilon for run in SPECS["figure-a"].runs()} == {0.5, 1, 2, 4, 8, 16}
    assert {run.level for run in SPECS["figure-b"].runs()} == {KNeighbor(1), KNeighbor(5), KNeighbor(25), Node(100)}
    assert {(run.graph.name, run.epsilon) for run in SPECS["figure-c"].runs()} == {("computers", 16.0)}
    names = [graph.name for graph in SPECS["figure-d"].graphs]
    assert names == [f"csbm:{phi}" for phi in ("-1", "-0.75", "-0.5", "-0.25", "0", "0.25", "0.5", "0.75", "1")]
    assert {run.method for run in SPECS["figure-d"].runs()} == {"mlp", "dpdgc"}


def test_runs_that_two_experiments_share_have_one_identity():
    table = {run.key for run in SPECS["table2"].runs()}
    figure = {run.key for run in SPECS["figure-b"].runs() if run.epsilon == 16 and isinstance(run.level, Node)}
    assert figure
    assert figure <= table


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


def test_an_unknown_experiment():
    with pytest.raises(InvalidInput, match=r"experiment = 'table3': must be one of table2, figure-a"):
        builtin_spec("table3")
