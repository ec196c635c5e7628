"""Broken twins: variants of methods that claim the same as the sound ones and break the claim by one plausible mistake.

An audit that has never flagged anything proves nothing; every twin here must be flagged by the attack that it names.
docs/audit.md has the table. Never use them for anything else.

>>> TWINS["published"].attack, TWINS["published"].epsilon
('end-to-end', 1.0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from graphveil.auditing import mistakes
from graphveil.auditing.mechanisms import Subject, as_released, held_at
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, MakeLedger
from graphveil.methods.estimator import NodeClassifier
from graphveil.methods.expectation import right_counts
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node
from graphveil.privacy.plan import Plan


@dataclass(frozen=True)
class Twin:
    """A method with one mistake.

    Args:
        name: Its name on the command line.
        mistake: What is wrong.
        attack: The attack that flags it.
        level: The level at which the attack flags it.
        epsilon: The budget with which the attack flags it.
        method: The method that it is a variant of.
        executed: Turns the claimed plan into the one that is really executed.
        make_ledger: Makes the ledger.
        make_table: Rounds rows of W to a norm before a release.
        publish: What happens to a released table before others see it.
        estimator: The method with the mistake, for attacks on whole fits.
        options: Parameters of the method.
        validation: Whether the mistake is about validation labels.
        replaces: Attributes of the estimator and what is in their place. Such a twin is a variant of any method.
    """

    name: str
    mistake: str
    attack: str
    level: Level
    epsilon: float
    method: str = "dpdgc"
    executed: Callable[[Plan], Plan] = lambda plan: plan
    make_ledger: MakeLedger = Ledger
    make_table: Callable[[torch.Tensor, float], torch.Tensor] = held_at
    publish: Callable[[torch.Tensor], torch.Tensor] = as_released
    estimator: type[NodeClassifier] | None = None
    options: tuple[tuple[str, object], ...] = (("table", "trained"),)
    validation: bool = False
    replaces: tuple[tuple[str, Any], ...] = ()

    def applied_to(self, cls: type[NodeClassifier]) -> type[NodeClassifier]:
        """The method with the mistake in it."""
        cls = self.estimator or cls
        return type(cls.__name__, (cls,), dict(self.replaces)) if self.replaces else cls

    def subject(self, plan: Plan) -> Subject:
        """What is attacked if this twin claims a plan."""
        return Subject(plan, self.executed(plan), self.make_ledger, self.make_table, self.publish)


def twin_named(name: str) -> Twin:
    """A twin by its name.

    Raises:
        InvalidInput: If there is none of this name.
    """
    if name not in TWINS:
        raise InvalidInput("twin", name, f"must be one of {', '.join(TWINS)}")
    return TWINS[name]


_NEIGHBOR = KNeighbor(5)
_TABLE = (("table", "labels"),)
_EVERY = (
    Twin(
        "published",
        "rows of W are never normalised and the noise on Z is scaled for rows of 1e-8, as in the published code",
        "end-to-end",
        KNeighbor(1),
        1.0,
        executed=mistakes.for_rows_of_1e_8,
        make_ledger=mistakes.PlainFloats,
        make_table=mistakes.as_trained,
        estimator=mistakes.NotNormalised,
    ),
    Twin(
        "square-root-group",
        "training noise for sqrt(k + 1) rows instead of k + 1",
        "gradient",
        _NEIGHBOR,
        4.0,
        executed=mistakes.square_root_of_group,
    ),
    Twin(
        "one-neighbourhood",
        "noise for D + 1 rows instead of 2D + 1",
        "gradient",
        Node(8),
        4.0,
        executed=mistakes.one_neighborhood,
    ),
    Twin("halved-noise", "half of the planned noise", "joint", KNeighbor(1), 4.0, executed=mistakes.half_the_noise),
    Twin(
        "redrawn-noise",
        f"fresh noise for every query; {mistakes.QUERIES} answers are averaged",
        "release",
        KNeighbor(1),
        4.0,
        make_ledger=mistakes.DrawnAnew,
    ),
    Twin(
        "best-epoch",
        "the epoch with the best validation accuracy is kept",
        "end-to-end",
        KNeighbor(1),
        1.0,
        method="mlp",
        estimator=mistakes.BestEpoch,
        options=(("steps", 200), ("learning_rate", 0.1)),  # the predicted class of a node changes often during training
        validation=True,
    ),
    Twin(
        "shifted-labels",
        "empty rows are dropped, which shifts labels against rows",
        "end-to-end",
        KNeighbor(1),
        1.0,
        estimator=mistakes.ShiftedLabels,
    ),
    Twin(
        "unbounded-layers",
        "a layer's rows are summed as they are, with noise for rows of norm 1",
        "end-to-end",
        Edge("undirected"),
        1.0,
        method="caribou",
        estimator=mistakes.UnboundedLayers,
        options=(),
    ),
    Twin(
        "one-stage",
        "each stage's sum takes the noise that a single one would need, as if stages cost nothing together",
        "release",
        Node(8, unit="zero-out"),
        4.0,
        method="progap",
        executed=mistakes.noise_of_one_sum,
        options=(),
    ),
    Twin(
        "centred-rows",
        "Z is centred over all nodes before others read it",
        "release",
        _NEIGHBOR,
        4.0,
        publish=mistakes.centred,
    ),
    Twin(
        "add-or-remove",
        "training noise for an added or removed row instead of a replaced one",
        "gradient",
        KNeighbor(1),
        4.0,
        executed=mistakes.added_instead_of_replaced,
    ),
    Twin(
        "forgotten-release",
        "the release is drawn but left out of the composition",
        "joint",
        Edge("undirected"),
        4.0,
        executed=mistakes.without_release,
    ),
    Twin(
        "talkative-response",
        "a response's epsilon is taken for its noise parameter",
        "response",
        KNeighbor(1),
        4.0,
        make_ledger=mistakes.Talkative,
        options=_TABLE,
    ),
    Twin(
        "empty-answer",
        "an emptied node answers as one of the first class, not uniformly",
        "response",
        KNeighbor(1, unit="zero-out"),
        4.0,
        make_ledger=mistakes.FirstClass,
        options=_TABLE,
    ),
    Twin(
        "one-row-too-few",
        "in the zero-out unit, noise for C where readers of an emptied node move by 2C",
        "gradient",
        Node(8, unit="zero-out"),
        4.0,
        executed=mistakes.every_row_vanishes,
    ),
    Twin(
        "float32-sums",
        "released sums are added in float32",
        "arithmetic",
        Edge("undirected"),
        1.0,
        options=_TABLE,
        replaces=(("arithmetic", mistakes.Float32Sums()),),
    ),
    Twin(
        "float32-norms",
        "the norms of rows that are clipped are added in float32",
        "arithmetic",
        KNeighbor(1),
        4.0,
        method="mlp",
        options=(),
        replaces=(("arithmetic", mistakes.Float32Norms()),),
    ),
    Twin(
        "unweighted-links",
        "every link counts 1 in the link statistics, however many links its two nodes have",
        "arithmetic",
        _NEIGHBOR,
        4.0,
        method="auto",
        options=(),
        replaces=(("_link_sums", staticmethod(mistakes.every_link_counts_one)),),
    ),
    Twin(
        "unweighted-co-links",
        "every two nodes that link to the same node count 1 in the co-link statistics, however many these are",
        "arithmetic",
        _NEIGHBOR,
        4.0,
        method="auto",
        options=(),
        replaces=(("_co_link_sums", staticmethod(mistakes.every_co_link_counts_one)),),
    ),
    Twin(
        "shared-simulation",
        "neighbourhoods are simulated class by class, so that one label changes the random numbers of other nodes",
        "arithmetic",
        KNeighbor(1),
        4.0,
        method="auto",
        options=(),
        replaces=(("_right_counts", staticmethod(partial(right_counts, simulate=mistakes.class_by_class))),),
    ),
)
TWINS: dict[str, Twin] = {twin.name: twin for twin in _EVERY}
