"""The predictions of an artifact, loaded once: each as the bytes that are sent."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field

import numpy as np

from graphveil.errors import InvalidInput
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.naming import Naming

# The longest name that a request can hold within the limit on its body.
LONGEST_NAME = 1024


@dataclass(frozen=True, eq=False)
class Predictions:
    """Rows of the training graph's nodes, and below them those of new nodes that were answered before (`predict_new`).

    Nothing is drawn and nothing is computed from private data: these answers exist already.
    """

    naming: Naming
    probabilities: np.ndarray
    new: tuple[str, ...] = ()
    _new_places: dict[str, int] = field(init=False, repr=False)
    _classes: list[str] = field(init=False, repr=False)
    _classes_json: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        classes = [self.naming.class_name(number) for number in range(self.probabilities.shape[1])]
        old = len(self.probabilities) - len(self.new)
        object.__setattr__(self, "_new_places", {name: old + i for i, name in enumerate(self.new)})
        object.__setattr__(self, "_classes", classes)
        object.__setattr__(self, "_classes_json", json.dumps(classes))
        for name in (*(self.naming.nodes or ()), *self.new):
            if len(name) > LONGEST_NAME:
                raise InvalidInput("node", name[:40] + "...", f"names may have {LONGEST_NAME} characters at most")

    @classmethod
    def of(cls, model: NodeClassifier) -> Predictions:
        found = cls(model._naming, model.predict_proba())
        answers = {answer.node: answer.probabilities for answer in model._answers.given}
        # A new node under an old node's name cannot be told from it.
        new = {name: row for name, row in answers.items() if found.place(name) is None}
        if not new:
            return found
        rows = np.array(list(new.values()), dtype=np.float32)
        return cls(model._naming, np.concatenate([found.probabilities, rows]), tuple(new))

    def __len__(self) -> int:
        return len(self.probabilities)

    def place(self, name: str) -> int | None:
        """The row of this node, by the very name that it has."""
        if name in self._new_places:
            return self._new_places[name]
        if self.naming.nodes is not None:
            return self.naming._places.get(name)
        # Without an exception for names that no node has: raising one takes long enough to be measured.
        number = int(name) if name.isascii() and name.isdecimal() and len(name) < 19 else -1
        return number if 0 <= number < len(self) - len(self.new) and str(number) == name else None

    def name(self, place: int) -> str:
        old = len(self) - len(self.new)
        return self.naming.node(place) if place < old else self.new[place - old]

    def as_json(self, place: int) -> bytes:
        row = self.probabilities[place].tolist()
        best = json.dumps(self._best(place))
        name = json.dumps(self.name(place))
        text = f'{{"node":{name},"prediction":{best},"classes":{self._classes_json},"probabilities":{row}}}\n'
        return text.encode()

    def as_csv(self, places: range) -> bytes:
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerows([self.name(p), self._best(p), *map(str, self.probabilities[p])] for p in places)
        return text.getvalue().encode()

    def csv_head(self) -> bytes:
        return ",".join(["node", "prediction", *(f"class_{i}" for i in range(len(self._classes)))]).encode() + b"\n"

    def _best(self, place: int) -> str:
        return self._classes[int(self.probabilities[place].argmax())]
