import pytest

from graphveil.errors import InvalidInput
from graphveil.privacy.levels import (
    Edge,
    KNeighbor,
    Node,
    Public,
    check_promise,
    check_size,
    describe,
    level_from_dict,
    level_of,
    level_to_dict,
    make_level,
    protects_attributes,
    with_unit,
)

# The combinations of the paper's Figure 1(c): topology by attributes.
EVERY_LEVEL = [
    Public(),
    Edge("undirected"),
    Edge("directed"),
    KNeighbor(0),
    KNeighbor(3),
    KNeighbor(3, attributes=False),
    Node(10),
    Node(10, attributes=False),
]


@pytest.mark.parametrize("level", EVERY_LEVEL, ids=str)
def test_json_form_is_read_back(level):
    assert level_from_dict(level_to_dict(level)) == level


@pytest.mark.parametrize("level", EVERY_LEVEL, ids=str)
def test_every_level_is_described_in_a_sentence(level):
    text = describe(level)
    assert text.endswith(".")
    assert ("features and labels are treated as public" in text) == (
        isinstance(level, Edge) or (isinstance(level, KNeighbor | Node) and not level.attributes)
    )


def test_attributes_are_an_independent_switch():
    assert [protects_attributes(level) for level in EVERY_LEVEL] == [False] * 3 + [True, True, False, True, False]


def test_the_unit_follows_the_declaration():
    assert with_unit(Edge(), directed=True) == Edge("directed")
    assert with_unit(Edge(), directed=False) == Edge("undirected")
    assert with_unit(Edge("directed"), directed=False) == Edge("directed")
    assert with_unit(KNeighbor(2), directed=False) == KNeighbor(2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KNeighbor(-1), "k = -1"),
        (lambda: KNeighbor(1.5), r"k = 1\.5"),
        (lambda: KNeighbor(0, attributes=False), "k = 0: with public attributes"),
        (lambda: Node(0), "max_degree = 0"),
        (lambda: Edge("both"), "unit = 'both'"),
        (lambda: make_level("galaxy"), "level = 'galaxy'"),
        (lambda: make_level("k-neighbor"), "k = None"),
        (lambda: make_level("node"), "max_degree = None"),
        (lambda: make_level("edge", k=2), "k = 2: belongs to level k-neighbor"),
        (lambda: make_level("node", max_degree=3, unit="directed"), "unit = 'directed'"),
        (lambda: make_level("edge", attributes=False), "attributes = False"),
        (lambda: check_size(KNeighbor(5), 5), "k = 5: must be less than the number of nodes"),
        (lambda: check_size(Node(5), 5), "max_degree = 5"),
        (lambda: check_promise(Node(5), 6), "max_degree = 5: the graph breaks this promise"),
    ],
)
def test_bad_levels_are_named(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_promises_that_hold_pass():
    check_promise(Node(5), 5)
    check_promise(KNeighbor(5), 10**6)
    check_size(KNeighbor(4), 5)


def test_names_of_levels_are_understood():
    assert [level_of("none"), level_of("edge"), level_of("node", 7)] == [Public(), Edge(), Node(7)]
    assert level_of(KNeighbor(3)) == KNeighbor(3)


@pytest.mark.parametrize(
    ("level", "message"),
    [
        (None, r"level = None: is missing; give Public\(\), Edge\(\), KNeighbor\(k=...\) or Node\(max_degree=...\)"),
        ("nodes", "level = 'nodes': must be one of none, edge, k-neighbor, node"),
        ("node", "max_degree = None"),
        ("k-neighbor", "k = None"),
        (5, "level = 5: is no level"),
        (Edge, "is no level"),
    ],
)
def test_what_is_no_level_is_refused(level, message):
    with pytest.raises(InvalidInput, match=message):
        level_of(level)


@pytest.mark.parametrize("attributes", [0, 1, None, "no"])
def test_attributes_are_private_or_public(attributes):
    for make in (lambda: KNeighbor(1, attributes=attributes), lambda: Node(3, attributes=attributes)):
        with pytest.raises(InvalidInput, match=r"attributes = .*: must be True or False"):
            make()
