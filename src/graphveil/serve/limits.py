"""Around every connection: how large and how slow a request may be, and how many there may be at once."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from graphveil.serve.guard import REFUSED
from graphveil.serve.places import Places
from graphveil.serve.refusals import NOT_HTTP, raw_refusal

LARGEST_HEAD = 16 * 1024
LARGEST_BODY = 16 * 1024
# What is read and thrown away of a body that was refused already, so that the refusal arrives.
_LARGEST_REST = 1024 * 1024
SECONDS_TO_ARRIVE = 10.0
SECONDS_IDLE = 15
# How long an answer may wait for somebody who does not read it.
SECONDS_UNREAD = 30.0
# Beyond these, the newest connection is told to wait, and those that are there go on. A proxy is one client.
MOST_CONNECTIONS = 1000
MOST_OF_A_CLIENT = 500
# How long a connection without a place may take to ask, and hear that it has to wait; and how many may do so at once.
SECONDS_WITHOUT_PLACE = 2.0
MOST_WITHOUT_PLACE = 1000


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's connection with limits that it does not have: on the size of a request's head, on the time that a
    request may take to arrive and an answer to be read, and a refusal in JSON where there are too many connections."""

    _clock: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _size = 0
    _in_head = True
    # The places that this connection holds one of: those of the service, or those of the refused.
    _place: tuple[Places, str] | None = None
    _admitted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        guard: Any = self.app
        address = self.client[0] if self.client else ""
        self._admitted = guard.places.take(address, MOST_CONNECTIONS, MOST_OF_A_CLIENT)
        if self._admitted:
            self._place = (guard.places, address)
        elif guard.waiting.take(address, MOST_WITHOUT_PLACE, MOST_WITHOUT_PLACE):
            self._place = (guard.waiting, address)
        else:
            transport.abort()
            return
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._place is not None:
            places, address = self._place
            places.give_back(address)
            self._place = None
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
        seconds = SECONDS_TO_ARRIVE if self._admitted else SECONDS_WITHOUT_PLACE
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


async def small_body(request: Request) -> bytes | None:
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
