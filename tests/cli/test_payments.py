"""The table of payments, from raw CSV files to a certificate with one command."""

import csv
import json
import re
from datetime import datetime

import numpy as np
import pytest

import graphveil as gv
from support.payments import OPTIONS, make_payments, write_payments

COMMAND = "--edges transfers.csv --id-column account --label-column fraud --source-column from --target-column to"
REPAIRS = "--drop-self-loops --merge-duplicates --level k-neighbor --k 5 --epsilon 4 --seed 1"


def text_of(page):
    body = page[page.index("<body") :]
    body = re.sub(r"<(svg|style|script).*?</\1>", "", body, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


@pytest.mark.slow
def test_one_command_answers_the_questions(run, tmp_path, monkeypatch):
    folder = write_payments(tmp_path / "payments")
    monkeypatch.chdir(folder)
    done = run("train", "accounts.csv", *COMMAND.split(), *REPAIRS.split(), "--out", "run", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["epsilon"] <= 4
    assert result["test_average_precision"] > 0.6
    first_screen = text_of((folder / "run" / "report.html").read_text()).split("By class")[0]
    said = r"\d+ of \d+ nodes of class yes are found: \d+ nodes are flagged, precision [01]\.\d+"
    assert re.search(said, first_screen)
    flagged, found = map(int, re.search(r"The (\d+) most probable hold (\d+) of them", first_screen).groups())
    assert found > flagged / 2
    assert "the majority class, no, alone has 9" in first_screen
    assert "The graph was " in first_screen
    with (folder / "run" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["node"] for row in rows] == make_payments()[0]["account"]
    assert {row["prediction"] for row in rows} == {"yes", "no"}


def by_hand(table):
    """The columns as somebody would scale them who may look at all of them: logarithms, means, deviations."""
    columns = {}
    opened = [None if text is None else datetime.fromisoformat(text) for text in table["opened_at"]]
    days = [None if time is None else time.timestamp() / 86400 for time in opened]
    for name in ("balance", "monthly_turnover", "failed_logins", "age", "days"):
        values = np.array([np.nan if v is None else float(v) for v in (days if name == "days" else table[name])])
        values = values if name in ("age", "days") else np.log1p(values)
        columns[name] = np.nan_to_num((values - np.nanmean(values)) / np.nanstd(values))
        columns[f"no {name}"] = np.isnan(values).astype(float)
    hours = np.array([np.nan if time is None else time.hour / 12 * np.pi for time in opened])
    columns |= {"sine": np.nan_to_num(np.sin(hours)), "cosine": np.where(np.isnan(hours), 0, np.cos(hours))}
    columns["verified"] = np.array([1.0 if value == "true" else -1.0 for value in table["verified"]])
    return columns | {
        f"in {c}": np.array([float(v == c) for v in table["country"]]) for c in ("DE", "FR", "NL", "PL", "MT")
    }


@pytest.mark.slow
def test_nothing_is_lost_without_scaling_by_hand(tmp_path):
    """Average precision within 0.03 of columns that were scaled by hand, over three tables."""
    names = {key: value for key, value in OPTIONS.items() if not key.endswith("_table")}
    lost = []
    for seed in range(3):
        nodes, edges = make_payments(seed=seed)
        keys = {"account": nodes["account"], "fraud": nodes["fraud"]}
        as_they_are = gv.read_graph(write_payments(tmp_path / str(seed), seed=seed), seed=seed, **OPTIONS)
        scaled = gv.Graph.from_tables(keys | by_hand(nodes), edges, seed=seed, scaling="none", **names)
        one, other = (
            gv.Auto(level=gv.KNeighbor(5), epsilon=4.0, seed=seed)
            .fit(graph)
            .score(graph.test_mask, "average_precision")
            for graph in (as_they_are, scaled)
        )
        lost.append(other - one)
    assert np.mean(lost) < 0.03
