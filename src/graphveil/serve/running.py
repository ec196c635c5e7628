"""From a run to a listening server, and to its end."""

from __future__ import annotations

import gc
import ipaddress
import logging
import resource
import signal
import socket
from contextlib import suppress
from pathlib import Path

import uvicorn

from graphveil.artifact import load
from graphveil.errors import InvalidInput
from graphveil.serve.app import make_app
from graphveil.serve.guard import Guard, log
from graphveil.serve.limits import SECONDS_IDLE, LimitedProtocol
from graphveil.serve.page import person_page
from graphveil.serve.predictions import Predictions
from graphveil.serve.tokens import tokens_of

_BACKLOG = 2048
_SECONDS_TO_END = 5


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
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        raise InvalidInput("port", port, f"cannot listen on {host}: {error.strerror}") from None
    return found


def address_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(bound: socket.socket) -> bool:
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def make_server(app: Guard) -> uvicorn.Server:
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
    """Serve until SIGINT or SIGTERM, then finish what is under way."""
    logging.basicConfig(format="%(asctime)s %(message)s")
    log.setLevel(logging.INFO if access_log else logging.WARNING)
    # Uvicorn warns about each malformed request; the metrics count them.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # as many connections as the system allows; some systems state too many
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Uvicorn raises the signal again when it is done: for a service that was told to end, the end is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # What is loaded by now stays: without this, every search for garbage goes through all of PyTorch.
    gc.collect()
    gc.freeze()
    make_server(app).run(sockets=[bound])
