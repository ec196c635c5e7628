import pytest

from graphveil.errors import InvalidInput
from graphveil.experiments import read_spec
from graphveil.graph import write_graph
from graphveil.privacy.levels import Edge, KNeighbor, Node, Public

WHOLE = """\
title = "Ours"
graphs = [
    "cora",
    "csbm:0.50",
    { path = "tiny.npz", name = "ours", directed = false },
]
seeds = [3, 1]
axis = "k"
metric = "macro_f1"
[options]
steps = 20

[options.gap]
max_degree = 50
cap_degrees = true

[[settings]]
level = "none"
methods = ["sage"]

[[settings]]
level = "k-neighbor"
k = [1, 5]
attributes = false
epsilon = [
    4,
    16.0,
]
delta = 1e-5
methods = ["dpdgc", "gap"]
options.dpdgc = { steps = 7, shares = { embedding = 0.5, release = 0.5 } }

[[settings]]
level = "node"
max_degree = 10
epsilon = 2
methods = ["mlp"]

[[settings]]
level = "edge"
unit = "directed"
epsilon = 1
methods = [
    "randedge",
    "mlp",
]
[settings.options]
epochs = 9
"""


@pytest.fixture
def read(spec_path):
    """Write a text beside the small graph and read it as a spec."""

    def read(text):
        path = spec_path.with_name("mine.toml")
        path.write_text(text)
        return read_spec(path)

    return read


def test_everything_that_can_be_said(read):
    spec = read(WHOLE)
    assert (spec.name, spec.title, spec.seeds, spec.axis, spec.metric) == ("mine", "Ours", (3, 1), "k", "macro_f1")
    assert [graph.name for graph in spec.graphs] == ["cora", "csbm:0.5", "ours"]
    assert spec.graphs[2].directed is False
    none, neighbors, node, edge = spec.settings
    assert none.levels == (Public(),)
    assert neighbors.levels == (KNeighbor(1, attributes=False), KNeighbor(5, attributes=False))
    assert neighbors.epsilons == (4.0, 16.0)
    assert neighbors.delta == 1e-5
    assert node.delta == "auto"
    assert neighbors.options_of("dpdgc") == {"steps": 7, "shares": {"embedding": 0.5, "release": 0.5}}
    assert neighbors.options_of("gap") == {"steps": 20, "max_degree": 50, "cap_degrees": True}
    assert node.levels == (Node(10),)
    assert edge.levels == (Edge("directed"),)
    assert edge.options_of("mlp") == {"steps": 20, "epochs": 9}
    assert len(spec.runs()) == 2 * 3 * (1 + 8 + 1 + 2)


def test_another_content_makes_another_run(spec_path, tiny):
    before = read_spec(spec_path).runs()[0]
    write_graph(tiny.with_split(5), spec_path.with_name("tiny.npz"), overwrite=True)
    after = read_spec(spec_path).runs()[0]
    assert before.graph.name == after.graph.name
    assert before.key != after.key


# What to replace in the text above, by what, the line that the error must name, and what it must say.
MISTAKES = [
    ('title = "Ours"', "title = 3", 1, "title = 3"),
    ('title = "Ours"', 'titel = "Ours"', 1, "titel = 'Ours': is not known here"),
    ('title = "Ours"', 'title = "Ours', 1, "is not TOML"),
    ('    "cora",', '    "coral",', 3, "dataset = 'coral'"),
    ('    "cora",', '    "cora.npz",', 3, "cora.npz': there is no such file"),
    ('    "cora",', "    17,", 3, "graphs = 17"),
    ('"tiny.npz", name = "ours"', '"tiny.npz", nome = "ours"', 5, "graphs nome"),
    ('name = "ours"', 'name = "cora"', 5, "graphs = 'cora': is there twice"),
    ("seeds = [3, 1]", "seeds = [3, -1]", 7, "seeds = -1"),
    ("seeds = [3, 1]", "seeds = 0", 7, "seeds = 0"),
    ('axis = "k"', 'axis = "steps"', 8, "axis = 'steps'"),
    ("steps = 20", 'steps = "many"', 11, "steps = 'many': must be a whole number"),
    ("steps = 20", "hops = 2", 11, "hops = 2: is not an option of mlp"),
    ("[options.gap]", "[options.gasp]", 13, "method = 'gasp'"),
    ("max_degree = 50", "max_degrees = 50", 14, "max_degrees = 50: is not an option of gap"),
    ("cap_degrees = true", "cap_degrees = 1", 15, "cap_degrees = 1: must be true or false"),
    ('methods = ["sage"]', 'method = ["sage"]', 19, "method = ['sage']: is not known here"),
    ('methods = ["sage"]', "", 17, "methods = None: is missing"),
    ("k = [1, 5]", "k = [1, -5]", 23, "k = -5"),
    ("k = [1, 5]", "", 22, "k = None: level k-neighbor needs a k"),
    ("attributes = false", "attributes = 0", 24, "attributes = 0"),
    ("    16.0,", "    -16.0,", 27, "epsilon = -16.0: must be greater than 0"),
    ("    16.0,", '    "x",', 27, "epsilon = 'x'"),
    ("delta = 1e-5", "delta = 2", 29, "delta = 2"),
    ("delta = 1e-5", 'delta = "papers"', 29, "delta = 'papers': must be a number"),
    ("delta = 1e-5", "delta = 1e-40", 29, "delta = 1e-40: must be at least 1e-30"),
    ("{ steps = 7,", "{ cap_degrees = true, steps = 7,", 30, "cap_degrees = True: dpdgc relies on no degree bound"),
    ("{ steps = 7,", "{ stops = 7,", 31, "stops = 7: is not an option of dpdgc"),
    ("release = 0.5 }", 'release = "half" }', 31, "must be a table of numbers"),
    ("max_degree = 10\n", "", 34, "max_degree = None: level node needs"),
    ("epsilon = 2", "", 33, "epsilon = None: is missing"),
    ('unit = "directed"', 'unit = "both"', 41, "unit = 'both'"),
    ('level = "edge"', 'level = "edges"', 40, "level = 'edges'"),
    ('    "mlp",\n]', '    "dp-sage",\n]', 45, "dp-sage protects nodes"),
    ('    "mlp",\n]', '    "magic",\n]', 45, "method = 'magic'"),
    ("epochs = 9", "seed = 9", 48, "seed = 9: is not an option"),
]


@pytest.mark.parametrize(("old", "new", "line", "message"), MISTAKES)
def test_mistakes_are_reported_with_their_line(read, old, new, line, message):
    assert WHOLE.count(old) == 1
    with pytest.raises(InvalidInput) as caught:
        read(WHOLE.replace(old, new))
    said = str(caught.value)
    assert said.startswith(f"mine.toml, line {line}: ")
    assert message in said
    assert "\n" not in said


def test_a_promise_that_a_method_needs(read):
    with pytest.raises(InvalidInput, match=r"mine.toml, line 5: max_degree"):
        read('graphs = ["cora"]\n[[settings]]\nlevel = "k-neighbor"\nk = 1\nmethods = ["gap"]\nepsilon = 1\n')


def test_nothing_to_run(read):
    with pytest.raises(InvalidInput, match="settings = None: is missing"):
        read('graphs = ["cora"]\n')
    with pytest.raises(InvalidInput, match="line 2: settings = 3: must be a list"):
        read('graphs = ["cora"]\nsettings = 3\n')


def test_no_such_file(tmp_path):
    with pytest.raises(InvalidInput, match="No such file"):
        read_spec(tmp_path / "none.toml")
