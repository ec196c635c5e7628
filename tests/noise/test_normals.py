"""Noise on a lattice: what C and torch make in double precision, and what is settled with more digits."""

import math
import shutil
import subprocess
import sysconfig
from importlib.machinery import ModuleSpec
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from graphveil import noise
from graphveil.noise import NoiseSource, normals
from graphveil.noise.normals import CHUNK, NORMAL_ERROR, CompiledNormals, OpenPair, Rounding, TorchNormals, settle

SOURCE = Path(normals.__file__).with_name("normals.c")
CC = (sysconfig.get_config_var("CC") or "cc").split()
SIZES = [0, 1, 2, 3, 7, 1000, 4097, CHUNK - 1, CHUNK + 1, 200_001]
ROUNDING = Rounding(std=1.7, step=2.0**-10)
# So fine that every error of a normal would show, and nothing is left open but at the edges.
FINE = Rounding(std=1.0, step=2.0**-16)

needs_compiler = pytest.mark.skipif(shutil.which(CC[0]) is None, reason="no C compiler")


@pytest.fixture
def library():
    library = normals.compiled_library()
    return library if library is not None else pytest.skip("normals.c is not built")


@pytest.fixture(params=["compiled", "torch"])
def arithmetic(request):
    if request.param == "torch":
        return TorchNormals()
    return CompiledNormals(request.getfixturevalue("library"))


@pytest.fixture
def sources(library, monkeypatch):
    """Pairs of sources with the same seed, one for each implementation."""

    def pair(seed):
        compiled = NoiseSource(seed)
        with monkeypatch.context() as patch:
            patch.setattr(noise, "fastest_normals", TorchNormals)
            plain = NoiseSource(seed)
            plain._workers.extend(noise.Worker() for _ in range(1, torch.get_num_threads()))
        assert (compiled.arithmetic, plain.arithmetic) == ("compiled", "torch")
        return compiled, plain

    return pair


def random_words(count, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(-(2**63), 2**63, count))


def ideal_pair(radius, angle, more=(0, 0)):
    """The two normals of two words and 256 further bits each, in 100 digits."""
    with mpmath.workdps(100):
        u = mpmath.mpf((2**52 - radius % 2**52) * 2**256 - more[0]) / 2**308
        turn = mpmath.mpf((angle % 2**52) * 2**256 + more[1]) / 2**308
        r = mpmath.sqrt(-2 * mpmath.log(u))
        return r * mpmath.cos(2 * mpmath.pi * turn), r * mpmath.sin(2 * mpmath.pi * turn)


@needs_compiler
def test_where_there_is_a_compiler_the_library_is_built():
    assert normals.compiled_library() is not None, "run `pip install --editable .` or `setup.py build_ext --inplace`"


@pytest.mark.parametrize("count", SIZES)
def test_both_add_the_same_noise_to_the_last_bit(sources, count):
    value = 100 * torch.randn(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    compiled, plain = sources(4)
    noisy, expected = value.clone(), value.clone()
    for _ in range(2):
        compiled.add_normals(noisy, ROUNDING)
        plain.add_normals(expected, ROUNDING)
        assert torch.equal(noisy, expected)


def test_both_agree_where_pairs_are_left_open(sources, monkeypatch):
    """Among 4 million pairs some are at the edges and some in doubt; both ways leave them to the same hand."""
    settled = []

    def recorded(pair, place, values, rounding):
        settled.append(place)
        settle(pair, place, values, rounding)

    monkeypatch.setattr(noise, "settle", recorded)
    seen, noisy = [], []
    for source in sources(1):
        values = torch.zeros(8_000_000, dtype=torch.float64)
        source.add_normals(values, ROUNDING)
        seen.append(set(settled))
        noisy.append(values)
        settled.clear()
    assert torch.equal(*noisy)
    assert seen[0] == seen[1]
    assert 2 < len(seen[0]) < 40


def test_normals_are_within_the_promised_error(arithmetic):
    """Against 100 digits: random words, and those around the edges of what is not left open."""
    edge = 2**32
    radii = [*random_words(400, seed=1).tolist(), edge, edge + 1, 2**52 - edge - 1, 2**52 - edge - 2, 2**51, 2**51 + 1]
    angles = [*random_words(400, seed=2).tolist(), 0, 1, 2**50, 2**51 - 1, 3 * 2**50, 2**52 - 1]
    words = torch.tensor(radii + angles)
    values = torch.zeros(len(words), dtype=torch.float64)
    # Without rounding to speak of: the result is the normal itself, to 2^-40.
    coarse = Rounding(std=2.0**15, step=1.0)
    left = {pair.pair for pair in arithmetic.add(words, values, coarse)}
    assert len(left) < 20
    for pair, (radius, angle) in enumerate(zip(radii, angles, strict=True)):
        if pair in left:
            continue
        # The ideal normals of the whole cell that the two words stand for.
        for more in ((0, 0), (2**256 - 1, 2**256 - 1), (0, 2**256 - 1), (2**256 - 1, 0)):
            for at, ideal in zip((pair, len(radii) + pair), ideal_pair(radius, angle, more), strict=True):
                assert int(values[at]) == int(mpmath.nint(ideal * 2**15))


def test_what_is_not_left_open_could_not_have_been_rounded_otherwise(arithmetic):
    """The distance from the next rounding boundary exceeds the promised error, at every pair that is decided."""
    words = random_words(20_000, seed=3)
    kept = words.clone()
    values = torch.zeros(len(words), dtype=torch.float64)
    left = {pair.pair for pair in arithmetic.add(words, values, FINE)}
    half = len(words) // 2
    for pair in range(0, half, 61):
        if pair not in left:
            for at, ideal in zip((pair, half + pair), ideal_pair(int(kept[pair]), int(kept[half + pair])), strict=True):
                away = abs(ideal / FINE.step - round(values[at].item() / FINE.step))
                assert away < 0.5 - NORMAL_ERROR / FINE.step
    assert len(left) < 0.002 * half  # 2 * 2^17 * 2^-34 a pair, and the edges


@pytest.mark.parametrize("word", [0, 1, 2**32 - 1, 2**52 - 1, 2**52 - 2**32])
def test_radii_at_the_edges_are_left_open(arithmetic, word):
    values = torch.full((4,), 3.0, dtype=torch.float64)
    words = torch.tensor([2**51, word, 2**49 + 5, 67890])
    assert arithmetic.add(words.clone(), values, ROUNDING) == [OpenPair(0, 1, word, 67890)]
    assert values[1] == values[3] == 3.0
    assert values[0] != 3.0
    assert values[2] != 3.0


def test_a_sum_in_doubt_is_left_open_and_its_value_untouched(arithmetic):
    """A value is moved so that the sum falls right between two steps."""
    words = torch.tensor([2**51 + 12345, 2**49 + 17])
    x, _ = ideal_pair(*words.tolist())
    doubtful = float(0.5 * ROUNDING.step - x * ROUNDING.std)
    values = torch.tensor([doubtful, 0.25], dtype=torch.float64)
    assert [pair.pair for pair in arithmetic.add(words.clone(), values, ROUNDING)] == [0]
    assert values.tolist() == [doubtful, 0.25]
    clear = torch.tensor([doubtful + 0.25 * ROUNDING.step, 0.25], dtype=torch.float64)
    assert arithmetic.add(words.clone(), clear, ROUNDING) == []


@pytest.mark.parametrize("count", [1, 2, 5])
def test_settling_is_exact_and_needs_both_words_and_the_place(count):
    pair = OpenPair(0, 0, 2**52 - 1, 2**40 + 3)
    noisy = []
    for place in (b"a", b"a", b"b"):
        values = torch.full((count,), 0.5, dtype=torch.float64)
        settle(pair, place, values, ROUNDING)
        steps = values / ROUNDING.step
        assert torch.equal(steps, steps.round())
        noisy.append(values)
    assert torch.equal(noisy[0], noisy[1])
    assert not torch.equal(noisy[0], noisy[2])
    # The radius of this word: u is below 2^-52, so it is at least 8.49.
    reach = float((noisy[0] - 0.5).abs().max())
    assert reach > 8.4 * ROUNDING.std * abs(math.cos(2 * math.pi * 2**-12)) or count == 1


def test_settled_pairs_are_normal():
    """All pairs settled: the noise of the exact way alone."""
    words = random_words(4000, seed=5).tolist()
    drawn = []
    for number, (radius, angle) in enumerate(zip(words[::2], words[1::2], strict=True)):
        values = torch.zeros(2, dtype=torch.float64)
        settle(OpenPair(0, 0, radius, angle), str(number).encode(), values, FINE)
        drawn += values.tolist()
    assert stats.kstest(drawn, "norm").pvalue > 1e-4


@pytest.mark.parametrize("steps", [0.0, 0.25, -0.25, 1 / 3, 2.0**51 + 0.25, 2.0**52, -(2.0**53), 2.0**60, -1e9 / 7])
def test_values_meet_the_noise_exactly(arithmetic, steps):
    """A huge value and its noise are the same as the noise beside what the value lacks to a whole step."""
    words = torch.tensor([2**51 + 12345, 2**49 + 17])
    scaled = steps * ROUNDING.step
    values, rest = torch.tensor([scaled, 0.0]).double(), torch.tensor([scaled - 0.0, 0.0]).double()
    whole = round(steps)
    rest[0] = (steps - whole) * ROUNDING.step
    values[0] = scaled
    assert not arithmetic.add(words.clone(), values, ROUNDING)
    assert not arithmetic.add(words.clone(), rest, ROUNDING)
    assert float(values[0]) == float(whole + round(float(rest[0]) / ROUNDING.step)) * ROUNDING.step


def test_a_zero_has_no_sign(arithmetic):
    """Of two zeros the negative one would say that the value was negative, and rounded to zero itself."""
    values = torch.full((CHUNK,), -ROUNDING.step / 4, dtype=torch.float64)
    zeros = 0
    for seed in range(8):
        noisy = values.clone()
        arithmetic.add(random_words(CHUNK, seed), noisy, ROUNDING)
        zeros += int((noisy == 0).sum())
        assert not bool(((noisy == 0) & noisy.signbit()).any())
    assert zeros > 20


@needs_compiler
def test_a_library_that_keeps_the_sign_of_zeros_is_not_used(tmp_path, monkeypatch):
    source = SOURCE.read_text()
    assert source.count(" * step + 0.0;") == 2
    (tmp_path / "normals.c").write_text(source.replace(" * step + 0.0;", " * step;"))
    older = built(tmp_path, source=tmp_path / "normals.c")
    monkeypatch.setattr(normals, "load", lambda path: older)
    with pytest.warns(UserWarning, match="disagrees"):
        assert normals.compiled_library.__wrapped__() is None


def built(folder, *flags, source=SOURCE):
    command = [*CC, "-O3", "-fno-math-errno", "-shared", "-fPIC", *flags, str(source), "-o", str(folder / "normals.so")]
    subprocess.run(command, check=True, capture_output=True)
    return normals.load(str(folder / "normals.so"))


@needs_compiler
@pytest.mark.parametrize("widest", [0, 1])
def test_older_processors_draw_the_same(library, tmp_path, widest):
    older = CompiledNormals(built(tmp_path, f"-DWIDEST={widest}"))
    words = random_words(10_000)
    noisy, expected = torch.linspace(-9, 9, 20_000, dtype=torch.float64).view(2, -1)
    expected.copy_(noisy)
    assert older.add(words.clone(), noisy, ROUNDING) == CompiledNormals(library).add(words.clone(), expected, ROUNDING)
    assert torch.equal(noisy, expected)


@needs_compiler
def test_arithmetic_that_would_lose_the_lattice_is_not_built(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        built(tmp_path, "-ffast-math")


def test_words_that_are_not_random_are_noticed(library):
    values = torch.zeros(CHUNK, dtype=torch.float64)
    with pytest.raises(OSError, match="not random"):
        CompiledNormals(library).add(torch.zeros(CHUNK, dtype=torch.int64), values, ROUNDING)


def test_a_library_that_disagrees_is_not_used(library, monkeypatch):
    monkeypatch.setattr(TorchNormals, "add", lambda self, words, values, rounding: [values.fill_(0.5)][1:])
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
