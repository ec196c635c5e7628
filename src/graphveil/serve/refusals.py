"""Refusals: one line of JSON that says what the asker can do, and nothing about what is inside."""

from __future__ import annotations

import json
from http import HTTPStatus

# On every answer; a page states its own content policy.
SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
CONTENT_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")

DETAILS = {
    400: 'the body must be JSON of the form {"node": "..."}',
    401: "this token is not for this",
    404: "there is nothing here",
    405: "this method is not for this address",
    408: "the request took too long to arrive",
    413: "the body is too large",
    415: "the body must be application/json",
    422: "the query is not as described in /openapi.json",
    431: "the head of the request is too large",
    500: "something went wrong here; it is not your request",
    503: "too many requests at once; try again",
}
NOT_HTTP = "this is not HTTP"
_MORE = {401: (b"www-authenticate", b"Bearer"), 503: (b"retry-after", b"1")}


def refusal(status: int, detail: str | None = None) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of a refusal."""
    body = json.dumps({"detail": detail or DETAILS.get(status, "refused")}).encode() + b"\n"
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return headers + ([_MORE[status]] if status in _MORE else []), body


def raw_refusal(status: int, detail: str | None = None) -> bytes:
    """A whole answer for a request that never became one; the connection ends with it."""
    headers, body = refusal(status, detail)
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    lines = (*headers, *SECURITY_HEADERS, CONTENT_POLICY, (b"connection", b"close"))
    return head + b"".join(name + b": " + value + b"\r\n" for name, value in lines) + b"\r\n" + body
