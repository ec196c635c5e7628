"""DPDGC and the default: statistics first, then what they say is worth its budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from graphveil.errors import InvalidInput
from graphveil.execution import LedgerLike
from graphveil.execution.sparse_rows import Rows
from graphveil.methods import auto_plan, defaults
from graphveil.methods.class_sums import ClassSums, NetworkBesideSums, SumsClassifier, Tempered, class_sums
from graphveil.methods.decoupled import DecoupledConvolution
from graphveil.methods.expectation import (
    HALVES,
    GraphBranch,
    chosen_branch,
    expectation_in_words,
    right_counts,
)
from graphveil.methods.inputs import Inputs
from graphveil.methods.linear_features import (
    Products,
    train_linear,
    without_noise,
    without_own_influence,
)
from graphveil.methods.link_statistics import CoLinkStatistics, LinkStatistics, co_link_sums, link_sums
from graphveil.methods.neighbor_head import NeighborHead
from graphveil.methods.spending import Settings, Spend
from graphveil.methods.training import Kept, KeptRows, all_logits, train_privately
from graphveil.privacy.plan import Plan

# What the certificate says where all links of a node are protected at once and statistics would have too much noise.
_LINKS_LOST = "The graph was not used, because at this level where its links lead would be lost in noise."


@dataclass(eq=False)
class DPDGC(DecoupledConvolution):
    """Decoupled graph convolution: a private table W, Z = A W with noise, and a classifier that reads X and Z.

    With `table="auto"`, the default, it learns how the graph is linked, then divides its budget by what can be expected
    of it. Where attributes are private, four things are paid for first: how training nodes of each class are linked
    ("statistics"), the sums of the features of each class ("class sums"), a first linear classifier of features, which
    only shows what training is worth, and how many training nodes would come out right in each of the branches. The
    rest of the budget follows from that. On undirected graphs the branches are:

    - "features": a network of features, trained beside the scores of class sums;
    - "sums": more class sums, and a small trained head;
    - "balanced": more class sums, neighbours, and a head that joins them;
    - "joint", where features are many: neighbours, and a head that joins them with class sums and with all features;
    - "graph": neighbours, and a head that joins them with the first class sums.

    Neighbours are read through responses (training nodes respond with their label, the others with what class sums say
    about them). What they say about a node follows in closed form from the statistics. On directed graphs the
    statistics are about nodes that link to the same node, "balanced" reads tables of them, and there is no "joint" and
    no "graph"; at node level the graph is not read, and only "features" and "sums" are left. With public attributes a
    table is taken by the level.

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
    >>> model.graph_used_, model.certificate_.epsilon <= 8.0
    (False, True)
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
        if not _statistics_first(ledger.plan):
            return super()._fit_with_table(data, ledger)
        plan, train = ledger.plan, data.target.train
        links = self._released_statistics(data, ledger)
        sums = self._released_sums(data, ledger, auto_plan.CLASS_SUMS, links)
        trained = self._first_training(data, ledger)
        by_sums = [self._judged(data, sums.with_less_budget(seed)) for seed in range(HALVES)]
        by_sums.append(self._judged(data, sums))
        branches = _graph_branches(plan, links)
        known, place = data.target.labels[train].cpu().numpy(), data.target.first
        right = self._right_counts(known, trained, by_sums, branches, sums.priors, first=place)
        chosen, expected = chosen_branch(ledger.release("expectation", data.target.total(right)), sums.priors, plan)
        ledger.follow(chosen)
        followed = ledger.plan.followed
        assert followed is not None
        about_links = (_LINKS_LOST,) if links is None else links.sentences(plan)
        self._learnt = (*about_links, expectation_in_words(followed, expected))
        for name in (m.name for m in plan.branch(followed).mechanisms if m.role == "class sums"):
            sums = sums.joined(self._released_sums(data, ledger, name, links))
        features = SumsClassifier(data.features, data.classes).to(self.device)
        own = features.learn(sums, data.target.weights)
        if followed == "features":
            return self._train_beside(data, ledger, features, own)
        if followed == "sums":
            return self._join(data, ledger, features, own, None)
        if plan.facts.directed:
            return self._join_tables(data, ledger, features, own)
        unlabelled = plan.facts.nodes / plan.facts.train_nodes - 1 if _everybody_responds(ledger.plan) else 0.0
        accuracy = min(1.0, expected.features[followed] / 100)
        assert links is not None
        branch = GraphBranch.of(plan.branch(followed), links, unlabelled, accuracy)
        return self._join(data, ledger, features, own, branch)

    def _released_statistics(self, data: Inputs, ledger: LedgerLike) -> LinkStatistics | None:
        """How nodes are linked; None where the graph is not read."""
        plan = ledger.plan
        if not any(m.role == "statistics" for m in plan.shared):
            return None
        about, kind = (
            (self._co_link_sums, CoLinkStatistics) if plan.facts.directed else (self._link_sums, LinkStatistics)
        )
        return kind.of(ledger.release("statistics", about(data, plan.level)), plan)

    def _released_sums(self, data: Inputs, ledger: LedgerLike, name: str, links: LinkStatistics | None) -> ClassSums:
        """Class sums, released as `name` plans it. Statistics know the numbers of classes better."""
        released = ledger.release(name, self._class_sums(data, self.arithmetic))
        counts = None if links is None else links.priors * data.target.count
        return ClassSums.of(released, ledger.plan[name].noise, counts)

    def _first_training(self, data: Inputs, ledger: LedgerLike) -> list[torch.Tensor]:
        """Logits of training nodes after half of a first training of features and after all of it, less a part of what
        each node added to its own."""
        train = data.target.train
        parts = train_linear(data, ledger, auto_plan.FIRST_FEATURES, self.device, self.show_progress, self.arithmetic)
        rows = data.features[train]  # `features_of` would keep them
        lengths = (self.arithmetic.lengths(rows).square() + 1).sqrt()
        judged = []
        for part in parts:
            with torch.no_grad():
                logits = without_noise(part, data.features, data.classes)(rows)
            judged.append(without_own_influence(part, logits, data.target.labels[train], lengths).cpu())
        return judged

    def _judged(self, data: Inputs, sums: ClassSums) -> torch.Tensor:
        """The scores of training nodes that follow from class sums, less what each added to its own."""
        classifier = SumsClassifier(data.features, data.classes).to(self.device)
        return self._of_training_nodes(data, classifier, classifier.learn(sums, data.target.weights)).cpu()

    def _scored(self, data: Inputs, features: SumsClassifier, own: torch.Tensor) -> torch.Tensor:
        """The scores of all nodes; those of training nodes less what each of them added to its own (`own`)."""
        train = data.target.train
        scores = all_logits(lambda rows: features(data.features_of(rows)), data.nodes, train.device)
        scores[train] = self._of_training_nodes(data, features, own)
        return scores

    def _of_training_nodes(self, data: Inputs, features: SumsClassifier, own: torch.Tensor) -> torch.Tensor:
        """The scores of training nodes, less what each of them added to its own (`own`)."""
        train = data.target.train
        return features.without(data.features[train], own, data.target.labels[train])

    def _join_tables(
        self, data: Inputs, ledger: LedgerLike, features: SumsClassifier, own: torch.Tensor
    ) -> torch.Tensor:
        """DPDGC's tables beside class sums."""
        scores = defaults.FIRST_WEIGHTS[0] * self._scored(data, features, own)
        self._fuse(data, ledger, Tempered(features), torch.softmax(scores, dim=1))
        with torch.no_grad():
            return self._head(data.features, self._released)

    def _train_beside(
        self, data: Inputs, ledger: LedgerLike, features: SumsClassifier, own: torch.Tensor
    ) -> torch.Tensor:
        """A network beside class sums, and a Z of no columns."""
        network = NetworkBesideSums(features, data.features, self.hidden, data.classes)
        known = KeptRows(defaults.SUMS_BESIDE_NETWORK * self._scored(data, features, own))
        (training,) = (m.name for m in ledger.plan.branch("features").mechanisms)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            return network.network(data.features_of(rows)) + known(rows)

        self._train(network.network, logits, data, ledger, training)
        nothing = torch.zeros(data.nodes, 0, device=self.device)
        self._table = self._released = nothing
        self._head = NeighborHead(network, None, ledger.plan, data.features).to(self.device)
        with torch.no_grad():
            return self._head(data.features, nothing)

    def _join(
        self,
        data: Inputs,
        ledger: LedgerLike,
        features: SumsClassifier,
        own: torch.Tensor,
        branch: GraphBranch | None,
    ) -> torch.Tensor:
        """Learn how much class sums count for each class, and what neighbours say beside them if they are read."""
        (training,) = ledger.plan.with_role("head")
        scores = self._scored(data, features, own)
        W = Z = torch.zeros(data.nodes, 0, device=scores.device)
        if branch is not None:
            W, Z = self._read_neighbors(data, ledger, scores)
        head = NeighborHead(features, branch, ledger.plan, data.features).to(self.device)
        self._table, self._released, self._head = W, Z, head
        # Of training nodes alone: it takes three times the memory of the scores.
        evidence_of, products_of = Kept(lambda rows: head.evidence(scores[rows], Z[rows])), Products(data.features)

        def logits(rows: torch.Tensor | None) -> torch.Tensor:
            assert rows is not None
            joined: torch.Tensor = head.out(evidence_of(rows))
            return joined if head.linear is None else joined + head.linear.out(products_of(rows))

        train_privately(
            head,
            logits,
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

    def _read_neighbors(
        self, data: Inputs, ledger: LedgerLike, scores: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Release A W for the responses W of nodes: training nodes respond with their label, others by their scores."""
        plan, train = ledger.plan, data.target.train
        (responses,), (release,) = (plan.with_role(role) for role in ("responses", "release"))
        known = scores.argmax(1)
        known[train] = data.target.labels[train]
        who = torch.arange(data.nodes, device=train.device) if _everybody_responds(plan) else train
        answers = functional.one_hot(ledger.respond(responses.name, known[who]), data.classes).double()
        rows = torch.zeros(data.nodes, data.classes, dtype=torch.float64, device=answers.device)
        rows[who] = (answers - 1 / data.classes) / (1 - 1 / data.classes) ** 0.5
        W = self.arithmetic.table((rows * self.row_norm).float(), self.row_norm, plan.facts.terms)
        return W, ledger.release(release.name, self.arithmetic.product(data.adjacency, W))

    def covered_parts(self, plan: Plan, like: Rows) -> dict[str, torch.nn.Module | torch.Tensor]:
        if not _in_closed_form(plan):
            return super().covered_parts(plan, like)
        head = NeighborHead(self._features_of(plan, like), None, plan, like)
        return {"head": head, "table": torch.empty(plan.facts.nodes, self._read_width(plan))}

    def _features_of(self, plan: Plan, like: Rows) -> torch.nn.Module:
        if not _statistics_first(plan):
            return super()._features_of(plan, like)
        classes = plan.facts.classes
        sums = SumsClassifier(like, classes)
        if plan.followed == "features":
            return NetworkBesideSums(sums, like, self.hidden, classes)
        return sums if _in_closed_form(plan) else Tempered(sums)

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


def _statistics_first(plan: Plan) -> bool:
    return any(mechanism.role == "expectation" for mechanism in plan.shared)


def _in_closed_form(plan: Plan) -> bool:
    """Whether the branch that is followed has a `NeighborHead`: all but the tables of a directed graph."""
    return _statistics_first(plan) and not (plan.facts.directed and plan.with_role("release"))


def _graph_branches(plan: Plan, links: LinkStatistics | None) -> dict[str, GraphBranch]:
    """What is expected of each branch that reads the graph."""
    if links is None:
        return {}
    if plan.facts.directed:
        return {"balanced": GraphBranch.of_co_readers(plan.branch("balanced"), links, plan.facts)}
    return {name: GraphBranch.of(plan.branch(name), links) for name in ("balanced", "graph")}


def _everybody_responds(plan: Plan) -> bool:
    """Whether nodes without a label respond too."""
    return any(m.role == "responses" and m.sensitivity.unlabelled > 0 for m in plan.all_mechanisms)
