"""The head of the default: what features and neighbours say about each class, joined by a map of few parameters."""

from __future__ import annotations

import torch
from torch import nn

from graphveil.execution.exact import Linear
from graphveil.execution.sparse_rows import Rows
from graphveil.methods import defaults
from graphveil.methods.expectation import GraphBranch, count_noise
from graphveil.methods.linear_features import LinearClassifier
from graphveil.methods.tables import log_likelihoods, shrunk_rows
from graphveil.methods.training import ROWS_AT_ONCE
from graphveil.privacy.mechanisms import GaussianRelease
from graphveil.privacy.plan import Plan


class NeighborHead(nn.Module):
    """A linear map of what features and neighbours say about each class.

    It reads three numbers for each class: the score of class sums, the log-likelihood of the neighbours' responses, and
    the direction of Z, shrunk where noise could have made it. It starts as a weighted sum of the first two. Where
    features are few, and in the branch "joint", it reads features too; of few ones also the products of their pairs.

    Args:
        features: The classifier of features.
        branch: What the branch that is followed expects of Z. None where the graph is not read.
        plan: The plan, on that branch.
        like: Features, of which the width and the form are read.
    """

    expected: torch.Tensor
    spread: torch.Tensor

    def __init__(self, features: nn.Module, branch: GraphBranch | None, plan: Plan, like: Rows) -> None:
        super().__init__()
        self.features = features
        classes = plan.facts.classes
        expected = torch.zeros(classes, classes) if branch is None else torch.from_numpy(branch.expected)
        self.register_buffer("expected", expected.float())
        self.register_buffer("spread", torch.tensor(0.0 if branch is None else branch.spread))
        self._release = next(iter(plan.with_role("release")), None)
        self._learns = bool(plan.with_role("head"))
        # Where the head reads features too.
        self.linear: LinearClassifier | None = None
        if self._learns:
            if plan.followed == "joint" or 0 < like.shape[1] <= defaults.NARROW_FEATURES:
                self.linear = LinearClassifier(like, classes)
            own, neighbors = (weight * torch.eye(classes) for weight in defaults.FIRST_WEIGHTS)
            first = [own] if self._release is None else [own, neighbors, torch.zeros(classes, classes)]
            self.out = Linear(classes * len(first), classes)
            with torch.no_grad():
                self.out.weight.copy_(torch.cat(first, dim=1))
                self.out.bias.zero_()

    def forward(self, x: Rows, z: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.features(x)
        if not self._learns:
            return logits
        # Some rows at a time: what the map reads takes many times the memory of what it returns.
        blocks = zip(logits.split(ROWS_AT_ONCE), z.split(ROWS_AT_ONCE), strict=True)
        joined = torch.cat([self.out(self.evidence(*block)) for block in blocks])
        return joined if self.linear is None else joined + self.linear(x)

    @torch.no_grad()
    def evidence(self, logits: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """What the linear map reads, row by row."""
        logits = logits - logits.mean(1, keepdim=True)
        if self._release is None:
            return logits
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
        return torch.cat([logits, scores, directions], dim=1)
