"""JSON that carries its own checksum: a slip or a cut is noticed, whoever meant to change it is not stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from graphveil import validate
from graphveil.errors import InvalidInput


def render_signed(form: str, body: Mapping[str, Any]) -> bytes:
    """`body` under the name of its format, with a checksum over both."""
    named = {"format": form, **body}
    digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**named, "sha256": digest}, indent=2, allow_nan=False) + "\n").encode()


def parse_signed(form: str, data: bytes) -> dict[str, Any]:
    """What `render_signed` was given; the caller renders it again and compares, to the last byte (`check_rendered`)."""
    body = json.loads(data)
    if not isinstance(body, dict) or body.get("format") != form:
        found = body.get("format") if isinstance(body, dict) else body
        raise InvalidInput("format", found, validate.why_other_format(found, form))
    return body


def check_rendered(rendered: bytes, data: bytes) -> None:
    if rendered != data:
        raise InvalidInput("sha256", "given", "does not belong to the rest: it was changed")
