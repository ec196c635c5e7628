"""Around every request: security headers, metrics, refusals, a log without tokens and node names.

A refusal is one line of JSON that says what the caller can do, and nothing about what is inside.
"""

from __future__ import annotations

import ipaddress
import json
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from time import perf_counter
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Handler = Callable[[Request], Awaitable[Response]]
log = logging.getLogger("graphveil.serve")
# The key, in the state of a scope, of the status with which the server refuses this request.
REFUSED = "refused"
# The client has left; this status is never sent, only counted.
_GONE = 499
# Upper bounds of the histogram of times, in seconds.
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
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


class Connections:
    """Counts open connections, in all and by client. Only new connections are refused; open ones stay."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def admit(self, address: str, most: int, most_of_a_client: int) -> bool:
        """Count a new connection from this address, unless there are too many.

        Args:
            address: Where it comes from.
            most: The largest number of connections in all.
            most_of_a_client: The largest number of connections of one client.

        Returns:
            Whether it was counted.
        """
        client = _client(address)
        if self._open.total() >= most or self._open[client] >= most_of_a_client:
            return False
        self._open[client] += 1
        return True

    def close(self, address: str) -> None:
        """A connection that was counted has ended."""
        client = _client(address)
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]


def _client(address: str) -> str:
    """The client of an address: the address itself or, for IPv6, its network of 2^64 addresses."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


class Metrics:
    """Counts of requests by route and status, never by node, since this process started."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._by_time = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0

    def note(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests[route, status] += 1
        self._by_time[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds += seconds

    def render(self) -> str:
        """The counts in the text form of Prometheus."""
        lines = ["# HELP graphveil_requests_total Requests answered.", "# TYPE graphveil_requests_total counter"]
        for (route, status), count in sorted(self._requests.items()):
            lines.append(f'graphveil_requests_total{{route="{route}",status="{status}"}} {count}')
        lines += [
            "# HELP graphveil_request_seconds Time from the end of a request's head to the end of its answer.",
            "# TYPE graphveil_request_seconds histogram",
        ]
        total = 0
        for bound, count in zip((*_BOUNDS, "+Inf"), self._by_time, strict=True):
            total += count
            lines.append(f'graphveil_request_seconds_bucket{{le="{bound}"}} {total}')
        lines += [f"graphveil_request_seconds_sum {self._seconds:.6f}", f"graphveil_request_seconds_count {total}"]
        return "\n".join(lines) + "\n"


class Guard:
    """The outermost part of the application.

    Args:
        app: The application.
        metrics: Counts all requests.
        direct: Routes, by method and path, that are called without going through the application, which would take
            longer than the answer itself.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, direct: Mapping[tuple[str, str], Handler]) -> None:
        self._app, self._direct, self.metrics = app, direct, metrics
        # Connections that are served, and those that are only told to try again later.
        self.connections, self.waiting = Connections(), Connections()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = perf_counter(), 0
        handler = self._direct.get((scope["method"], scope["path"]))

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _with_security(message.get("headers", []))
            await send(message)

        try:
            if refused := scope.get("state", {}).get(REFUSED):
                await _refuse(guarded, refused)
            elif handler is not None:
                answer = await handler(Request(scope, receive))
                await answer(scope, receive, guarded)
            else:
                await self._app(scope, receive, guarded)
        except ClientDisconnect:
            status = status or _GONE
        except Exception as error:
            # Neither the message nor the values of an exception: they may name a node.
            log.error("%s in %s", type(error).__name__, _place(error))
            if not status:
                await _refuse(guarded, 500)
        finally:
            seconds = perf_counter() - began
            route = scope["path"] if handler else getattr(scope.get("route"), "path", "other")
            self.metrics.note(route, status or _GONE, seconds)
            log.info("%s %s %d %.1f ms", scope["method"], route, status or _GONE, 1000 * seconds)


def _with_security(headers: Any) -> list[tuple[bytes, bytes]]:
    secure = [*headers, *SECURITY_HEADERS]
    return secure if any(name == CONTENT_POLICY[0] for name, _ in secure) else [*secure, CONTENT_POLICY]


async def _refuse(send: Send, status: int) -> None:
    headers, body = refusal(status)
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}"


def refusal(status: int, detail: str | None = None) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of a refusal."""
    body = json.dumps({"detail": detail or DETAILS.get(status, "refused")}).encode() + b"\n"
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return headers + ([_MORE[status]] if status in _MORE else []), body


def raw_refusal(status: int, detail: str | None = None) -> bytes:
    """A whole answer to something that is no request; the connection ends with it."""
    headers, body = refusal(status, detail)
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    lines = (*headers, *SECURITY_HEADERS, CONTENT_POLICY, (b"connection", b"close"))
    return head + b"".join(name + b": " + value + b"\r\n" for name, value in lines) + b"\r\n" + body
