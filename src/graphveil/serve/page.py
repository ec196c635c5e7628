"""The page for people: their own prediction and, in plain words, what is protected and what is not."""

from __future__ import annotations

import math
from importlib import resources

from graphveil.privacy.certificate import Certificate
from graphveil.privacy.levels import Edge, KNeighbor, Node, Public
from graphveil.report.document import Html, as_html, document, element, note, section


def person_page(certificate: Certificate, epsilon_spent: float) -> tuple[str, str]:
    """The page for one person: a form for their token, and what is protected and what is not.

    Args:
        certificate: The certificate of the run.
        epsilon_spent: What the fit and later releases have spent together.

    Returns:
        The HTML and its content policy.
    """
    script = resources.files("graphveil.serve").joinpath("page.js").read_text(encoding="utf-8")
    protected = section("What is protected", *_items(what_is_protected(certificate, epsilon_spent)))
    exposed = section("What is not protected", *_items(what_is_not(certificate)))
    parts = [_question(), protected, exposed]
    # Without protection the certificate is for the owner of the data, like everything else.
    if not isinstance(certificate.level, Public):
        whole = element("details", element("summary", "The whole certificate"), as_html(certificate))
        parts.append(section("In detail", whole))
    text, policy = document(
        "Your prediction",
        script,
        element("header", element("h1", "Your prediction"), element("p", _LEAD, class_="lead")),
        element("main", *parts),
        asks_server=True,
    )
    return text, f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


_LEAD = "What a model that was trained on everybody's data guesses about you. Only you can ask for it, with your token."


def what_is_protected(certificate: Certificate, epsilon_spent: float) -> list[str]:
    """What the model does not give away about a person, in sentences for that person."""
    level = certificate.level
    if isinstance(level, Public):
        return ["Nothing. This model was trained without any protection."]
    lines = [_HIDDEN_LINKS if isinstance(level, Edge) else _hidden_person(level)]
    if certificate.epsilon == 0:
        lines.append("The model does not use it at all.")
    else:
        lines.append(
            "How well: whoever has two versions of it in mind, and thinks both equally likely, guesses the right one "
            "from the model and everybody else's predictions in at most "
            f"{_sure(epsilon_spent, certificate.delta)} of 100 cases; blind guessing gives 50. "
            f"(Epsilon {epsilon_spent:.3g}, delta {certificate.delta:.2g}.)"
        )
    if not certificate.secure:
        lines.append(
            "But the noise of this model was seeded: whoever knows the seed can undo it. For experiments only."
        )
    lines.append("Asking again changes nothing: you always get the same answer, and it costs no privacy.")
    return lines


def what_is_not(certificate: Certificate) -> list[str]:
    """What the guarantee does not cover, likewise."""
    level = certificate.level
    if isinstance(level, Public):
        return ["Anything: the model, and every prediction, can give away what anybody told it."]
    lines = []
    if isinstance(level, Edge):
        lines.append("Your features and your label: they are treated as public.")
        lines.append("Many of your connections together: what is hidden is each one of them.")
        lines += certificate.not_protected[1:]
    else:
        lines.append("Your own prediction, if you pass it on: it is computed from your own features and links.")
        if not level.attributes:
            lines.append("Your features and your label: they are treated as public.")
        if isinstance(level, KNeighbor) and level.k == 0:
            lines.append("Who you are connected to: it is treated as public.")
        elif isinstance(level, KNeighbor):
            lines.append(f"More than {level.k} of your connections at once: what all of them have in common can show.")
    lines.append("What many people have in common: that is what a model is meant to learn, and it may apply to you.")
    lines.append("Your data where it is stored: the owner of the data, who trained the model, has it.")
    lines.append("Your token: whoever has it can see your prediction. If somebody else has it, it can be renewed.")
    return lines


_HIDDEN_LINKS = "Each single connection of yours: whether it exists is hidden in noise from all who see predictions."


def _hidden_person(level: KNeighbor | Node) -> str:
    if isinstance(level, Node):
        links = "all of your connections"
    elif level.k == 0:
        links = ""
    else:
        links = f"any {level.k} of those you are connected to" if level.k > 1 else "any one of your connections"
    own = "your features and your label" if level.attributes else ""
    what = " and ".join(part for part in (own, links) if part)
    return (
        f"{what[0].upper()}{what[1:]}: they are hidden in noise from everybody who sees the model or their own answer."
    )


def _sure(epsilon: float, delta: float) -> str:
    # As in the certificate: the best test errs with probability (1 - delta) / (1 + e^epsilon) at least. Rounded up.
    sure = 100 * (1 - (1 - delta) / (1 + math.exp(min(epsilon, 700))))
    return f"{math.ceil(10 * sure) / 10:g}"


def _question() -> Html:
    name = element("label", "Your name in the graph", _field("node", "text", "username"))
    token = element("label", "Your token", _field("token", "password", "current-password"))
    form = element("form", name, token, element("button", "Show my prediction", type="submit"), id="ask")
    without = "Without JavaScript this form cannot ask; any program that speaks HTTP can: see /openapi.json."
    answer = element("div", id="answer", role="status", aria_live="polite")
    return section("Ask", form, Html(f"<noscript>{note(element('p', without))}</noscript>"), answer)


def _field(name: str, kind: str, autocomplete: str) -> Html:
    # An input has no end tag.
    words = f'name="{name}" type="{kind}" autocomplete="{autocomplete}" spellcheck="false" autocapitalize="off"'
    return Html(f"<input {words} required>")


def _items(lines: list[str]) -> list[Html]:
    return [element("ul", *(element("li", line) for line in lines))]
