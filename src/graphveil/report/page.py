"""The page around everything: one file with its style and its script inside, which asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from graphveil.report.markup import Html, element, together
from graphveil.report.palette import theme


def page(title: str, *body: str) -> str:
    """A whole document that is complete in itself."""
    return document(title, _file("page.js"), *body)[0]


def document(title: str, script: str, *body: str, asks_server: bool = False) -> tuple[str, str]:
    """A whole document and its content policy: the browser is told to run this script only and to load nothing,
    whatever the body holds; with `asks_server` the script may talk to the server that the page came from."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    policy += "; connect-src 'self'" if asks_server else ""
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"{element('title', title)}\n<style>{theme()}{_file('page.css')}</style>\n</head>\n<body>\n"
        f"{together(*body)}\n<script>{script}</script>\n</body>\n</html>\n"
    )
    return text, policy


def _file(name: str) -> str:
    return resources.files("graphveil.report").joinpath(name).read_text(encoding="utf-8")


def section(title: str, *children: str, id_: str | None = None) -> Html:
    return element("section", element("h2", title), *children, id=id_)


def note(*children: str) -> Html:
    """Something that a reader must not miss."""
    return element("aside", *children, class_="note")


def code(text: str) -> Html:
    return element("pre", element("code", text), tabindex=0)
