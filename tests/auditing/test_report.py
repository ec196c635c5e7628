import math

import pytest

import graphveil as gv
from graphveil.auditing import Movement
from graphveil.auditing.report import draw_picture, picture_in_words
from support.audits import GRAPH


def test_movements_are_compared_with_claims():
    within = Movement("release", "random", 1.0, 1.0 + 1e-10, 10, 20)
    beyond = Movement("release", "random", 1.0, 1.0 + 1e-8, 10, 20)
    stopped = Movement("the fit", "not finite", 0.0, math.inf, 10, 20)
    assert [each.verdict for each in (within, beyond, stopped)] == ["consistent", "violated", "violated"]
    assert stopped.to_dict()["ratio"] is None
    assert Movement("head", "random", 0.0, 0.0, 10, 20).verdict == "consistent"


def test_pictures_have_words(tmp_path):
    pytest.importorskip("matplotlib")
    report = gv.audit("mlp", gv.KNeighbor(1), 4.0, graph=GRAPH, attacks=["gradient"], trials=1000, seed=1, steps=5)
    svg, png = draw_picture(report, tmp_path)
    assert "<desc" in svg.read_text()
    assert png.stat().st_size > 1000
    assert "ROC" in picture_in_words(report)
