"""Rows of features that are scaled to one norm."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphveil.methods.inputs import rows_of_norm


def scaled(x, sparse, norm=5.0):
    """The scaled rows as an array, from a sparse or a dense matrix."""
    x = np.asarray(x, dtype=np.float32)
    if sparse:
        return rows_of_norm(sp.csr_array(x), norm).toarray()
    return rows_of_norm(torch.from_numpy(x), norm).numpy()


ROWS = st.lists(
    st.lists(st.sampled_from([0.0, 0.0, 1.0, -2.5, 1e-44, 1e-30, 3e38, -3e38]), min_size=3, max_size=3),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("sparse", [True, False])
@settings(deadline=None, max_examples=200)
@given(rows=ROWS, norm=st.sampled_from([1.0, 5.0]))
def test_rows_have_the_norm_or_are_zero(sparse, rows, norm):
    result = scaled(rows, sparse, norm).astype(np.float64)
    filled = np.any(rows, axis=1)
    assert np.linalg.norm(result, axis=1) == pytest.approx(np.where(filled, norm, 0.0), rel=1e-5)
    assert (np.sign(result) * np.sign(rows) >= 0).all()


@pytest.mark.parametrize("sparse", [True, False])
@settings(deadline=None, max_examples=200)
@given(rows=ROWS, others=ROWS, after=ROWS)
def test_a_row_depends_on_itself_alone(sparse, rows, others, after):
    """To the last bit, whatever stands before and behind it, empty rows included."""
    alone = scaled(rows, sparse)
    among = scaled([*others, *rows, *after], sparse)[len(others) : len(others) + len(rows)]
    assert np.array_equal(among, alone)


@pytest.mark.parametrize("last", [[0, 0, 0], [1, 0, 0]])
def test_an_empty_last_row_changes_nothing_before_it(last):
    result = scaled([[1, 2, 2], [3, 4, 12], last], sparse=True)
    assert result[1] == pytest.approx(np.array([3, 4, 12]) * 5 / 13)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (4, 3)])
def test_matrices_of_nothing(sparse, shape):
    assert not scaled(np.zeros(shape), sparse).any()
    assert scaled(np.zeros(shape), sparse).shape == shape


def test_stored_zeros_are_zeros():
    stored = sp.csr_array((np.array([0.0, 3.0, 0.0]), np.array([0, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    assert rows_of_norm(stored, 5.0).toarray().tolist() == [[0, 5], [0, 0]]


def test_what_was_given_is_left_as_it_was():
    dense, stored = torch.tensor([[3.0, 4.0]]), sp.csr_array(np.array([[3.0, 4.0]]))
    for each in (dense, stored):
        rows_of_norm(each, 1.0)
    assert dense.tolist() == stored.toarray().tolist() == [[3, 4]]
