"""A choice among settings that is paid for: all candidates, and the choice, stand on one certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from graphveil import validate
from graphveil.accounting import Gaussian, calibrate, search_factor
from graphveil.errors import InvalidInput
from graphveil.execution import Ledger, Stages
from graphveil.graph import Graph
from graphveil.methods.estimator import DEGREE_CAP, NodeClassifier, check_graph, training_set
from graphveil.methods.fitted import LOGGER
from graphveil.methods.parameters import Settable
from graphveil.methods.spending import choice_plan
from graphveil.noise import NoiseSource
from graphveil.privacy.budget import BudgetLedger
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.levels import Public
from graphveil.privacy.plan import Plan
from graphveil.privacy.wording import model_html

# What candidates can be compared by.
METRICS = ("accuracy", "balanced_accuracy")
MOST_CANDIDATES = 100
# The part of the whole budget, in units of mu^2, that the choice gets at least. Held-out nodes pay for it alone; what
# they do not pay for anything else is added.
CHOICE_SHARE = 0.05
# How close to the asked epsilon a search comes, and how often that is tried.
_TOLERANCE, _MOST_TRIALS = 0.01, 25


@dataclass(eq=False)
class PrivateSearch(Settable):
    """Trains several candidates and keeps the best one, with one budget for all of it.

    All candidates are trained on the training nodes with the same epsilon, the largest at which all of them and the
    choice together cost `epsilon`. How many validation nodes each answers rightly is released with noise, and the
    candidate with the largest count is kept. Four candidates at epsilon 8 are trained at about epsilon 3.5 each: a
    search pays where settings differ by more than what is lost by that (docs/search.md).

    Formal guarantee: everything that the search has released, candidates that were not chosen included, is (`epsilon`,
    `delta`) graph-differentially private at the candidates' level (docs/theory.md, section 4.7).

    Args:
        candidates: Estimators with one level, without an epsilon, a delta and a seed, which the search has. Or a single
            one.
        grid: Values to try by the name of a parameter, all combinations of them, as in scikit-learn's `GridSearchCV`;
            of every estimator in `candidates`.
        epsilon: The privacy budget of the whole search. Required, except at level `Public()`, where it must be None.
        delta: As in all estimators, for the whole search.
        metric: What candidates are compared by: "accuracy", or "balanced_accuracy", the mean of the accuracies of the
            classes, for rare classes.
        seed: As in all estimators. It makes noise repeatable: for experiments only.

    >>> from graphveil import MLP, KNeighbor
    >>> from graphveil.graph import csbm
    >>> search = PrivateSearch(MLP(KNeighbor(1), steps=5), {"clip": [0.1, 1.0]}, epsilon=8.0, seed=0)
    >>> search = search.fit(csbm(0.0, n=300, f=8, seed=0))
    >>> len(search.scores_), search.certificate_.epsilon <= 8.0, sorted(search.best_params_)
    (2, True, ['clip'])
    """

    candidates: NodeClassifier | Sequence[NodeClassifier]
    grid: Mapping[str, Sequence[Any]] | None = None
    epsilon: float | None = None
    delta: float | str = "auto"
    metric: str = "accuracy"
    seed: int | None = None

    def settings(self) -> list[dict[str, Any]]:
        """The parameters by which each candidate differs from the estimator that it is made of."""
        return [setting for _, setting in self._listed()]

    def plan(self, graph: Graph) -> Plan:
        """What the whole search would spend, without fitting.

        Args:
            graph: The graph. Only public facts about it are read.

        Returns:
            The plan of the first candidate, with those of the others and the choice beside it; its `epsilon` is that
            of the whole search.

        Raises:
            InvalidInput: The candidates, the budget and the public facts give no plan.

        Formal guarantee: the plan is a function of public facts and of the parameters. Showing it costs nothing.
        """
        return self._planned(graph)[1]

    def fit(self, graph: Graph, y: None = None, *, ledger: str | Path | BudgetLedger | None = None) -> Self:
        """Train all candidates and choose one; afterwards `certificate_` says what all of it has cost.

        Args:
            graph: The training graph, with labelled validation nodes.
            y: Must be None, because labels are in the graph.
            ledger: The file that adds up all trainings on these people. The search is one entry of it.

        Returns:
            This search. Its fitted attributes: `best_estimator_` (the chosen model, as if it had been fitted alone,
            with the certificate of the whole search), `best_index_`, `best_params_`, `scores_` (the noisy score of each
            candidate, which may be published), `candidate_epsilon_` (what each candidate would have cost alone).

        Raises:
            InvalidInput: A candidate, the graph or the budget cannot be used. This is checked before anything is drawn.
            BudgetExceeded: The limit of the ledger would be exceeded, and nothing was drawn.

        Formal guarantee: that of the class.
        """
        check_graph(graph, y)
        graph.check_trainable()
        if not bool(graph.val_mask.any()):
            raise InvalidInput("val_mask", None, "a search compares its candidates on validation nodes; there are none")
        models, plan = self._planned(graph)
        for model, each in zip(models, (plan.alone, *plan.beside), strict=False):
            model.check_parameters()
            model.check_promise(graph, each)
        _check_one_cut(models, (plan.alone, *plan.beside), graph.directed)
        booked = self._account(ledger, plan, graph)
        ledgers: list[Ledger] = []
        stages = _OneCut()

        def make_ledger(each: Plan, source: NoiseSource) -> Ledger:
            ledgers.append(Ledger(each, source, before_first=booked))
            ledgers[-1].stages = stages
            return ledgers[-1]

        for number, (model, each) in enumerate(zip(models, (plan.alone, *plan.beside), strict=False), start=1):
            LOGGER.info("search: candidate %d of %d", number, len(models))
            model.execute(graph, each, make_ledger)
        choice = make_ledger(plan.beside[-1], NoiseSource(_seed_of(self.seed, len(models))))
        counts = held_out_counts(models, graph, by_class=self.metric == "balanced_accuracy")
        self.scores_ = _scores(choice.release("choice", counts).double(), int(graph.val_mask.sum()))
        self.best_index_ = int(np.argmax(self.scores_))
        self.best_params_ = self.settings()[self.best_index_]
        self.candidate_epsilon_ = models[0].epsilon
        self.best_estimator_ = self._chosen(models, ledgers)
        if ledger is not None:
            _ledger_of(ledger).finish(plan)
            self.best_estimator_.fitted_.on_account = True
        return self

    def _chosen(self, models: list[NodeClassifier], ledgers: list[Ledger]) -> NodeClassifier:
        """The best model, with a certificate of all that was drawn."""
        best = models[self.best_index_]
        own, others = ledgers[self.best_index_], [each for each in ledgers if each is not ledgers[self.best_index_]]
        for each in others:
            each.certificate()  # refuses one that was not executed as planned
        own.plan = replace(own.plan, beside=tuple(each.plan for each in others))
        best.fitted_.certificate = replace(own.certificate(), learnt=best.certificate_.learnt)
        best.fitted_.budget = best.certificate_.epsilon
        return best

    @property
    def certificate_(self) -> Certificate:
        """What the whole search has spent."""
        return self._fitted().certificate_

    @property
    def plan_(self) -> Plan:
        """The executed plan of the chosen candidate, with all others beside it."""
        return self._fitted().plan_

    @property
    def classes_(self) -> np.ndarray:
        """The classes, in the order of the columns of `predict_proba`."""
        return self._fitted().classes_

    def predict(self, nodes: Any = None, **options: Any) -> np.ndarray:
        """The most probable class of nodes, by the chosen model.

        Args:
            nodes, options: As for `NodeClassifier.predict`.

        Returns:
            A class for each node.
        """
        return self._fitted().predict(nodes, **options)

    def predict_proba(self, nodes: Any = None) -> np.ndarray:
        """Class probabilities of nodes, by the chosen model.

        Args:
            nodes: As for `NodeClassifier.predict_proba`.

        Returns:
            A row for each node.
        """
        return self._fitted().predict_proba(nodes)

    def score(self, nodes: Any, metric: str = "accuracy", **options: Any) -> float:
        """As `score` of the chosen model, on true labels: it is not covered by the certificate."""
        return self._fitted().score(nodes, metric, **options)

    def save(self, folder: str | Path, *, budget: float | None = None) -> None:
        """Write the chosen model to a new folder, with the certificate of the whole search."""
        self._fitted().save(folder, budget=budget)

    def _fitted(self) -> NodeClassifier:
        if not hasattr(self, "best_estimator_"):
            self._listed()[0][0].check_fitted()
        return self.best_estimator_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_estimator_")

    def __sklearn_tags__(self) -> Any:
        return self._listed()[0][0].__sklearn_tags__()

    def _repr_html_(self) -> str:
        names = [type(each).__name__ for each, _ in self._listed()]
        shown = [
            ("candidates", ", ".join(names)),
            ("grid", self.grid),
            ("epsilon", self.epsilon),
            ("metric", self.metric),
        ]
        return model_html(type(self).__name__, shown, self.certificate_ if self.__sklearn_is_fitted__() else None)

    def _listed(self) -> list[tuple[NodeClassifier, dict[str, Any]]]:
        """An estimator and its settings for each candidate."""
        given = [self.candidates] if isinstance(self.candidates, NodeClassifier) else self.candidates
        if not isinstance(given, Sequence) or not all(isinstance(each, NodeClassifier) for each in given) or not given:
            raise InvalidInput("candidates", self.candidates, "must be an estimator of graphveil, or a list of them")
        grid = {} if self.grid is None else self.grid
        if not isinstance(grid, Mapping) or not all(isinstance(v, Sequence) and len(v) for v in grid.values()):
            raise InvalidInput("grid", self.grid, "must give a list of values for each parameter")
        combinations = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        listed = [(each, setting) for each in given for setting in combinations]
        if not 2 <= len(listed) <= MOST_CANDIDATES:
            raise InvalidInput("candidates", len(listed), f"must be 2 to {MOST_CANDIDATES} to choose among")
        return listed

    def _models(self, epsilon: float | None, delta: float | str) -> list[NodeClassifier]:
        """The candidates, each with this budget and its own seed."""
        models = []
        for number, (each, setting) in enumerate(self._listed()):
            given = each.get_params() | setting
            for name, usual in {"epsilon": None, "delta": "auto", "seed": None}.items():
                if given[name] != usual:
                    raise InvalidInput(f"{name} of a candidate", given[name], "belongs to the search; leave it out")
            model = type(each)(**each.get_params()).set_params(**setting)
            models.append(model.set_params(epsilon=epsilon, delta=delta, seed=_seed_of(self.seed, number)))
        if any(model.level != models[0].level for model in models):
            levels = list(dict.fromkeys(str(model.level) for model in models))
            raise InvalidInput("level of candidates", ", ".join(levels), "must be the same for all of them")
        return models

    def _planned(self, graph: Graph) -> tuple[list[NodeClassifier], Plan]:
        """The candidates with their budget, and the plan of the whole search."""
        if self.metric not in METRICS:
            raise InvalidInput("metric", self.metric, f"must be one of {', '.join(METRICS)}")
        if self.seed is not None:
            validate.seed("seed", self.seed)
        if isinstance(self._models(None, "auto")[0].level, Public):
            models = self._models(self.epsilon, self.delta)
            return models, self._together(models, graph, 1.0)
        if self.epsilon is None:
            raise InvalidInput("epsilon", None, "is missing: the budget of the whole search")
        return self._within(validate.positive("epsilon", self.epsilon), graph)

    def _within(self, epsilon: float, graph: Graph) -> tuple[list[NodeClassifier], Plan]:
        """The largest epsilon of the candidates at which everything costs at most the asked one."""
        first = self._models(epsilon, self.delta)[0].plan(graph)
        mu = calibrate([Gaussian(1.0)], epsilon, first.delta).losses[0].mu * CHOICE_SHARE**0.5
        count = len(self._listed())
        low, high, each = 0.0, float("inf"), epsilon / count**0.5
        found: tuple[list[NodeClassifier], Plan] | None = None
        for _ in range(_MOST_TRIALS):
            models = self._models(each, first.delta)
            try:
                plan = self._together(models, graph, mu)
            except InvalidInput as error:
                if error.field not in ("epsilon", "response_epsilon", "delta", "noise"):
                    raise
                why = f"is too small for {count} candidates; at {each:.3g} for each: {error.why}"
                raise InvalidInput("epsilon", epsilon, why) from None
            cost = plan.epsilon
            if cost <= epsilon:
                found, low = (models, plan), each
                if cost > (1 - _TOLERANCE) * epsilon or each == epsilon:
                    break
            else:
                high = each
            guess = min(epsilon, each * (1 - _TOLERANCE / 2) * epsilon / max(cost, 1e-9))
            each = guess if low < guess < high else (low + min(high, epsilon)) / 2
        if found is None:
            raise InvalidInput("epsilon", epsilon, f"is too small for {count} candidates; take fewer, or more epsilon")
        return found[0], _with_more_for_the_choice(found[1], epsilon)

    def _together(self, models: list[NodeClassifier], graph: Graph, mu: float) -> Plan:
        first, *others = (model.plan(graph) for model in models)
        choice = choice_plan(first.level, first.facts, first.delta, len(models), self.metric, mu)
        return replace(first, beside=(*others, choice))

    def _account(self, ledger: str | Path | BudgetLedger | None, plan: Plan, graph: Graph) -> Any:
        """What writes the search into the file of these people, once, before the first draw; None without a file."""
        if ledger is None:
            return None
        account, who = _ledger_of(ledger), training_set(graph)
        written: list[Plan] = []
        account.check(plan, who)

        def book(resumed: bool) -> None:
            del resumed
            if not written:
                account.spend(plan, who)
                written.append(plan)

        return book


class _OneCut(Stages):
    """The stages of all candidates, which cut the graph with one seed: adjacent graphs differ after one cut."""

    cut: torch.Tensor | None = None

    def draw(self, name: str, draw: Callable[[], torch.Tensor], fits: Callable[[torch.Tensor], bool]) -> torch.Tensor:
        if name == DEGREE_CAP and self.cut is None:
            self.cut = draw()
        return super().draw(name, draw, fits) if name != DEGREE_CAP or self.cut is None else self.cut


def _check_one_cut(models: Sequence[NodeClassifier], plans: Sequence[Plan], directed: bool) -> None:
    """Refuse candidates that would cut the graph in different ways, or of which some read it as it is."""
    reading = [(model, plan) for model, plan in zip(models, plans, strict=False) if model.reads_graph]
    rooms = {model.room_for_old_readers(plan) for model, plan in reading}
    ways = {(m.direction if directed else "", m.promised_power(p), m.reads_relations(p)) for m, p in reading}
    cut = any(model.cap_degrees and model.room_for_old_readers(plan) is not None for model, plan in reading)
    if cut and len(rooms) + len(ways) > 2:
        why = "must be the same for all candidates where cap_degrees cuts the graph, and so must what they read of it"
        raise InvalidInput("max_degree of candidates", ", ".join(sorted(map(str, rooms))), why)


def held_out_counts(models: Sequence[NodeClassifier], graph: Graph, *, by_class: bool = False) -> torch.Tensor:
    """How many validation nodes each model answers rightly, exact: whole numbers in float64.

    Args:
        models: The candidates, fitted on `graph`.
        graph: The graph.
        by_class: One column for each class, and a last row with how many validation nodes each class has.

    Returns:
        A row for each model.
    """
    held = graph.val_mask.nonzero().squeeze(1)
    labels = graph.labels[held]
    right = torch.stack([torch.from_numpy(model.predict_proba(held).argmax(1)) == labels for model in models])
    if not by_class:
        return right.double().sum(1, keepdim=True)
    classes = (labels[:, None] == torch.arange(graph.num_classes)).double()
    return torch.cat([right.double() @ classes, classes.sum(0, keepdim=True)])


def _scores(counts: torch.Tensor, nodes: int) -> np.ndarray:
    """The noisy score of each candidate."""
    if counts.shape[1] == 1:
        return (counts[:, 0] / nodes).numpy()
    right, there = counts[:-1], counts[-1].clamp_min(1.0)
    return (right / there).mean(1).numpy()


def _with_more_for_the_choice(plan: Plan, epsilon: float) -> Plan:
    """The choice with as little noise as what held-out nodes have not spent on anything else allows."""
    *others, choice = plan.beside

    def scaled(factor: float) -> Plan:
        quieter = choice.changed(lambda mechanism: mechanism.scaled(factor))
        return replace(plan, beside=(*others, quieter))

    if choice.shared[0].sensitivity.worst == 0:
        return plan
    try:
        factor, _ = search_factor(lambda f: scaled(f).epsilon_by_kind()["unlabelled"], 0.5, epsilon, plan.delta)
    except InvalidInput:
        return plan
    return scaled(min(1.0, factor))


def _seed_of(seed: int | None, number: int) -> int | None:
    """A seed for each part of a search: two with the same noise would not be independent."""
    if seed is None:
        return None
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 2)


def _ledger_of(ledger: str | Path | BudgetLedger) -> BudgetLedger:
    return ledger if isinstance(ledger, BudgetLedger) else BudgetLedger(ledger)
