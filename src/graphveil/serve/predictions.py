"""The predictions of an artifact, mapped: each as the bytes that are sent."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import numpy as np

from graphveil.artifact.predictions import Probabilities, csv_head, csv_rows
from graphveil.errors import InvalidInput
from graphveil.graph.validation import LONGEST_ID, why_no_id
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.naming import Naming

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
