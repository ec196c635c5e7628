"""Certificates, plans and models in notebooks: complete, safe, and without anything that is loaded or executed."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import graphveil as gv
from graphveil.graph import csbm

GRAPH = csbm(0.5, n=200, f=6, d=4, seed=2)
K1 = gv.KNeighbor(1)


@pytest.fixture(scope="module")
def model():
    return gv.MLP(K1, 4.0, seed=12345, steps=3).fit(GRAPH)


class Balanced(HTMLParser):
    """Counts tags, which must all be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def shown(thing):
    page = Balanced(thing._repr_html_())
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "img", "iframe", "style")
        assert not any(name.startswith("on") or name in ("src", "href") for name in attributes)
        # Colours of its own would be unreadable on a dark page, or on a light one.
        style = attributes.get("style", "")
        assert not re.search(r"#[0-9a-f]{3,6}|url\(", style)
        assert set(re.findall(r"(?:^|;)(?:color|background):([^;]+)", style)) <= {"inherit", "transparent"}
    return " ".join(" ".join(page.texts).split())


def test_a_certificate_is_all_there(model):
    text = shown(model.certificate_)
    for line in str(model.certificate_).splitlines()[1:]:
        assert " ".join(line.strip().removeprefix("- ").split()) in text


def test_a_plan_lists_all_of_its_mechanisms():
    plan = gv.Auto(K1, 8.0).plan(GRAPH)
    text = shown(plan)
    for mechanism in plan.all_mechanisms:
        assert mechanism.name in text
        assert mechanism.describe_noise() in text
    assert f"epsilon {plan.epsilon:.4g} at delta {plan.delta:.3g}" in text
    assert "no guarantee" in shown(gv.MLP(gv.Public()).plan(GRAPH))
    assert "draws nothing" in shown(gv.MLP(gv.Edge(), 1.0).plan(GRAPH))


def test_a_model_before_and_after_its_fit(model):
    before = gv.MLP(K1, 4.0, seed=12345, steps=3)
    assert "not fitted yet" in shown(before)
    text = shown(model)
    assert "steps 3" in text
    assert "right with probability at most" in text
    assert "12345" not in text, "whoever knows the seed can subtract the noise"
    assert "hidden" not in text, "defaults are left out"


def test_names_cannot_break_out_of_the_page(model):
    evil = replace(model.certificate_, learnt=("<script>alert(1)</script> & more",))
    assert "<script>alert(1)</script> & more" in shown(evil)
    assert "<script" not in evil._repr_html_()


def test_a_search_shows_its_candidates():
    search = gv.PrivateSearch(gv.MLP(K1, steps=3), {"clip": [0.5, 1.0]}, epsilon=6.0, seed=0)
    plan = shown(search.plan(GRAPH))
    assert "MLP, MLP" in shown(search)
    assert "not fitted yet" in shown(search)
    assert "another candidate (mlp)" in plan
    assert "the choice" in plan
    assert "for all 2 candidates of a search" in shown(search.fit(GRAPH))
