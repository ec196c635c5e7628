"""Mechanisms as values: what is drawn from private data, how far it moves, and with how much noise.

A mechanism draws nothing. `execution.Ledger` draws, and `accounting` says what a mechanism costs.

Released sums are exact on lattices, and noise is rounded to them; all of these follow from public facts. A lattice is
the set of multiples of a step, and every step is a power of two, so dividing and multiplying by it are exact.
docs/theory.md, sections 8.3 and 8.4, has the proofs; `execution.exact` and `execution.draws` use it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from graphveil import validate
from graphveil.accounting import Gaussian, Loss, RandomizedResponse, SampledGaussian
from graphveil.errors import InvalidInput

Kind = Literal["training", "unlabelled"]
KINDS: tuple[Kind, ...] = ("training", "unlabelled")

# Norms of clipped gradients beyond these leave the range of lattices.
_LEAST_CLIP, _MOST_CLIP = 1e-14, 1e12

# What a mechanism is for. Names of mechanisms are a method's own; everybody else goes by the role.
Role = Literal[
    "features",  # training of a classifier of features alone
    "class sums",  # sums of the features of each class's training nodes
    "encoder",  # training of an encoder of features, whose output is aggregated
    "embedding",  # training of a table W on rows of A
    "head",  # training of a head on what was released
    "gradient",  # training of a network over whole neighbourhoods
    "responses",  # randomised responses to labels
    "edges",  # randomised responses to links
    "scales",  # histograms of columns of numbers, by which they are brought to one scale
    "classes",  # how many training nodes each class has
    "choice",  # how many held-out nodes each candidate of a search answers rightly
    "statistics",  # sums over training nodes and their links
    "expectation",  # sums over training nodes of what depends on their own rows alone
    "table",  # a table that others read: every row of it is private, a node's own included
    "release",  # Z = A W, of a table W that is private already
    "aggregation",  # sums over neighbours of rows that depend on the neighbours' own data
]
# Roles of mechanisms through whose result a model reads the neighbours of a node.
READS_THE_GRAPH: tuple[Role, ...] = ("release", "aggregation", "embedding", "gradient", "edges")
# Factors are kept in float32, which has 24 bits; sums are made in float64, which has 53.
_FACTOR_BITS, _SUM_BITS = 23, 52

# The step of noise is its standard deviation, rounded down to a power of two, times this. Rounding to it adds less
# than a ten-millionth to the variance.
_NOISE = 2.0**-10
# Noise is drawn this much larger than planned, to cover rounding errors in the formulas of the plan.
OUTWARD = 1 + 2.0**-40
# The total variation distance between drawn noise and ideal noise, for all that one fit can draw (2^70 pairs).
SAMPLER_DELTA = 2.0**-100
# The epsilon of randomised responses that 52 bits can keep to, and the classes that they can have.
LEAST_RESPONSE, MOST_CLASSES = 2.0**-34, 2**14
# Weights of links are multiples of 2^-10 between 0 and 1.
WEIGHT_BITS = 10


@dataclass(frozen=True)
class ByKind:
    """A sensitivity for each kind of replaced node: one in the training set, one outside it.

    Who is in the training set is public, so the two kinds may cost different amounts, and a certificate states the
    larger. At edge level no node is replaced, and both entries are the edge's.
    """

    training: float
    unlabelled: float

    @classmethod
    def same(cls, value: float) -> ByKind:
        return cls(value, value)

    def of(self, kind: Kind) -> float:
        return self.training if kind == "training" else self.unlabelled

    @property
    def worst(self) -> float:
        return max(self.training, self.unlabelled)


@dataclass(frozen=True)
class GaussianRelease:
    """`uses` tables, each released with Gaussian noise of standard deviation `std` on every entry.

    Formal guarantee: each use is a Gaussian mechanism with mu = sensitivity / std, provided that what is released moves
    by at most `sensitivity` (L2) between adjacent graphs.

    Args:
        name: The method's own name for it, unique in a plan.
        sensitivity: How far the released table moves.
        std: The standard deviation of the noise.
        source: Where the sensitivity is proved.
        uses: How often it is drawn.
        role: What it is for.
        table: Which table is released or, at role "release", multiplied by A; empty where there is no choice of them.
        row_norm: The largest norm of a row of that table.
        tau: The weight bound of a table of neighbours' labels; None for other tables.
        degree_bound: The bound on the readers of a node that the sensitivity relies on; None if it relies on none.
        own_rows: Whether the sensitivity covers the replaced node's own row too, so that others may see it.
    """

    name: str
    sensitivity: ByKind
    std: float
    source: str
    uses: int = 1
    role: Role = field(kw_only=True)
    table: str = field(default="", kw_only=True)
    row_norm: float = field(default=1.0, kw_only=True)
    tau: float | None = field(default=None, kw_only=True)
    degree_bound: int | None = field(default=None, kw_only=True)
    own_rows: bool = field(default=False, kw_only=True)
    type: ClassVar[str] = "gaussian release"

    def loss(self, kind: Kind) -> Loss | None:
        moved = self.sensitivity.of(kind)
        if moved == 0:
            return None
        return Gaussian.from_noise(moved * math.sqrt(self.uses), self.std)

    def scaled(self, factor: float) -> GaussianRelease:
        return replace(self, std=self.std * factor)

    def with_noise(self, noise: float) -> GaussianRelease:
        """Noise in multiples of the sensitivity, the paper's multiplier."""
        return replace(self, std=noise * self.sensitivity.worst)

    @property
    def noise(self) -> float:
        return self.std

    def describe_noise(self) -> str:
        return "none needed" if self.std == 0 else f"std {self.std:.4g} on each entry"


@dataclass(frozen=True)
class ClippedTraining:
    """`steps` sums of per-row gradients clipped to norm `clip`, with noise of `noise_multiplier * clip` on the sum.

    Formal guarantee: docs/theory.md, lemma 1, for a replaced node that moves `group` rows, provided that each row
    enters a step independently with probability `sampling_rate` (1: every row, every step). `removed` of these rows add
    nothing in one of the two graphs (lemma 3): an emptied node has no label, and so no gradient.
    """

    name: str
    group: ByKind
    noise_multiplier: float
    steps: int
    source: str
    sampling_rate: float = 1.0
    clip: float = 1.0
    role: Role = field(kw_only=True)
    removed: ByKind = field(default=ByKind(0, 0), kw_only=True)
    type: ClassVar[str] = "clipped gradients"

    def __post_init__(self) -> None:
        # A method may clip at a part of the norm that is asked for.
        if not _LEAST_CLIP <= validate.positive("clip", self.clip) <= _MOST_CLIP:
            raise InvalidInput("clip", self.clip, f"must lie between {_LEAST_CLIP:g} and {_MOST_CLIP:g}")
        validate.count("steps", self.steps)
        validate.rate("sampling_rate", self.sampling_rate)

    def loss(self, kind: Kind) -> Loss | None:
        group = int(self.group.of(kind))
        if group == 0:
            return None
        removed = int(self.removed.of(kind))
        return SampledGaussian(self.noise_multiplier, group, self.sampling_rate, self.steps, removed)

    def scaled(self, factor: float) -> ClippedTraining:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def with_noise(self, noise: float) -> ClippedTraining:
        return replace(self, noise_multiplier=noise)

    @property
    def uses(self) -> int:
        return self.steps

    @property
    def sensitivity(self) -> ByKind:
        return ByKind(*((2 * self.group.of(kind) - self.removed.of(kind)) * self.clip for kind in KINDS))

    @property
    def noise(self) -> float:
        return self.noise_multiplier * self.clip

    def describe_noise(self) -> str:
        if self.group.worst == 0:
            return "none needed"
        return f"std {self.noise:.4g} on the sum, each of {self.steps} steps"


@dataclass(frozen=True)
class Responses:
    """Randomised responses over `classes` symbols; a replaced node changes `changed` of them.

    Formal guarantee: pure `epsilon`-DP for each response, and less where `uniform` says that a node without a symbol
    of its own answers uniformly, and that adjacent graphs differ in whether it has one (docs/theory.md, section 2.6).
    """

    name: str
    changed: ByKind
    epsilon: float
    classes: int
    source: str
    uses: int = 1
    role: Role = field(kw_only=True)
    uniform: bool = field(default=False, kw_only=True)
    type: ClassVar[str] = "randomised response"

    def loss(self, kind: Kind) -> Loss | None:
        changed = int(self.changed.of(kind))
        if not changed:
            return None
        return RandomizedResponse(self.epsilon, self.classes, changed * self.uses, self.uniform)

    def scaled(self, factor: float) -> Responses:
        del factor  # a response's epsilon is chosen, not calibrated
        return self

    def with_noise(self, noise: float) -> Responses:
        """For responses the noise is stated as their epsilon."""
        return replace(self, epsilon=noise)

    @property
    def sensitivity(self) -> ByKind:
        return self.changed

    @property
    def noise(self) -> float:
        return self.epsilon

    def describe_noise(self) -> str:
        truth = RandomizedResponse(self.epsilon, self.classes).truth_probability
        return f"epsilon {self.epsilon:.4g}, true answer with probability {truth:.3f}"


Mechanism = GaussianRelease | ClippedTraining | Responses


def losses_of(mechanisms: Sequence[Mechanism], kind: Kind) -> tuple[Loss, ...]:
    """What those mechanisms cost that a kind of node pays for."""
    return tuple(loss for mechanism in mechanisms if (loss := mechanism.loss(kind)) is not None)


def worst_mu(mechanism: Mechanism) -> float:
    """The largest mu among the kinds of nodes; 0 where none pays."""
    return max((loss.mu for loss in (mechanism.loss(kind) for kind in KINDS) if loss is not None), default=0.0)


def mechanism_to_dict(mechanism: Mechanism) -> dict[str, Any]:
    """A JSON form that holds everything the accountants need; `mechanism_from_dict` reads it back."""
    data: dict[str, Any] = {"type": mechanism.type}
    for key, value in vars(mechanism).items():
        data[key] = {"training": value.training, "unlabelled": value.unlabelled} if isinstance(value, ByKind) else value
    return data


def mechanism_from_dict(data: Mapping[str, Any]) -> Mechanism:
    """The mechanism that `mechanism_to_dict` wrote."""
    types: dict[str, type] = {cls.type: cls for cls in (GaussianRelease, ClippedTraining, Responses)}
    words = dict(data)
    name = words.pop("type", None)
    if name not in types:
        raise InvalidInput("mechanism type", name, f"must be one of {', '.join(types)}")
    try:
        values = {key: ByKind(**value) if isinstance(value, dict) else value for key, value in words.items()}
        mechanism: Mechanism = types[name](**values)
    except TypeError as error:
        raise InvalidInput("mechanism", name, f"has wrong fields: {error}") from None
    return mechanism


def bits_of(count: float) -> int:
    """The least b >= 0 with count <= 2^b."""
    return max(0, math.ceil(math.log2(count)))


def noise_step(std: float) -> float:
    """The step to which a released value is rounded together with its noise.

    Example:
        >>> noise_step(0.7) == 2.0**-11
        True
    """
    return 2.0 ** math.floor(math.log2(std)) * _NOISE


def table_step(norm: float, terms: int) -> float:
    """The step of a table whose rows have norm at most `norm` and of which up to `terms` rows are added.

    Example:
        >>> table_step(1.0, terms=10_000) == 2.0**-23, table_step(1.0, terms=2**40) == 2.0**-12
        (True, True)
    """
    bits = min(_FACTOR_BITS, _SUM_BITS - bits_of(terms))
    if bits < 8:
        raise InvalidInput("nodes", terms, "are too many for exact sums")
    return 2.0 ** (math.ceil(math.log2(norm)) - bits)


def count_step(terms: int) -> float:
    """The step of numbers up to 1 in size of which `terms` are added in int64."""
    return 2.0 ** (bits_of(terms) - 62)


@dataclass(frozen=True)
class GradientLattice:
    """The lattices of the two factors of a row's gradient, the outer product of d (output) and a (input).

    With s the least power of two above the length of (a, 1): a is rounded to multiples of s 2^-p, d to multiples of
    step 2^p / s, both towards zero. Every product is then a multiple of `step`, and neither factor has more than 24
    bits, so float32 holds both. The relative precision of a row's gradient does not depend on the scale of its input.

    `rows` is the largest number of rows that can enter a sum, and `clip` the norm of each one's gradient: the sum of
    all sizes is at most rows * clip <= 2^52 steps.
    """

    clip: float
    rows: int

    @property
    def _bits(self) -> int:
        bits = min(2 * _FACTOR_BITS, _SUM_BITS - bits_of(self.rows))
        if bits < 16:
            raise InvalidInput("train_nodes", self.rows, "are too many for exact sums")
        return bits

    @property
    def step(self) -> float:
        return 2.0 ** (math.ceil(math.log2(self.clip)) - self._bits)

    @property
    def input_bits(self) -> int:
        """The p in the description of this class."""
        return self._bits // 2
