"""Every broken twin is flagged by the attack that it names, and its sound sibling is not."""

import pytest

from graphveil.auditing import TWINS, audit
from graphveil.graph import csbm

GRAPH = csbm(0.5, n=400, f=10, seed=0)
ON_MECHANISMS = [twin for twin in TWINS.values() if twin.attack not in ("end-to-end", "arithmetic")]
END_TO_END = [twin for twin in TWINS.values() if twin.attack == "end-to-end"]


def run(twin, **options):
    return audit(twin.method, graph=GRAPH, twin=twin, attacks=[twin.attack], seed=1, **options)


@pytest.mark.parametrize("twin", ON_MECHANISMS, ids=lambda twin: twin.name)
def test_a_broken_mechanism_is_flagged(twin):
    assert run(twin, trials=20_000, steps=10).verdict == "violated"


@pytest.mark.parametrize("twin", ON_MECHANISMS, ids=lambda twin: twin.name)
def test_its_sound_sibling_is_not(twin):
    options = {"steps": 10} | dict(twin.options)
    report = audit(
        twin.method, twin.level, twin.epsilon, graph=GRAPH, attacks=[twin.attack], trials=20_000, seed=1, **options
    )
    assert report.verdict == "consistent"


@pytest.mark.slow
@pytest.mark.parametrize("twin", END_TO_END, ids=lambda twin: twin.name)
def test_a_broken_method_is_flagged_end_to_end(twin):
    report = run(twin, fits=80)
    assert report.verdict == "violated"
    if twin.name == "published":
        assert report.claimed_epsilon == 1.0
        assert report.lower_bound > 5.0


def test_the_published_mistakes_are_among_them():
    assert set(TWINS) >= {
        "published",
        "square-root-group",
        "one-neighbourhood",
        "halved-noise",
        "redrawn-noise",
        "best-epoch",
        "shifted-labels",
        "centred-rows",
    }
