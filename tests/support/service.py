"""A running service as its users see it, and small ones that tests can break."""

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
import pytest

httpx = pytest.importorskip("httpx", reason="needs the extra: pip install 'graphveil[test]'")
for module in ("fastapi", "uvicorn", "httptools"):
    pytest.importorskip(module, reason="needs the extra: pip install 'graphveil[serve]'")

from graphveil.graph.summary import Naming  # noqa: E402
from graphveil.serve import Predictions, Tokens  # noqa: E402
from graphveil.serve.app import make_app  # noqa: E402
from graphveil.serve.server import bind, make_server  # noqa: E402

# Names that a careless server would take for paths, templates or numbers.
NAMES = ("anna", "../../owner/token_secret", "a/b", "%2e%2e%2f", "ü ñ", "{node}", "7", "null", "x\u0000y", '"')


@dataclass
class Service:
    port: int
    tokens: Tokens
    known: tuple
    unknown: tuple
    # Certificates of authorities, which nobody needs here, take long to load.
    client: object = field(default_factory=lambda: httpx.Client(trust_env=False, verify=False))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def ask(self, node, token, path="/v1/prediction"):
        return self.client.post(f"{self.url}{path}", json={"node": node}, headers=bearer(token))

    def get(self, path, token=None):
        return self.client.get(f"{self.url}{path}", headers=bearer(token))

    def raw(self, data, seconds=5.0):
        """What comes back for these bytes until the server closes or waits."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            with suppress(OSError):  # it may be refused before all of it is sent
                connection.sendall(data)
            return receive(connection)


def receive(connection):
    """One answer, or what there is of it when the connection ends."""
    received = b""
    with suppress(OSError):
        while not is_complete(received) and (part := connection.recv(65536)):
            received += part
    return received


def bearer(token):
    return {} if not token else {"Authorization": f"Bearer {token}"}


def is_complete(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return bool(length) and len(body) >= int(length)


def request(node, token, path="/v1/prediction"):
    body = json.dumps({"node": node}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def check_refusal(answer, status):
    """One line of JSON and nothing else."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.text.count("\n") == 1
    assert list(answer.json()) == ["detail"]
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
    check_headers(answer)


def check_headers(answer):
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "server" not in answer.headers


def check_nobody_gets_anothers(service):
    """Every token opens its own node, and no token anything else."""
    tokens = {name: service.tokens.of_node(name) for name in service.known}
    for name, token in tokens.items():
        answer = service.ask(name, token)
        assert answer.status_code == 200, answer.text
        assert answer.json()["node"] == name
    tokens["operator"] = service.tokens.of_operator()
    for owner, token in tokens.items():
        for name in service.known:
            if name != owner:
                assert service.ask(name, token).status_code == 401


def check_existence_is_not_told(service):
    """A wrong token for a node, and any token for something that is no node, get the same bytes."""
    wrong = service.tokens.of_node("somebody else")
    answers = [service.ask(name, wrong) for name in (*service.known, *service.unknown)]
    # Not even a token that would be right tells a name apart that no node has.
    answers += [service.ask(name, service.tokens.of_node(name)) for name in service.unknown]
    seen = {(a.status_code, a.content, tuple((k, v) for k, v in a.headers.items() if k != "date")) for a in answers}
    assert len(seen) == 1
    check_refusal(answers[0], 401)


def small_app(tokens=None, names=NAMES):
    tokens = tokens or Tokens(b"s" * 32)
    rows = np.random.default_rng(0).dirichlet(np.ones(3), size=len(names)).astype(np.float32)
    predictions = Predictions(Naming(nodes=tuple(names)), rows)
    return make_app(predictions, tokens, ("<!doctype html>", "default-src 'none'")), tokens, tuple(names)


@contextmanager
def in_thread(app):
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    server = make_server(app)
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(timeout=20)
