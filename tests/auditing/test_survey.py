"""The long table of audits: a row for each case, kept as soon as it is finished."""

import json

import pytest

from graphveil.auditing import survey
from graphveil.auditing.survey import Row
from graphveil.auditing.twins import TWINS
from graphveil.privacy.levels import Edge, KNeighbor, Public


@pytest.fixture
def few_rows(monkeypatch):
    def rows(graph, largest_degree):
        yield Row(graph, "mlp", KNeighbor(1), 4.0)
        yield Row(graph, "mlp", Public(), None)

    monkeypatch.setattr(survey, "rows", rows)


@pytest.mark.usefixtures("few_rows")
def test_the_page_says_how_it_was_made_and_a_second_call_goes_on(tmp_path, monkeypatch):
    page = survey.run(tmp_path, seed=3, quick=True)
    text = page.read_text()
    assert page.name == "quick.md"
    assert "`graphveil audit --all --quick --seed 3`" in text
    assert "toss 20,000 canaries." in text
    assert "Sound: 1 of 1 consistent. Broken: 0 of 0 flagged." in text
    monkeypatch.setattr(survey, "audit", lambda *_, **__: pytest.fail("a finished row is not repeated"))
    assert survey.run(tmp_path, seed=3, quick=True).read_text() == text
    lines = (tmp_path / "quick.jsonl").read_text().splitlines()
    assert [json.loads(line)["method"] for line in lines] == ["mlp", "mlp"]


def test_every_twin_has_a_row_and_no_row_is_there_twice():
    rows = list(survey.rows("csbm", 13))
    assert {row.twin for row in rows} == {None, *TWINS}
    assert len({row.key for row in rows}) == len(rows)
    assert Row("csbm", "auto", Edge(), 4.0) in rows
