"""Parameters in the way of scikit-learn, and the plan that follows from them and from public facts."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from graphveil import validate
from graphveil.errors import InvalidInput
from graphveil.execution.exact import EXACT, Arithmetic
from graphveil.graph import Graph
from graphveil.graph.graph import Direction
from graphveil.methods import METHODS, defaults
from graphveil.methods.spending import Settings, Spend, make_plan, promised_power
from graphveil.privacy.facts import PublicFacts, declared_edges
from graphveil.privacy.levels import (
    OR_CUT,
    KNeighbor,
    Level,
    Node,
    check_promise,
    level_of,
    protects_attributes,
    with_unit,
)
from graphveil.privacy.plan import Plan

# The default of a field that has to be given.
_MISSING: Any = None
# Networks beyond this fit into no machine, and nothing is gained by their size.
_MOST = {"hidden": 2**16, "folds": 1000, "hops": 1000, "layers": 1000, "depth": 1000, "base_layers": 1000}

# Class weights by counts of the training nodes.
BALANCED = "balanced"
# Beyond this a ratio of weights leaves nothing of the other classes.
_LARGEST_WEIGHT = 1e6


class Settable:
    """A dataclass whose fields are its parameters, as scikit-learn wants them."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, as scikit-learn's `clone` wants them.

        Args:
            deep: Has no effect; scikit-learn passes it.

        Returns:
            The arguments by name.
        """
        del deep
        assert dataclasses.is_dataclass(self)
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments, as in scikit-learn.

        Args:
            params: New values by name.

        Returns:
            This object.

        Raises:
            InvalidInput: A name is not a parameter, or a level cannot be used.
        """
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InvalidInput("parameter", name, f"is not one of {', '.join(known)}")
            setattr(self, name, value)
        self.__post_init__()
        return self

    def __post_init__(self) -> None:
        """What the constructor does with its arguments once they are stored."""


@dataclass(eq=False)
class Parameters(Settable):
    """The parameters that all methods have, and what a fit with them would spend.

    Formal guarantee: all parameters are treated as public. Choose them without looking at private data.

    Args:
        level: What is protected: `Public()`, `Edge()`, `KNeighbor(k)` or `Node(max_degree)`. Required. The names
            "none", "edge" and, with `max_degree`, "node" are understood too.
        epsilon: The privacy budget of the fit. Required, except at level `Public()`, where it must be None.
        delta: The probability that is left out of the guarantee. "auto" takes at most 0.1 over the number of protected
            nodes or edges.
        seed: None draws noise from a cryptographic source. A number makes the fit repeatable; whoever knows it can
            subtract the noise, so it is for experiments only.
        shares: Parts of the budget by the name of a mechanism, in units of mu^2, in place of the method's own parts.
        steps: Steps of each private training. None: 100 to 400, more for a smaller epsilon. The default's linear
            classifier and head take 100 and 60 at most.
        batch_size: Expected size of Poisson-sampled batches of private training. None: all training nodes, every step.
        clip: The norm to which the gradient of each training node is clipped.
        max_degree: A promise that at most this many nodes read any one node. At level `Node` the level states it. GAP
            and DPSAGE need it at level `KNeighbor` too.
        cap_degrees: Drop readers at random from nodes that have more than promised. The certificate says that this was
            asked for. Without it such a graph is an error.
        reserved_readers: How many of the promised readers of each node stay free for new nodes (`predict_new`).
        public_edges: A declared upper bound on the number of stored edges (an undirected edge is stored twice). It is
            public, so do not count edges to find it. At level `Edge` the automatic delta follows from it. A graph with
            more edges is refused; only the owner may see that.
        hidden: The width of hidden layers.
        learning_rate: Of private training. None: 0.003 up to 2,500 training nodes, then growing with the root of their
            number up to 0.01.
        free_learning_rate: Of training that reads nothing protected.
        epochs: Steps of training that reads nothing protected.
        dropout: The dropout probability of training that reads nothing protected. Private training has no dropout.
        class_weight: How much a training node counts, for each class by its name or number; only ratios matter.
            Declared numbers cost nothing. "balanced": all classes count the same, each node by one over the number of
            training nodes of its class; where labels are private these counts are paid for (mechanism "classes").
        class_prior: The declared share of each class where predictions are used, by its name or number. Predictions
            are shifted from equal shares to these, so it belongs to training nodes that have equally many of each
            class, or to `class_weight`="balanced". It costs nothing.
        device: Where tensors are: "cpu" or "cuda". Noise is drawn on the processor.
        show_progress: Whether to show a progress bar. None: on a terminal only.
    """

    level: Level = _MISSING
    epsilon: float | None = None
    delta: float | str = "auto"
    seed: int | None = None
    shares: Mapping[str, float] | None = None
    steps: int | None = None
    batch_size: int | None = None
    clip: float = 1.0
    max_degree: int | None = None
    cap_degrees: bool = False
    reserved_readers: int = 0
    public_edges: int | None = None
    hidden: int = 64
    learning_rate: float | None = None
    free_learning_rate: float = 0.01
    epochs: int = 100
    dropout: float = 0.5
    class_weight: Mapping[Any, float] | str | None = None
    class_prior: Mapping[Any, float] | None = None
    device: str = "cpu"
    show_progress: bool | None = None

    method: ClassVar[str]
    # What the method spends; `METHODS` has the same function.
    spend: ClassVar[Spend]
    direction: ClassVar[Direction] = "out"
    # How released sums are made; the broken variants of an audit have another.
    arithmetic: ClassVar[Arithmetic] = EXACT
    # Whether it learns from features, and has nothing to learn on a graph without them.
    needs_features: ClassVar[bool] = True
    # Whether it sums rows that depend on the neighbours' own data: then a node level is not the only one at which
    # degrees have to be bounded.
    sums_attributes: ClassVar[bool] = False
    # Whether it has a parameter `table` that may be chosen freely.
    chooses_table: ClassVar[bool] = False
    # Whether it can be trained on a graph that is divided among processes.
    divides: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Add the parameters that a method inherits to its docstring, so that `help` explains all of them."""
        super().__init_subclass__()
        if cls.__doc__ is not None:
            own = inspect.cleandoc(cls.__doc__)
            inherited = inspect.cleandoc(cls.__mro__[1].__doc__ or "").partition("Args:\n")[2]
            cls.__doc__ = own + ("\n" if "Args:\n" in own else "\n\nArgs:\n") + inherited

    def __post_init__(self) -> None:
        self.level = level_of(self.level, self.max_degree)

    @property
    def feature_norm(self) -> float | None:
        """The norm that rows of features are scaled to; None: they are read as they are.

        Clipped training depends on the scale of its inputs, so where features are private all rows get one norm.
        """
        return defaults.FEATURE_NORM if protects_attributes(self.level) else None

    def plan(self, graph: Graph) -> Plan:
        """What a fit on this graph would spend, without fitting.

        Args:
            graph: The graph. Only public facts about it are read (`PublicFacts`).

        Returns:
            The calibrated plan.

        Raises:
            InvalidInput: The parameters and the public facts give no plan.

        Formal guarantee: the plan is a function of public facts and of the parameters. Showing it costs nothing.
        """
        self.check_classes(graph.class_names, graph.num_classes)
        return self.plan_for(
            PublicFacts(
                nodes=graph.num_nodes,
                train_nodes=int(graph.train_mask.sum()),
                features=graph.num_features,
                classes=graph.num_classes,
                directed=graph.directed,
                edges=declared_edges(self.public_edges),
                undeclared=graph.undeclared.facts(),
                max_weight=graph.max_weight,
                relations=() if graph.relations is None else graph.relations.names,
                numeric_columns=len(graph.numeric_columns),
            )
        )

    def plan_for(self, facts: PublicFacts) -> Plan:
        """What a fit on a graph with these public facts would spend."""
        if facts.features == 0 and self.needs_features:
            known = " and ".join(sorted(name for name, each in METHODS.items() if not each.load().needs_features))
            raise InvalidInput("features", 0, f"{self.method} learns from features; {known} learn from links alone too")
        level = with_unit(level_of(self.level, self.max_degree), facts.directed)
        return make_plan(
            self.method,
            level,
            facts,
            epsilon=self.epsilon,
            delta=self.delta,
            settings=self._settings(),
            spend=self.spend,
        )

    def check_classes(self, names: Sequence[str] | None, classes: int) -> None:
        """Refuse class weights and priors that are not about these classes; `names` is None where they are numbers."""
        self.declared_weights(names, classes)
        self.declared_prior(names, classes)

    def declared_weights(self, names: Sequence[str] | None, classes: int) -> list[float] | None:
        """The declared weight of each class, in order; None: there are none, or they follow from counts."""
        if self.class_weight is None or self.class_weight == BALANCED:
            return None
        if not isinstance(self.class_weight, Mapping):
            raise InvalidInput("class_weight", self.class_weight, f'must be "{BALANCED}" or a number for each class')
        weights = by_class("class_weight", self.class_weight, names, classes)
        if not any(weights):
            raise InvalidInput("class_weight", self.class_weight, "must be positive for a class at least")
        return weights

    def declared_prior(self, names: Sequence[str] | None, classes: int) -> list[float] | None:
        """The declared share of each class, in order."""
        if self.class_prior is None:
            return None
        shares = by_class("class_prior", self.class_prior, names, classes)
        if not all(shares) or not math.isclose(sum(shares), 1, abs_tol=1e-6):
            raise InvalidInput("class_prior", self.class_prior, "must be positive shares that add up to 1")
        return shares

    def check_parameters(self) -> None:
        """What no plan looks at, before anything is drawn."""
        validate.device(self.device)
        if self.seed is not None:
            validate.seed("seed", self.seed)
        validate.flag("cap_degrees", self.cap_degrees)
        if self.show_progress is not None:
            validate.flag("show_progress", self.show_progress)
        validate.count("epochs", self.epochs, least=0)
        for name, most in _MOST.items():
            if hasattr(self, name):
                validate.count(name, getattr(self, name), least=int(name in ("hidden", "base_layers")), most=most)
        validate.positive("free_learning_rate", self.free_learning_rate)
        if self.learning_rate is not None:
            validate.positive("learning_rate", self.learning_rate)
        if not validate.non_negative("dropout", self.dropout) < 1:
            raise InvalidInput("dropout", self.dropout, "must be less than 1")

    def _settings(self) -> Settings:
        return Settings(
            steps=self.steps,
            batch_size=self.batch_size,
            clip=self.clip,
            max_degree=self.max_degree,
            capped=validate.flag("cap_degrees", self.cap_degrees),
            reserved_readers=self.reserved_readers,
            shares=self.shares or {},
            counts_classes=self.class_weight == BALANCED,
        )

    def degree_bound(self, plan: Plan) -> int | None:
        """The promise on the readers of a node that this method relies on; None if it relies on none."""
        del plan
        if isinstance(self.level, Node):
            return self.level.max_degree
        return self.max_degree if self.sums_attributes and isinstance(self.level, KNeighbor) else None

    def room_for_old_readers(self, plan: Plan) -> int | None:
        """How many nodes of the training graph may read a node: the promise without what is reserved for new ones."""
        bound, reserved = self.degree_bound(plan), validate.count("reserved_readers", self.reserved_readers, least=0)
        if reserved and not isinstance(self.level, Node) and self.max_degree is None:
            raise InvalidInput("reserved_readers", reserved, "is a part of a degree promise, and there is none")
        if bound is None:
            return None
        if reserved >= bound:
            raise InvalidInput("reserved_readers", reserved, f"must be less than the promise, {bound}")
        return bound - reserved

    def promised_power(self, plan: Plan) -> int:
        """What the degree promise adds up: 0 the readers of a node, 1 the weights of their links, 2 the squares."""
        return promised_power(plan.all_mechanisms) if plan.facts.weighted else 0

    def reads_relations(self, plan: Plan) -> bool:
        """Whether several relations are read one by one; otherwise their sum is read, cut at 1."""
        del plan
        return False

    def check_readers(self, plan: Plan, largest: float) -> None:
        """Refuse a graph in which a node is read by more than the promise leaves."""
        room = self.room_for_old_readers(plan)
        if room is not None and largest > room and (self.promised_power(plan) or plan.facts.relations):
            what = ("number", "weights", "squared weights")[self.promised_power(plan)]
            why = f"the graph breaks this promise: the {what} of the links by which a node is read come to {largest:g}"
            raise InvalidInput("max_degree", room, f"{why}; {OR_CUT}")
        if room is not None and self.reserved_readers and largest > room:
            why = f"and the promise leave {room} readers, but a node is read by {largest}; {OR_CUT}"
            raise InvalidInput("reserved_readers", self.reserved_readers, why)
        if room is not None:
            check_promise(Node(room), largest)


def by_class(field: str, given: Mapping[Any, float], names: Sequence[str] | None, classes: int) -> list[float]:
    """A number for each class, in order, from numbers by the names of classes or, where they have none, by their
    numbers. Every class must have one, 0 or more."""
    if not isinstance(given, Mapping):
        raise InvalidInput(field, given, "must give a number for each class by its name")
    known = [str(number) for number in range(classes)] if names is None else list(names)
    values = {str(name): value for name, value in given.items()}
    for name in values:
        if name not in known:
            raise InvalidInput(field, name, f"is not a class; they are {', '.join(known[:20])}")
    missing = [name for name in known if name not in values]
    if missing:
        raise InvalidInput(field, dict(given), f"has no number for {', '.join(missing[:20])}")
    for name, value in values.items():
        if validate.non_negative(f"{field} of {name}", value) > _LARGEST_WEIGHT:
            raise InvalidInput(f"{field} of {name}", value, f"must be at most {_LARGEST_WEIGHT:g}")
    return [float(values[name]) for name in known]
