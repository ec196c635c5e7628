"""HTML documents: elements, tables, colours, certificates, and the page around them.

Text is escaped unless it is an `Html` value, so a name that a user gave to a graph can never become a tag. A document
holds its style and its script, and loads nothing from the network.

Runs that differ only in their seed share one certificate, and certificates share most of their sentences. A page stores
each of them once (`Collection`), so that thousands of runs fit in a file that opens quickly.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from itertools import groupby
from typing import Any

from graphveil.errors import InvalidInput
from graphveil.privacy import wording
from graphveil.privacy.certificate import Certificate

INK, MUTED, GRID, PAPER = "#1c2128", "#5b6470", "#e2e5e9", "#ffffff"
# After Okabe and Ito: colour-blind readers can tell them apart. The dark theme has lighter versions of the same hues.
SERIES = ("#0072b2", "#d55e00", "#00825f", "#b8528f", "#7a6a00", "#6f4fc0", "#3d3d3d")
SERIES_DARK = ("#5ab4f0", "#ff9a52", "#3fd1a3", "#ee9ccb", "#dcc94a", "#b7a1ff", "#c8c8c8")
# Control characters are valid neither in HTML nor in SVG.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Text that is already HTML and is not escaped again."""

    __slots__ = ()


def plain(text: str) -> str:
    """The text without control characters, which no document may hold."""
    return _CONTROL.sub("�", text)


def safe(text: str) -> Html:
    """HTML unchanged, any other text escaped.

    >>> safe("a < b"), safe(Html("<b>"))
    ('a &lt; b', '<b>')
    """
    return text if isinstance(text, Html) else Html(html.escape(plain(text)))


def together(*parts: str) -> Html:
    """All parts in a row, each escaped unless it is HTML."""
    return Html("".join(safe(part) for part in parts))


def element(tag: str, *children: str, **attributes: str | int | bool | None) -> Html:
    """One HTML element.

    >>> element("a", "x & y", href="#top", class_=None)
    '<a href="#top">x &amp; y</a>'

    Args:
        tag: Its name.
        children: What it contains; text is escaped.
        attributes: `class_` is written class and `aria_label` aria-label. None and False leave an attribute out.

    Returns:
        The element with its end tag.
    """
    words = ""
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        words += f" {name}" if value is True else f' {name}="{html.escape(plain(str(value)))}"'
    return Html(f"<{tag}{words}>{together(*children)}</{tag}>")


def data_block(name: str, value: Any) -> Html:
    """JSON that a script reads; escaped so that no text in it can end the block."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Html(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')


def section(title: str, *children: str, id_: str | None = None) -> Html:
    """A part of the page with a heading."""
    return element("section", element("h2", title), *children, id=id_)


def note(*children: str) -> Html:
    """A box for what a reader must not miss."""
    return element("aside", *children, class_="note")


def code(text: str) -> Html:
    """A block of code."""
    return element("pre", element("code", text), tabindex=0)


def simple_table(heads: Sequence[str], rows: Iterable[Sequence[str]], label: str, class_: str | None = None) -> Html:
    """A table whose first column names its rows."""
    top = element("tr", *(element("th", head, scope="col") for head in heads))
    body = (element("tr", element("th", row[0], scope="row"), *(element("td", c) for c in row[1:])) for row in rows)
    return scrolling(element("table", element("thead", top), element("tbody", *body), class_=class_), label)


def beside(*columns: Sequence[Html]) -> list[Html]:
    """Parts of a page that stand side by side where there is room; empty ones are left out."""
    filled = [element("div", *column) for column in columns if column]
    return [element("div", *filled, class_="beside")] if len(filled) > 1 else filled


def whole_percents(shares: Mapping[str, float]) -> dict[str, int]:
    """Shares in whole percent that add up to their sum in percent, by the largest remainders.

    >>> whole_percents({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})
    {'a': 34, 'b': 33, 'c': 33}
    """
    percents = {name: int(100 * share) for name, share in shares.items()}
    missing = round(100 * sum(shares.values())) - sum(percents.values())
    for name in sorted(shares, key=lambda name: percents[name] - 100 * shares[name])[: max(missing, 0)]:
        percents[name] += 1
    return percents


def scrolling(table: Html, label: str) -> Html:
    """A box in which a wide table scrolls; it takes the focus, so that keys scroll it too."""
    return element("div", table, class_="scroll", role="region", aria_label=label, tabindex=0)


def page(title: str, *body: str) -> str:
    """A whole document with the script of the reports."""
    return document(title, package_text("page.js"), *body)[0]


def document(title: str, script: str, *body: str, asks_server: bool = False) -> tuple[str, str]:
    """A whole document and its content security policy.

    The policy tells the browser to run this script only and to load nothing, whatever the body holds.

    Args:
        title: The document's title.
        script: JavaScript that the document holds.
        body: The elements of its body.
        asks_server: Whether the script may send requests to the server that the document came from.

    Returns:
        The HTML, and the policy for a server that also sends it as a header.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    policy += "; connect-src 'self'" if asks_server else ""
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"{element('title', title)}\n<style>{_theme()}{package_text('page.css')}</style>\n</head>\n<body>\n"
        f"{together(*body)}\n<script>{script}</script>\n</body>\n</html>\n"
    )
    return text, policy


def package_text(name: str) -> str:
    """The text of a file in this package."""
    return resources.files("graphveil.report").joinpath(name).read_text(encoding="utf-8")


def _theme() -> str:
    """The colours as CSS variables, light and dark."""
    light = {"ink": INK, "muted": MUTED, "line": GRID, "card": PAPER, "page": "#f6f7f9", "accent": "#0b62a0"}
    dark = {"ink": "#e6e9ed", "muted": "#9aa4b0", "line": "#30363e", "card": "#1a1e24", "page": "#12151a"}
    light |= {"note": "#fff6e0", **{f"series-{index}": colour for index, colour in enumerate(SERIES)}}
    dark |= {"note": "#2b2616", "accent": "#6cb8f2"}
    dark |= {f"series-{index}": colour for index, colour in enumerate(SERIES_DARK)}
    return f":root{{{_variables(light)}}}@media (prefers-color-scheme:dark){{:root{{{_variables(dark)}}}}}"


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


def blocks(certificate: Certificate) -> list[wording.Block]:
    """The text of a certificate without its title, divided into headings, sentences and items."""
    lines = str(certificate).splitlines()[1:]
    return [(kind, plain(text)) for kind, text in wording.blocks(lines)]


def as_html(certificate: Certificate) -> Html:
    """The whole certificate, for a page that shows a single one."""
    tags = {"h": "h3", "p": "p", "i": "li"}
    parts: list[Html] = []
    for items, group in groupby(blocks(certificate), key=lambda block: block[0] == "i"):
        made = [element(tags[kind], text) for kind, text in group]
        parts += [element("ul", *made)] if items else made
    return together(*parts)


class Collection:
    """The certificates of many runs, numbered; equal certificates have the same number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lines: dict[wording.Block, int] = {}
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
