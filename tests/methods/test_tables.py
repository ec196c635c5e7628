"""Tables of features, and how a head reads Z."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import graphveil as gv
from graphveil.execution.exact import Arithmetic
from graphveil.methods import decoupled, defaults
from graphveil.methods.networks import Fusion
from graphveil.methods.tables import Tables, in_noises


def test_z_in_units_of_its_noise_is_bounded_row_by_row():
    rows = torch.tensor([[0.0, 0.0], [2.0, -4.0], [300.0, 400.0]])
    found = in_noises(rows, 2.0)
    torch.testing.assert_close(found[:2], rows[:2] / 2)
    torch.testing.assert_close(found[2], defaults.LONGEST_ROW * torch.tensor([0.6, 0.8]))
    assert torch.equal(in_noises(rows[1:2], 2.0), found[1:2])


def test_where_nothing_is_drawn_its_unit_is_one():
    rows = torch.tensor([[1.0, -3.0]])
    assert torch.equal(in_noises(rows, 0.0), rows)


def test_a_head_starts_without_what_is_beside_the_directions():
    opinions, directions, beside = torch.randn(5, 3), torch.randn(5, 3), torch.randn(5, 3)
    found = Fusion(3, 6, beside=3)(opinions, torch.cat([directions, beside], dim=1))
    torch.testing.assert_close(found, opinions + directions)


def of_neighbors(own, nodes=1500, seed=0):
    """A graph whose labels say which sign the neighbours' first features have; with `own`, that of the node itself."""
    rng = np.random.default_rng(seed)
    links = sp.triu(sp.random_array((nodes, nodes), density=12 / nodes, rng=rng), 1)
    links = sp.csr_array((links + links.T) > 0, dtype=float)
    features = rng.choice([-1.0, 1.0], (nodes, 4))
    labels = ((features if own else links @ features)[:, 0] + 0.1 * rng.normal(size=nodes) > 0).astype(int)
    return gv.Graph.from_scipy(links, features, labels).with_split(seed)


def test_features_of_neighbors_are_read_where_own_ones_say_nothing():
    graph = of_neighbors(own=False)
    both = gv.Auto(gv.Edge(), 16.0, seed=0).fit(graph)
    labels = gv.DPDGC(gv.Edge(), 16.0, seed=0, table="labels").fit(graph)
    assert both.plan_["release"].table == "labels+attributes"
    assert both.score(graph.test_mask) > 0.75 > 0.6 > labels.score(graph.test_mask)
    widths = {"labels": 2, "attributes": 4}
    assert both.owner_parts(both.plan_)["table"].shape[1] == sum(widths.values())


def test_features_of_neighbors_are_left_out_where_own_ones_tell():
    model = gv.Auto(gv.Edge(), 4.0, seed=0, epochs=30).fit(of_neighbors(own=True))
    table = model._table
    assert table[:, :2].norm(dim=1).max() == pytest.approx(1, abs=1e-3)
    assert not table[:, 2:].any()
    graph = of_neighbors(own=False)
    table = gv.DPDGC(gv.Edge(), 4.0, seed=0, epochs=5, table="attributes").fit(graph)._table
    assert 0.9 < float(table.norm(dim=1).max()) <= 1


def test_a_table_of_features_alone_is_read():
    """Its release is paid for, whether or not features tell something about their own node."""
    model = gv.DPDGC(gv.Edge(), 4.0, seed=0, epochs=5, table="attributes").fit(of_neighbors(own=True))
    assert model._table.any(dim=0).all()
    assert model._released.any(dim=0).all()


def test_new_nodes_read_no_noise_of_columns_that_are_not_used():
    model = gv.Auto(gv.Edge(), 4.0, seed=0, epochs=5).fit(of_neighbors(own=True))
    read = []
    model._head.register_forward_pre_hook(lambda head, inputs: read.append(inputs[1]))
    model.predict_new(["a"], np.ones((1, 4)), [[0, 1, 2]], from_graph=True)
    unused = ~model._released.any(dim=0)
    assert int(unused.sum()) == 4
    assert not read[0][:, unused].any()
    assert read[0][:, ~unused].all()


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_the_scale_of_a_column_does_not_matter(size):
    """Squares of such numbers would leave the range of float32."""
    graph = of_neighbors(own=False)
    features = graph.features.clone()
    features[:, 0] *= size
    table = gv.DPDGC(gv.Edge(), 4.0, seed=0, epochs=2, table="attributes").fit(graph.replace(features=features))._table
    lengths = table.norm(dim=0)
    assert float(lengths.min()) > 0.9 * float(lengths.max())


def test_features_that_do_not_differ_take_no_room():
    graph = of_neighbors(own=False)
    alike = graph.replace(features=torch.full((graph.num_nodes, 3), 7.3))
    table = gv.Auto(gv.Edge(), 4.0, seed=0, epochs=5).fit(alike)._table
    assert table[:, :2].norm(dim=1).max() == pytest.approx(1, abs=1e-3)
    assert not table[:, 2:].any()


def test_one_node_with_huge_features_does_not_hide_the_graph():
    graph = of_neighbors(own=False)
    features = graph.features.clone()
    features[int(graph.test_mask.nonzero()[0])] = 3e38
    model = gv.Auto(gv.Edge(), 4.0, seed=0, epochs=5).fit(graph.replace(features=features))
    assert model._table.any(dim=1).all()
    assert model.logits_.isfinite().all()


def test_a_row_of_features_is_never_longer_than_the_release_promises():
    """The twin: rows as long as they are."""

    class AsLong(Arithmetic):
        def table(self, rows, norm, terms, *, stretch=False):
            return rows.float()

    class Unbounded(Tables):
        @property
        def attributes(self):
            return 3 * Tables.attributes.func(self)

    def longest(arithmetic, tables):
        graph = of_neighbors(own=False, nodes=400)
        features = graph.features.clone()
        features[3] = 50.0
        cls = type("Twin", (gv.DPDGC,), {"arithmetic": arithmetic})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decoupled, "Tables", tables)
            model = cls(gv.Edge(), 4.0, seed=0, epochs=3, table="labels+attributes")
            return float(model.fit(graph.replace(features=features))._table.norm(dim=1).max())

    assert longest(Arithmetic(), Tables) <= 1
    assert longest(Arithmetic(), Unbounded) <= 1  # rows are shortened once more where they are released
    assert longest(AsLong(), Unbounded) > 1.5


@pytest.mark.parametrize("level", [gv.KNeighbor(1), gv.KNeighbor(1, attributes=False), gv.Node(20)], ids=str)
def test_features_of_neighbors_are_for_level_edge(level):
    with pytest.raises(gv.InvalidInput, match="table = 'attributes': is for level edge"):
        gv.DPDGC(level, 4.0, seed=0, table="attributes").fit(of_neighbors(own=True))


def test_a_table_of_features_needs_some():
    graph = of_neighbors(own=True)
    bare = gv.Graph.from_scipy(graph.to_scipy(), None, graph.labels).with_split(0)
    with pytest.raises(gv.InvalidInput, match="needs features"):
        gv.DPDGC(gv.Edge(), 4.0, seed=0, table="attributes").fit(bare)
    assert gv.DPDGC(gv.Edge(), 4.0, seed=0, epochs=5).fit(bare).plan_["release"].table == "labels"
