import json

import pytest

SIZES = ["--nodes", "7535", "--train-nodes", "5651", "--features", "745", "--classes", "8"]


def test_noise_for_a_target_and_back_again(run):
    words = ["plan", "--method", "dpdgc", "--level", "k-neighbor", "--k", "5", "--delta", "1e-5", *SIZES, "--json"]
    plan = json.loads(run(*words, "--epsilon", "16").stdout)
    assert 15.98 < plan["epsilon"] <= 16
    assert plan["delta"] == 1e-5
    noise = []
    for mechanism in plan["mechanisms"]:
        value = mechanism.get("noise_multiplier") or mechanism.get("epsilon")  # trainings and responses
        value = value or mechanism["std"] / mechanism["sensitivity"]["training"]
        noise += ["--noise", f"{mechanism['name']}={value!r}"]
    again = json.loads(run(*words, *noise).stdout)
    assert again["epsilon"] == pytest.approx(plan["epsilon"], rel=1e-6)


def test_the_table_names_everything(run):
    out = run("plan", "--method", "gap", "--level", "node", "--max-degree", "100", "--epsilon", "16", *SIZES).stdout
    for word in ("encoder", "hops", "head", "sensitivity", "share", "total: epsilon", "assumed"):
        assert word in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--level", "k-neighbor", "--k", "5", "--epsilon", "0"], "epsilon = 0.0"),
        (["--level", "k-neighbor", "--k", "5", "--epsilon", "-2"], "epsilon = -2.0"),
        (["--level", "k-neighbor", "--k", "5", "--epsilon", "many"], "'many'"),
        (["--level", "k-neighbor", "--k", "5", "--epsilon", "1", "--delta", "1"], "delta = 1.0"),
        (["--level", "k-neighbor", "--k", "5", "--epsilon", "1", "--delta", "0"], "delta = 0.0"),
        (["--level", "k-neighbor", "--k", "5", "--epsilon", "1", "--delta", "x"], "delta = 'x'"),
        (["--level", "k-neighbor", "--k", "-1", "--epsilon", "1"], "k = -1"),
        (["--level", "k-neighbor", "--k", "7535", "--epsilon", "1"], "k = 7535"),
        (["--level", "k-neighbor", "--k", "0", "--no-attributes", "--epsilon", "1"], "k = 0"),
        (["--level", "everything", "--epsilon", "1"], "level = 'everything'"),
        (["--level", "node", "--epsilon", "1"], "max_degree = None"),
        (["--level", "edge", "--unit", "both", "--epsilon", "1"], "unit = 'both'"),
        (["--level", "edge", "--epsilon", "1", "--noise", "2"], "give either epsilon or noise"),
        (["--level", "edge", "--noise", "release:2"], "noise = 'release:2'"),
        (["--level", "edge", "--epsilon", "1", "--share", "head"], "share = 'head'"),
        (["--level", "none", "--epsilon", "8"], "epsilon = 8.0: level none protects nothing"),
        (["--level", "edge", "--epsilon", "8", "--delta", "5e-324"], "delta = 5e-324: must be at least 1e-30"),
        (["--method", "auto", "--k", "1", "--epsilon", "8", "--delta", "5e-324"], "delta = 5e-324: must be at least"),
        (["--k", "1", "--noise", "30", "--delta", "1e-15"], "delta = 1e-15: no epsilon can be certified"),
        (["--k", "1", "--epsilon", "8", "--delta", "0.02"], "delta = 0.02: must be at most 0.01"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, words, message):
    done = run("plan", *words, *SIZES)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


@pytest.mark.slow
def test_a_process_ends_the_same_way(run, run_process):
    words = ["plan", "--level", "edge", "--epsilon", "0", *SIZES]
    here, there = run(*words), run_process(*words)
    assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)


def test_help_has_an_example(run):
    done = run("plan", "--help")
    assert done.returncode == 0
    assert "Example: graphveil plan" in done.stdout


def test_a_plan_that_branches_shows_all_branches(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    facts = ("--nodes", 1000, "--train-nodes", 750, "--classes", 3)
    words = ("plan", "--method", "auto", "--k", 5, "--epsilon", 8, *facts)
    shown = run(*words)
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    headings = [line for line in lines if line.startswith(("First", "Then", "branch"))]
    assert headings == [
        "First, whatever comes out of it:",
        "Then one of 4 branches, by what was released; each is accounted at delta / 4:",
        "branch features (features alone)",
        "branch sums (features alone)",
        "branch balanced (reads the graph)",
        "branch graph (reads the graph)",
    ]
    # What all branches share is listed once, with its part of the budget in the cheapest and the dearest of them.
    (statistics,) = (line for line in lines if line.startswith("statistics"))
    assert statistics.split()[-3:] == ["1.6%", "to", "4.3%"]
    made = json.loads(run(*words, "--json").stdout)
    branches = {mechanism["name"]: mechanism["branch"] for mechanism in made["mechanisms"]}
    assert branches == {
        **dict.fromkeys(["statistics", "class sums", "first features", "expectation"]),
        "more features": "features",
        "more class sums": "sums",
        "sums head": "sums",
        **{f"balanced {part}": "balanced" for part in ("sums", "responses", "release", "head")},
        **{f"graph {part}": "graph" for part in ("responses", "release", "head")},
    }
    assert made["branches"] == ["features", "sums", "balanced", "graph"]


def test_a_large_delta_is_a_warning_beside_the_output(run):
    words = ("plan", "--method", "mlp", "--k", 1, "--epsilon", 8, *SIZES, "--json")
    done = run(*words, "--delta", "1e-3")
    assert done.returncode == 0
    assert json.loads(done.stdout)["delta"] == 1e-3
    assert done.stderr.startswith("WARNING: delta 0.001 is more than 1 / 7535")
    assert run(*words).stderr == ""


def test_declared_edges_choose_delta(run):
    words = ("plan", "--method", "gap", "--level", "edge", "--epsilon", 1, *SIZES, "--json")
    assert json.loads(run(*words).stdout)["delta"] == 1e-9
    assert json.loads(run(*words, "--public-edges", 250_000).stdout)["delta"] == 1e-7
