"""The server: what is around every request, limits on each connection, and a listening socket.

Around a request are security headers, counts, and a log without tokens and node names. A refusal is one line of JSON
that says what the caller can do, and nothing about what is inside. Limits are on the size of a request, on how long it
may take to arrive and its answer to be read, and on the number of connections.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import json
import logging
import resource
import signal
import socket
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from time import perf_counter
from traceback import extract_tb
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from graphveil.errors import InvalidInput

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
        """Count a new connection from this address, unless there are too many; whether it was counted."""
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
    last = extract_tb(error.__traceback__)[-1]
    return f"{last.name}, line {last.lineno}"


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


LARGEST_HEAD = 16 * 1024
# How much of a refused body is read and thrown away, so that the client gets the refusal.
_LARGEST_REST = 1024 * 1024
SECONDS_TO_ARRIVE = 10.0
SECONDS_IDLE = 15
# How long an answer may wait for a client that does not read it.
SECONDS_UNREAD = 30.0
# Beyond these, a new connection is told to try again, and open ones go on. A proxy is one client.
MOST_CONNECTIONS = 1000
MOST_OF_A_CLIENT = 500
# How long a connection that is not served may take to send its request, and how many of them there may be.
SECONDS_TO_WAIT = 2.0
MOST_WAITING = 1000
_BACKLOG = 2048
_SECONDS_TO_END = 5


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's connection with limits that it does not have: on the size of a request's head, on the time that a
    request may take to arrive and an answer to be read, and on the number of connections."""

    _clock: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _size = 0
    _in_head = True
    # The counts that this connection is part of: of those that are served, or of those that wait; and its address.
    _counted: tuple[Connections, str] | None = None
    _admitted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        guard: Any = self.app
        address = self.client[0] if self.client else ""
        self._admitted = guard.connections.admit(address, MOST_CONNECTIONS, MOST_OF_A_CLIENT)
        if self._admitted:
            self._counted = (guard.connections, address)
        elif guard.waiting.admit(address, MOST_WAITING, MOST_WAITING):
            self._counted = (guard.waiting, address)
        else:
            transport.abort()
            return
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted is not None:
            connections, address = self._counted
            connections.close(address)
            self._counted = None
        self._stop_clock()
        self._stop_unread()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(SECONDS_UNREAD, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_unread()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._size > LARGEST_HEAD:
            self._refuse(431)
        elif self._size > _LARGEST_REST:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        if self._clock is None:
            self._start_clock()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if not self._admitted:
            self.scope["state"][REFUSED] = 503
        elif sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > LARGEST_HEAD:
            self.scope["state"][REFUSED] = 431
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._stop_clock()
        self._size, self._in_head = 0, True

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, NOT_HTTP)

    def _refuse(self, status: int, detail: str | None = None) -> None:
        guard: Any = self.app
        guard.metrics.note("other", status, 0.0)
        self.transport.write(raw_refusal(status, detail))
        self.transport.close()

    def _start_clock(self) -> None:
        seconds = SECONDS_TO_ARRIVE if self._admitted else SECONDS_TO_WAIT
        self._clock = self.loop.call_later(seconds, self._too_slow)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _too_slow(self) -> None:
        self._clock = None
        if self.transport.is_closing():
            return
        if self._in_head and self._size:
            self._refuse(408)
        else:
            self.transport.close()


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens on exactly one address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise InvalidInput("host", host, "is not an address of this machine") from None
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise InvalidInput("port", port, f"cannot listen on {host}: {error.strerror}") from None
    return bound


def address_of(bound: socket.socket) -> str:
    """The address of a socket as a URL."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(bound: socket.socket) -> bool:
    """Whether only programs on this machine can connect."""
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def make_server(app: Guard) -> uvicorn.Server:
    """Uvicorn for this application, with our limits and without its own log."""
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=SECONDS_IDLE,
        timeout_graceful_shutdown=_SECONDS_TO_END,
    )
    return uvicorn.Server(config)


def serve_until_told(app: Guard, bound: socket.socket, *, access_log: bool) -> None:
    """Serve until SIGINT or SIGTERM, then finish the requests that are open."""
    logging.basicConfig(format="%(asctime)s %(message)s")
    log.setLevel(logging.INFO if access_log else logging.WARNING)
    # Uvicorn warns about each malformed request; the metrics count them.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # as many connections as the system allows; some systems state too many
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Uvicorn raises the signal again when it is done; that must not look like a failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # What is loaded by now stays. Otherwise each garbage collection would go through all of PyTorch.
    gc.collect()
    gc.freeze()
    make_server(app).run(sockets=[bound])
