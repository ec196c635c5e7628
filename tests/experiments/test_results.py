from dataclasses import replace

import numpy as np
import pytest

from graphveil.errors import InvalidInput
from graphveil.experiments import SPECS, figure_text, make_tables, read_results
from graphveil.experiments.results import Cell, bootstrap
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


def test_the_best_is_the_best_by_the_chosen_score():
    runs = SPECS["figure-c"].narrowed(seeds=1).runs()
    two = [next(run for run in runs if run.method == method) for method in ("dpdgc", "mlp")]
    records = [
        {**record(run, accuracy), "average_precision": precision}
        for run, accuracy, precision in zip(two, (0.9, 0.8), (0.2, 0.6), strict=True)
    ]
    for metric, best in (("accuracy", "dpdgc"), ("average_precision", "mlp")):
        (table,) = make_tables(records, "k", metric)
        assert [row.method for row in table.rows if row.cells["1"].best] == [best]
    # The paper's figures are accuracies, and records of earlier versions have no other score.
    assert all(row.cells["1"].paper is None for row in table.rows)
    assert make_tables([record(run, 0.5) for run in two], "k", "auc") == []


def test_a_folder_without_results(tmp_path):
    with pytest.raises(InvalidInput, match="holds no results"):
        read_results(tmp_path)


def test_the_interval_covers_the_mean_and_does_not_change():
    values = np.random.default_rng(0).normal(80, 2, size=10).tolist()
    interval = bootstrap(values)
    assert interval == bootstrap(values)
    assert interval.low < interval.mean < interval.high
    # The normal approximation of the same interval.
    assert interval.half_width == pytest.approx(1.96 * np.std(values) / np.sqrt(10), rel=0.1)


def test_few_seeds_are_not_taken_for_certain():
    """Student's t covers the true mean 19 times in 20; resampling two values covers it half of the time."""
    draw = np.random.default_rng(3)
    for count in (2, 3, 4):
        pairs = draw.normal(80, 2, size=(2000, count))
        covered = [interval.low <= 80 <= interval.high for interval in map(bootstrap, pairs.tolist())]
        assert np.mean(covered) == pytest.approx(0.95, abs=0.015)
    assert bootstrap([80.0]).count == 1


def test_intervals_that_say_nothing_have_no_width():
    assert figure_text(Cell(bootstrap([20.0, 80.0]))) == "50.00 ± over 50"
    assert figure_text(Cell(bootstrap([60.0, 61.0]))) == "60.50 ± 6.35"
