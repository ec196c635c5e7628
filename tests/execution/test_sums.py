"""Rounding and sums in C give the bits that torch gives, for any widths, threads and processors."""

import math
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphveil.execution import sums
from graphveil.execution.sums import ByColumn, ByRow, Factor, add_outer, column_largest, column_sums, row_sums

SOURCE = Path(sums.__file__).with_name("sums.c")
CC = (sysconfig.get_config_var("CC") or "cc").split()
needs_compiler = pytest.mark.skipif(shutil.which(CC[0]) is None, reason="no C compiler")


@pytest.fixture
def library():
    library = sums.compiled_library()
    return library if library is not None else pytest.skip("sums.c is not built")


def by_torch(monkeypatch, make):
    with monkeypatch.context() as without:
        without.setattr(sums, "compiled_library", lambda: None)
        return make()


def numbers(rows, width, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy((rng.normal(size=(rows, width)) * rng.choice([1e-3, 1, 1e3], size=(rows, 1))).astype("f4"))


def roundings(rows, width, seed=1):
    """Factors with up to 18 bits, by row and by column, and none at all."""
    given = numbers(rows, width, seed)
    steps = torch.ldexp(torch.ones(rows), torch.randint(-14, -8, (rows,)))
    factors = torch.where(torch.arange(rows) % 5 == 3, 0.0, 0.3 / steps)
    shifts = 1.5 * 2.0**52 * torch.ldexp(torch.ones(width), torch.randint(-10, -5, (width,))).double()
    integers = torch.randint(-1000, 1000, (rows, width)).float()
    return [Factor(given, ByRow(factors, steps)), Factor(given, ByColumn(shifts)), Factor(integers)]


@needs_compiler
def test_where_there_is_a_compiler_the_library_is_built():
    assert sums.compiled_library() is not None, "run `pip install --editable .` or `setup.py build_ext --inplace`"


@pytest.mark.parametrize("width", [1, 3, 16, 17, 64, 130])
def test_rounding_in_c_and_in_torch(library, monkeypatch, width):
    for factor in roundings(101, width):
        expected = by_torch(monkeypatch, factor.rounded)
        assert torch.equal(factor.rounded(), expected)
        place = torch.full_like(expected, math.nan)
        assert factor.rounded(place) is place
        assert torch.equal(place, expected)
        own = Factor(factor.rows.clone(), factor.rounding)
        assert torch.equal(own.rounded(own.rows), expected)
        gaps = Factor(factor.rows.repeat_interleave(2, dim=1)[:, ::2], factor.rounding)
        assert torch.equal(gaps.rounded(), expected)


def test_what_rounding_means(monkeypatch):
    rows = torch.tensor([[0.9, -0.9, 2.6], [math.nan, math.inf, 1.0]])
    by_row = Factor(rows, ByRow(torch.tensor([2.0, 0.0]), torch.tensor([0.5, 0.5])))
    by_column = Factor(rows[:1], ByColumn(torch.tensor([1.0, 0.5, 2.0]).double() * 1.5 * 2.0**52))
    for rounded in (by_row.rounded, lambda: by_torch(monkeypatch, by_row.rounded)):
        assert rounded().tolist() == [[0.5, -0.5, 2.5], [0, 0, 0]]
    for rounded in (by_column.rounded, lambda: by_torch(monkeypatch, by_column.rounded)):
        assert rounded().tolist() == [[1.0, -1.0, 2.0]]


@pytest.mark.parametrize("rows", [0, 1, 64, 65, 301])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (3, 64), (64, 5), (8, 16), (17, 40), (64, 64), (65, 131)])
def test_outer_products_in_c_and_in_torch(library, monkeypatch, rows, outputs, inputs):
    for left, right in zip(roundings(rows, outputs), roundings(rows, inputs, 2), strict=True):
        expected = [torch.ones(outputs, inputs).double(), torch.ones(outputs).double()]
        by_torch(monkeypatch, lambda left=left, right=right, to=expected: add_outer(to[0], left, right, to[1]))
        added = [torch.ones(outputs, inputs).double(), torch.ones(outputs).double()]
        add_outer(added[0], left, right, added[1])
        assert all(torch.equal(a, b) for a, b in zip(added, expected, strict=True))
        exact = left.rounded().double().T @ right.rounded().double()
        assert torch.equal(added[0], 1 + exact)
        without_bias = torch.ones(outputs, inputs).double()
        add_outer(without_bias, left, right)
        assert torch.equal(without_bias, added[0])


@needs_compiler
@pytest.mark.parametrize("widest", [0, 1])
def test_older_processors_make_the_same_sums(library, tmp_path, monkeypatch, widest):
    older = built(tmp_path, f"-DWIDEST={widest}")
    for left, right in zip(roundings(200, 19), roundings(200, 45, 2), strict=True):
        expected, total = torch.zeros(2, 19, 45).double()
        add_outer(expected, left, right)
        with monkeypatch.context() as replaced:
            replaced.setattr(sums, "compiled_library", lambda: older)
            add_outer(total, left, right)
        assert torch.equal(total, expected)


@needs_compiler
def test_arithmetic_that_would_lose_the_lattice_is_not_built(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        built(tmp_path, "-ffast-math")


def built(folder, *flags):
    out = str(folder / "sums.so")
    command = [*CC, "-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC", *flags, str(SOURCE), "-o", out]
    subprocess.run(command, check=True, capture_output=True)
    return sums.load(out)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_change_sums(library, monkeypatch, threads):
    monkeypatch.setattr(sums, "_WORTH_A_THREAD", 10)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows = numbers(200, 23)
    integers = rows.round()
    assert torch.equal(column_largest(rows), rows.abs().amax(0))
    assert torch.equal(column_sums(integers), integers.double().sum(0))
    for left, right in zip(roundings(200, 19), roundings(200, 45, 2), strict=True):
        total = torch.zeros(19, 45).double()
        add_outer(total, left, right)
        assert torch.equal(total, left.rounded().double().T @ right.rounded().double())


def test_columns_without_rows(library, monkeypatch):
    empty = torch.zeros(0, 4)
    for largest in (column_largest, lambda rows: by_torch(monkeypatch, lambda: column_largest(rows))):
        assert largest(empty).tolist() == [0] * 4
    assert column_sums(empty).tolist() == [0] * 4


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 6, 7, 8, 17, 64, 85, 130])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sums_of_table_rows_in_c_and_in_torch(library, width, index):
    matrix = sp.csr_array(sp.random(50, 40, 0.2, random_state=1, format="csr", dtype=np.float32))
    starts, columns = (torch.from_numpy(each.astype(index)) for each in (matrix.indptr, matrix.indices))
    table = torch.randint(-1000, 1000, (40, width)).float()
    some = torch.randint(1, 9, (2 * matrix.nnz,)).float()
    for values in (None, some[::2].contiguous(), some[::2]):  # the last has gaps between its numbers
        assert torch.equal(row_sums(starts, columns, values, table), sums._by_torch(starts, columns, values, table))
