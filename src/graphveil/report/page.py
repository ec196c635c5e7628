"""The page around everything: one file with its style and its script inside, which asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from graphveil.report.markup import Html, element, together
from graphveil.report.palette import theme


def page(title: str, *body: str) -> str:
    """A whole document. The browser is told to run this script only and to load nothing, whatever the body holds."""
    files = resources.files("graphveil.report")
    style = theme() + files.joinpath("page.css").read_text(encoding="utf-8")
    script = files.joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"{element('title', title)}\n<style>{style}</style>\n</head>\n<body>\n"
        f"{together(*body)}\n<script>{script}</script>\n</body>\n</html>\n"
    )


def section(title: str, *children: str, id_: str | None = None) -> Html:
    return element("section", element("h2", title), *children, id=id_)


def note(*children: str) -> Html:
    """Something that a reader must not miss."""
    return element("aside", *children, class_="note")


def code(text: str) -> Html:
    return element("pre", element("code", text), tabindex=0)
