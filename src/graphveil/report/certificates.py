"""Certificates on a page: headings, sentences and lists.

Runs that differ only in their seed share one certificate, and certificates share most of their sentences. A page stores
each of them once, so that thousands of runs fit in a file that opens quickly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from graphveil.errors import InvalidInput
from graphveil.privacy.certificate import Certificate
from graphveil.report.document import Html, element, plain, together

# "h" a heading, "p" a sentence, "i" an item of a list: page.js knows the same letters.
Kind = Literal["h", "p", "i"]
Block = tuple[Kind, str]


def blocks(certificate: Certificate) -> list[Block]:
    """The text of a certificate without its title, divided into headings, sentences and items."""
    lines = [line for line in str(certificate).splitlines()[1:] if line.strip()]
    divided: list[Block] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("  - "):
            divided.append(("i", plain(line[4:])))
        else:
            heads_a_list = not line.startswith(" ") and after.startswith("  ")
            divided.append(("h" if heads_a_list else "p", plain(line.strip())))
    return divided


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
    """The certificates of many runs, numbered; equal certificates have the same number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lines: dict[Block, int] = {}
        self._texts: list[list[int]] = []
        self.certificates: list[Certificate] = []

    def add(self, record: Mapping[str, Any]) -> int | None:
        """The number of a run's certificate, or None if the run has none.

        Raises:
            InvalidInput: If it cannot be read.
        """
        data = record.get("certificate")
        if data is None:
            return None
        text = json.dumps(data, sort_keys=True)
        if text not in self._numbers:
            try:
                certificate = Certificate.from_json(text)
                divided = blocks(certificate)
            except InvalidInput as error:
                raise InvalidInput("run", record["key"], f"its certificate cannot be read: {error}") from None
            self._numbers[text] = len(self._texts)
            self._texts.append([self._lines.setdefault(block, len(self._lines)) for block in divided])
            self.certificates.append(certificate)
        return self._numbers[text]

    def to_data(self) -> dict[str, Any]:
        """What page.js needs: all lines, and for each certificate the numbers of its lines."""
        return {"lines": list(self._lines), "certificates": self._texts}


def spent(certificates: Iterable[Certificate]) -> str:
    """The largest epsilon and the largest delta of some certificates, as words.

    >>> spent([])
    ''
    """
    given = list(certificates)
    if not given:
        return ""
    epsilon = max(certificate.epsilon for certificate in given)
    delta = max(certificate.delta for certificate in given)
    return "no guarantee" if epsilon == float("inf") else f"certified epsilon {epsilon:.4g} at delta {delta:.3g}"
