"""What a fitted model says about the nodes of its graph, and how good that is; the part that scikit-learn asks for.

A table of predictions has one row for each node: the columns are `node`, `prediction`, and `p(NAME)` for each class, so
that no name of a class is taken for another column. Every table of predictions that graphveil writes has this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from graphveil.errors import InvalidInput
from graphveil.evaluation import Evaluation, decided, evaluate, rare_class, score_of
from graphveil.execution import LedgerLike
from graphveil.graph import Fingerprint, GraphView
from graphveil.graph.summary import Naming
from graphveil.graph.validation import spells_integer
from graphveil.methods.inputs import node_index
from graphveil.methods.new_nodes import Answers
from graphveil.methods.parameters import Parameters
from graphveil.noise import NoiseSource
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.plan import Plan
from graphveil.privacy.wording import model_html

if TYPE_CHECKING:
    import pyarrow as pa

    from graphveil.methods.estimator import NodeClassifier


class FitKeeper(Protocol):
    """Keeps an unfinished fit, as `checkpoint.Checkpoint` does, and names the one artifact of a finished one."""

    @property
    def folder(self) -> Path: ...

    def following(
        self, model: NodeClassifier, graph: GraphView, ledger: LedgerLike, source: NoiseSource
    ) -> AbstractContextManager[None]: ...

    def goes_to(self, artifact: Path, rows: str) -> None: ...


@dataclass(eq=False)
class FittedState:
    """All that a fitted model knows beside its weights.

    Args:
        ledger: The executed ledger; rows of new nodes are drawn from it.
        certificate: What the fit has spent.
        logits: A row for each node of the training graph.
        sparse: Whether features are mostly empty, so that layers that read them are sparse.
        naming: Names of nodes, classes and columns.
        labels: Of the training graph; None where the graph is not at hand.
        fingerprint: Of the training graph; None where it was read in parts.
        answers: What new nodes were told.
        budget: The epsilon that the fit and further releases may cost together.
        keeper: Until the model is saved, the checkpoint that still holds its fit.
        on_account: Whether the fit has an entry in a `BudgetLedger`, which then has to know of all releases.
    """

    ledger: LedgerLike
    certificate: Certificate
    logits: torch.Tensor
    sparse: bool
    naming: Naming
    labels: torch.Tensor | None
    fingerprint: Fingerprint | None
    answers: Answers
    budget: float
    keeper: FitKeeper | None = None
    on_account: bool = False

    @property
    def plan(self) -> Plan:
        """The executed plan, on the branch that was taken."""
        return self.ledger.plan

    def saved(self, answers: Answers, budget: float) -> None:
        """From now on answers are kept in an artifact with this budget, and no checkpoint is needed."""
        self.answers, self.budget, self.keeper = answers, budget, None


class Predictions(Parameters):
    """Predictions for nodes of the training graph, and scores of them.

    Formal guarantee: predictions draw nothing. Scores are computed from private labels and are not covered.
    """

    fitted_: FittedState

    @property
    def logits_(self) -> torch.Tensor:
        """Of all nodes of the training graph."""
        self.check_fitted()
        return self.fitted_.logits

    @property
    def certificate_(self) -> Certificate:
        """What the fit has spent."""
        self.check_fitted()
        return self.fitted_.certificate

    @property
    def plan_(self) -> Plan:
        """The executed plan, on the branch that was taken."""
        self.check_fitted()
        return self.fitted_.plan

    @property
    def classes_(self) -> np.ndarray:
        """The classes, in the order of the columns of `predict_proba`: their names, or their numbers."""
        self.check_fitted()
        names = self.fitted_.naming.classes
        return np.arange(self.plan_.facts.classes) if names is None else np.array(names)

    @property
    def n_features_in_(self) -> int:
        """The number of features that the fit has seen."""
        return self.plan_.facts.features

    def predict_proba(self, nodes: Any = None) -> np.ndarray:
        """Class probabilities of nodes of the training graph.

        Args:
            nodes: Indices, a boolean mask, or ids of nodes as text. None: all nodes.

        Returns:
            An array with a row for each node and a column for each class. Asking again gives the same answer.

        Raises:
            InvalidInput: The model is not fitted, or there is no such node.

        Formal guarantee: this draws nothing and costs nothing. At levels `KNeighbor` and `Node` a node's own row is for
        this node alone.
        """
        return self.probabilities(self.logits_[self._places(nodes)]).numpy()

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Class probabilities from rows of logits, with the declared shares of the classes; post-processing."""
        shares = self.declared_prior(self.fitted_.naming.classes, logits.shape[1])
        shift = 0.0 if shares is None else torch.tensor(shares, dtype=logits.dtype, device=logits.device).log()
        return torch.softmax(answered(logits) + shift, dim=1)

    def predict(self, nodes: Any = None, *, threshold: float | None = None, positive: Any = None) -> np.ndarray:
        """The most probable class of nodes of the training graph.

        Args:
            nodes: Indices, a boolean mask, or ids of nodes as text. None: all nodes.
            threshold: Answer `positive` from this probability on, and the most probable other class below it. None:
                the most probable class.
            positive: The class of the threshold, one of `classes_`. Of two classes, by default the second.

        Returns:
            An array of entries of `classes_`.

        Raises:
            InvalidInput: The model is not fitted, or there is no such node or class.

        Formal guarantee: as `predict_proba`.
        """
        classes = self.classes_
        last = 1 if len(classes) == 2 else None
        chosen = last if positive is None else self._class_number(positive)
        guess: np.ndarray = classes[decided(self.predict_proba(nodes), chosen, threshold)]
        return guess

    def predict_table(self, nodes: Any = None, *, threshold: float | None = None, positive: Any = None) -> pa.Table:
        """Predictions with the ids of nodes and the names of classes, as an Arrow table.

        Args:
            nodes, threshold, positive: As in `predict`.

        Returns:
            The columns `node`, `prediction`, and `p(NAME)` for each class. `table.to_pandas()` and
            `polars.from_arrow(table)` make tables of these libraries, `pyarrow.csv.write_csv(table, path)` and
            `pyarrow.parquet.write_table(table, path)` write files. Ids are integers if all of them are.

        Raises:
            InvalidInput: As in `predict`.

        Formal guarantee: as `predict_proba`.
        """
        places = self._places(nodes)
        naming, guesses = self.fitted_.naming, self.predict(places, threshold=threshold, positive=positive)
        names = [naming.node(place) for place in places.tolist()]
        return prediction_table(naming, names, list(map(str, guesses)), self.predict_proba(places))

    def score(
        self,
        nodes: Any,
        metric: str = "accuracy",
        *,
        positive: Any = None,
        threshold: float | None = None,
        k: int | None = None,
    ) -> float:
        """How good predictions are on the labelled nodes among these.

        Args:
            nodes: Indices, a boolean mask or ids of nodes, for example `graph.test_mask`.
            metric: "accuracy", "balanced_accuracy", "average_precision", "auc", "macro_precision", "macro_recall",
                "macro_f1", "majority_accuracy" (of the most frequent class alone); of the class of interest
                "precision", "recall", "f1" and "precision_at_k". They are scikit-learn's.
            positive: The class of interest, one of `classes_`. Of two classes, by default the rarer. With more classes
                and none named, average precision and AUC are means over the classes, each against the rest.
            threshold: Predict `positive` from this probability on; None: the most probable class.
            k: For "precision_at_k": how many nodes are flagged, those with the largest probability of the class of
                interest. By default as many as there are of it.

        Returns:
            The score.

        Raises:
            InvalidInput: The model has no labels (it was loaded without a graph), none of the nodes has one, there is
                no such metric, or it is not defined on these nodes.

        Formal guarantee: none. A score depends on private labels, and publishing it is not accounted for.
        """
        places = self._places(nodes)
        labels = self._known_labels()
        chosen = self._class_of_interest(positive, labels)
        truth, probabilities = labels[places.numpy()], self.predict_proba(places)
        return score_of(metric, truth, probabilities, positive=chosen, threshold=threshold, k=k)

    def evaluate(self, nodes: Any, *, positive: Any = None, threshold: float | None = None) -> Evaluation | None:
        """All scores at once: of each class, the confusion matrix, calibration, and what is found at each threshold.

        Args:
            nodes: As in `score`.
            positive: As in `score`.
            threshold: As in `score`.

        Returns:
            The evaluation; None if none of the nodes has a label.

        Raises:
            InvalidInput: The model has no labels, or there is no such class.

        Formal guarantee: none, as `score`.
        """
        places, labels = self._places(nodes), self._known_labels()
        chosen = self._class_of_interest(positive, labels)
        truth, names = labels[places.numpy()], tuple(map(str, self.classes_))
        return evaluate(truth, self.predict_proba(places), names, positive=chosen, threshold=threshold)

    def _class_of_interest(self, name: Any, labels: np.ndarray) -> int | None:
        return rare_class(labels, self.plan_.facts.classes) if name is None else self._class_number(name)

    def _known_labels(self) -> np.ndarray:
        if self.fitted_.labels is None:
            raise InvalidInput("model", self.method, "was loaded without labels; load it with graph=...")
        return self.fitted_.labels.numpy()

    def _class_number(self, name: Any) -> int:
        """The number of a class by its entry in `classes_`, or by the text of it."""
        names = [str(each) for each in self.classes_]
        if str(name) not in names:
            raise InvalidInput("positive", name, f"must be one of {', '.join(names[:20])}")
        return names.index(str(name))

    def _places(self, nodes: Any) -> torch.Tensor:
        """The numbers of nodes that are given by index, mask or id."""
        self.check_fitted()
        count = len(self.logits_)
        if nodes is None:
            return torch.arange(count)
        if isinstance(nodes, str):
            nodes = [nodes]
        if hasattr(nodes, "to_pylist"):  # a column of Arrow
            nodes = nodes.to_pylist()
        if hasattr(nodes, "to_numpy"):  # a column of another table
            nodes = nodes.to_numpy()
        given = list(nodes) if isinstance(nodes, Sequence | np.ndarray) else []
        if any(isinstance(each, str) for each in given):
            if not all(isinstance(each, str) for each in given):
                raise InvalidInput("nodes", given[:5], "must be indices, or ids as text, not both")
            return torch.tensor(self.fitted_.naming.places("nodes", given, count))
        return node_index(nodes, count)

    def _repr_html_(self) -> str:
        """For notebooks: the parameters that were given, without the seed, and the certificate."""
        defaults = {field.name: field.default for field in fields(self)}
        params = ((name, value) for name, value in self.get_params().items() if name != "seed")
        given = [(name, value) for name, value in params if value != defaults[name]]
        return model_html(type(self).__name__, given, self.certificate_ if hasattr(self, "fitted_") else None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks for: this is a classifier, and what it learns from is no table of rows."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags  # slow to load, and seldom needed

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=False),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False),
            non_deterministic=self.seed is None,
        )

    def check_fitted(self) -> None:
        """Refuse a model that was not fitted."""
        if not hasattr(self, "fitted_"):
            raise _not_fitted()("model", self.method, "is not fitted yet; call fit first")


def answered(logits: torch.Tensor) -> torch.Tensor:
    """Rows of logits, and 0 for all classes of a node whose features are too large for an answer."""
    return torch.where(logits.isfinite().all(dim=1, keepdim=True), logits, 0.0)


def column_names(naming: Naming, classes: int) -> list[str]:
    """The header of a table of predictions.

    Example:
        >>> column_names(Naming(classes=("north", "node")), 2)
        ['node', 'prediction', 'p(north)', 'p(node)']
    """
    return ["node", "prediction", *(f"p({naming.class_name(number)})" for number in range(classes))]


def prediction_table(
    naming: Naming, nodes: Sequence[str], guesses: Sequence[str], probabilities: np.ndarray
) -> pa.Table:
    """Predictions as an Arrow table. Ids are integers in it if all of them spell one."""
    import pyarrow as pa  # which a server does without

    whole = all(map(spells_integer, nodes)) and all(map(spells_integer, naming.nodes or ()))
    ids = pa.array(map(int, nodes), pa.int64()) if whole else pa.array(nodes, pa.string())
    columns = [ids, pa.array(guesses, pa.string()), *map(pa.array, probabilities.T)]
    return pa.Table.from_arrays(columns, names=column_names(naming, probabilities.shape[1]))


@cache
def _not_fitted() -> type[InvalidInput]:
    """The error for a model without a fit, which is scikit-learn's error for that too."""
    from sklearn.exceptions import NotFittedError  # slow to load, and seldom needed

    class NotFitted(InvalidInput, NotFittedError):
        """A model that was asked before it was fitted."""

        def __reduce__(self) -> tuple[Any, ...]:
            return InvalidInput, (self.field, self.value, self.why)

    return NotFitted
