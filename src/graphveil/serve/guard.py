"""Around every request: security headers, metrics, a log without tokens and node names, errors without internals."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphveil.serve.metrics import Metrics
from graphveil.serve.places import Places
from graphveil.serve.refusals import CONTENT_POLICY, SECURITY_HEADERS, refusal

Handler = Callable[[Request], Awaitable[Response]]
log = logging.getLogger("graphveil.serve")
# In the state of a scope: the status with which the connection's limits refuse this request.
REFUSED = "refused"
_GONE = 499  # whoever asked has left; never sent, only counted


class Guard:
    """The outermost part of the application.

    `direct` are routes by method and path that are called from here: on the way through the application a request
    takes longer than its answer.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, direct: Mapping[tuple[str, str], Handler]) -> None:
        self._app, self._direct, self.metrics = app, direct, metrics
        # Of connections that are served, and of those that only hear that they have to wait.
        self.places, self.waiting = Places(), Places()

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
    found = [*headers, *SECURITY_HEADERS]
    return found if any(name == CONTENT_POLICY[0] for name, _ in found) else [*found, CONTENT_POLICY]


async def _refuse(send: Send, status: int) -> None:
    headers, body = refusal(status)
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}"
