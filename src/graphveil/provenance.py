"""Which source code made a result. A version number says too little while the code is being changed."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

__version__ = "0.2.0"
# Packages that run and show experiments, and have no influence on a result.
_WITHOUT = ("cli", "experiments", "report")


@cache
def code_digest() -> str:
    """A digest of the package's source, as it was when this process called this for the first time."""
    package = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=6)
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(package)
        if place.parts[0] not in _WITHOUT:
            digest.update(f"{place.as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()
