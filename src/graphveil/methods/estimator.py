"""The base of all methods: how a fit goes, from the plan before the data to the certificate after."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import scipy.sparse as sp
import torch

from graphveil import validate
from graphveil.errors import BudgetExceeded, InvalidInput
from graphveil.execution import Ledger, LedgerLike, MakeLedger
from graphveil.execution.sparse_rows import SparseRows
from graphveil.graph import Fingerprint, Graph, GraphView, cap_degree, column_sums
from graphveil.graph.summary import Naming
from graphveil.methods import attached, defaults
from graphveil.methods.fitted import FittedModel, History, log_end, log_start
from graphveil.methods.inputs import Inputs
from graphveil.methods.new_nodes import Answers
from graphveil.methods.predictions import FitKeeper, FittedState, answered
from graphveil.methods.scales import learn_scales
from graphveil.methods.training import Logits, Target, label_rows, train_freely, train_privately
from graphveil.noise import NoiseSource
from graphveil.privacy.budget import BudgetLedger
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.facts import check_declared_edges
from graphveil.privacy.levels import protects_attributes
from graphveil.privacy.plan import Plan


def training_set(graph: GraphView) -> str:
    """A digest of which nodes are in training, which is public."""
    return hashlib.sha256(np.packbits(graph.train_mask.numpy()).tobytes()).hexdigest()[:16]


def check_graph(graph: object, y: object = None) -> None:
    """Refuse what scikit-learn hands to estimators of tables, with what to do instead."""
    if y is not None:
        why = "labels are in the graph; call fit(graph), and gv.PrivateSearch to choose among settings"
        raise InvalidInput("y", type(y).__name__, why)
    if not isinstance(graph, Graph):
        why = "must be a graphveil Graph: see Graph.from_pyg, Graph.from_edge_index and read_graph"
        raise InvalidInput("graph", type(graph).__name__, why)


# The stage of a fit that draws which links are cut.
DEGREE_CAP = "degree cap"


class NodeClassifier(FittedModel):
    """Base of all methods. Arguments go to the constructor, `fit` trains, fitted attributes end in `_`.

    Fitted attributes: `certificate_` (what was spent), `plan_` (the executed plan), `logits_` (one row for each node),
    `budget_` (the epsilon that the fit and later releases may cost together), `history_` (what the fit did, stage by
    stage, without private values).

    Formal guarantee: a fit reads private data only through the mechanisms of its plan, and `certificate_` states their
    epsilon and delta at `level`. All parameters are treated as public. Choose them without looking at private data.
    """

    def fit(
        self,
        graph: Graph,
        y: None = None,
        *,
        ledger: str | Path | BudgetLedger | None = None,
        checkpoint: str | Path | FitKeeper | None = None,
        checkpoint_every: float = 60.0,
        resume: bool = False,
    ) -> Self:
        """Train on a graph; afterwards `certificate_` says what was spent.

        Args:
            graph: The training graph, with labels and a training set.
            y: Must be None, because labels are in the graph; scikit-learn passes it.
            ledger: The file that adds up all trainings on these people (`BudgetLedger`). It gets an entry before
                anything is drawn, and a training that would exceed its limit is refused.
            checkpoint: A folder that keeps an unfinished fit (docs/checkpoint.md). It is removed when the fit is
                finished. A `Checkpoint` in place of a path stays until its `discard` is called.
            checkpoint_every: How often the checkpoint is written: seconds, or training steps if it is an int.
            resume: Continue the fit that is in the checkpoint, without drawing any noise a second time.

        Returns:
            This model, fitted.

        Raises:
            InvalidInput: A parameter, the graph or the checkpoint cannot be used. They are checked before anything is
                drawn.
            BudgetExceeded: The limit of the ledger would be exceeded, and nothing was drawn; or a method tried to draw
                noise that was not planned.

        Formal guarantee: the fit draws noise exactly as `plan(graph)` lists it, so the weights and all rows of other
        nodes are (epsilon, delta) graph-differentially private at `level`. A node's own row of predictions depends on
        its own data and is for this node alone (docs/theory.md, section 1).
        """
        check_graph(graph, y)
        validate.flag("resume", resume)
        if isinstance(checkpoint, str | Path):
            with attached().open_checkpoint(checkpoint, every=checkpoint_every, resume=resume) as opened:
                self.fit(graph, ledger=ledger, checkpoint=opened)
                opened.discard()
            return self
        if ledger is None:
            return self.execute(graph, checkpoint=checkpoint)
        return self._fit_on_account(graph, ledger, checkpoint)

    def _fit_on_account(self, graph: Graph, ledger: str | Path | BudgetLedger, checkpoint: FitKeeper | None) -> Self:
        """Fit with an entry in the file of these people, which is written before the first draw."""
        account = ledger if isinstance(ledger, BudgetLedger) else BudgetLedger(ledger)
        self.check_parameters()
        graph.check_trainable()
        plan, who = self.plan(graph), training_set(graph)
        folder = None if checkpoint is None else checkpoint.folder
        account.check(plan, who)
        spend = partial(account.spend, plan, who, folder)
        self.execute(graph, plan, partial(Ledger, before_first=spend), checkpoint=checkpoint)
        account.finish(plan)
        self.fitted_.on_account = True
        return self

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
            lambda: self._read(graph, source),
            seed,
            checkpoint.following(self, graph, ledger, source) if checkpoint else nullcontext(),
        )
        certificate = self.certificate_of(ledger)
        log_end(ledger.plan, certificate.epsilon)
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
        self._learnt, self._history = (), ()  # of an earlier fit
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            with kept, self._noting(ledger):
                inputs = make_inputs()
                inputs.target = replace(inputs.target, weights=self._class_weights(inputs, ledger))
                logits = answered(self._fit(inputs, ledger).detach().cpu())
                return logits, isinstance(inputs.features, SparseRows)

    @contextmanager
    def _noting(self, ledger: LedgerLike) -> Iterator[None]:
        """Note each stage of a fit, in `history_` and in the log."""
        history = ledger.stages = History(ledger.stages, ledger)
        log_start(ledger.plan)
        try:
            yield
        finally:
            ledger.stages = history.inner
        self._history = tuple(history.stages)

    def _class_weights(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor | None:
        """What each class weighs: as declared, or by the counts of its training nodes; None: all weigh 1.

        Only ratios matter. The largest is made 1, so that clipped gradients stay within their norm.
        """
        declared = self.declared_weights(data.class_names, data.classes)
        if self.class_weight is None:
            return None
        if declared is not None:
            return torch.tensor(declared, device=data.target.train.device) / max(declared)
        labels = data.target.labels[data.target.train]
        counts = data.target.total(label_rows(labels, data.classes).double().sum(0))
        least = 1.0
        if ledger.plan.with_role("classes"):
            counts = ledger.release("classes", counts).double()
            least = max(1.0, ledger.plan["classes"].noise)  # what is below may be noise alone
        counts = counts.clamp_min(least)
        return (counts.min() / counts).float().to(labels.device)

    def certificate_of(self, ledger: LedgerLike) -> Certificate:
        """The certificate of the plan that this fit has executed, with what the fit has learnt."""
        return replace(ledger.certificate(), learnt=self._learnt)

    def _read(self, graph: Graph, source: NoiseSource) -> Inputs:
        """The graph as this method reads it; what its columns are scaled by is learnt, and paid for, first."""
        scales = self.learn_scales(graph)
        return Inputs(graph, self._adjacency(graph, source), self.device, None, self.feature_norm, scales)

    def learn_scales(
        self, graph: GraphView, total: Callable[[torch.Tensor], torch.Tensor] = lambda counts: counts
    ) -> torch.Tensor:
        """Learn what columns of raw numbers are scaled by, and keep it; `total` adds up the counts of processes."""
        self._scales = learn_scales(graph, self._ledger, total)
        return self._scales

    def _adjacency(self, graph: Graph, source: NoiseSource) -> sp.csr_array:
        """What each node reads, with the degree promise checked, or established by capping where that was asked for."""
        plan = self._ledger.plan
        adjacency = graph.reads(self.direction, by_relation=self.reads_relations(plan))
        bound, power = self.room_for_old_readers(plan), self.promised_power(plan)
        if bound is None:
            return adjacency
        largest = column_sums(adjacency, power).max().item()
        if largest > bound and self.cap_degrees:
            chosen = self._ledger.stages.draw(
                DEGREE_CAP, lambda: source.integers(2**52, 1), lambda seed: seed.shape == (1,) and int(seed) >= 0
            )
            return cap_degree(adjacency, bound, seed=int(chosen), power=power)
        self.check_readers(plan, largest)
        return adjacency

    def check_promise(self, graph: Graph, plan: Plan) -> None:
        """Refuse a graph that breaks the degree promise of a plan, before anything is drawn.

        With `cap_degrees` there is nothing to refuse: the graph is cut later.
        """
        if self.room_for_old_readers(plan) is not None and not self.cap_degrees:
            adjacency = graph.reads(self.direction, by_relation=self.reads_relations(plan))
            self.check_readers(plan, column_sums(adjacency, self.promised_power(plan)).max().item())

    def _fit(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        """Train and return the logits of all nodes."""
        raise NotImplementedError

    def _train(self, model: torch.nn.Module, logits: Logits, data: Inputs, ledger: LedgerLike, name: str) -> None:
        """Train `model` as the plan says: privately if `name` is in it, freely otherwise, if that is allowed at all."""
        model.to(self.device)
        if name in ledger.used:
            train = partial(train_privately, model, logits, data.target, ledger, name)
            train(learning_rate=self._private_rate(data), show=self.show_progress, arithmetic=self.arithmetic)
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
        after_step: Callable[[], None] | None = None,
        patience: int | None = None,
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
            after_step=after_step,
            patience=patience,
        )
