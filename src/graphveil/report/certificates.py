"""Certificates for people: headings, sentences and lists, each certificate and each sentence kept once.

Runs that differ only in their seed share one certificate, and certificates share most of their sentences: thousands of
runs fit in a page that opens at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from graphveil.errors import InvalidInput
from graphveil.privacy.certificate import Certificate
from graphveil.report.markup import Html, element, plain, together

# A heading, a sentence, an item of a list: the kinds that page.js knows.
Kind = Literal["h", "p", "i"]
Block = tuple[Kind, str]


def blocks(certificate: Certificate) -> list[Block]:
    """The certificate's own text, cut into headings, sentences and items."""
    # The first line is its title, which the page has a place for.
    lines = [line for line in str(certificate).splitlines()[1:] if line.strip()]
    found: list[Block] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("  - "):
            found.append(("i", plain(line[4:])))
        else:
            heads_a_list = not line.startswith(" ") and after.startswith("  ")
            found.append(("h" if heads_a_list else "p", plain(line.strip())))
    return found


def as_html(certificate: Certificate) -> Html:
    """The whole certificate, for a page that shows a single one."""
    parts: list[Html] = []
    items: list[Html] = []
    for kind, text in blocks(certificate):
        if kind == "i":
            items.append(element("li", text))
            continue
        parts += [element("ul", *items)] if items else []
        items = []
        parts.append(element("h3" if kind == "h" else "p", text))
    return together(*parts, *([element("ul", *items)] if items else []))


class Collection:
    """Certificates of many runs, numbered; equal ones have one number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lines: dict[Block, int] = {}
        self._texts: list[list[int]] = []
        self.certificates: list[Certificate] = []

    def add(self, record: Mapping[str, Any]) -> int | None:
        """The number of this run's certificate; None if the run has none."""
        data = record.get("certificate")
        if data is None:
            return None
        text = json.dumps(data, sort_keys=True)
        if text not in self._numbers:
            try:
                certificate = Certificate.from_json(text)
                found = blocks(certificate)
            except InvalidInput as error:
                raise InvalidInput("run", record["key"], f"its certificate cannot be read: {error}") from None
            self._numbers[text] = len(self._texts)
            self._texts.append([self._lines.setdefault(block, len(self._lines)) for block in found])
            self.certificates.append(certificate)
        return self._numbers[text]

    def to_data(self) -> dict[str, Any]:
        """What page.js builds certificates from: all lines, and for each certificate the lines that it has."""
        return {"lines": list(self._lines), "certificates": self._texts}


def spent(certificates: Iterable[Certificate]) -> str:
    """Epsilon and delta of certificates that belong together, the largest of each.

    >>> spent([])
    ''
    """
    found = list(certificates)
    if not found:
        return ""
    epsilon = max(certificate.epsilon for certificate in found)
    delta = max(certificate.delta for certificate in found)
    return "no guarantee" if epsilon == float("inf") else f"certified epsilon {epsilon:.4g} at delta {delta:.3g}"
