"""A service that tells each person their own prediction, and nobody another's (`graphveil serve`).

Here is whom it answers, and what: a token for each node, and its prediction as the bytes that are sent. Tokens are
keyed hashes of node names. Only the key is stored, so there is no table of tokens to steal. The modules need the extra
`serve`, which this file does not.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from graphveil.artifact.contents import JOURNAL, TOKEN_SECRET, list_derived, read_file, read_manifest
from graphveil.artifact.predictions import Probabilities, csv_head, csv_rows
from graphveil.errors import InvalidInput
from graphveil.graph.summary import Naming
from graphveil.graph.validation import LONGEST_ID, why_no_id
from graphveil.methods.estimator import NodeClassifier
from graphveil.storage import locked, replace_file

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


LONGEST_NAME = LONGEST_ID


@dataclass(frozen=True, eq=False)
class Predictions:
    """Class probabilities of all nodes, computed when they are asked for.

    Args:
        naming: Names of nodes and classes.
        probabilities: A row for each node of the training graph, and below them those of new nodes. They are asked for
            by slices.
        new: Names of the new nodes that were answered before (`predict_new`).

    Formal guarantee: nothing is drawn and nothing is computed from private data: these answers exist already. A node is
    told names of classes only if they were declared; names that were read from everybody's labels are the owner's.
    """

    naming: Naming
    probabilities: np.ndarray | Probabilities
    new: tuple[str, ...] = ()
    _new_places: dict[str, int] = field(init=False, repr=False)
    _classes: dict[bool, list[str]] = field(init=False, repr=False)
    _classes_json: dict[bool, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        public = replace(self.naming, classes=None) if not self.naming.declared_classes else self.naming
        numbers = range(self.probabilities.shape[1])
        # By whether the answer is for the owner.
        classes = {owner: [use.class_name(i) for i in numbers] for owner, use in ((True, self.naming), (False, public))}
        old = len(self.probabilities) - len(self.new)
        object.__setattr__(self, "_new_places", {name: old + i for i, name in enumerate(self.new)})
        object.__setattr__(self, "_classes", classes)
        object.__setattr__(self, "_classes_json", {owner: json.dumps(names) for owner, names in classes.items()})
        for name in (*(self.naming.nodes or ()), *self.new):
            why = why_no_id(name)
            if why is not None:
                raise InvalidInput("node", name[:40], why)

    @classmethod
    def of(cls, model: NodeClassifier) -> Predictions:
        """The predictions of a fitted model."""
        answers = {answer.node: answer.probabilities for answer in model.fitted_.answers.given}
        probabilities = Probabilities(model.logits_, model.probabilities, list(answers.values()))
        return cls(model.fitted_.naming, probabilities, tuple(answers))

    def __len__(self) -> int:
        return len(self.probabilities)

    def place(self, name: str) -> int | None:
        """The row of the node with exactly this name; None if there is none."""
        if name in self._new_places:
            return self._new_places[name]
        return self.naming.place(name, len(self) - len(self.new))

    def name(self, place: int) -> str:
        """The name of the node in this row."""
        old = len(self) - len(self.new)
        return self.naming.node(place) if place < old else self.new[place - old]

    def as_json(self, place: int, *, owner: bool = False) -> bytes:
        """A row as a line of JSON; for the owner, with all names of classes."""
        (given,) = self.probabilities[place : place + 1]
        best, row = json.dumps(self._classes[owner][int(given.argmax())]), given.tolist()
        name = json.dumps(self.name(place))
        text = f'{{"node":{name},"prediction":{best},"classes":{self._classes_json[owner]},"probabilities":{row}}}\n'
        return text.encode()

    def as_csv(self, places: range) -> bytes:
        """Rows as lines of CSV, for the owner."""
        rows = self.probabilities[places.start : places.stop]
        return csv_rows(self.naming, [self.name(place) for place in places], rows)

    def csv_head(self) -> bytes:
        """The header of the CSV lines."""
        return csv_head(self.naming, self.probabilities.shape[1])
