"""Services that are broken on purpose, which the checks must catch."""

import pytest
from starlette.exceptions import HTTPException

from graphveil.serve import Predictions, Tokens
from support.service import Service, check_existence_is_not_told, check_nobody_gets_anothers, in_thread, small_app


class AnybodysToken(Tokens):
    """Asks whether a token is some node's, and not whose."""

    def is_of_node(self, token, name):
        return any(super(AnybodysToken, self).is_of_node(token, other) for other in ("anna", "a/b"))


class TrustingToken(Tokens):
    """The operator may ask for everybody."""

    def is_of_node(self, token, name):
        return super().is_of_node(token, name) or self.is_of_operator(token)


class TellingToken(Tokens):
    """Says which nodes do not exist."""

    def is_of_node(self, token, name):
        if name == "nobody":
            raise HTTPException(404)
        return super().is_of_node(token, name)


@pytest.mark.parametrize("twin", [AnybodysToken, TrustingToken])
def test_whoever_gives_anothers_is_caught(twin):
    app, tokens, names = small_app(twin(b"s" * 32))
    with in_thread(app) as port, pytest.raises(AssertionError):
        check_nobody_gets_anothers(Service(port, tokens, names, ("nobody",)))


def test_whoever_tells_existence_is_caught():
    app, tokens, names = small_app(TellingToken(b"s" * 32))
    with in_thread(app) as port, pytest.raises(AssertionError):
        check_existence_is_not_told(Service(port, tokens, names, ("nobody",)))


def test_whoever_confuses_rows_is_caught(monkeypatch):
    app, tokens, names = small_app()
    place = Predictions.place
    monkeypatch.setattr(Predictions, "place", lambda self, name: (place(self, name) + 1) % len(self))
    with in_thread(app) as port, pytest.raises(AssertionError):
        check_nobody_gets_anothers(Service(port, tokens, names, ("nobody",)))
