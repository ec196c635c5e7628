import pytest
import torch

from graphveil.errors import InvalidInput
from graphveil.execution.response import randomized_response
from graphveil.noise import NoiseSource
from graphveil.privacy.accounting import RandomizedResponse
from support.checks import answers_truthfully


@pytest.mark.parametrize(("epsilon", "classes"), [(0.1, 2), (1.0, 3), (4.0, 7)])
def test_answers_have_the_right_odds(epsilon, classes):
    for truth in (0, classes - 1):
        symbols = torch.full((100_000,), truth)
        answers = randomized_response(symbols, RandomizedResponse(epsilon, classes), NoiseSource(seed=truth + 1))
        assert answers_truthfully(answers, truth, epsilon, classes)


@pytest.mark.parametrize("bad", [-1, 3])
def test_symbols_out_of_range_are_refused(bad):
    with pytest.raises(InvalidInput, match="symbols"):
        randomized_response(torch.tensor([0, bad]), RandomizedResponse(1.0, 3), NoiseSource(seed=0))


def test_no_symbols_no_answers():
    nobody = torch.empty(0, dtype=torch.long)
    assert randomized_response(nobody, RandomizedResponse(1.0, 3), NoiseSource()).shape == (0,)
