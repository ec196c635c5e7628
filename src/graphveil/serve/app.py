"""What is served: the routes to predictions, to health and metrics, to the description, and the page for people."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from graphveil.artifact import load
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.levels import Edge, KNeighbor, Node, Public
from graphveil.process import __version__
from graphveil.report.document import Html, as_html, document, element, note, section
from graphveil.serve import LONGEST_NAME, Predictions, Tokens, tokens_of
from graphveil.serve.server import DETAILS, Guard, Handler, Metrics, refusal

LARGEST_BODY = 16 * 1024
_PREDICTION = "/v1/prediction"
_ROWS_AT_A_TIME = 100
# Newer versions of FastAPI report requests and exceptions to whatever collector the environment names.
_NO_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
_BEARER = HTTPBearer(scheme_name="token", description="A token from `graphveil tokens`.", auto_error=False)


class Question(BaseModel):
    """The node stands in the body and not in the address, because addresses end up in logs and histories."""

    model_config = ConfigDict(extra="forbid")
    node: str = Field(min_length=1, max_length=LONGEST_NAME)


class Prediction(BaseModel):
    node: str
    prediction: str
    classes: list[str]
    probabilities: list[float]


class Problem(BaseModel):
    detail: str


class Health(BaseModel):
    status: Literal["ok"]


def app_of(run: Path) -> Guard:
    """The application that serves this run."""
    model = load(run)
    tokens = tokens_of(run)
    return make_app(Predictions.of(model), tokens, person_page(model.certificate_, model.epsilon_spent))


def make_app(predictions: Predictions, tokens: Tokens, page: tuple[str, str]) -> Guard:
    """The application.

    Args:
        predictions: All predictions of a run.
        tokens: Who may ask for which.
        page: The HTML page for people, and its content policy.

    Returns:
        The application, inside of its guard.

    Formal guarantee: nothing is drawn and nothing is computed from private data. A prediction is sent only to whoever
    has the token of its node, or the operator's.
    """
    metrics = Metrics()
    app = FastAPI(
        title="graphveil",
        version=__version__,
        description="Each node's own prediction, for whoever holds that node's token.",
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    _answer_errors(app)
    prediction = _add_prediction(app, predictions, tokens)
    _add_export(app, predictions, tokens)
    _add_pages(app, metrics, page)
    return Guard(app, metrics, {("POST", _PREDICTION): prediction})


def _add_prediction(app: FastAPI, predictions: Predictions, tokens: Tokens) -> Handler:
    async def prediction(request: Request) -> Response:
        body = await _small_body(request)
        if body is None:
            return _refused(413)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _refused(415)
        name = _node(body)
        if name is None:
            return _refused(400)
        # The token first: whether a node exists is told only to whoever has its token.
        place = predictions.place(name) if tokens.is_of_node(_token(request), name) else None
        if place is None:
            return _refused(401)
        return Response(predictions.as_json(place), media_type="application/json")

    question = {"application/json": {"schema": Question.model_json_schema()}}
    app.post(
        _PREDICTION,
        summary="Your own prediction",
        dependencies=[Depends(_BEARER)],
        responses={200: {"model": Prediction}, **_refusals(400, 401, 413, 415, 431, 503)},
        openapi_extra={"requestBody": {"required": True, "content": question}},
    )(prediction)
    return prediction


def _add_export(app: FastAPI, predictions: Predictions, tokens: Tokens) -> None:
    def check_operator(request: Request) -> None:
        if not tokens.is_of_operator(_token(request)):
            raise HTTPException(401)

    @app.get(
        "/v1/predictions",
        summary="All predictions, for the operator",
        dependencies=[Depends(_BEARER), Depends(check_operator)],
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "One node in each line, in the order of the graph.",
                "content": {"application/x-ndjson": {"schema": {}}, "text/csv": {"schema": {"type": "string"}}},
            },
            **_refusals(401, 422, 431, 503),
        },
    )
    async def export(
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=2**53)] = 2**53,
        format: Literal["ndjson", "csv"] = "ndjson",  # the name in the address
    ) -> Response:
        places = range(len(predictions))[offset : offset + limit]
        media = "application/x-ndjson" if format == "ndjson" else "text/csv"
        return StreamingResponse(_lines(predictions, places, format), media_type=media)


def _add_pages(app: FastAPI, metrics: Metrics, page: tuple[str, str]) -> None:
    @app.get("/health", summary="Whether the service answers", responses={200: {"model": Health}})
    async def health() -> Response:
        return Response(b'{"status":"ok"}\n', media_type="application/json")

    @app.get(
        "/metrics",
        summary="Counts of requests for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def show_metrics() -> Response:
        return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def show_page() -> Response:
        text, policy = page
        return Response(text, media_type="text/html", headers={"content-security-policy": policy})


async def _small_body(request: Request) -> bytes | None:
    """The body of a request; None, before it is read to its end, if it is too large."""
    stated = request.headers.get("content-length", "0")
    if not stated.isascii() or not stated.isdecimal() or len(stated) > 12 or int(stated) > LARGEST_BODY:
        return None
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > LARGEST_BODY:
            return None
    return b"".join(parts)


def _node(body: bytes) -> str | None:
    """The node of a question, checked by hand: this is the one route that has to be fast."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(asked, dict) or asked.keys() != {"node"}:
        return None
    name = asked["node"]
    return name if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME else None


def _token(request: Request) -> bytes:
    """The bearer token; an empty one, which is nobody's, if there is none or more than one."""
    given = [value for name, value in request.scope["headers"] if name == b"authorization"]
    if len(given) != 1:
        return b""
    scheme, _, token = given[0].partition(b" ")
    return bytes(token.strip()) if scheme.lower() == b"bearer" else b""


async def _lines(predictions: Predictions, places: range, form: str) -> AsyncIterator[bytes]:
    if form == "csv":
        yield predictions.csv_head()
    for first in range(0, len(places), _ROWS_AT_A_TIME):
        part = places[first : first + _ROWS_AT_A_TIME]
        yield predictions.as_csv(part) if form == "csv" else b"".join(predictions.as_json(p, owner=True) for p in part)
        await asyncio.sleep(0)  # an export must not keep others waiting


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem, "description": DETAILS[status]} for status in statuses}


def _refused(status: int, more: Mapping[str, str] | None = None) -> Response:
    headers, body = refusal(status)
    response = Response(body, status_code=status, headers=more)
    response.raw_headers += [header for header in headers if header[0] != b"content-length"]
    return response


def _answer_errors(app: FastAPI) -> None:
    """Every refusal looks the same and repeats nothing of the request."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return _refused(error.status_code, error.headers if error.status_code == 405 else None)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _refused(422)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return _refused(500)


def person_page(certificate: Certificate, epsilon_spent: float) -> tuple[str, str]:
    """The page for one person: a form for their token, and what is protected and what is not.

    Args:
        certificate: The certificate of the run.
        epsilon_spent: What the fit and later releases have spent together.

    Returns:
        The HTML and its content policy.
    """
    script = resources.files("graphveil.serve").joinpath("page.js").read_text(encoding="utf-8")
    protected = section("What is protected", *_items(what_is_protected(certificate, epsilon_spent)))
    exposed = section("What is not protected", *_items(what_is_not(certificate)))
    parts = [_question_form(), protected, exposed]
    # Without protection the certificate is for the owner of the data, like everything else.
    if not isinstance(certificate.level, Public):
        whole = element("details", element("summary", "The whole certificate"), as_html(certificate))
        parts.append(section("In detail", whole))
    text, policy = document(
        "Your prediction",
        script,
        element("header", element("h1", "Your prediction"), element("p", _LEAD, class_="lead")),
        element("main", *parts),
        asks_server=True,
    )
    return text, f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


_LEAD = "What a model that was trained on everybody's data guesses about you. Only you can ask for it, with your token."


def what_is_protected(certificate: Certificate, epsilon_spent: float) -> list[str]:
    """What the model does not give away about a person, in sentences for that person."""
    level = certificate.level
    if isinstance(level, Public):
        return ["Nothing. This model was trained without any protection."]
    lines = [_HIDDEN_LINKS if isinstance(level, Edge) else _hidden_person(level)]
    if certificate.epsilon == 0:
        lines.append("The model does not use it at all.")
    else:
        lines.append(
            "How well: whoever has two versions of it in mind, and thinks both equally likely, guesses the right one "
            "from the model and everybody else's predictions in at most "
            f"{_sure(epsilon_spent, certificate.delta)} of 100 cases; blind guessing gives 50. "
            f"(Epsilon {epsilon_spent:.3g}, delta {certificate.delta:.2g}.)"
        )
    if not certificate.secure:
        lines.append(
            "But the noise of this model was seeded: whoever knows the seed can undo it. For experiments only."
        )
    lines.append("Asking again changes nothing: you always get the same answer, and it costs no privacy.")
    return lines


def what_is_not(certificate: Certificate) -> list[str]:
    """What the guarantee does not cover, likewise."""
    level = certificate.level
    if isinstance(level, Public):
        return ["Anything: the model, and every prediction, can give away what anybody told it."]
    lines = []
    if isinstance(level, Edge):
        lines.append("Your features and your label: they are treated as public.")
        lines.append("Many of your connections together: what is hidden is each one of them.")
        lines += certificate.not_protected[1:]
    else:
        lines.append("Your own prediction, if you pass it on: it is computed from your own features and links.")
        if not level.attributes:
            lines.append("Your features and your label: they are treated as public.")
        if isinstance(level, KNeighbor) and level.k == 0:
            lines.append("Who you are connected to: it is treated as public.")
        elif isinstance(level, KNeighbor):
            lines.append(f"More than {level.k} of your connections at once: what all of them have in common can show.")
    lines.append("What many people have in common: that is what a model is meant to learn, and it may apply to you.")
    lines.append("Your data where it is stored: the owner of the data, who trained the model, has it.")
    lines.append("Your token: whoever has it can see your prediction. If somebody else has it, it can be renewed.")
    return lines


_HIDDEN_LINKS = "Each single connection of yours: whether it exists is hidden in noise from all who see predictions."


def _hidden_person(level: KNeighbor | Node) -> str:
    if isinstance(level, Node):
        links = "all of your connections"
    elif level.k == 0:
        links = ""
    else:
        links = f"any {level.k} of those you are connected to" if level.k > 1 else "any one of your connections"
    own = "your features and your label" if level.attributes else ""
    what = " and ".join(part for part in (own, links) if part)
    return (
        f"{what[0].upper()}{what[1:]}: they are hidden in noise from everybody who sees the model or their own answer."
    )


def _sure(epsilon: float, delta: float) -> str:
    # As in the certificate: the best test errs with probability (1 - delta) / (1 + e^epsilon) at least. Rounded up.
    sure = 100 * (1 - (1 - delta) / (1 + math.exp(min(epsilon, 700))))
    return f"{math.ceil(10 * sure) / 10:g}"


def _question_form() -> Html:
    name = element("label", "Your name in the graph", _input("node", "text", "username"))
    token = element("label", "Your token", _input("token", "password", "current-password"))
    form = element("form", name, token, element("button", "Show my prediction", type="submit"), id="ask")
    without = "Without JavaScript this form cannot ask; any program that speaks HTTP can: see /openapi.json."
    answer = element("div", id="answer", role="status", aria_live="polite")
    return section("Ask", form, Html(f"<noscript>{note(element('p', without))}</noscript>"), answer)


def _input(name: str, kind: str, autocomplete: str) -> Html:
    # An input has no end tag.
    words = f'name="{name}" type="{kind}" autocomplete="{autocomplete}" spellcheck="false" autocapitalize="off"'
    return Html(f"<input {words} required>")


def _items(lines: list[str]) -> list[Html]:
    return [element("ul", *(element("li", line) for line in lines))]
