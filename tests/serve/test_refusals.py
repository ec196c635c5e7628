"""Requests that nobody should send: refused in one line, and the service goes on."""

import socket
import time
from contextlib import suppress

import pytest

from support.service import Service, check_refusal, in_thread, receive, request, small_app

pytestmark = pytest.mark.slow

app = pytest.importorskip("graphveil.serve.app")
server = pytest.importorskip("graphveil.serve.server")

BODIES = {
    "empty": b"",
    "not JSON": b"{",
    "not an object": b'"3"',
    "a list": b'["3"]',
    "nothing in it": b"{}",
    "a number": b'{"node": 3}',
    "null": b'{"node": null}',
    "an empty name": b'{"node": ""}',
    "more than asked": b'{"node": "3", "admin": true}',
    "too long a name": b'{"node": "' + b"x" * 1025 + b'"}',
    "not UTF-8": b'{"node": "\xff\xfe"}',
    "too deep": b'{"node": ' + b"[" * 8000 + b"]" * 8000 + b"}",
    "a huge number": b'{"node": ' + b"9" * 8000 + b"}",
}
PATHS = (
    "/../owner/token_secret",
    "/..%2fowner%2ftoken_secret",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/v1/prediction/../predictions",
    "/v1//prediction",
    "/v1/prediction/",
    "/v1/prediction%00",
    "/V1/PREDICTION",
    "//v1/prediction",
    "/v1/predictions/3",
    "/owner/state.safetensors",
    "/\\..\\owner",
)
NOT_HTTP = {
    "noise": b"\x16\x03\x01\x02\x00\x01\x00\xfc\r\n\r\n",
    "two lengths": b"POST /v1/prediction HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "length and chunks": b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "negative length": b"POST /v1/prediction HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "bad chunk": b"POST /v1/prediction HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a proxy's request": b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "not ASCII": b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    "line feed in a header": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
}


@pytest.fixture(autouse=True)
def alive(service):
    yield
    assert service.get("/health").status_code == 200


def post(service, content, token=None, **headers):
    headers = {"Content-Type": "application/json", **headers}
    headers["Authorization"] = f"Bearer {token or service.tokens.of_node('3')}"
    return service.client.post(f"{service.url}/v1/prediction", content=content, headers=headers)


@pytest.mark.parametrize("name", BODIES)
def test_malformed_bodies(service, name):
    check_refusal(post(service, BODIES[name]), 400)


def test_half_a_character_is_a_name_like_any_other(service):
    check_refusal(post(service, b'{"node": "\\ud800"}'), 401)


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_other_kinds_of_bodies(service, kind):
    check_refusal(post(service, b'{"node": "3"}', **{"Content-Type": kind}), 415)


def test_oversized_bodies(service):
    large = b'{"node": "' + b"x" * app.LARGEST_BODY + b'"}'
    check_refusal(post(service, large), 413)
    check_refusal(post(service, (large[i : i + 1000] for i in range(0, len(large), 1000))), 413)
    head = b"POST /v1/prediction HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n"
    assert service.raw(head).startswith(b"HTTP/1.1 413")
    # What follows a refusal is read only so far.
    assert len(service.raw(head + b"x" * 4 * 2**20, seconds=2)) < 2000


def test_oversized_heads(service):
    long = b"x" * server.LARGEST_HEAD
    for head in (b"/health HTTP/1.1\r\nA: %s\r\n\r\n", b"/health?%s HTTP/1.1\r\n\r\n", b"/health HTTP/1.1\r\nA: %s"):
        assert service.raw(b"GET " + head % long).startswith(b"HTTP/1.1 431")
    many = b"".join(b"H%d: x\r\n" % i for i in range(5000))
    assert service.raw(b"GET /health HTTP/1.1\r\n" + many + b"\r\n").startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("path", PATHS)
def test_path_tricks(service, path):
    token = service.tokens.of_node("3")
    for head in (request("3", token, path), f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()):
        answer = service.raw(head)
        assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400", b"HTTP/1.1 405")), answer
        assert answer.endswith(b'"}\n')


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_other_methods(service, method):
    answer = service.client.request(method, f"{service.url}/v1/prediction")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("name", NOT_HTTP)
def test_what_is_not_http(service, name):
    answer = service.raw(NOT_HTTP[name])
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404")), answer
    assert b"application/json" in answer
    assert b'{"detail": ' in answer


def test_an_error_inside_says_nothing_about_itself(monkeypatch, caplog):
    from graphveil.serve import Predictions

    def fail(self, place):
        raise RuntimeError(f"secret about {self.name(place)}")

    monkeypatch.setattr(Predictions, "as_json", fail)
    app, tokens, names = small_app()
    with in_thread(app) as port:
        check_refusal(Service(port, tokens, names, ()).ask("anna", tokens.of_node("anna")), 500)
    assert "RuntimeError" in caplog.text
    assert "anna" not in caplog.text


def test_nodes_are_looked_up_for_right_tokens_only(thread, monkeypatch):
    """The time of a refusal cannot depend on a look-up that does not happen; `make bench` measures it."""
    from graphveil.serve import Predictions

    looked_up, place = [], Predictions.place
    monkeypatch.setattr(Predictions, "place", lambda self, name: looked_up.append(name) or place(self, name))
    right = thread.tokens.of_node("anna")
    for node, token in (("anna", thread.tokens.of_node("x")), ("nobody", right), ("anna", right[:-1] + "!")):
        assert thread.ask(node, token).status_code == 401
    assert looked_up == []
    assert thread.ask("anna", right).status_code == 200
    assert looked_up == ["anna"]


def until_closed(connection):
    """What comes until the service closes the connection; a service that waits for ever is a TimeoutError."""
    received = b""
    with suppress(ConnectionError):
        while part := connection.recv(65536):
            received += part
    return received


def test_slow_requests_end(thread, monkeypatch):
    monkeypatch.setattr(server, "SECONDS_TO_ARRIVE", 0.3)
    body_missing = b"POST /v1/prediction HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    for data, answer in {b"": b"", b"GET /hea": b"HTTP/1.1 408", body_missing: b""}.items():
        with socket.create_connection(("127.0.0.1", thread.port), timeout=30) as connection:
            connection.sendall(data)
            assert until_closed(connection).startswith(answer)
    with socket.create_connection(("127.0.0.1", thread.port), timeout=4) as kept:
        kept.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert receive(kept).startswith(b"HTTP/1.1 200")
        kept.sendall(b"GET /hea")  # a second request on the same connection has no more time than the first
        assert receive(kept).startswith(b"HTTP/1.1 408")


def test_answers_that_nobody_reads_end(monkeypatch):
    monkeypatch.setattr(server, "SECONDS_UNREAD", 0.3)
    app, tokens, _ = small_app(names=[f"{'x' * 500}{number}" for number in range(20_000)])
    with in_thread(app) as port, socket.create_connection(("127.0.0.1", port), timeout=10) as deaf:
        head = f"GET /v1/predictions HTTP/1.1\r\nAuthorization: Bearer {tokens.of_operator()}\r\n\r\n"
        deaf.sendall(head.encode())
        time.sleep(1.5)
        assert not receive(deaf).endswith(b"0\r\n\r\n")  # the end of a whole answer


def test_upgrades_are_not_taken(service):
    for to in (b"websocket", b"h2c"):
        head = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n" % to
        assert service.raw(head).startswith(b"HTTP/1.1 200")
    assert service.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_too_many_connections_are_told_to_wait(thread, monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 5)
    held = [socket.create_connection(("127.0.0.1", thread.port)) for _ in range(5)]
    for connection in held:
        connection.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert receive(connection).startswith(b"HTTP/1.1 200")
    answer = thread.get("/health")
    check_refusal(answer, 503)
    assert answer.headers["retry-after"] == "1"
    for connection in held:
        connection.close()
    time.sleep(0.1)
    assert thread.get("/health").status_code == 200


def hold(port, count, source="127.0.0.1"):
    """Connections that were served and stay open."""
    held = [socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(source, 0)) for _ in range(count)]
    assert [ask(connection) for connection in held] == [200] * count
    return held


def ask(connection):
    connection.sendall(b"GET /health HTTP/1.1\r\n\r\n")
    return int(receive(connection).split()[1])


def first_that_is_let_in(port):
    """A connection in a place that has just become free: the service takes a moment to notice."""
    for _ in range(100):
        connection = socket.create_connection(("127.0.0.1", port), timeout=5)
        if ask(connection) == 200:
            return connection
        connection.close()
        time.sleep(0.05)
    raise AssertionError("no place became free")


def test_those_who_are_there_go_on(thread, monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 5)
    held = hold(thread.port, 5)
    late = [socket.create_connection(("127.0.0.1", thread.port), timeout=5) for _ in range(20)]
    assert [ask(connection) for connection in late] == [503] * 20
    # While the refused are still open, nobody who was there before is refused or closed.
    waiting = [socket.create_connection(("127.0.0.1", thread.port), timeout=5) for _ in range(20)]
    assert [ask(connection) for connection in held * 3] == [200] * 15
    held.pop().close()
    held.append(first_that_is_let_in(thread.port))
    assert [ask(connection) for connection in held] == [200] * 5
    for connection in held + late + waiting:
        connection.close()


def test_one_client_does_not_take_all_places(thread, monkeypatch):
    monkeypatch.setattr(server, "MOST_OF_A_CLIENT", 3)
    held = hold(thread.port, 3)
    with socket.create_connection(("127.0.0.1", thread.port), timeout=5) as fourth:
        assert ask(fourth) == 503
    held += hold(thread.port, 3, source="127.0.0.2")
    assert [ask(connection) for connection in held] == [200] * 6
    for connection in held:
        connection.close()


def test_the_refused_do_not_stay(thread, monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)
    monkeypatch.setattr(server, "MOST_WAITING", 2)
    monkeypatch.setattr(server, "SECONDS_TO_WAIT", 0.5)
    held = hold(thread.port, 1)
    silent = [socket.create_connection(("127.0.0.1", thread.port), timeout=30) for _ in range(3)]
    assert [until_closed(connection) for connection in silent] == [b""] * 3
    assert ask(held[0]) == 200
    held[0].close()


def test_networks_of_one_customer_count_as_one_client():
    from graphveil.serve.server import Connections

    connections = Connections()
    assert connections.admit("2001:db8::1", 9, 2)
    assert connections.admit("2001:db8::2", 9, 2)
    assert not connections.admit("2001:db8::3", 9, 2)
    assert connections.admit("2001:db8:0:1::1", 9, 2)
    connections.close("2001:db8::2")
    assert connections.admit("2001:db8::3", 9, 2)
    assert not connections.admit("127.0.0.1", 3, 2)
