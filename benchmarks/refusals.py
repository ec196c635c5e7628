"""Whether refusals of the service can be told apart by their time: a node that exists from one that does not, and a
token that is nearly right from one that is all wrong."""

from __future__ import annotations

import json
import socket
import time

import numpy as np

from graphveil.serve import Tokens

# If nothing differs, the share of pairs in which one kind is the slower one is 1/2 within 0.018 (one standard error of
# 500 against 500); more than five of them are no accident.
BOUND = 0.1
_ROUNDS = 500


def largest_difference(port: int, tokens: Tokens, known: str, unknown: str) -> float:
    """Over all kinds of refusals: how far the share of pairs in which it is slower than the first kind is from 1/2."""
    right, other = tokens.of_node(known), tokens.of_node("x" + known)
    first, *rest = _times(
        port,
        [
            _request(unknown, other),
            _request(known, other),
            _request(known, right[:-1] + ("A" if right[-1] != "A" else "Q")),
            _request(known, "!" * len(other)),
            _request(unknown, tokens.of_node(unknown)),
        ],
    )
    return max(abs(float((first[:, None] < times[None, :]).mean()) - 0.5) for times in rest)


def _times(port: int, requests: list[bytes]) -> np.ndarray:
    """Seconds of each request, taken in turn over one connection, so that what the machine does hits all alike."""
    seconds = np.zeros((len(requests), _ROUNDS))
    order = np.random.default_rng(0)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(_ROUNDS):
            for kind in order.permutation(len(requests)):
                began = time.perf_counter()
                connection.sendall(requests[kind])
                answer = connection.recv(65536)
                while not answer.endswith(b"}\n"):
                    answer += connection.recv(65536)
                seconds[kind, number] = time.perf_counter() - began
                assert answer.startswith(b"HTTP/1.1 401"), answer
    return seconds


def _request(node: str, token: str) -> bytes:
    body = json.dumps({"node": node}).encode()
    head = (
        "POST /v1/prediction HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
