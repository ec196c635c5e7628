from dataclasses import replace

import pytest

from graphveil.experiments import SPECS, GraphRef
from graphveil.report import Chart, Point, Series, charts_of, read_folder, write_report
from graphveil.report.charts import calibration_chart
from support.results import write_paper, write_results


@pytest.mark.slow
def test_curves_are_drawn_where_the_runs_have_them(tmp_path):
    write_paper(tmp_path, seeds=2)
    kinds = {e.results.name: {chart.kind for chart in charts_of(e.results)} for e in read_folder(tmp_path)}
    seconds = "Accuracy against seconds"
    assert next(iter(kinds)) == "table2"
    assert kinds == {
        "table2": {"Accuracy against k", seconds},
        "figure-a": {"Accuracy against epsilon", seconds},
        "figure-b": {"Accuracy against epsilon", seconds},
        "figure-c": {"Accuracy against k", seconds},
        "figure-d": {"Accuracy against phi"},
        "field": {"Accuracy against epsilon", "Accuracy against k", seconds},
    }
    text = write_report(tmp_path)[0].read_text()
    assert text.count("<section") == 6
    assert text.count("About the paper") == 1


def test_a_sweep_in_a_table_is_drawn_beside_what_it_costs(tmp_path):
    spec = SPECS["figure-a"].narrowed(methods=["dpdgc"], seeds=1)
    public = replace(SPECS["table2"].settings[0], methods=("dpdgc",))
    write_results(tmp_path, replace(spec, axis="graph", settings=(*spec.settings, public)))
    curve = charts_of(read_folder(tmp_path)[0].results)[0]
    assert [(line.label, len(line.points), line.level_line) for line in curve.series] == [
        ("dpdgc (table = trained), edge", 6, False),
        ("dpdgc (table = auto), edge", 6, False),
        ("dpdgc, none", 1, True),
    ]


def test_a_chart_in_words_and_numbers():
    curve = Series("gap", "gap", (Point(1, 50.0, 49.0, 51.25, 3), Point(2, 60.0, 58.0, 62.0, 4, "N_1")))
    line = Series("mlp", "mlp", (Point(0, 40.0, 39.0, 41.0, 5),), level_line=True)
    chart = Chart("Accuracy", "name", "cora", "epsilon", "test accuracy (%)", (curve, line))
    assert chart.numbers() == [
        ["gap", "", "1", "50.00", "49.00 to 51.25", "3"],
        ["gap", "N_1", "2", "60.00", "58.00 to 62.00", "4"],
        ["mlp", "", "every", "40.00", "39.00 to 41.00", "5"],
    ]
    words = "test accuracy (%) against epsilon. gap: from 50.0 at 1 to 60.0 at 2. mlp: 40.0."
    assert chart.describe() == words
    single = replace(chart, series=(replace(curve, points=curve.points[:1]),))
    assert single.describe() == "test accuracy (%) against epsilon. gap: 50.0."


def test_calibration_is_drawn_in_percent(evaluation):
    (series,) = calibration_chart(evaluation).series
    assert len(series.points) == len(evaluation.bins) > 3
    for point, each in zip(series.points, evaluation.bins, strict=True):
        assert (point.x, point.mean) == (100 * each.confidence, 100 * each.accuracy)
        assert (point.low, point.high) == (100 * each.interval[0], 100 * each.interval[1])
        assert point.count == each.count


def test_titles_are_graphs_or_else_the_experiments(tmp_path):
    for name in ("figure-c", "figure-d"):
        write_results(tmp_path / name, SPECS[name].narrowed(seeds=1))
    titles = {e.results.name: charts_of(e.results)[0].title for e in read_folder(tmp_path)}
    assert titles == {"figure-c": "computers", "figure-d": SPECS["figure-d"].title}


def test_files_are_named_after_experiment_and_graph_whatever_they_are_called(tmp_path):
    names = {}
    for title in ("mine", "../..", "a b/c"):
        spec = SPECS["figure-c"].narrowed(seeds=1)
        graph = GraphRef(title, path="there", content="ab")
        write_results(tmp_path / "results", replace(spec, name=title, graphs=(graph,)))
    for experiment in read_folder(tmp_path):
        names[experiment.results.name] = charts_of(experiment.results)[0].name
    assert names == {"mine": "mine-k-mine", "../..": "-k-", "a b/c": "a-b-c-k-a-b-c"}
