"""`graphveil datasets`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from graphveil.cli.graphs import datasets
from graphveil.errors import InvalidInput

app = typer.Typer()
app.command()(datasets)
KEYS = {"name", "nodes", "edges", "features", "classes", "edge_density", "homophily"}


def test_json_is_a_list_with_the_papers_figures(data_root: Path) -> None:
    result = CliRunner().invoke(app, ["cora", "csbm", "--root", str(data_root), "--json"])
    assert result.exit_code == 0
    cora, csbm = json.loads(result.stdout)
    assert set(cora) == KEYS | {"paper", "matches_paper"}
    assert cora["matches_paper"] is True
    assert cora["paper"]["homophily"] == 0.7657
    assert set(csbm) == KEYS


def test_table_on_a_terminal(data_root: Path) -> None:
    result = CliRunner().invoke(app, ["Cora", "--root", str(data_root)], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert "0.7657" in result.stdout
    assert "same" in result.stdout


def test_missing_graphs_are_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHVEIL_DATA", raising=False)
    result = CliRunner().invoke(app, ["facebook", "csbm", "--root", str(tmp_path), "--json"])
    assert result.exit_code == 0
    assert "missing: dataset = 'facebook'" in result.stderr
    assert [row["name"] for row in json.loads(result.stdout)] == ["csbm"]


def test_damaged_files_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "Reed98" / "raw" / "Reed98.mat"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"garbage")
    result = CliRunner().invoke(app, ["reed98", "--root", str(tmp_path)])
    assert isinstance(result.exception, InvalidInput)


def test_unknown_graphs_are_an_error() -> None:
    result = CliRunner().invoke(app, ["coral"])
    assert isinstance(result.exception, InvalidInput)
