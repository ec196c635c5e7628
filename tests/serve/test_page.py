"""The page for people: in plain words, and true of every level."""

import pytest

import graphveil as gv
from graphveil.serve.app import person_page, what_is_not, what_is_protected
from support.artifacts import fitted

LEVELS = {
    "k": (gv.KNeighbor(1), "any one of your connections"),
    "k5": (gv.KNeighbor(5, attributes=False), "Any 5 of those you are connected to"),
    "k0": (gv.KNeighbor(0), "Your features and your label: they are hidden"),
    "edge": (gv.Edge(), "Each single connection"),
    "none": (gv.Public(), "Nothing."),
}


@pytest.mark.parametrize("name", LEVELS)
def test_words_fit_the_level(name):
    level, words = LEVELS[name]
    model = fitted("mlp", level=level)
    certificate = model.certificate_
    assert words in " ".join(what_is_protected(certificate, model.epsilon_spent))
    public = "Your features and your label: they are treated as public."
    assert (public in what_is_not(certificate)) == (name in ("k5", "edge"))
    assert ("Who you are connected to: it is treated as public." in what_is_not(certificate)) == (name == "k0")
    text, policy = person_page(certificate, model.epsilon_spent)
    # At level none the certificate is no more for everybody than the rest.
    assert ("The whole certificate" in text) == (name != "none")
    assert "form-action 'none'" in policy
    assert "http://" not in text
    assert "https://" not in text
