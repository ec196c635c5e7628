import math
import shutil
import subprocess
import sysconfig
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
import torch

from graphveil.mechanisms import NoiseSource, lane, normals
from graphveil.mechanisms.keystream import CHUNK
from graphveil.mechanisms.normals import RARE, CompiledNormals, TorchNormals

CC = (sysconfig.get_config_var("CC") or "cc").split()
SIZES = [0, 1, 2, 3, 7, 1000, 4097, CHUNK - 1, CHUNK + 1, 200_001]

needs_compiler = pytest.mark.skipif(shutil.which(CC[0]) is None, reason="no C compiler")


@pytest.fixture
def library():
    found = normals.compiled_library()
    return found if found is not None else pytest.skip("normals.c is not built")


@pytest.fixture
def sources(library, monkeypatch):
    """Pairs of sources with the same seed, one for each implementation."""

    def pair(seed):
        compiled = NoiseSource(seed)
        with monkeypatch.context() as patch:
            patch.setattr(lane, "fastest_normals", TorchNormals)
            plain = NoiseSource(seed)
            plain._lanes.extend(lane.Lane() for _ in range(1, torch.get_num_threads()))
        assert (compiled.arithmetic, plain.arithmetic) == ("compiled", "torch")
        return compiled, plain

    return pair


def random_words(count, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(-(2**63), 2**63, count))


def unrefined(u):
    pass


@needs_compiler
def test_where_there_is_a_compiler_the_library_is_built():
    assert normals.compiled_library() is not None, "run `pip install --editable .` or `setup.py build_ext --inplace`"


@pytest.mark.parametrize("count", SIZES)
def test_both_draw_the_same_normals(sources, count):
    compiled, plain = sources(3)
    for _ in range(2):
        found, expected = compiled.normal(count), plain.normal(count)
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", SIZES)
def test_both_add_the_same_noise_up_to_one_step(sources, count):
    value = 100 * torch.randn(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    compiled, plain = sources(4)
    found, expected = value.clone(), value.clone()
    step = 2.0**-33
    compiled.add_normals(found, 1.7, step)
    plain.add_normals(expected, 1.7, step)
    assert ((found - expected).abs() <= step).all()
    assert (found != expected).sum() <= 1e-3 * count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("stride", [1, 2])
def test_values_of_any_type_and_layout(sources, dtype, stride):
    for source in sources(5):
        whole = torch.linspace(-3, 3, 10_000).to(dtype)
        values, untouched = whole[::stride], whole[1::stride].clone()
        exact = values.double()
        source.add_normals(values, 0.5, 2.0**-34)
        source._block = 0  # the same noise again
        source.add_normals(exact, 0.5, 2.0**-34)
        assert torch.equal(values, exact.to(dtype))
        assert stride == 1 or torch.equal(whole[1::stride], untouched)


def test_values_are_rounded_to_the_nearest_step_and_ties_to_even(library):
    step = 2.0**-10
    steps = [0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999999999999994, 2.0**51 + 0.5, 2.0**51 + 1.5, -(2.0**51) - 0.5]
    steps += [2.0**52, -(2.0**52), 2.0**52 - 0.5, 1 / 3, -1e9 / 7]
    for dtype in (torch.float64, torch.float32):
        values = torch.tensor(steps, dtype=torch.float64).mul_(step).to(dtype)
        expected = values.double().div(step).round().mul(step).to(dtype)
        CompiledNormals(library).add(random_words(len(steps)), unrefined, values, 0.0, step)
        assert torch.equal(values, expected)


def test_normals_are_good_to_a_few_units_in_the_last_place(library):
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("no longer floats to compare with")
    words = random_words(200_000)
    found = torch.empty(len(words), dtype=torch.float64)
    grid = (words.numpy().astype(np.uint64) & np.uint64(2**52 - 1)).astype(np.longdouble) / 2**52
    u, turn = 1 - grid[:100_000], grid[100_000:]
    CompiledNormals(library).draw(words, unrefined, found)
    # The angle within its eighth of a turn, where its sine and cosine lose nothing.
    quarter = np.rint(4 * turn)
    x = (4 * turn - quarter) * (np.arctan(np.longdouble(1)) * 2)
    turned = np.exp(1j * x) * np.array([1, 1j, -1, -1j])[quarter.astype(int) % 4]
    expected = np.concatenate([turned.real, turned.imag]) * np.tile(np.sqrt(-2 * np.log(u)), 2)
    ulps = np.abs(found.numpy() - expected) / np.spacing(np.abs(expected).astype(np.float64))
    assert ulps.max() < 5
    assert ulps.mean() < 1


@pytest.mark.parametrize("name", ["compiled", "torch"])
def test_small_radii_are_refined_and_only_those(library, name):
    arithmetic = CompiledNormals(library) if name == "compiled" else TorchNormals()
    all_ones, edge = 2**52 - 1, 2**52 - 2**32  # u = 2^-52 and u = 2^-20 exactly
    for places, expected in (([0, edge], None), ([edge + 1, 0, all_ones, edge], [RARE - 2.0**-52, 1, 2.0**-52, RARE])):
        seen, out = [], torch.empty(2 * len(places), dtype=torch.float64)

        def refine(u, seen=seen):
            seen.append(u.tolist())
            u[u < RARE] = 2.0**-104

        arithmetic.draw(torch.tensor(places + [0] * len(places)), refine, out)  # angle 0: the radius itself
        assert seen == ([] if expected is None else [expected])
        if expected is not None:
            largest = math.sqrt(2 * 104 * math.log(2))
            radii = [largest, 0.0, largest, math.sqrt(40 * math.log(2))]
            assert out[:4].tolist() == pytest.approx(radii, rel=1e-15)


def test_both_refine_the_same_radii(sources, monkeypatch):
    refined = []

    def recorded(key, block, square):
        before = square.clone()
        refine(key, block, square)
        for place in (before != square).nonzero().flatten().tolist():
            refined.append((block, place, float(square[place])))

    refine = lane.refine
    monkeypatch.setattr(lane, "refine", recorded)
    seen = []
    for source in sources(1):
        source.normal(8_000_000)
        seen.append(sorted(refined))
        refined.clear()
    assert seen[0] == seen[1]
    assert 0 < len(seen[0]) < 20  # of 4 million radii
    assert all(u < RARE and u * 2.0**52 != round(u * 2.0**52) for _, _, u in seen[0])


def built(folder, *flags):
    source = Path(normals.__file__).with_name("normals.c")
    command = [*CC, "-O3", "-fno-math-errno", "-shared", "-fPIC", *flags, str(source), "-o", str(folder / "normals.so")]
    subprocess.run(command, check=True, capture_output=True)
    return normals.load(str(folder / "normals.so"))


@needs_compiler
@pytest.mark.parametrize(("widest", "apart"), [(0, 1e-14), (1, 0)])
def test_older_processors_draw_the_same(library, tmp_path, widest, apart):
    """To the last bit with AVX2, whose arithmetic is that of AVX-512; without fused multiply-add nearly so."""
    older = CompiledNormals(built(tmp_path, f"-DWIDEST={widest}"))
    words = random_words(10_000)
    found, expected = torch.empty(2, 10_000, dtype=torch.float64)
    older.draw(words.clone(), unrefined, found)
    CompiledNormals(library).draw(words.clone(), unrefined, expected)
    assert torch.allclose(found, expected, rtol=0, atol=apart)


@needs_compiler
def test_arithmetic_that_would_lose_the_lattice_is_not_built(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        built(tmp_path, "-ffast-math")


def test_a_library_that_disagrees_is_not_used(library, monkeypatch):
    monkeypatch.setattr(TorchNormals, "draw", lambda self, words, refine, out: out.fill_(0.5))
    with pytest.warns(UserWarning, match="disagrees"):
        assert normals.compiled_library.__wrapped__() is None


def test_a_file_that_is_no_library_is_not_used(monkeypatch, tmp_path):
    (tmp_path / "broken.so").write_text("broken")
    spec = ModuleSpec("_normals", None, origin=str(tmp_path / "broken.so"))
    monkeypatch.setattr(normals, "find_spec", lambda name: spec)
    with pytest.warns(UserWarning, match="cannot be loaded"):
        assert normals.compiled_library.__wrapped__() is None


def test_without_the_library_torch_draws(monkeypatch):
    monkeypatch.setattr(normals, "compiled_library", lambda: None)
    source = NoiseSource(seed=1)
    assert source.arithmetic == "torch"
    assert source.normal(10).shape == (10,)
    assert source.description == "AES-256 counter mode, seeded: for experiments only"
