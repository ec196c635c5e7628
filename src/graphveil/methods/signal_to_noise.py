"""The signal-to-noise ratio of neighbours in Z, and the chance to classify by it: post-processing of plans."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from graphveil.privacy.accounting import RandomizedResponse
from graphveil.privacy.mechanisms import Responses
from graphveil.privacy.plan import Plan


def signal_to_noise(plan: Plan, neighbors: float) -> float:
    """How far so many neighbours of one class raise it in Z, with all the others, in standard deviations.

    Of M classes, with responses that are true with probability p, each adds (p M - 1) / (M - 1) beyond what the other
    classes get, and about (1 - 1/M) / M to the variance, which Z's noise has its part in.
    """
    release, labels = plan["release"], plan["labels"]
    assert isinstance(labels, Responses)
    truth = RandomizedResponse(labels.epsilon, labels.classes).truth_probability
    raised = neighbors * (truth * labels.classes - 1) / (labels.classes - 1)
    drawn = max(1.0, neighbors) * (1 - 1 / labels.classes) / labels.classes
    return raised / math.sqrt(release.noise**2 + drawn)


def chance_beyond_guessing(above: float, classes: int) -> float:
    """The chance that the largest of `classes` columns is the right one, which is `above` deviations above the others.

    0 if it is that of a guess, 1 if it is sure.
    """
    x, step = np.linspace(-9, 9, 721, retstep=True)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    right = float((density * ndtr(x + above) ** (classes - 1)).sum() * step)
    return (right * classes - 1) / (classes - 1)
