"""`graphveil serve` and `graphveil tokens` as commands."""

import csv
import io
import json
import os
import shutil
import signal
import socket
import stat
import sys

import pytest
from typer.testing import CliRunner

import graphveil as gv
from graphveil.artifact import problems
from graphveil.cli import app
from graphveil.serve import tokens_of
from support.artifacts import fitted


def call(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def error(*words):
    done = call(*words)
    assert isinstance(done.exception, gv.GraphveilError), done.output
    assert "\n" not in str(done.exception)
    return str(done.exception)


@pytest.fixture
def folder(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


@pytest.mark.slow
def test_an_interrupt_ends_it_cleanly(start):
    # SIGTERM: where the service that the other tests share is stopped, after all that they did to it.
    served = start()
    with socket.create_connection(("127.0.0.1", served.port)) as open_connection:
        open_connection.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert open_connection.recv(9999).startswith(b"HTTP/1.1 200")
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(timeout=15) == 0
    served.errors.seek(0)
    assert served.errors.read() == ""


def test_it_listens_on_loopback_and_warns_elsewhere(process, monkeypatch, run):
    assert "http://127.0.0.1:" in process.said
    from graphveil.serve import server

    monkeypatch.setattr(server, "serve_until_told", lambda *args, **words: None)
    assert "warning" not in call("serve", run, "--port", 0).output
    assert "put TLS in front" in call("serve", run, "--port", 0, "--host", "0.0.0.0").output


def test_bad_options(run, tmp_path, process):
    assert "port = 70000" in error("serve", run, "--port", 70000)
    assert "host = 'no.such.host.invalid'" in error("serve", run, "--host", "no.such.host.invalid", "--port", 0)
    assert "in use" in error("serve", run, "--port", process.port)
    assert "is not a folder" in error("serve", tmp_path / "none", "--port", 0)
    assert "--operator" in error("tokens", run)
    assert "--operator" in error("tokens", run, "--all", "--operator")
    assert "nodes = '120'" in error("tokens", run, "--nodes", "3,120")
    assert "lies in the run" in error("tokens", run, "--all", "--out", run / "tokens.csv")
    assert "cannot be written" in error("tokens", run, "--all", "--out", tmp_path / "none" / "tokens.csv")


def test_without_the_extra_one_line_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert error("serve", run) == "graphveil serve needs fastapi: pip install 'graphveil[serve]'"
    assert call("tokens", run, "--nodes", "3").exit_code == 0


def test_tokens_go_to_a_file_that_only_its_owner_reads(folder, tmp_path):
    done = call("tokens", folder, "--all", "--out", tmp_path / "tokens.csv")
    assert done.exit_code == 0
    assert stat.S_IMODE((tmp_path / "tokens.csv").stat().st_mode) == 0o600
    rows = list(csv.DictReader((tmp_path / "tokens.csv").open()))
    assert [row["node"] for row in rows] == [*map(str, range(120)), "anna", "ben"]
    assert len({row["token"] for row in rows}) == 122
    assert "exists already" in error("tokens", folder, "--all", "--out", tmp_path / "tokens.csv")
    [shown] = csv.DictReader(io.StringIO(call("tokens", folder, "--nodes", "3").stdout))
    assert shown == rows[3]
    assert json.loads(call("tokens", folder, "--nodes", "3", "--json").stdout) == {"3": shown["token"]}
    assert json.loads(call("tokens", folder, "--operator", "--json").stdout)["operator"] not in str(rows)


def test_the_secret_is_part_of_the_run(tmp_path):
    folder = tmp_path / "run"
    fitted("mlp").save(folder)
    before = tokens_of(folder)
    path = folder / "owner/token_secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(problems(folder)) == []
    gv.load(folder)
    assert tokens_of(folder).of_node("3") == before.of_node("3")
    tokens = tokens_of(folder, renew=True)
    assert tokens.of_node("3") != before.of_node("3")
    assert list(problems(folder)) == []
    for file in folder.rglob("*"):
        if file.is_file():
            assert tokens.of_node("3").encode() not in file.read_bytes()
    os.chmod(path, 0o644)
    assert "others can read it" in error("tokens", folder, "--nodes", "3")
    os.chmod(path, 0o600)
    path.write_bytes(b"x" * 32)
    assert "it was changed" in error("serve", folder, "--port", 0)
    assert ["token_secret" in problem and "--renew" in problem for problem in problems(folder)] == [True]
    assert call("tokens", folder, "--nodes", "3", "--renew").exit_code == 0
    assert list(problems(folder)) == []


def test_a_kill_before_the_secret_was_listed_costs_nothing(tmp_path, monkeypatch):
    from graphveil import serve

    folder = tmp_path / "run"
    fitted("mlp").save(folder)
    with monkeypatch.context() as killed:
        killed.setattr(serve, "list_derived", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tokens_of(folder)
    gv.load(folder)
    tokens_of(folder)
    assert list(problems(folder)) == []
