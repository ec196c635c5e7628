from dataclasses import replace

import pytest

from graphveil.errors import InvalidInput
from graphveil.experiments import SPECS, make_tables, read_results
from support.results import record


@pytest.mark.parametrize(
    ("name", "titles", "columns", "blocks"),
    [
        ("figure-a", ["facebook"], ["0.5", "1", "2", "4", "8", "16"], ["edge"]),
        ("figure-b", ["facebook"], ["1", "2", "4", "8", "16"], ["N_1", "N_5", "N_25", "node (D = 100)"]),
        ("figure-c", ["computers"], ["1", "5", "10", "25", "50", "100"], ["N_k, epsilon = 16"]),
        (
            "figure-d",
            [""],
            ["-1", "-0.75", "-0.5", "-0.25", "0", "0.25", "0.5", "0.75", "1"],
            ["none", "N_1, epsilon = 16"],
        ),
    ],
)
def test_figures_have_what_they_sweep_across(name, titles, columns, blocks):
    spec = SPECS[name].narrowed(seeds=1)
    tables = make_tables([record(run, 0.5) for run in spec.runs()], spec.axis)
    assert [table.title for table in tables] == titles
    assert list(tables[0].columns) == columns
    assert list(dict.fromkeys(row.block for row in tables[0].rows)) == blocks


def test_variants_of_a_method_are_told_apart():
    runs = SPECS["figure-c"].narrowed(methods=["mlp"], seeds=1).runs()[:1]
    variants = [replace(runs[0], options={"steps": steps}) for steps in (10, 20)]
    (table,) = make_tables([record(run, 0.5) for run in variants], "k")
    assert [row.method for row in table.rows] == ["mlp (steps = 10)", "mlp (steps = 20)"]


def test_a_folder_without_results(tmp_path):
    with pytest.raises(InvalidInput, match="holds no results"):
        read_results(tmp_path)
