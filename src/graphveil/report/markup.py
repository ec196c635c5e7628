"""HTML by functions: text is escaped unless it is markup already, so that a name can never become a tag."""

from __future__ import annotations

import html
import json
import re
from typing import Any

# Control characters are valid neither in HTML nor in SVG.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def plain(text: str) -> str:
    """A name from a file without characters that no document may hold."""
    return _CONTROL.sub("�", text)


def safe(text: str) -> Html:
    """Markup as it is, anything else escaped.

    >>> safe("a < b"), safe(Html("<b>"))
    ('a &lt; b', '<b>')
    """
    return text if isinstance(text, Html) else Html(html.escape(plain(text)))


def together(*parts: str) -> Html:
    return Html("".join(safe(part) for part in parts))


def element(tag: str, *children: str, **attributes: str | int | bool | None) -> Html:
    """One element; `class_` is written class and `aria_label` aria-label; None and False leave an attribute out.

    >>> element("a", "x & y", href="#top", class_=None)
    '<a href="#top">x &amp; y</a>'
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
