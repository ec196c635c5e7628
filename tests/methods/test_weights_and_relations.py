"""Where weights or relations carry the signal, reading them is worth more than ignoring them."""

import numpy as np
import pytest

import graphveil as gv

NODES, LINKS = 3000, 8


def graphs(seed, kind):
    """Links that do not depend on classes, with weights or relations that do; and the same links alone."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=NODES)
    x = (rng.normal(size=(NODES, 4)) + 0.25 * (2 * y - 1)[:, None]).astype(np.float32)
    ends = rng.integers(NODES, size=(2, NODES * LINKS // 2))
    pairs = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    same = y[pairs[0]] == y[pairs[1]]
    if kind == "weights":
        amounts = np.where(same, rng.uniform(60, 200, len(same)), rng.uniform(0, 30, len(same)))
        said = {"edge_weight": amounts, "max_weight": 100.0}
    else:
        names = np.where(same ^ (rng.random(len(same)) < 0.1), "friend", "rival")
        said = {"edge_relation": names, "relations": ["friend", "rival"]}
    for words in (said, {}):
        yield gv.Graph.from_edge_index(pairs, x, y, symmetrize=True, **words).with_split(seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "table", "kind"),
    [(gv.Auto, "auto", "weights"), (gv.DPDGC, "labels", "weights"), (gv.DPDGC, "labels", "relations")],
    ids=str,
)
def test_they_are_worth_reading(method, table, kind):
    gains = []
    for seed in range(2):
        scores = [
            method(level=gv.KNeighbor(1), epsilon=8.0, seed=seed, table=table).fit(graph).score(graph.test_mask)
            for graph in graphs(seed, kind)
        ]
        gains.append(scores[0] - scores[1])
    assert min(gains) > 0.07
