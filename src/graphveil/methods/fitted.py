"""A fitted model: its state, whether it comes from `fit`, several processes or a folder, and what it answers.

What is noted about each stage of a fit holds nothing that was computed from private data. The same goes to the log, to
the logger "graphveil": a line at level INFO for each fit, at level DEBUG for each stage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch

from graphveil.errors import InvalidInput
from graphveil.execution import Carried, LedgerLike, Stages
from graphveil.execution.sparse_rows import Rows, SparseRows
from graphveil.graph import Graph
from graphveil.methods import attached
from graphveil.methods.inputs import Inputs, rows_of_norm
from graphveil.methods.new_nodes import answer_new_nodes, epsilon_with
from graphveil.methods.predictions import FittedState, Predictions
from graphveil.methods.scales import check_columns, with_scales
from graphveil.privacy.levels import Public, describe
from graphveil.privacy.mechanisms import READS_THE_GRAPH, Role
from graphveil.privacy.plan import Plan

LOGGER = logging.getLogger("graphveil")


@dataclass(frozen=True)
class Stage:
    """One draw or one training of a fit.

    Formal guarantee: everything but `seconds` is a function of the plan and of what was released. How long something
    takes may depend on the data in ways that nobody accounts for, so `seconds` are for the owner alone.

    Args:
        name: The mechanism, or what was trained without noise.
        what: The type of the mechanism; "training without noise"; "random numbers", which read nothing.
        steps: Draws, or steps of a training.
        noise: As the plan has it: the standard deviation on each entry or sum, the epsilon of responses; None without.
        learning_rate: Of a training.
        seconds: Since the end of the stage before.
    """

    name: str
    what: str
    steps: int
    noise: float | None
    learning_rate: float | None
    seconds: float


class History(Stages):
    """Runs the stages of a fit as another object does, and notes each one.

    Args:
        inner: Runs the stages, and may keep them.
        ledger: Has the plan that is executed.
    """

    def __init__(self, inner: Stages, ledger: LedgerLike) -> None:
        self.inner, self._ledger, self._last = inner, ledger, time.perf_counter()
        self.stages: list[Stage] = []

    def draw(self, name: str, draw: Callable[[], torch.Tensor], fits: Callable[[torch.Tensor], bool]) -> torch.Tensor:
        value = self.inner.draw(name, draw, fits)
        self._note(name, 1, None)
        return value

    def steps(self, count: int, name: str, carried: Carried, show: bool | None, *rest: Any) -> Iterator[int]:
        made = count
        for step in self.inner.steps(count, name, carried, show, *rest):
            yield step
            made = step + 1  # a training without noise may end before its last step
        self._note(name, made, getattr(carried, "learning_rate", None))

    def _note(self, name: str, steps: int, learning_rate: float | None) -> None:
        planned = {mechanism.name: mechanism for mechanism in self._ledger.plan.mechanisms}
        mechanism = planned.get(name)
        what = "random numbers" if learning_rate is None else "training without noise"
        now = time.perf_counter()
        self.stages.append(
            Stage(
                name,
                what if mechanism is None else mechanism.type,
                steps,
                None if mechanism is None or mechanism.sensitivity.worst == 0 else mechanism.noise,
                learning_rate,
                now - self._last,
            )
        )
        self._last = now
        stage = self.stages[-1]
        LOGGER.debug("%s: %s, %d steps, noise %s", stage.name, stage.what, stage.steps, stage.noise)


def log_start(plan: Plan) -> None:
    """A line about a fit that begins: its plan, from public facts."""
    facts = plan.facts
    LOGGER.info(
        "fit %s on %d nodes, %d in training: %s", plan.method, facts.nodes, facts.train_nodes, describe(plan.level)
    )


def log_end(plan: Plan, epsilon: float) -> None:
    """A line about a fit that has ended: what it has cost, and the branch that was followed."""
    cost = "no guarantee" if isinstance(plan.level, Public) else f"epsilon {epsilon:.4g} at delta {plan.delta:.3g}"
    LOGGER.info("fitted %s%s: %s", plan.method, f", branch {plan.followed}" if plan.followed else "", cost)


class FittedModel(Predictions):
    """What a model answers once it is fitted, and the parts that it is made of.

    Formal guarantee: predictions for nodes of the training graph draw nothing. Answers to new nodes join the release
    that the certificate lists (docs/theory.md, section 9.2).
    """

    # The role of the planned release that rows of new nodes join; None where they need none.
    joins: ClassVar[Role | None] = None

    @property
    def joined_release(self) -> str | None:
        """The name of the release that rows of new nodes join; None where they need none."""
        if self.joins is None:
            return None
        return next((mechanism.name for mechanism in self._ledger.plan.with_role(self.joins)), None)

    # What the paid statistics of a fit say, in sentences for the certificate.
    _learnt: tuple[str, ...] = ()
    # What the fit did (`Stage`); an artifact does not keep it.
    _history: tuple[Stage, ...] = ()
    # What columns of raw numbers are scaled by (`scales.learn_scales`).
    _scales: torch.Tensor = torch.zeros(0, 5)
    # Whether the method reads the graph where its plan does not say otherwise.
    reads_graph: ClassVar[bool] = True

    @property
    def graph_used_(self) -> bool:
        """Whether the fitted model reads the graph, or was made from features alone."""
        if not self.reads_graph:
            return False
        return not self.plan_.mechanisms or any(m.role in READS_THE_GRAPH for m in self.plan_.mechanisms)

    @property
    def history_(self) -> tuple[Stage, ...]:
        """What the fit did, stage by stage, without private values; empty for a model that was loaded."""
        self.check_fitted()
        return self._history

    def take(self, state: FittedState) -> Self:
        """Be the fitted model with this state; its weights are in place (`train`, `set_part`)."""
        self.fitted_ = state
        self._ledger = state.ledger
        return self

    @property
    def budget_(self) -> float:
        """The epsilon that the fit and further releases for new nodes may cost together."""
        return self.fitted_.budget

    def save(self, folder: str | Path, *, budget: float | None = None) -> None:
        """Write this model to a new folder, from which `graphveil.load` gives it back (docs/artifact.md).

        Args:
            folder: The folder to create. It appears complete or not at all.
            budget: The epsilon that the fit and later releases for new nodes may cost together. By default what the fit
                cost.

        Raises:
            InvalidInput: The model is not fitted, the folder exists, the budget is below what was spent, or the model
                is kept in another folder already.

        Formal guarantee: files marked for anyone depend only on what the certificate covers. From then on answers to
        new nodes are kept in the folder, so that their noise is drawn once.
        """
        attached().save(self, Path(folder), budget=budget)

    def predict_on(self, graph: Graph) -> np.ndarray:
        """Class probabilities on another graph that was no part of training and needs no protection (fully inductive).

        Args:
            graph: The other graph, with the same features.

        Returns:
            An array with a row for each node of `graph` and a column for each class.

        Raises:
            InvalidInput: The model is not fitted, the features differ, or the method cannot do this.

        Formal guarantee: nothing is released beyond the weights, which the certificate covers already. Nothing protects
        `graph` itself.
        """
        self.check_fitted()
        if graph.num_features != self.plan_.facts.features:
            raise InvalidInput("features", graph.num_features, f"the model was trained on {self.plan_.facts.features}")
        with torch.no_grad():
            return self.probabilities(self.logits_on(self.inputs_of(graph)).cpu()).numpy()

    def inputs_of(self, graph: Graph) -> Inputs:
        """A graph as this fitted model reads it.

        Args:
            graph: The training graph, or another one with the same columns.

        Raises:
            InvalidInput: Other columns hold raw numbers than in training.
        """
        check_columns(self._scales, graph.numeric_columns)
        adjacency = graph.reads(self.direction)
        return Inputs(graph, adjacency, self.device, self.fitted_.sparse, self.feature_norm, self._scales)

    def scaled(self, features: torch.Tensor | sp.csr_array) -> torch.Tensor | sp.csr_array:
        """Rows of features as this fitted model reads them: numbers on the scales of training, rows of one norm."""
        features = with_scales(features, self._scales)
        return features if self.feature_norm is None else rows_of_norm(features, self.feature_norm)

    def predict_new(
        self,
        ids: Sequence[Hashable],
        features: Any,
        neighbors: Sequence[Sequence[int]],
        *,
        from_graph: bool = True,
        update: bool = False,
    ) -> np.ndarray:
        """Class probabilities of new nodes that read nodes of the training graph (incrementally inductive).

        An answer is kept under the id of its node (as text), and asking again returns it.

        Args:
            ids: A name for each new node. A node of the training graph is refused: it has its answer already.
            features: One row of features for each new node.
            neighbors: For each new node, the indices of the training graph's nodes that it reads.
            from_graph: Whether `neighbors` comes from the private graph. False: it is the asker's own knowledge.
            update: Allow other data for an id that has an answer. This is a further release and must fit the budget
                (`save`).

        Returns:
            An array with a row for each new node and a column for each class.

        Raises:
            InvalidInput: The model is not fitted, the arguments do not fit it, an id was asked with other data before,
                or a node would have more readers than `reserved_readers` or the degree promise allows.
            BudgetExceeded: A further release does not fit the budget.

        Formal guarantee (docs/theory.md, section 9.2): new rows belong to the release that the certificate lists, as
        long as the readers of a node, old and new together, keep to the level's k or degree promise. Where degrees are
        promised, new nodes may read a node `reserved_readers` times in all. Whether one is refused depends on the lists
        of new nodes alone. Each row is drawn once, and kept before it is shown.
        """
        self.check_fitted()
        return answer_new_nodes(self, ids, features, neighbors, from_graph=from_graph, update=update)

    @property
    def epsilon_spent(self) -> float:
        """What the fit and all further releases cost together."""
        self.check_fitted()
        if self.joined_release is None or self.fitted_.answers.releases == 1:
            return self.certificate_.epsilon
        return epsilon_with(self.plan_, self.joined_release, self.fitted_.answers.releases)

    def draws_noise(self, from_graph: bool) -> bool:
        """Whether answers to new nodes draw noise."""
        del from_graph
        return self.joined_release is not None

    def logits_on(self, data: Inputs) -> torch.Tensor:
        """The logits of all nodes of another graph, which was no part of training.

        Args:
            data: The other graph.

        Returns:
            A row for each of its nodes.

        Raises:
            InvalidInput: The method has no such answer.
        """
        raise InvalidInput("method", self.method, "cannot predict on another graph")

    def logits_new(self, features: Rows, rows: SparseRows, from_graph: bool) -> torch.Tensor:
        """The logits of nodes that join after the fit, with noise where it is needed.

        Args:
            features: A row for each new node.
            rows: Which nodes of the training graph each of them reads.
            from_graph: Whether these links are from the private graph, and not the new nodes' own.

        Returns:
            A row for each new node.

        Raises:
            InvalidInput: The method has no such answer.
        """
        raise InvalidInput("method", self.method, "cannot predict for new nodes")

    def covered_parts(self, plan: Plan, like: Rows) -> dict[str, torch.nn.Module | torch.Tensor]:
        """The parts of a fitted model that the certificate covers in full: they may be published.

        With `owner_parts` they are all that a fitted model is made of: an artifact holds these and nothing else. `part`
        and `set_part` read and write their content.

        Args:
            plan: The executed plan.
            like: Features, of which only the form counts: their number, and whether they are sparse.

        Returns:
            Modules and tensors of the right shapes, without content, by name.
        """
        raise NotImplementedError

    def owner_parts(self, plan: Plan) -> dict[str, torch.Tensor]:
        """The parts that have a row for each node, which is for this node alone.

        Args:
            plan: The executed plan.

        Returns:
            Tensors of the right shapes, without content, by name.
        """
        del plan
        return {}

    def part(self, name: str) -> torch.nn.Module | torch.Tensor:
        """A part of the fitted model, by its name in `covered_parts` or `owner_parts`."""
        part: torch.nn.Module | torch.Tensor = getattr(self, f"_{name}")
        return part

    def set_part(self, name: str, value: torch.nn.Module | torch.Tensor) -> None:
        """Put a part in its place, as a fit does."""
        setattr(self, f"_{name}", value)

    def recall(self, data: Inputs | None) -> None:
        """Take what new nodes read of the training graph and no artifact holds, such as neighbours' features.

        Args:
            data: The training graph; None if it is not at hand.
        """
