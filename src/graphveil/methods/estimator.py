"""What all methods share: parameters in the way of scikit-learn, the plan before the data, the certificate after."""

from __future__ import annotations

import dataclasses
import inspect
import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch

from graphveil import validate
from graphveil.errors import BudgetExceeded, InvalidInput
from graphveil.execution import Ledger, LedgerLike, MakeLedger
from graphveil.execution.exact import EXACT, Arithmetic
from graphveil.execution.sparse_rows import CsrRows, KeptRows, Rows, SparseRows
from graphveil.graph import Graph, GraphView, cap_degree
from graphveil.graph.fingerprint import Fingerprint
from graphveil.graph.graph import Direction
from graphveil.methods import defaults
from graphveil.methods.answers import Answer, Answers, check_unchanged, epsilon_with, fingerprint, pay
from graphveil.methods.feature_neighbors import votes_of_feature_neighbors
from graphveil.methods.fitted import FitKeeper, FittedState
from graphveil.methods.naming import Naming
from graphveil.methods.registry import METHODS
from graphveil.methods.spending import Settings, Spend, make_plan
from graphveil.methods.training import Logits, Target, train_freely, train_privately
from graphveil.noise import NoiseSource
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.facts import PublicFacts
from graphveil.privacy.levels import KNeighbor, Level, Node, check_promise, level_of, protects_attributes, with_unit
from graphveil.privacy.plan import Plan

# The default of a field that has to be given.
_MISSING: Any = None
# Networks beyond this fit into no machine, and nothing is gained by their size.
_MOST = {"hidden": 2**16, "folds": 1000, "hops": 1000, "layers": 1000}


@dataclass(eq=False)
class NodeClassifier:
    """Base of all methods. Arguments go to the constructor, `fit` trains, fitted attributes end in `_`.

    Fitted attributes: `certificate_` (what was spent), `plan_` (the executed plan), `logits_` (one row for each node),
    `budget_` (the epsilon that the fit and later releases may cost together).

    Formal guarantee: a fit reads private data only through the mechanisms of its plan, and `certificate_` states their
    epsilon and delta at `level`. All parameters are treated as public. Choose them without looking at private data.

    Args:
        level: What is protected: `Public()`, `Edge()`, `KNeighbor(k)` or `Node(max_degree)`. Required. The names
            "none", "edge" and, with `max_degree`, "node" are understood too.
        epsilon: The privacy budget of the fit. Required, except at level `Public()`, where it must be None.
        delta: The probability that is left out of the guarantee. "auto" takes at most 0.1 over the number of protected
            nodes or edges.
        seed: None draws noise from a cryptographic source. A number makes the fit repeatable; whoever knows it can
            subtract the noise, so it is for experiments only.
        shares: Parts of the budget by the name of a mechanism, in units of mu^2, in place of the method's own parts.
        steps: Steps of each private training. None: 100 to 400, more for a smaller epsilon.
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
    device: str = "cpu"
    show_progress: bool | None = None

    method: ClassVar[str]
    # What the method spends; `registry` has the same function.
    spend: ClassVar[Spend]
    direction: ClassVar[Direction] = "out"
    # The planned release that rows of new nodes join; None where they need none.
    joins: ClassVar[str | None] = None
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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, as scikit-learn's `clone` wants them.

        Args:
            deep: Has no effect; scikit-learn passes it.

        Returns:
            The arguments by name.
        """
        del deep
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments, as in scikit-learn.

        Args:
            params: New values by name.

        Returns:
            This model.

        Raises:
            InvalidInput: A name is not a parameter, or the level cannot be used.
        """
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InvalidInput("parameter", name, f"is not one of {', '.join(known)}")
            setattr(self, name, value)
        self.level = level_of(self.level, self.max_degree)
        return self

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
        return self.plan_for(
            PublicFacts(
                nodes=graph.num_nodes,
                train_nodes=int(graph.train_mask.sum()),
                features=graph.num_features,
                classes=graph.num_classes,
                directed=graph.directed,
                edges=declared_edges(self.public_edges),
                found=graph.undeclared.facts(),
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

    def fit(
        self,
        graph: Graph,
        *,
        checkpoint: str | Path | FitKeeper | None = None,
        checkpoint_every: float = 60.0,
        resume: bool = False,
    ) -> Self:
        """Train on a graph; afterwards `certificate_` says what was spent.

        Args:
            graph: The training graph, with labels and a training set.
            checkpoint: A folder that keeps an unfinished fit (docs/checkpoint.md). It is removed when the fit is
                finished. A `Checkpoint` in place of a path stays until its `discard` is called.
            checkpoint_every: How often the checkpoint is written: seconds, or training steps if it is an int.
            resume: Continue the fit that is in the checkpoint, without drawing any noise a second time.

        Returns:
            This model, fitted.

        Raises:
            InvalidInput: A parameter, the graph or the checkpoint cannot be used. They are checked before anything is
                drawn.
            BudgetExceeded: A method tried to draw noise that was not planned.

        Formal guarantee: the fit draws noise exactly as `plan(graph)` lists it, so the weights and all rows of other
        nodes are (epsilon, delta) graph-differentially private at `level`. A node's own row of predictions depends on
        its own data and is for this node alone (docs/theory.md, section 1).
        """
        if isinstance(checkpoint, str | Path):
            from graphveil.checkpoint import Checkpoint

            with Checkpoint(checkpoint, every=checkpoint_every, resume=resume) as opened:
                self.fit(graph, checkpoint=opened)
                opened.discard()
            return self
        return self.execute(graph, checkpoint=checkpoint)

    def execute(
        self,
        graph: Graph,
        plan: Plan | None = None,
        make_ledger: MakeLedger = Ledger,
        *,
        checkpoint: FitKeeper | None = None,
    ) -> Self:
        """`fit` with a plan and a ledger that are handed in; audits use it.

        Args:
            graph: The training graph.
            plan: A plan of this method for the public facts of this graph; None: make it.
            make_ledger: Builds the ledger that all mechanisms are drawn through, from the plan and a source of noise.
            checkpoint: Keeps an unfinished fit, as in `fit`.

        Returns:
            This model, fitted.

        Raises:
            InvalidInput: A parameter or the graph does not fit the method.

        Formal guarantee: the certificate is the ledger's. It holds if the ledger keeps to the plan, as `Ledger` does.
        """
        self.check_parameters()
        graph.check_trainable()
        plan = plan or self.plan(graph)
        check_declared_edges(plan.facts, graph.num_edges)
        source = NoiseSource(self.seed)
        ledger = make_ledger(plan, source)
        seed = secrets.randbits(62) if self.seed is None else self.seed
        logits, sparse = self.train(
            ledger,
            lambda: Inputs(graph, self._adjacency(graph, source), self.device),
            seed,
            checkpoint.following(self, graph, ledger, source) if checkpoint else nullcontext(),
        )
        certificate = ledger.certificate()
        return self.take(
            FittedState(
                ledger=ledger,
                certificate=certificate,
                logits=logits,
                sparse=sparse,
                naming=Naming.of(graph),
                labels=graph.labels,
                fingerprint=Fingerprint.of(graph),
                answers=Answers(),
                budget=certificate.epsilon,
                keeper=checkpoint,
            )
        )

    def train(
        self,
        ledger: LedgerLike,
        make_inputs: Callable[[], Inputs],
        seed: int,
        kept: AbstractContextManager[None],
    ) -> tuple[torch.Tensor, bool]:
        """Execute the ledger's plan within `kept`; returns the logits, and whether features were read as sparse rows.

        `seed` is that of initial weights and dropout: public randomness, apart from the noise.
        """
        self._ledger = ledger
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            with kept:
                inputs = make_inputs()
                return self._fit(inputs, ledger).detach().cpu(), isinstance(inputs.features, SparseRows)

    def take(self, state: FittedState) -> Self:
        """Be the fitted model with this state; its weights are in place (`train`, `set_part`)."""
        self.fitted_: FittedState = state
        self._ledger = state.ledger
        return self

    @property
    def logits_(self) -> torch.Tensor:
        """Of all nodes of the training graph."""
        return self.fitted_.logits

    @property
    def certificate_(self) -> Certificate:
        """What the fit has spent."""
        return self.fitted_.certificate

    @property
    def plan_(self) -> Plan:
        """The executed plan, on the branch that was taken."""
        return self.fitted_.plan

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
        from graphveil.artifact import save

        save(self, Path(folder), budget=budget)

    def predict_proba(self, nodes: Any = None) -> np.ndarray:
        """Class probabilities of nodes of the training graph.

        Args:
            nodes: Indices or a boolean mask. None: all nodes.

        Returns:
            An array with a row for each node and a column for each class. Asking again gives the same answer.

        Raises:
            InvalidInput: The model is not fitted, or there is no such node.

        Formal guarantee: this draws nothing and costs nothing. At levels `KNeighbor` and `Node` a node's own row is for
        this node alone.
        """
        return torch.softmax(self._selected(nodes), dim=1).numpy()

    def predict(self, nodes: Any = None) -> np.ndarray:
        """The most probable class of nodes of the training graph.

        Args:
            nodes: Indices or a boolean mask. None: all nodes.

        Returns:
            An array of class numbers.

        Raises:
            InvalidInput: The model is not fitted, or there is no such node.

        Formal guarantee: as `predict_proba`.
        """
        return self._selected(nodes).argmax(dim=1).numpy()

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
        data = Inputs(graph, graph.reads(self.direction), self.device, self.fitted_.sparse)
        with torch.no_grad():
            return torch.softmax(self._logits_on(data).cpu(), dim=1).numpy()

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
        names = self.fitted_.naming.new_ids(ids, self.plan_.facts.nodes)
        x, rows = self._new_rows(names, features, neighbors)
        questions = [fingerprint(x[i], neighbors[i], from_graph) for i in range(len(ids))]
        with self.fitted_.answers.opened():
            fresh = []
            for i, (name, question) in enumerate(zip(names, questions, strict=True)):
                if not update:
                    check_unchanged(self.fitted_.answers, name, question)
                last = self.fitted_.answers.of(name)
                if last is None or last.question != question:
                    fresh.append(i)
            if fresh:
                asked = [(names[i], questions[i]) for i in fresh]
                self.fitted_.answers.add(self._answer(asked, x[fresh], rows[fresh], from_graph))
            found = [self.fitted_.answers.of(name) for name in names]
        return np.array([answer.probabilities for answer in found if answer is not None], dtype=np.float32).reshape(
            len(names), self.plan_.facts.classes
        )

    def _answer(
        self, asked: Sequence[tuple[str, str]], x: np.ndarray, rows: sp.csr_array, from_graph: bool
    ) -> list[Answer]:
        """Answers to questions that were not asked before, by node and fingerprint."""
        draws = self.draws_noise(from_graph)
        earlier = [self.fitted_.answers.of(name) for name, _ in asked]
        releases = [(0 if last is None else last.release) + draws for last in earlier]
        if draws:
            assert self.joins is not None
            if max(releases) > self.fitted_.answers.releases:
                pay(self.plan_, self.joins, max(releases), self.budget_)
            self._count_readers(rows, np.array(releases))
        with torch.no_grad():
            sparse = self.fitted_.sparse
            inputs: Rows = CsrRows(sp.csr_array(x), self.device) if sparse else _dense(x).to(self.device)
            logits = self._logits_new(inputs, CsrRows(rows, self.device), from_graph)
        counted = draws and self._degree_bound(self.plan_) is not None
        return [
            Answer(name, question, release, tuple(row), tuple(reads.tolist()) if counted else ())
            for (name, question), release, row, reads in zip(
                asked,
                releases,
                torch.softmax(logits.cpu(), dim=1).tolist(),
                np.split(rows.indices, rows.indptr[1:-1]),
                strict=True,
            )
        ]

    @property
    def epsilon_spent(self) -> float:
        """What the fit and all further releases cost together."""
        self.check_fitted()
        if self.joins is None or self.fitted_.answers.releases == 1:
            return self.certificate_.epsilon
        return epsilon_with(self.plan_, self.joins, self.fitted_.answers.releases)

    def draws_noise(self, from_graph: bool) -> bool:
        """Whether answers to new nodes draw noise."""
        del from_graph
        return self.joins is not None and self.joins in self._ledger.used

    def score(self, nodes: Any) -> float:
        """Accuracy on the labelled nodes among these.

        Args:
            nodes: Indices or a boolean mask, for example `graph.test_mask`.

        Returns:
            The fraction of nodes whose predicted class is their label.

        Raises:
            InvalidInput: The model has no labels (it was loaded without a graph), or none of the nodes has a label.

        Formal guarantee: none. A score depends on private labels, and publishing it is not accounted for.
        """
        guess = torch.from_numpy(self.predict(nodes))
        if self.fitted_.labels is None:
            raise InvalidInput("model", self.method, "was loaded without labels; load it with graph=...")
        truth = self.fitted_.labels[_index(nodes, len(self.fitted_.labels))]
        known = truth >= 0
        if not bool(known.any()):
            raise InvalidInput("nodes", 0, "none of them has a label to score against")
        return float((guess == truth)[known].float().mean())

    def _selected(self, nodes: Any) -> torch.Tensor:
        self.check_fitted()
        return self.logits_ if nodes is None else self.logits_[_index(nodes, len(self.logits_))]

    def check_fitted(self) -> None:
        """Refuse a model that was not fitted."""
        if not hasattr(self, "fitted_"):
            raise InvalidInput("model", self.method, "is not fitted yet; call fit first")

    def _new_rows(self, ids: Any, features: Any, neighbors: Any) -> tuple[np.ndarray, sp.csr_array]:
        """New nodes' features and rows of A over the old nodes, checked."""
        x = np.asarray(features, dtype=np.float32)
        facts = self.plan_.facts
        if x.shape != (len(ids), facts.features):
            raise InvalidInput("features", x.shape, f"must have shape ({len(ids)}, {facts.features})")
        if not np.isfinite(x).all():
            raise InvalidInput("features", "NaN or infinite", "must be finite")
        if len(neighbors) != len(ids) or len(set(ids)) != len(ids):
            raise InvalidInput("ids", len(ids), f"must be unique and as many as neighbor lists, {len(neighbors)}")
        columns = _index([j for row in neighbors for j in row], facts.nodes).numpy()
        starts = np.cumsum([0, *(len(row) for row in neighbors)])
        for row in np.split(columns, starts[1:-1]):  # as numbers: tensors that hold the same one are not equal
            if len(np.unique(row)) < len(row):
                raise InvalidInput("neighbors", row.tolist(), "names a node twice")
        return x, sp.csr_array((np.ones(len(columns), np.float32), columns, starts), shape=(len(ids), facts.nodes))

    def _count_readers(self, rows: sp.csr_array, releases: np.ndarray) -> None:
        """Keep the degree promise in each table, counting new readers alone: in the first one the fit has kept
        `reserved_readers` free, and later ones have no others."""
        bound = self._degree_bound(self.plan_)
        if bound is None:
            return
        for release in np.unique(releases).tolist():
            nodes = self.plan_.facts.nodes
            readers = self.fitted_.answers.readers(release, nodes)
            readers += np.bincount(rows[releases == release].indices, minlength=nodes)
            room, most = self.reserved_readers if release == 1 else bound, int(readers.max(initial=0))
            if most > room:
                what = "reserved_readers" if release == 1 else "max_degree"
                why = f"is how many new nodes may read a node, and {most} would read one; only a new fit can allow more"
                raise InvalidInput(what, room, why)

    def _logits_on(self, data: Inputs) -> torch.Tensor:
        raise InvalidInput("method", self.method, "cannot predict on another graph")

    def _logits_new(self, features: Rows, rows: SparseRows, from_graph: bool) -> torch.Tensor:
        raise InvalidInput("method", self.method, "cannot predict for new nodes")

    def covered_parts(self, plan: Plan, like: Rows) -> dict[str, torch.nn.Module | torch.Tensor]:
        """What the certificate covers in full, by name, for features `like` these: shapes without content.

        With `owner_parts`, all that a fitted model is made of: an artifact holds it and nothing else. `part` and
        `set_part` read and write the content.
        """
        raise NotImplementedError

    def owner_parts(self, plan: Plan) -> dict[str, torch.Tensor]:
        """What has a row for each node that only this node's owner may see, likewise."""
        del plan
        return {}

    def part(self, name: str) -> torch.nn.Module | torch.Tensor:
        """A part of the fitted model, by its name in `covered_parts` or `owner_parts`."""
        found: torch.nn.Module | torch.Tensor = getattr(self, f"_{name}")
        return found

    def set_part(self, name: str, value: torch.nn.Module | torch.Tensor) -> None:
        """Put a part in its place, as a fit does."""
        setattr(self, f"_{name}", value)

    def recall(self, data: Inputs | None) -> None:
        """Take from the training graph, if it is at hand, what new nodes read of it and no artifact holds."""

    def check_parameters(self) -> None:
        """What no plan looks at, before anything is drawn."""
        validate.device(self.device)
        if self.seed is not None:
            validate.seed("seed", self.seed)
        validate.count("epochs", self.epochs, least=0)
        for name, most in _MOST.items():
            if hasattr(self, name):
                validate.count(name, getattr(self, name), least=name == "hidden", most=most)
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
            capped=self.cap_degrees,
            reserved_readers=self.reserved_readers,
            shares=self.shares or {},
        )

    def _degree_bound(self, plan: Plan) -> int | None:
        """The promise on the readers of a node that this method relies on; None if it relies on none."""
        del plan
        if isinstance(self.level, Node):
            return self.level.max_degree
        return self.max_degree if self.sums_attributes and isinstance(self.level, KNeighbor) else None

    def _adjacency(self, graph: Graph, source: NoiseSource) -> Any:
        """What each node reads, with the degree promise checked, or established by capping where that was asked for."""
        adjacency = graph.reads(self.direction)
        bound = self.room_for_old_readers(self._ledger.plan)
        if bound is None:
            return adjacency
        largest = int(np.bincount(adjacency.indices, minlength=1).max()) if adjacency.nnz else 0
        if largest > bound and self.cap_degrees:
            chosen = self._ledger.stages.draw(
                "degree cap", lambda: source.integers(2**52, 1), lambda found: found.shape == (1,) and int(found) >= 0
            )
            return cap_degree(adjacency, bound, seed=int(chosen))
        self.check_readers(self._ledger.plan, largest)
        return adjacency

    def room_for_old_readers(self, plan: Plan) -> int | None:
        """How many nodes of the training graph may read a node: the promise without what is reserved for new ones."""
        bound, reserved = self._degree_bound(plan), validate.count("reserved_readers", self.reserved_readers, least=0)
        if reserved and not isinstance(self.level, Node) and self.max_degree is None:
            raise InvalidInput("reserved_readers", reserved, "is a part of a degree promise, and there is none")
        if bound is None:
            return None
        if reserved >= bound:
            raise InvalidInput("reserved_readers", reserved, f"must be less than the promise, {bound}")
        return bound - reserved

    def check_readers(self, plan: Plan, largest: int) -> None:
        """Refuse a graph in which a node is read by more than the promise leaves."""
        room = self.room_for_old_readers(plan)
        if room is not None and self.reserved_readers and largest > room:
            why = f"and the promise leave {room} readers, but a node is read by {largest}"
            raise InvalidInput("reserved_readers", self.reserved_readers, why)
        if room is not None:
            check_promise(Node(room), largest)

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        """Train and return the logits of all nodes."""
        raise NotImplementedError

    def _train(self, model: torch.nn.Module, logits: Logits, data: Inputs, ledger: LedgerLike, name: str) -> None:
        """Train `model` as the plan says: privately if `name` is in it, freely otherwise, if that is allowed at all."""
        model.to(self.device)
        if name in ledger.used:
            rate = self._private_rate(data)
            train_privately(
                model,
                logits,
                data.target,
                ledger,
                name,
                learning_rate=rate,
                show=self.show_progress,
                arithmetic=self.arithmetic,
            )
        else:
            self._train_freely(model, logits, data.target, name)

    def _private_rate(self, data: Inputs) -> float:
        return defaults.private_rate(data.target.count) if self.learning_rate is None else self.learning_rate

    def _train_freely(
        self,
        model: torch.nn.Module,
        logits: Logits,
        target: Target,
        name: str,
        *,
        learning_rate: float | None = None,
        steps: int | None = None,
    ) -> None:
        """For models that read nothing private, or nothing but what was released: labels must be public."""
        if protects_attributes(self.level):
            raise BudgetExceeded(f"{name}: is not in the plan, and private labels cannot be learnt from outside it")
        train_freely(
            model,
            logits,
            target,
            self._ledger.stages,
            name,
            steps=steps or self.epochs,
            learning_rate=learning_rate or self.free_learning_rate,
            show=self.show_progress,
        )


class Inputs:
    """A graph as the methods read it, on their device."""

    def __init__(self, graph: GraphView, adjacency: Any, device: str, sparse: bool | None = None) -> None:
        self.nodes, self.classes = graph.num_nodes, graph.num_classes
        self.adjacency: SparseRows = CsrRows(adjacency, device)
        self.features = _features(graph, device, sparse)
        self.features_of = KeptRows(self.features)
        self.target = Target(
            graph.labels.to(device),
            graph.train_mask.nonzero().squeeze(1).to(device),
            graph.val_mask.nonzero().squeeze(1).to(device),
        )

    def feature_neighbors(self) -> torch.Tensor:
        """Votes of training nodes with similar features, of labels as they are: for public attributes."""
        return votes_of_feature_neighbors(self.features, self.target.labels, self.target.train, self.classes)

    def mean(self, rows: torch.Tensor) -> torch.Tensor:
        """Over all rows of a table."""
        return (self.total(rows) / self.count(rows)).float()

    def count(self, rows: torch.Tensor) -> int:
        """How many rows a table has, all of them together."""
        return len(rows)

    def total(self, rows: torch.Tensor) -> torch.Tensor:
        """The sum of all rows of a table, in float64."""
        return rows.sum(0, dtype=torch.float64)

    def longest(self, rows: torch.Tensor) -> torch.Tensor:
        """The largest norm of a table's rows."""
        return rows.norm(dim=1).max()


def _features(graph: GraphView, device: str, sparse: bool | None = None) -> Rows:
    """Features as rows of a linear layer: as the graph stores them, sparse or dense, or as `sparse` says.

    How they are stored is the owner's choice. To measure how many entries are filled would let one node's features
    decide by which routine the others' are multiplied, and that shows in the last bits.
    """
    found = graph.features
    if graph.num_features == 0:  # neither, so the layers that read nothing are the ordinary ones
        return torch.zeros(int(found.shape[0]), 0, device=device)
    if isinstance(found, torch.Tensor):
        return CsrRows(sp.csr_array(found.numpy()), device) if sparse else found.to(device)
    return CsrRows(found, device) if sparse is not False else _dense(found.toarray()).to(device)


def _dense(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


def declared_edges(bound: object) -> int | None:
    """The declared bound on the number of stored edges, checked; None where none is declared."""
    if isinstance(bound, bool):
        why = "is a declared upper bound on the number of stored edges, a number; None where there is none"
        raise InvalidInput("public_edges", bound, why)
    return None if bound is None else validate.count("public_edges", bound)


def check_declared_edges(facts: PublicFacts, stored: int) -> None:
    """Refuse a graph with more edges than were declared, without saying how many it has."""
    if facts.edges is not None and stored > facts.edges:
        raise InvalidInput("public_edges", facts.edges, "the graph has more stored edges than this declared bound")


def _index(nodes: Any, count: int) -> torch.Tensor:
    """Node indices from a mask, a list or an array, checked."""
    if isinstance(nodes, Sequence):
        nodes = np.asarray(nodes) if len(nodes) else np.zeros(0, np.int64)
    index = torch.as_tensor(nodes)
    if index.dtype == torch.bool:
        if index.shape != (count,):
            raise InvalidInput("nodes", tuple(index.shape), f"a mask must have {count} entries")
        return index.nonzero().squeeze(1)
    index = index.reshape(-1)
    if index.is_floating_point():
        raise InvalidInput("nodes", str(index.dtype), "must be indices or a mask")
    if len(index) and (int(index.min()) < 0 or int(index.max()) >= count):
        wrong = next(int(i) for i in index if not 0 <= int(i) < count)
        raise InvalidInput("nodes", wrong, f"must lie in 0 .. {count - 1}")
    return index.long()
