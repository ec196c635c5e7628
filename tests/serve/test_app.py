"""What a running service tells whom."""

import csv
import io
import json
import re

import numpy as np
import pytest

import graphveil as gv
from graphveil.graph.summary import Naming
from support.service import (
    Predictions,
    Service,
    Tokens,
    check_existence_is_not_told,
    check_headers,
    check_nobody_gets_anothers,
    check_refusal,
    in_thread,
    make_app,
)

pytestmark = pytest.mark.slow


def test_everybody_gets_their_own_and_nobody_anothers(service):
    check_nobody_gets_anothers(service)


def test_names_that_look_like_something_else(thread):
    check_nobody_gets_anothers(thread)
    check_existence_is_not_told(thread)


def test_existence_is_not_told(service):
    check_existence_is_not_told(service)


def test_answers_are_the_models(service, run):
    model = gv.load(run)
    for name, row in {"3": model.predict_proba([3])[0], "anna": model.fitted_.answers.of("anna").probabilities}.items():
        answer = service.ask(name, service.tokens.of_node(name))
        check_headers(answer)
        assert np.float32(answer.json()["probabilities"]) == pytest.approx(np.float32(row))
        assert answer.json()["prediction"] == answer.json()["classes"][int(np.argmax(row))]
        assert service.ask(name, service.tokens.of_node(name)).content == answer.content


@pytest.mark.parametrize("header", ["", "Bearer", "Basic {}", "{}", "Bearer {} {}", "Bearer {}x", "Bearer é"])
def test_headers_that_are_no_token(service, header):
    token = service.tokens.of_node("3")
    check_refusal(ask_with(service, [("Authorization", header.format(token, token).encode())]), 401)


def test_none_and_two_tokens(service):
    header = ("Authorization", f"Bearer {service.tokens.of_node('3')}")
    assert ask_with(service, [header]).status_code == 200
    check_refusal(ask_with(service, []), 401)
    check_refusal(ask_with(service, [header, header]), 401)


def test_tokens_in_addresses_open_nothing(service):
    token = service.tokens.of_node("3")
    query = f"token={token}&access_token={token}&authorization=Bearer%20{token}"
    check_refusal(service.ask("3", None, f"/v1/prediction?{query}"), 401)


def ask_with(service, headers):
    return service.client.post(f"{service.url}/v1/prediction", json={"node": "3"}, headers=headers)


def test_the_operator_exports_everything_in_pages(service, run):
    expected = gv.load(run).predict_proba()
    token = service.tokens.of_operator()
    lines = [json.loads(line) for line in service.get("/v1/predictions", token).text.splitlines()]
    assert [line["node"] for line in lines] == [*map(str, range(120)), "anna", "ben"]
    assert np.float32([line["probabilities"] for line in lines[:120]]) == pytest.approx(expected)
    pages = [service.get(f"/v1/predictions?offset={first}&limit=50", token).text for first in (0, 50, 100, 150)]
    assert [json.loads(line) for page in pages for line in page.splitlines()] == lines
    table = list(csv.DictReader(io.StringIO(service.get("/v1/predictions?format=csv", token).text)))
    assert [row["node"] for row in table] == [line["node"] for line in lines]
    assert [row["prediction"] for row in table] == [line["prediction"] for line in lines]


def test_export_is_for_the_operator_alone(service):
    for token in (None, service.tokens.of_node("3"), service.tokens.of_node("operator"), "x" * 43):
        check_refusal(service.get("/v1/predictions", token), 401)
        # Whether a query is valid is not told either.
        check_refusal(service.get("/v1/predictions?limit=none", token), 401)
    for query in ("limit=0", "offset=-1", "limit=x", "format=xml", "offset=1e400"):
        check_refusal(service.get(f"/v1/predictions?{query}", service.tokens.of_operator()), 422)


def test_health_description_and_page(service):
    assert service.get("/health").json() == {"status": "ok"}
    described = service.get("/openapi.json").json()
    assert set(described["paths"]) == {"/v1/prediction", "/v1/predictions", "/health", "/metrics"}
    assert described["paths"]["/v1/prediction"]["post"]["security"] == [{"token": []}]
    for path in ("/", "/health", "/metrics", "/openapi.json"):
        check_headers(service.get(path))
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        check_refusal(service.get(path), 404)


def test_metrics_and_log_name_nobody(service, process):
    secret = service.tokens.of_node("anna")
    service.ask("anna", secret)
    service.get(f"/anna?token={secret}", secret)
    text = service.get("/metrics").text
    assert re.search(r'requests_total\{route="/v1/prediction",status="200"\} \d+', text)
    assert re.search(r"graphveil_request_seconds_count \d+", text)
    process.errors.seek(0)
    logged = process.errors.read()
    assert "POST /v1/prediction 200" in logged
    for written in (text, logged):
        assert "anna" not in written
        assert secret not in written
        assert service.tokens.of_operator() not in written


def test_class_names_that_were_found_are_for_the_owner():
    rows = np.float32([[0.25, 0.75], [0.5, 0.5]])
    for declared in (True, False):
        naming = Naming(nodes=("anna", "ben"), classes=("well", "rare"), declared_classes=declared)
        predictions = Predictions(naming, rows)
        told = json.loads(predictions.as_json(0))
        assert told["classes"] == (["well", "rare"] if declared else ["0", "1"])
        assert told["prediction"] == told["classes"][1]
        assert json.loads(predictions.as_json(0, owner=True))["prediction"] == "rare"
        assert b"p(rare)" in predictions.csv_head()
        app = make_app(predictions, Tokens(b"s" * 32), ("<!doctype html>", "default-src 'none'"))
        with in_thread(app) as port:
            service = Service(port, Tokens(b"s" * 32), known=("anna", "ben"), unknown=())
            assert ("rare" in service.ask("anna", service.tokens.of_node("anna")).text) == declared
            assert "rare" in service.get("/v1/predictions", service.tokens.of_operator()).text
