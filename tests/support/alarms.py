"""How often a sound audit may be flagged by chance."""

from scipy.stats import binom


def expected_false_alarms(audits, confidence, quantile=0.999):
    """How many of so many sound audits may be flagged: the binomial quantile at the stated probability."""
    return int(binom.ppf(quantile, audits, 1 - confidence))
