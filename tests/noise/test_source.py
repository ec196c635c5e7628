import copy
import pickle

import pytest
import torch
from scipy import stats

from graphveil import noise
from graphveil.errors import InvalidInput
from graphveil.noise import NoiseSource
from support.checks import has_noise

pytestmark = pytest.mark.usefixtures("arithmetic")


def test_normals_are_normal():
    assert has_noise(NoiseSource(seed=5).normal(400_000), 1.0)
    far = NoiseSource(seed=5).normal(4_000_000).abs()
    for point in (3.0, 4.0):
        expected = 4_000_000 * 2 * stats.norm.sf(point)
        assert int((far > point).sum()) == pytest.approx(expected, abs=5 * expected**0.5)


def test_uniforms_are_uniform_and_never_reach_the_ends():
    values = NoiseSource(seed=6).uniform(500, 1000)
    assert values.shape == (500, 1000)
    assert stats.kstest(values.flatten().numpy(), "uniform").pvalue > 1e-4
    assert values.min() > 0
    assert values.max() < 1


def test_integers_are_uniform():
    counts = torch.bincount(NoiseSource(seed=7).integers(7, 700_000), minlength=7)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (65_537,), (2, 65_536)])
def test_any_shape(shape):
    assert NoiseSource(seed=0).normal(*shape).shape == shape


def test_a_seed_repeats_and_says_so():
    first, second = NoiseSource(seed=3), NoiseSource(seed=3)
    assert torch.equal(first.normal(1000), second.normal(1000))
    assert not torch.equal(first.normal(1000), NoiseSource(seed=4).normal(1000))
    assert not first.secure
    assert "experiments only" in first.description


def test_no_seed_never_repeats_and_is_secure():
    first, second = NoiseSource(), NoiseSource()
    assert not torch.equal(first.normal(100), second.normal(100))
    assert first.secure
    assert "seed" not in first.description


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda source: pickle.loads(pickle.dumps(source))])
def test_copies_never_share_secure_noise_and_repeat_seeded_noise(copied):
    for seed in (None, 3):
        source = NoiseSource(seed)
        source.normal(10)
        other = copied(source)
        assert other.secure == source.secure
        assert torch.equal(source.normal(100), other.normal(100)) == (seed is not None)
        assert not torch.equal(other.normal(100), other.normal(100))


def test_a_bad_seed_is_named():
    for seed in (-1, 1.5, "x"):
        with pytest.raises(InvalidInput, match="seed"):
            NoiseSource(seed=seed)


def test_threads_do_not_change_what_is_drawn(monkeypatch):
    monkeypatch.setattr(noise, "_WORTH_A_THREAD", 1)
    threads = torch.get_num_threads()
    drawn = []
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            source = NoiseSource(seed=2)
            drawn.append(torch.cat([source.normal(700_001), source.uniform(200_000)]))
            assert len(source._workers) == count
    finally:
        torch.set_num_threads(threads)
    for other in drawn[1:]:
        assert torch.equal(drawn[0], other)


def test_going_on_where_another_source_was():
    first, second = NoiseSource(seed=3), NoiseSource(seed=3)
    first.normal(1000)
    second.seek(first.position)
    assert torch.equal(first.normal(1000), second.normal(1000))
    with pytest.raises(InvalidInput, match="position"):
        second.seek(0)  # the same noise a second time
    with pytest.raises(InvalidInput, match="without one"):
        NoiseSource().seek(first.position)


def test_sealed_by_a_seed():
    sealed = NoiseSource(seed=3).seal(b"state")
    assert b"state" not in sealed
    assert NoiseSource(seed=3).unseal(sealed) == b"state"
    for wrong in (sealed[:-1], sealed[:5], b"", bytes(40)):
        with pytest.raises(InvalidInput, match="is not the seed"):
            NoiseSource(seed=3).unseal(wrong)
    with pytest.raises(InvalidInput, match="is not the seed"):
        NoiseSource(seed=4).unseal(sealed)
    assert NoiseSource().unseal(NoiseSource().seal(b"state")) == b"state"
