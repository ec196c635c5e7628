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
from graphveil.methods.class_sums import ClassSums, SumsClassifier, class_sums
from graphveil.methods.decoupled import DecoupledConvolution
from graphveil.methods.expectation import (
    HALVES,
    GraphBranch,
    chosen_branch,
    count_noise,
    expectation_in_words,
    right_counts,
)
from graphveil.methods.inputs import Inputs
from graphveil.methods.linear_features import (
    LinearClassifier,
    Trained,
    WideNetwork,
    added_up,
    mu_of,
    train_linear,
    without_own_influence,
)
from graphveil.methods.link_statistics import CoLinkStatistics, LinkStatistics, co_link_sums, link_sums
from graphveil.methods.spending import Settings, Spend
from graphveil.methods.tables import log_likelihoods, shrunk_rows
from graphveil.methods.training import ROWS_AT_ONCE, KeptRows, all_logits, train_privately
from graphveil.privacy.mechanisms import GaussianRelease
from graphveil.privacy.plan import Plan

# What the certificate says where all links of a node are protected at once and statistics would have too much noise.
_LINKS_LOST = "The graph was not used, because at this level where its links lead would be lost in noise."


@dataclass(eq=False)
class DPDGC(DecoupledConvolution):
    """Decoupled graph convolution: a private table W, Z = A W with noise, and a classifier that reads X and Z.

    With `table="auto"`, the default, it learns how the graph is linked, then divides its budget by what can be expected
    of it. Where attributes are private, four things are paid for first: how training nodes of each class are linked,
    the sum of the features of each class, a first linear classifier of features, and how many training nodes would come
    out right in each of the branches. The rest of the budget follows from that. On undirected graphs it is a network of
    features alone ("features"), more exact class sums ("sums"), features and neighbours ("balanced"), or neighbours
    beside the first features ("graph"). Neighbours are read through responses (training nodes respond with their label,
    the others with what features say about them). What they say about a node follows in closed form from the
    statistics; a linear head joins it with features. On directed graphs the statistics are about nodes that link to the
    same node, and "balanced" reads tables of them; at node level the graph is not read. With public attributes a table
    is taken by the level.

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
            return self._finish_alone(data, ledger, "features")
        return super()._fit_with_table(data, ledger)

    def _fit_by_statistics(self, data: Inputs, ledger: LedgerLike) -> torch.Tensor:
        plan, train, labels = ledger.plan, data.target.train, data.target.labels
        directed = plan.facts.directed
        about = (self._co_link_sums if directed else self._link_sums)(data, plan.level)
        links = (CoLinkStatistics if directed else LinkStatistics).of(ledger.release("statistics", about), plan)
        sums = self._released_sums(data, ledger, auto_plan.CLASS_SUMS, links)
        by_sums = [self._scored(data, sums.with_less_budget(seed)) for seed in range(HALVES)]
        by_sums.append(self._scored(data, sums))
        after_half, after_all = self._linear(data, ledger, auto_plan.FIRST_FEATURES)

        @torch.no_grad()
        def judged(part: Trained) -> torch.Tensor:
            logits = added_up([part], data.features, data.classes)(data.features_of(train))
            return self._without_own_influence(data, logits, [part]).cpu()

        if directed:
            branches = {"balanced": GraphBranch.of_co_readers(plan.branch("balanced"), links, plan.facts)}
        else:
            branches = {name: GraphBranch.of(plan.branch(name), links) for name in ("balanced", "graph")}
        known = labels[train].cpu().numpy()
        half, whole = judged(after_half), judged(after_all)
        place = data.target.first
        right = self._right_counts(known, half, whole, branches, links.priors, first=place, sums=by_sums)
        followed, expected = chosen_branch(ledger.release("expectation", data.target.total(right)), links, plan)
        ledger.follow(followed)
        self._learnt = (*links.sentences(plan), expectation_in_words(followed, expected))
        if followed == "sums":
            more = self._released_sums(data, ledger, "more class sums", links)
            features = SumsClassifier(data.features, data.classes).to(self.device)
            features.learn(sums.joined(more), data.target.weights)
            return self._answer_alone(data, ledger, features)
        later = [m.name for m in ledger.plan.branch(followed).mechanisms if m.role == "features"]
        if followed == "features":
            (name,) = later
            return self._finish_alone(data, ledger, name, added_up([after_all], data.features, data.classes))
        parts = [after_all, *(self._linear(data, ledger, name)[1] for name in later)]
        if directed:
            return self._join_tables(data, ledger, parts)
        facts = ledger.plan.facts
        unlabelled = facts.nodes / facts.train_nodes - 1 if _everybody_responds(ledger.plan) else 0.0
        accuracy = min(1.0, expected.features[followed] / 100)
        branch = GraphBranch.of(ledger.plan.branch(followed), links, unlabelled, accuracy)
        return self._join_neighbors(data, ledger, parts, branch)

    def _released_sums(self, data: Inputs, ledger: LedgerLike, name: str, links: LinkStatistics) -> ClassSums:
        """Class sums, released as `name` plans it."""
        released = ledger.release(name, self._class_sums(data, self.arithmetic))
        return ClassSums.of(released, ledger.plan[name].noise, links.priors * data.target.count)

    def _scored(self, data: Inputs, sums: ClassSums) -> torch.Tensor:
        """The scores of training nodes that follow from class sums, less what each added to its own."""
        train = data.target.train
        classifier = SumsClassifier(data.features, data.classes).to(self.device)
        own = classifier.learn(sums, data.target.weights)
        return classifier.without(data.features_of(train), own, data.target.labels[train]).cpu()

    def _without_own_influence(self, data: Inputs, logits: torch.Tensor, parts: Sequence[Trained]) -> torch.Tensor:
        """Logits of training nodes by these trainings, less a part of what each node added to its own."""
        train = data.target.train
        lengths = (self.arithmetic.lengths(data.features_of(train)).square() + 1).sqrt()
        return without_own_influence(logits, data.target.labels[train], lengths, parts[0].steps, mu_of(parts))

    def _linear(self, data: Inputs, ledger: LedgerLike, name: str) -> tuple[Trained, Trained]:
        return train_linear(data, ledger, name, self.device, self.show_progress, self.arithmetic)

    def _join_tables(self, data: Inputs, ledger: LedgerLike, parts: Sequence[Trained]) -> torch.Tensor:
        """DPDGC's tables beside features that were trained in these parts."""
        train, features = data.target.train, added_up(parts, data.features, data.classes)
        with torch.no_grad():
            logits = all_logits(lambda rows: features(data.features_of(rows)), data.nodes, train.device)
            logits[train] = self._without_own_influence(data, logits[train], parts)
        self._fuse(data, ledger, features, torch.softmax(logits, dim=1))
        with torch.no_grad():
            return self._head(data.features, self._released)

    def _join_neighbors(
        self, data: Inputs, ledger: LedgerLike, parts: Sequence[Trained], branch: GraphBranch
    ) -> torch.Tensor:
        """Release A W for the responses W of training nodes, and learn how much it counts beside features."""
        plan, train = ledger.plan, data.target.train
        features = added_up(parts, data.features, data.classes)
        (responses,), (release,), (training,) = (plan.with_role(role) for role in ("responses", "release", "head"))
        with torch.no_grad():
            logits = all_logits(lambda rows: features(data.features_of(rows)), data.nodes, train.device)
        known = logits.argmax(1)
        known[train] = data.target.labels[train]
        who = torch.arange(data.nodes, device=train.device) if _everybody_responds(plan) else train
        answers = functional.one_hot(ledger.respond(responses.name, known[who]), data.classes).double()
        rows = torch.zeros(data.nodes, data.classes, dtype=torch.float64, device=answers.device)
        rows[who] = (answers - 1 / data.classes) / (1 - 1 / data.classes) ** 0.5
        W = self.arithmetic.table((rows * self.row_norm).float(), self.row_norm, plan.facts.terms)
        Z = ledger.release(release.name, self.arithmetic.product(data.adjacency, W))
        head = NeighborHead(features, branch, plan).to(self.device)
        self._table, self._released, self._head = W, Z, head
        with torch.no_grad():
            evidence = head.evidence(logits, Z)
            own = self._without_own_influence(data, logits[train], parts)
            evidence[train] = head.evidence(own, Z[train])
        evidence_of = KeptRows(evidence)
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

    def _finish_alone(
        self, data: Inputs, ledger: LedgerLike, name: str, first: LinearClassifier | None = None
    ) -> torch.Tensor:
        """Features alone: a network that is trained as the mechanism `name` plans it, and a Z of no columns."""
        features = WideNetwork(data.features, self.hidden, data.classes, first)
        self._train(features, features.logits_of(data), data, ledger, name)
        return self._answer_alone(data, ledger, features)

    def _answer_alone(self, data: Inputs, ledger: LedgerLike, features: nn.Module) -> torch.Tensor:
        """The answers of a classifier of features, and a Z of no columns."""
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
        if plan.with_role("release"):
            return LinearClassifier(like, classes)
        by_sums = plan.followed is not None and not any(
            m.role == "features" for m in plan.branch(plan.followed).mechanisms
        )
        return SumsClassifier(like, classes) if by_sums else WideNetwork(like, self.hidden, classes)

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
