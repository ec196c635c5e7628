"""Refusals take as long whether or not a node exists, and however wrong a token is."""

import socket
import time

import numpy as np
import pytest

from graphveil.serve.tokens import Tokens
from support.service import Service, in_thread, is_complete, request, small_app

ROUNDS = 500
# The share of pairs in which one kind is the slower one is 1/2 within 0.018 if nothing differs (one standard error of
# 500 against 500); more than five of them are no accident.
BOUND = 0.1


def check_times(service, known, unknown):
    right = service.tokens.of_node(known)
    other = service.tokens.of_node("x" + known)
    kinds = {
        "unknown node": request(unknown, other),
        "wrong token": request(known, other),
        "nearly right token": request(known, right[:-1] + ("A" if right[-1] != "A" else "Q")),
        "no token at all": request(known, "!" * len(other)),
        "right token for a name that no node has": request(unknown, service.tokens.of_node(unknown)),
    }
    times = measure(service.port, kinds)
    first = np.array(times.pop("unknown node"))
    shares = {name: (first[:, None] < np.array(found)[None, :]).mean() for name, found in times.items()}
    assert all(abs(share - 0.5) < BOUND for share in shares.values()), shares


def measure(port, kinds):
    """Seconds of each kind, taken in turn over one connection, so that what the machine does hits all alike."""
    found = {name: [] for name in kinds}
    order = np.random.default_rng(0)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUNDS):
            for name in order.permutation(list(kinds)):
                began = time.perf_counter()
                connection.sendall(kinds[name])
                answer = b""
                while not is_complete(answer):
                    answer += connection.recv(65536)
                found[name].append(time.perf_counter() - began)
                assert answer.startswith(b"HTTP/1.1 401")
    return found


def test_times_tell_nothing(service):
    check_times(service, "117", "217")


def test_a_service_that_looks_nodes_up_first_is_caught():
    class Hasty(Tokens):
        def is_of_node(self, token, name):
            if name == "117":
                sum(range(20_000))  # a little more work for nodes that exist
            return super().is_of_node(token, name)

    app, tokens, names = small_app(Hasty(b"s" * 32), names=("117",))
    with in_thread(app) as port, pytest.raises(AssertionError):
        check_times(Service(port, tokens, names, ("217",)), "117", "217")
