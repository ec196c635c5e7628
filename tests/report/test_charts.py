from dataclasses import replace

import pytest

from graphveil.experiments import SPECS
from graphveil.report import charts_of, read_folder, write_report
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
    }
    text = write_report(tmp_path)[0].read_text()
    assert text.count("<section") == 5
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
