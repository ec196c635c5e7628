"""The server: from a run to a listening socket, limits on each connection, and its end.

Limits are on the size of a request, on how long it may take to arrive and its answer to be read, and on the number of
connections.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import resource
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from graphveil.artifact import load
from graphveil.errors import InvalidInput
from graphveil.serve import Predictions, tokens_of
from graphveil.serve.app import make_app, person_page
from graphveil.serve.guard import NOT_HTTP, REFUSED, Connections, Guard, log, raw_refusal

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


def app_of(run: Path) -> Guard:
    """The application that serves this run."""
    model = load(run)
    tokens = tokens_of(run)
    return make_app(Predictions.of(model), tokens, person_page(model.certificate_, model.epsilon_spent))


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
