"""One place where damaged files turn into one-line errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphveil.errors import GraphveilError, InvalidInput


@contextmanager
def decoding(path: Path, kind: str) -> Iterator[None]:
    """Inside, whatever a decoder makes of the bytes of `path` becomes an `InvalidInput` that names the path.

    Every `Exception` is caught on purpose: on truncated or random bytes, zipfile, zlib, numpy, pickle, torch and
    Arrow raise a dozen unrelated classes between them, and none of them tells the user more than its message.
    """
    try:
        yield
    except GraphveilError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidInput("path", str(path), f"cannot be read as {kind}: {said}") from None


@contextmanager
def inside(path: Path) -> Iterator[None]:
    """Errors about a field are about that field of the file `path`, and say so."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{path.name}: {error.field}", error.value, error.why) from None
