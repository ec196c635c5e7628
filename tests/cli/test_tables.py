"""Tables as people have them: options of commands, keys of graph.json, and what is wrong with a table in one line."""

import json
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import graphveil as gv
from graphveil.graph.io.declared import TableOptions

NODES = "id,label,v,w\n" + "".join(f"{i},{'ab'[i % 2]},{i * 1.5},{'xy'[i % 2]}\n" for i in range(40))
EDGES = "source,target,amount,kind\n" + "".join(f"{i},{(i + 1) % 40},{i + 1},{'pq'[i % 2]}\n" for i in range(40))
DATES = "id,label,day\n" + "".join(f"{i},{'ab'[i % 2]},2024-01-{1 + i % 9:02d}\n" for i in range(40))
ODD_INDEX = "".join(f"{i - 1 if i else ''},{line}\n" for i, line in enumerate(NODES.splitlines()))
EMPTY_COLUMN = NODES.replace(",v,", ",v,e,").replace(".5,", ".5,,").replace(".0,", ".0,,")
RENAMED = {"id": "account", "label": "fraud", "source": "from", "target": "to"}
BEFORE = ["--time-column", "day", "--train-before"]
WEIGHTS = ["--weight-column", "amount", "--max-weight", 10]


@pytest.fixture
def train(run, tmp_path):
    """Train on the tables, named by the table of nodes."""

    def train(*words, nodes=NODES, edges=EDGES, declared=None, method="mlp"):
        (tmp_path / "nodes.csv").write_bytes(nodes if isinstance(nodes, bytes) else nodes.encode())
        (tmp_path / "edges.csv").write_text(edges)
        if declared is not None:
            (tmp_path / "graph.json").write_text(json.dumps(declared))
        quick = ("--method", method, "--steps", 1, "--seed", 0)
        return run("train", tmp_path / "nodes.csv", *quick, *words)

    return train


def renamed(text):
    head, rest = text.split("\n", 1)
    return ",".join(RENAMED.get(name, name) for name in head.split(",")) + "\n" + rest


def test_options_and_keys_say_the_same(train, tmp_path):
    keys = {
        "id_column": "account",
        "label_column": "fraud",
        "source_column": "from",
        "target_column": "to",
        "drop_columns": ["w", "kind"],
        "drop_self_loops": True,
        "merge_duplicates": True,
        "weight_column": "amount",
        "max_weight": 10,
        "ranges": {"v": [0, 60]},
        "missing": {"v": 5},
        "classes": ["a", "b"],
    }
    words = "--id-column account --label-column fraud --source-column from --target-column to --drop-columns w,kind"
    more = "--drop-self-loops --merge-duplicates --weight-column amount --max-weight 10 --range v=0,60 --missing v=5"
    tables = {"nodes": renamed(NODES), "edges": renamed(EDGES) + "3,3,1,p\n0,1,1,q\n"}
    by_words = train(*words.split(), *more.split(), "--classes", "a,b", "--json", **tables)
    by_keys = train("--json", declared=keys, **tables)
    assert by_words.returncode == by_keys.returncode == 0, by_words.stderr + by_keys.stderr
    one, other = (json.loads(done.stdout)["certificate"] for done in (by_words, by_keys))
    assert one["plan"]["facts"] == other["plan"]["facts"] if "plan" in one else one == other
    assert json.loads(by_words.stdout)["unused"] == ["nodes.csv: column 'w'", "edges.csv: column 'kind'"]
    shown = train(**tables).stdout
    assert "unused    nodes.csv: column 'w'" in shown
    assert "unused    edges.csv: column 'kind'" in shown
    graphs = [gv.read_graph(tmp_path, **words) for words in ({}, {"drop_columns": ["v"], "ranges": {}, "missing": {}})]
    assert [[column.name for column in graph.counts.columns] for graph in graphs] == [["v"], ["w"]]


def test_every_key_has_an_option_and_a_line_in_the_documentation(run):
    shown = run("train", "--help").stdout
    options = {"node_table": "graph", "edge_table": "--edges", "ranges": "--range"}
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    for field in fields(TableOptions):
        assert options.get(field.name, "--" + field.name.replace("_", "-")) in shown
        assert f"`{field.name}`" in page


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        ("\ufeff" + NODES, "\ufeff" + EDGES),
        (NODES.replace(",", ";"), EDGES),
        (NODES.replace(",", "\t"), EDGES.replace(",", ";")),
        (NODES.replace("\n", "\r\n"), EDGES),
        (NODES.replace("0,a,0.0,x", '0,a,0.0,"x, y"'), EDGES),
        (NODES.replace("\n3,", "\nA3,"), EDGES.replace("\n3,", "\nA3,").replace(",3,", ",A3,")),
        (NODES.replace("\n3,b,", "\n3,,"), EDGES),
        (NODES.replace(",1.5,", ",,"), EDGES),
        (NODES.replace(",1.5,", ",NA,"), EDGES),
        (NODES, "source,target\n"),
    ],
    ids=["bom", "semicolons", "tabs", "windows", "quotes", "mixed-ids", "no-label", "gap", "NA", "no-edges"],
)
def test_tables_that_are_read(train, nodes, edges):
    done = train(nodes=nodes, edges=edges)
    assert done.returncode == 0, done.stderr
    assert "nodes     40" in done.stdout


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        ({}, ["--label-column", "fraud"], "columns = ['id', 'label', 'v', 'w']: there is no column 'fraud'"),
        ({"nodes": NODES.replace("label", "lab")}, [], "no column is named label"),
        ({"nodes": NODES.replace("id,", "key,")}, [], "--id-column"),
        ({"edges": EDGES.replace("source", "from")}, [], "--source-column"),
        ({"nodes": NODES.replace("\n3,", "\n,")}, [], "row 4, column 'id' = None: an id is missing"),
        ({"nodes": NODES.replace("\n3,", "\n2,")}, [], "row 4, column 'id' = '2': this id was already given to row 3"),
        ({"nodes": ""}, [], "nodes.csv': cannot be read as CSV: Empty CSV file"),
        ({"nodes": "id,label\n"}, [], "rows = 0: a graph needs at least one node"),
        ({"nodes": NODES.encode("utf-16")}, [], "cannot be read as CSV"),
        ({"nodes": NODES.encode() + b"40,\xe4,1.0,x\n"}, [], "column 'label' = 'bytes': is not text in UTF-8"),
        ({"nodes": NODES + "40,a,1\n"}, [], "Expected 4 columns, got 3"),
        ({"nodes": NODES.replace(",", ";").replace(".", ",")}, [], "write 1.5 and not 1,5"),
        ({"nodes": NODES.replace(",1.5,", ",oops,")}, [], "row 2, column 'v' = 'oops': is not a number"),
        ({"nodes": DATES + "40,a,oops\n"}, [], "column 'day' = 'oops': is not a time in the form of most"),
        ({"edges": EDGES.replace("\n3,", "\n333,")}, [], "row 4, column 'source' = '333': there is no node"),
        ({"edges": EDGES.replace("\n3,", "\n,")}, [], "row 4, column 'source' = None: an id is missing"),
        ({"edges": EDGES + "5,5,1,p\n"}, [], "row 41, column 'source' = '5': this edge leads back"),
        ({"edges": EDGES + "5,6,1,p\n"}, [], "--merge-duplicates"),
        ({}, ["--weight-column", "amount"], "max_weight = None: declare from which weight"),
        ({}, ["--weight-column", "amount", "--max-weight", 0], "max_weight = 0.0: must be greater than 0"),
        ({"edges": EDGES.replace(",5,p", ",-5,p")}, WEIGHTS, "row 5, column 'amount' = -5: a weight must be 0 or more"),
        ({"edges": EDGES.replace(",5,p", ",nan,p")}, WEIGHTS, "row 5, column 'amount' = nan: a weight is missing"),
        ({"edges": EDGES.replace(",5,p", ",inf,p")}, WEIGHTS, "row 5, column 'amount' = inf: must be a finite"),
        ({"edges": EDGES.replace(",5,p", ",five,p")}, WEIGHTS, "row 5, column 'amount' = 'five': must be a number"),
        ({}, ["--relation-column", "kind"], "declare the names of all relations; column 'kind' has p, q"),
        ({}, ["--relation-column", "kind", "--relations", "p"], "row 2, column 'kind' = 'q': is not one of"),
        ({}, ["--drop-columns", "nope"], "drop_columns = 'nope': there is no such column; there are id, label, v, w,"),
        ({}, ["--drop-columns", "id"], "drop_columns = 'id': is the"),
        ({}, ["--feature-columns", "nope"], "there is no column 'nope'"),
        ({}, ["--time-column", "v", "--train-before", "soon"], "train_before = 'soon': must be a number, a date"),
        ({}, ["--time-column", "v", "--train-before", "-5"], "train_before = -5.0: no node with a label"),
        ({}, ["--train-before", "5"], "train_before = 5.0: belongs to"),
        ({}, ["--range", "v=50,0"], "ranges of column 'v' = ['50', '0']: must be the least and the largest"),
        ({}, ["--range", "v"], "ranges = 'v': must be COLUMN=LEAST,LARGEST, once for each column"),
        ({}, ["--range", "z=0,1"], "ranges are declared of 'z', no feature"),
        ({}, ["--scaling", "maybe"], "scaling = 'maybe': must be auto or none"),
        ({}, ["--edges", "40"], "edges = '40': must be a table of edges; a bound on their number is --public-edges"),
        ({}, ["--edges", "nope.csv"], "edge_table = 'nope.csv': must be a .csv or .parquet file in"),
        ({"nodes": ODD_INDEX}, [], "column 1 has no name, as row numbers that were written along"),
        ({"nodes": NODES.replace("label,", " label,")}, [], "the label may be one of ' label', 'v', 'w'"),
        ({"nodes": NODES.replace("label,", "gr\xf6\xdfe,").encode("latin-1")}, [], "its header is not text in UTF-8"),
        ({"nodes": NODES.replace(",b,", ",a,")}, [], "column 'label' = ['a']: needs at least two classes"),
        ({"nodes": NODES.replace("\n3,b", "\n3,NA")}, [], "row 4, column 'label' = 'NA': says that a label is missing"),
        ({"nodes": NODES.replace("\n3,b", "\n3,  ")}, [], "row 4, column 'label' = ' ': says that a label is missing"),
        ({"nodes": NODES.replace("\n3,b", "\n3, b")}, [], "row 4, column 'label' = ' b': has blanks around it"),
        ({"nodes": NODES.replace(",b,", ",inf,").replace(",a,", ",1,")}, [], "'label' = inf: is not a label"),
        ({"nodes": DATES.replace("2024-01-", "31.1.")}, [], "column 'day' = '31.1.01': write dates as 2024-01-31"),
        ({"nodes": EMPTY_COLUMN}, [], "drop it: --drop-columns e"),
        ({}, ["--range", "v=2024-01-01,2025-01-01"], "ranges of column 'v' = '2024-01-01': must be a number"),
        ({}, ["--missing", "v=2024-01-01"], "missing of column 'v' = '2024-01-01': must be a number"),
        ({"nodes": DATES}, ["--range", "day=0,100"], "ranges of column 'day' = 0.0: must be a date or a time"),
        (
            {"nodes": DATES},
            [*BEFORE, "2024-01-05", "--test-after", "2024-01-02"],
            "test_after = '2024-01-02': must not be",
        ),
        ({"nodes": DATES}, [*BEFORE, "2020-01-05"], "train_before = '2020-01-05': no node with a label has an earlier"),
        ({}, ["--time-column", "v", "--train-before", "2024-01-31"], "train_before = '2024-01-31': must be a number"),
        (
            {"nodes": DATES},
            ["--time-column", "day", "--train-before", 5],
            "train_before = 5.0: must be a date or a time",
        ),
        ({}, ["--classes", "a,c"], "column 'label' = 'b': is not one of the declared classes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_line_says_what_is_wrong(train, tmp_path, changes, words, message):
    done = train(*words, "--out", tmp_path / "run", "--ledger", tmp_path / "people.json", **changes)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv", "nodes.csv"], "nothing written or spent"


def test_a_table_of_edges_elsewhere(train, run, tmp_path, monkeypatch):
    train()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "edges.csv").rename(tmp_path / "elsewhere" / "links.csv")
    words = ("train", tmp_path / "nodes.csv", "--method", "mlp", "--steps", 1)
    assert "name the table of edges: " in run(*words).stderr
    assert run(*words, "--edges", tmp_path / "elsewhere" / "links.csv").returncode == 0
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run(*words, "--edges", "links.csv").returncode == 0
    (tmp_path / "elsewhere" / "links.csv").rename(tmp_path / "links.csv")
    assert run(*words, "--edges", "links.csv").returncode == 0, "beside the table of nodes"
    parquet = pa.csv.read_csv(tmp_path / "nodes.csv")
    pyarrow.parquet.write_table(parquet, tmp_path / "people.parquet")
    done = run("train", tmp_path / "people.parquet", *words[2:], "--edges", "links.csv", "--json")
    assert json.loads(done.stdout)["graph"] == "people"


def test_a_word_for_a_missing_label_is_one_where_classes_are_declared(train):
    nodes = NODES.replace("\n3,b", "\n3,NA")
    assert "labels    39 of 40 nodes, 2 classes" in train("--classes", "a,b", nodes=nodes).stdout
    assert "labels    40 of 40 nodes, 3 classes" in train("--classes", "a,b,NA", nodes=nodes).stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"lable_column": "w"}', "graph.json: key = 'lable_column': must be one of directed, name, found, node_table"),
        ('{"label_column": "label", "label_column": "w"}', "graph.json: key = 'label_column': is there twice"),
        ('{"drop_columns": "v"}', "graph.json: drop_columns = 'v': must be a list of column names"),
    ],
)
def test_an_error_in_graph_json_names_its_keys(train, tmp_path, text, message):
    train()
    (tmp_path / "graph.json").write_text(text)
    done = train()
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert "--label-column" not in done.stderr
    (tmp_path / "graph.json").write_bytes(b'\xef\xbb\xbf{"label_column": "w"}')
    assert "2 classes" in train().stdout, "a byte order mark does no harm"


@pytest.mark.parametrize("method", ["auto", "dpdgc"])
def test_weights_and_relations_reach_the_certificate(train, method):
    words = (*WEIGHTS, "--relation-column", "kind", "--relations", "p,q", "--epsilon", 4)
    done = train(*words, method=method)
    assert done.returncode == 0, done.stderr
    assert "weights: parts of 10" in done.stdout
    assert "relations: p (40), q (40)" in done.stdout
    assert "Declared: there are the relations p, q." in done.stdout


def test_a_split_by_time(train):
    done = train("--time-column", "v", "--train-before", 20, "--test-after", 30)
    assert "split     14 / 6 / 20 train / val / test (times in column 'v')" in done.stdout
    assert "the time of each node (column 'v')" in done.stdout.split("PRIVACY CERTIFICATE")[1]


@pytest.mark.parametrize("command", ["train", "audit", "shard"])
def test_options_about_tables_belong_to_tables(run, tmp_path, command):
    out = (tmp_path / "parts",) if command == "shard" else ()
    done = run(command, "csbm", *out, "--label-column", "fraud")
    assert done.returncode == 2
    assert "label_column = 'fraud': belongs to tables; csbm is a dataset" in done.stderr


def test_long_tables_have_no_weights_and_may_have_other_names(run, train, tmp_path):
    train(nodes=NODES.replace(",", ";"))
    done = run("shard", tmp_path, tmp_path / "parts", "--memory", "4GiB", *WEIGHTS)
    assert done.returncode == 2
    assert "max_weight = 10.0: weights and relations cannot be divided yet" in done.stderr
    (tmp_path / "edges.csv").rename(tmp_path / "links.csv")
    done = run("shard", tmp_path, tmp_path / "parts", "--parts", 2, "--memory", "4GiB", "--edges", "links.csv")
    assert done.returncode == 0, done.stderr
