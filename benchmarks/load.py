"""A load generator in a process of its own: keep-alive connections that each wait for their answer, at full speed or
at a fixed rate. Times at a fixed rate count from when a request was due, so that a server that falls behind shows."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import uvloop


@dataclass(frozen=True)
class Load:
    """What a server did with it: answers per second, and how long they took, in seconds."""

    rate: float
    seconds: np.ndarray

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.seconds, share))


def drive(port: int, requests: list[bytes], *, connections: int, seconds: float, rate: float | None = None) -> Load:
    """Send these requests in turn. Any answer but 200 is an error: refusals must not count as speed."""
    return uvloop.run(_drive(port, requests, connections, seconds, rate))


async def _drive(port: int, requests: list[bytes], connections: int, seconds: float, rate: float | None) -> Load:
    loop = asyncio.get_running_loop()
    source = _Source(requests, rate, time.perf_counter() + 0.2, seconds)
    made = [await loop.create_connection(lambda: _Connection(source), "127.0.0.1", port) for _ in range(connections)]
    for _, connection in made:
        connection.ready()
    await source.feed()
    source.check()
    for transport, _ in made:
        transport.close()
    return Load(len(source.times) / (source.last - source.began), np.array(source.times))


class _Source:
    """Hands out requests and takes down when they were due and answered."""

    def __init__(self, requests: list[bytes], rate: float | None, began: float, seconds: float) -> None:
        self.requests, self.rate, self.began, self.ends = requests, rate, began, began + seconds
        self.waiting: deque[float] = deque()
        self.free: deque[_Connection] = deque()
        self.times: list[float] = []
        self.last = began
        self.failed: bytes | None = None
        self._sent = 0

    async def feed(self) -> None:
        await asyncio.sleep(self.began - time.perf_counter())
        due = self.began
        while (now := time.perf_counter()) < self.ends:
            if self.rate is None:
                while self.free:
                    self.send(self.free.popleft(), now)
                await asyncio.sleep(0.05)
                continue
            while due <= now:
                self.waiting.append(due)
                due += 1 / self.rate
            while self.waiting and self.free:
                self.send(self.free.popleft(), self.waiting.popleft())
            await asyncio.sleep(max(due - time.perf_counter(), 0.0002))

    def send(self, connection: _Connection, due: float) -> None:
        connection.send(self.requests[self._sent % len(self.requests)], due)
        self._sent += 1

    def answered(self, connection: _Connection, due: float) -> None:
        now = time.perf_counter()
        self.times.append(now - due)
        self.last = now
        if self.rate is None and now < self.ends:
            self.send(connection, now)
        elif self.waiting:
            self.send(connection, self.waiting.popleft())
        else:
            self.free.append(connection)

    def check(self) -> None:
        if self.failed is not None:
            raise RuntimeError(f"the server refused: {self.failed[:200]!r}")


class _Connection(asyncio.Protocol):
    def __init__(self, source: _Source) -> None:
        self._source, self._due = source, 0.0
        self._data = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def ready(self) -> None:
        self._source.free.append(self)

    def send(self, request: bytes, due: float) -> None:
        self._due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, _, body = self._data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if not length or len(body) < int(length):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self._source.failed = self._data
        self._data = b""
        self._source.answered(self, self._due)
