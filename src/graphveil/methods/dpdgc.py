"""DPDGC and the default: statistics first, then what they say is worth its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from graphveil.errors import InvalidInput
from graphveil.execution import LedgerLike
from graphveil.execution.exact import Linear
from graphveil.execution.sparse_rows import Rows
from graphveil.methods import auto_plan, defaults
from graphveil.methods.class_sums import Beside, ClassSums, SumsClassifier, class_sums
from graphveil.methods.decoupled import DecoupledConvolution
from graphveil.methods.expectation import (
    GraphBranch,
    chosen_branch,
    count_noise,
    expectation_in_words,
    right_counts,
)
from graphveil.methods.inputs import Inputs
from graphveil.methods.linear_features import LinearClassifier, Trained, train_linear
from graphveil.methods.link_statistics import CoLinkStatistics, LinkStatistics, co_link_sums, link_sums
from graphveil.methods.spending import Settings, Spend
from graphveil.methods.tables import log_likelihoods, shrunk_rows
from graphveil.methods.training import ROWS_AT_ONCE, KeptRows, all_logits, train_privately
from graphveil.privacy.mechanisms import GaussianRelease, Mechanism
from graphveil.privacy.plan import Plan

# What the certificate says where all links of a node are protected at once and statistics would have too much noise.
_LINKS_LOST = "The graph was not used, because at this level where its links lead would be lost in noise."


@dataclass(eq=False)
class DPDGC(DecoupledConvolution):
    """Decoupled graph convolution: a private table W, Z = A W with noise, and a classifier that reads X and Z.

    With `table="auto"`, the default, it learns how the graph is linked, then divides its budget by what can be expected
    of it. Where attributes are private, three things are paid for first: how training nodes of each class are linked, a
    sum of the features of each class, and how many training nodes would come out right in each of the branches. The
    rest of the budget follows from that. On undirected graphs it goes to features alone ("features"), to features and
    neighbours ("balanced"), or to neighbours beside class sums ("graph"). Neighbours are read through
    responses (training nodes respond with their label, the others with what features say about them). What they say
    about a node follows in closed form from the statistics; a linear head joins it with features. On directed graphs
    the statistics are about nodes that link to the same node, and "balanced" reads tables of them; at node level the
    graph is not read. With public attributes a table is taken by the level.

    With any other table nothing is asked first. Node i reads the targets of its edges: Z_i is the sum of their rows of
    W, plus noise. "trained" is the paper's model (algorithm 2, with the corrections of docs/theory.md): rows of W have
    norm `row_norm` after every step and at the release, and the bias is added after the noise. The other tables need no
    training on the graph. They come with a head of few parameters that combines what X and Z say.

    Formal guarantee: the mechanisms that make W private, a Gaussian release of A W with the level's sensitivity, and
    clipped training of the head with group 1 (free at edge level, where Z is private in all rows). All branches are
    planned, and each is accounted at its part of delta (docs/theory.md, section 4.5).

    >>> from graphveil.graph import csbm
    >>> from graphveil.privacy.levels import KNeighbor
    >>> model = DPDGC(level=KNeighbor(k=1), epsilon=8.0, seed=0, steps=5).fit(csbm(0.0, n=300, f=8, seed=0))
    >>> model.certificate_.followed, model.graph_used_, model.certificate_.epsilon <= 8.0
    ('features', False, True)
    """

    method: ClassVar[str] = "dpdgc"
    spend: ClassVar[Spend] = staticmethod(auto_plan.spend_dpdgc)
    # The sums that the statistics are; an audit puts broken ones in their place.
    _link_sums = staticmethod(link_sums)
    _co_link_sums = staticmethod(co_link_sums)
    _right_counts = staticmethod(right_counts)
    _class_sums = staticmethod(class_sums)

    def degree_bound(self, plan: Plan) -> int | None:
        """Where the plan never reads the graph, no promise about it is needed."""
        reads = any(mechanism.role == "release" for mechanism in plan.all_mechanisms)
        return super().degree_bound(plan) if reads else None

    def _fit_with_table(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        if _statistics_first(ledger.plan):
            return self._fit_by_statistics(data, ledger)
        if _features_alone(ledger.plan):
            self._learnt = (_LINKS_LOST,)
            (sums,) = self._released_sums(data, ledger, ledger.plan.shared)
            classifier, scores = self._scored(data, sums)
            trained = self._linear(data, ledger, "features", scores)
            return self._finish_alone(data, ledger, Beside([classifier, trained.model]))
        return super()._fit_with_table(data, ledger)

    def _fit_by_statistics(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        plan, train, labels = ledger.plan, data.target.train, data.target.labels
        directed = plan.facts.directed
        about = (self._co_link_sums if directed else self._link_sums)(data, plan.level)
        links = (CoLinkStatistics if directed else LinkStatistics).of(ledger.release("statistics", about), plan)
        (sums,) = self._released_sums(data, ledger, plan.shared, links)
        if directed:
            branches = {"balanced": GraphBranch.of_co_readers(plan.branch("balanced"), links, plan.facts)}
        else:
            branches = {name: GraphBranch.of(plan.branch(name), links) for name in ("balanced", "graph")}
        classifier, scores = self._scored(data, sums)
        first = self._linear(data, ledger, auto_plan.FIRST_FEATURES, scores)
        judged = (self._scored(data, sums.with_less_budget())[1], scores, self._with_linear(data, first, scores))
        known = labels[train].cpu().numpy()
        half, whole, trained = (each[train].cpu() for each in judged)
        right = self._right_counts(known, (half, whole, trained), branches, links.priors, first=data.target.first)
        followed, expected = chosen_branch(ledger.release("expectation", data.target.total(right)), links, plan)
        ledger.follow(followed)
        self._learnt = (*links.sentences(plan), expectation_in_words(followed, expected))
        later = plan.branch(followed).mechanisms
        for more in self._released_sums(data, ledger, later, links):
            classifier, scores = self._scored(data, sums.joined(more))
        features: nn.Module = classifier
        if any(mechanism.role == "features" for mechanism in later) or (followed == "graph" and expected.trained):
            for mechanism in later:
                if mechanism.role == "features":
                    first = self._linear(data, ledger, mechanism.name, scores).joined(first)
            features, scores = Beside([classifier, first.model]), self._with_linear(data, first, scores)
        if not ledger.plan.with_role("release"):
            return self._finish_alone(data, ledger, features)
        if directed:
            return self._join_tables(data, ledger, features, scores)
        facts = ledger.plan.facts
        unlabelled = facts.nodes / facts.train_nodes - 1 if _everybody_responds(ledger.plan) else 0.0
        accuracy = min(1.0, expected.features[followed] / 100)
        branch = GraphBranch.of(ledger.plan.branch(followed), links, unlabelled, accuracy)
        return self._join_neighbors(data, ledger, features, scores, branch)

    def _released_sums(
        self, data: Inputs, ledger: LedgerLike, planned: Sequence[Mechanism], links: LinkStatistics | None = None
    ) -> list[ClassSums]:
        """The class sums among these mechanisms."""
        counts = None if links is None else links.priors * data.target.count
        names = [mechanism.name for mechanism in planned if mechanism.role == "class sums"]
        released = {name: ledger.release(name, self._class_sums(data, self.arithmetic)) for name in names}
        return [ClassSums.of(values, ledger.plan[name].noise, counts) for name, values in released.items()]

    def _scored(self, data: Inputs, sums: ClassSums) -> tuple[SumsClassifier, torch.Tensor]:
        """The classifier that follows from class sums, and scores of all nodes: those of training nodes without what
        each added to its own."""
        train = data.target.train
        classifier = SumsClassifier(data.features, data.classes).to(self.device)
        own = classifier.learn(sums, data.target.weights)
        with torch.no_grad():
            scores = all_logits(lambda rows: classifier(data.features_of(rows)), data.nodes, train.device)
            scores[train] = classifier.without(data.features_of(train), own, data.target.labels[train])
        return classifier, scores

    def _linear(self, data: Inputs, ledger: LedgerLike, name: str, scores: torch.Tensor) -> Trained:
        """A linear classifier that is trained beside these scores."""
        return train_linear(data, scores, ledger, name, self.device, self.show_progress, self.arithmetic)

    @torch.no_grad()
    def _with_linear(self, data: Inputs, trained: Trained, scores: torch.Tensor) -> torch.Tensor:
        """The scores of both, those of training nodes without a part of what each added to its own."""
        train = data.target.train
        both = scores + all_logits(lambda rows: trained.model(data.features_of(rows)), data.nodes, train.device)
        lengths = (self.arithmetic.lengths(data.features_of(train)).square() + 1).sqrt()
        both[train] -= trained.own_influence(both[train], data.target.labels[train], lengths)
        return both

    def _join_tables(self, data: Inputs, ledger: LedgerLike, features: nn.Module, scores: torch.Tensor) -> torch.Tensor:
        """DPDGC's tables beside features."""
        self._fuse(data, ledger, features, torch.softmax(scores, dim=1))
        with torch.no_grad():
            return self._head(data.features, self._released)

    def _join_neighbors(
        self, data: Inputs, ledger: LedgerLike, features: nn.Module, scores: torch.Tensor, branch: GraphBranch
    ) -> torch.Tensor:
        """Release A W for the responses W of training nodes, and learn how much it counts beside features."""
        plan, train = ledger.plan, data.target.train
        (responses,), (release,), (training,) = (plan.with_role(role) for role in ("responses", "release", "head"))
        known = scores.argmax(1)
        known[train] = data.target.labels[train]
        who = torch.arange(data.nodes, device=train.device) if _everybody_responds(plan) else train
        answers = functional.one_hot(ledger.respond(responses.name, known[who]), data.classes).double()
        rows = torch.zeros(data.nodes, data.classes, dtype=torch.float64, device=answers.device)
        rows[who] = (answers - 1 / data.classes) / (1 - 1 / data.classes) ** 0.5
        W = self.arithmetic.table((rows * self.row_norm).float(), self.row_norm, plan.facts.terms)
        Z = ledger.release(release.name, self.arithmetic.product(data.adjacency, W))
        head = NeighborHead(features, branch, plan).to(self.device)
        self._table, self._released, self._head = W, Z, head
        evidence_of = KeptRows(head.evidence(scores, Z))
        train_privately(
            head.out,
            lambda rows: head.out(evidence_of(rows)),
            data.target,
            ledger,
            training.name,
            learning_rate=defaults.JOIN_RATE,
            show=self.show_progress,
            average=True,
            arithmetic=self.arithmetic,
        )
        with torch.no_grad():
            return head(data.features, Z)

    def _finish_alone(self, data: Inputs, ledger: LedgerLike, features: nn.Module) -> torch.Tensor:
        """Features alone, and a Z of no columns."""
        nothing = torch.zeros(data.nodes, 0, device=self.device)
        self._table = self._released = nothing
        self._head = NeighborHead(features, None, ledger.plan).to(self.device)
        with torch.no_grad():
            return self._head(data.features, nothing)

    def covered_parts(self, plan: Plan, like: Rows) -> dict[str, torch.nn.Module | torch.Tensor]:
        if not _in_closed_form(plan):
            return super().covered_parts(plan, like)
        head = NeighborHead(self._features_of(plan, like), None, plan)
        return {"head": head, "table": torch.empty(plan.facts.nodes, self._read_width(plan))}

    def _features_of(self, plan: Plan, like: Rows) -> torch.nn.Module:
        classes = plan.facts.classes
        if not _in_closed_form(plan) and not _statistics_first(plan):
            return super()._features_of(plan, like)
        sums = SumsClassifier(like, classes)
        return Beside([sums, LinearClassifier(like, classes)]) if plan.with_role("features") else sums

    def owner_parts(self, plan: Plan) -> dict[str, torch.Tensor]:
        if not _in_closed_form(plan):
            return super().owner_parts(plan)
        return {"released": torch.empty(plan.facts.nodes, self._read_width(plan))}

    def _read_width(self, plan: Plan) -> int:
        if not _in_closed_form(plan):
            return super()._read_width(plan)
        return plan.facts.classes if plan.with_role("release") else 0

    def reads_relations(self, plan: Plan) -> bool:
        undirected = _statistics_first(plan) and not plan.facts.directed
        return not undirected and super().reads_relations(plan)

    def _finish_new(self, summed: torch.Tensor) -> torch.Tensor:
        return summed if _in_closed_form(self._ledger.plan) else super()._finish_new(summed)

    def _parts(self, plan: Plan) -> str:
        if _in_closed_form(plan):
            return "labels" if plan.with_role("release") else ""
        return super()._parts(plan)


@dataclass(eq=False)
class Auto(DPDGC):
    """The default of the command line: DPDGC with `table="auto"`, under its own name.

    Formal guarantee: that of DPDGC.
    """

    method: ClassVar[str] = "auto"
    spend: ClassVar[Spend] = staticmethod(auto_plan.spend)
    chooses_table: ClassVar[bool] = False

    def _settings(self) -> Settings:
        if self.table != "auto":
            raise InvalidInput("table", self.table, "is what auto chooses; give it to dpdgc")
        return super()._settings()


class NeighborHead(nn.Module):
    """A linear map of what features and neighbours say about each class.

    It reads three numbers for each class: the logit of features, the log-likelihood of the neighbours' responses, and
    the direction of Z, shrunk where noise could have made it. It starts as a weighted sum of the first two.

    Args:
        features: The classifier of features.
        branch: What the branch that is followed expects of Z. None where the graph is not read.
        plan: The plan, on that branch.
    """

    expected: torch.Tensor
    spread: torch.Tensor

    def __init__(self, features: nn.Module, branch: GraphBranch | None, plan: Plan) -> None:
        super().__init__()
        self.features = features
        classes = plan.facts.classes
        expected = torch.zeros(classes, classes) if branch is None else torch.from_numpy(branch.expected)
        self.register_buffer("expected", expected.float())
        self.register_buffer("spread", torch.tensor(0.0 if branch is None else branch.spread))
        self._release = next(iter(plan.with_role("release")), None)
        if self._release is not None:
            self.out = Linear(3 * classes, classes)
            own, neighbors = (weight * torch.eye(classes) for weight in defaults.FIRST_WEIGHTS)
            with torch.no_grad():
                self.out.weight.copy_(torch.cat([own, neighbors, torch.zeros(classes, classes)], dim=1))
                self.out.bias.zero_()

    def forward(self, x: Rows, z: torch.Tensor) -> torch.Tensor:
        logits = self.features(x)
        if self._release is None:
            return logits
        # Some rows at a time: what the map reads takes many times the memory of what it returns.
        blocks = zip(logits.split(ROWS_AT_ONCE), z.split(ROWS_AT_ONCE), strict=True)
        return torch.cat([self.out(self.evidence(*block)) for block in blocks])

    @torch.no_grad()
    def evidence(self, logits: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """What the linear map reads, row by row."""
        assert isinstance(self._release, GaussianRelease)
        if len(z) > ROWS_AT_ONCE:
            blocks = zip(logits.split(ROWS_AT_ONCE), z.split(ROWS_AT_ONCE), strict=True)
            return torch.cat([self.evidence(*block) for block in blocks])
        classes = self.expected.shape[0]
        noise = count_noise(self._release, classes)
        counts = z * ((1 - 1 / classes) ** 0.5 / self._release.row_norm)
        counts = counts - counts.mean(1, keepdim=True)
        scores = log_likelihoods(counts, self.expected, noise, float(self.spread)).float()
        scores = scores.clamp(-defaults.LARGEST_SCORE, defaults.LARGEST_SCORE)
        directions = defaults.DIRECTION_LENGTH * shrunk_rows(counts, noise).float()
        return torch.cat([logits - logits.mean(1, keepdim=True), scores, directions], dim=1)


def _statistics_first(plan: Plan) -> bool:
    return any(mechanism.role == "expectation" for mechanism in plan.shared)


def _in_closed_form(plan: Plan) -> bool:
    """Whether the branch that is followed has a `NeighborHead`: all but the tables of a directed graph."""
    if _features_alone(plan):
        return True
    return _statistics_first(plan) and not (plan.facts.directed and plan.with_role("release"))


def _features_alone(plan: Plan) -> bool:
    """Whether no branch reads the graph."""
    return bool(plan.all_mechanisms) and not any(m.role in ("release", "embedding") for m in plan.all_mechanisms)


def _everybody_responds(plan: Plan) -> bool:
    """Whether nodes without a label respond too."""
    return any(m.role == "responses" and m.sensitivity.unlabelled > 0 for m in plan.all_mechanisms)
