"""The lattices on which released sums are exact and to which noise is rounded. All follow from public facts.

A lattice here is the set of multiples of a step, and every step is a power of two, so dividing and multiplying by it
are exact. docs/theory.md, sections 8.3 and 8.4, has the proofs; `execution.exact` and `execution.draws` use it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphveil.errors import InvalidInput

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
