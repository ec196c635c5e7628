"""Tokens: keyed hashes of node names. Only the key is stored, so there is no table of tokens to steal."""

from __future__ import annotations

import base64
import hmac
import secrets
import stat
from pathlib import Path

from graphveil.artifact.contents import JOURNAL, TOKEN_SECRET, list_derived, read_file, read_manifest
from graphveil.errors import InvalidInput
from graphveil.storage.files import locked, replace_file

_SECRET_BYTES = 32
_OPERATOR = b"operator"


class Tokens:
    """Makes and checks tokens.

    Args:
        secret: The key of the hashes.

    Formal guarantee: without the key, no token can be computed unless HMAC-SHA256 is broken. A check takes the same
    steps whether or not a node exists: the token that its name would have is computed and compared in constant time,
    and nothing is looked up before they agree.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of_node(self, name: str) -> str:
        """The token of a node, which may ask for its own prediction."""
        return self._token(_message(name)).decode()

    def of_operator(self) -> str:
        """The token of the operator, who may export all predictions."""
        return self._token(_OPERATOR).decode()

    def is_of_node(self, token: bytes, name: str) -> bool:
        """Whether this is the token of a node with this name, whether or not there is one."""
        return hmac.compare_digest(self._token(_message(name)), token)

    def is_of_operator(self, token: bytes) -> bool:
        """Whether this is the operator's token."""
        return hmac.compare_digest(self._token(_OPERATOR), token)

    def _token(self, message: bytes) -> bytes:
        return base64.urlsafe_b64encode(hmac.digest(self._secret, message, "sha256")).rstrip(b"=")


def tokens_of(folder: Path, *, renew: bool = False) -> Tokens:
    """The tokens of an artifact.

    Args:
        folder: The artifact. Its secret is made when it is first needed.
        renew: Make a new secret: no token that was given so far is valid any more.

    Raises:
        InvalidInput: The secret is damaged, cannot be written, or can be read by other users.
    """
    manifest, path = read_manifest(folder), folder / TOKEN_SECRET
    if renew or not path.exists():
        try:
            with locked(folder / JOURNAL):
                if renew or not path.exists():
                    replace_file(path, secrets.token_bytes(_SECRET_BYTES))  # readable by its owner alone
        except OSError as error:
            raise InvalidInput("path", str(path), f"cannot be written: {error.strerror}") from None
    if renew or TOKEN_SECRET not in manifest.files:
        list_derived(folder, [path])
        manifest = read_manifest(folder)
    secret = read_file(folder, TOKEN_SECRET, manifest.files[TOKEN_SECRET])
    if len(secret) != _SECRET_BYTES:
        raise InvalidInput("file", str(path), f"must hold {_SECRET_BYTES} bytes")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InvalidInput("file", str(path), "others can read it; chmod 600, and renew the tokens if they did")
    return Tokens(secret)


def _message(name: str) -> bytes:
    # JSON can spell half a character, which is no node's name but must not be an error either.
    return b"node:" + name.encode("utf-8", "surrogatepass")
