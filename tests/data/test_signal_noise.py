"""SignalNoise has the law of the papers' definitions and keeps what generated it.

The draws are fixed by the seed, so a test of a law passes always or never; FALSE_ALARM and the
comments state the chance that a correct law fails.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from benign.data.signal_noise import SignalNoise
from benign.spec.base import SpecError
from benign.streams import Streams
from tests.reference import (
    NotedStreams,
    close,
    doubles,
    run_ids,
    small_data,
    small_setup,
    start,
)
from tests.reference.laws import FALSE_ALARM, FLOAT64, check_share, draw
from tests.says import says


def check_normal(numbers: Tensor, std: float) -> None:
    """Independent normals of this deviation: their distribution, mean and variance."""
    scaled = numbers.flatten().numpy() / std
    assert stats.kstest(scaled, "norm").pvalue > FALSE_ALARM
    assert stats.norm.sf(abs(scaled.mean()) * math.sqrt(scaled.size)) > FALSE_ALARM / 2
    spread = stats.chi2(scaled.size)
    assert FALSE_ALARM / 2 < spread.cdf(scaled.dot(scaled)) < 1 - FALSE_ALARM / 2


def test_first_token_is_the_signal_of_the_label_and_the_others_are_noise():
    sample = draw(small_data(samples=20, signal=3.0), runs=2)
    signal = sample.latent["signal"]
    assert sample.x.shape == (2, 20, 3, 8)
    for run in range(2):
        for point, label in zip(sample.x[run], sample.clean_y[run], strict=True):
            assert torch.equal(point[0], signal[run, 0 if label > 0 else 1])
    assert torch.equal(signal[0], 3 * torch.eye(2, 8, dtype=FLOAT64))
    assert torch.equal(sample.y, sample.clean_y)


def test_isotropic_noise_is_normal_with_the_stated_deviation():
    check_normal(draw(small_data(samples=200, dim=40, noise_std=0.7)).x[:, :, 1:], 0.7)


def test_noise_coordinates_tokens_and_points_are_uncorrelated():
    noise = draw(small_data(samples=400, tokens=4, dim=3, noise_std=1.0)).x[0, :, 1:]
    correlations = torch.corrcoef(noise.flatten(1).T) - torch.eye(9, dtype=FLOAT64)
    # 36 correlations of 400 pairs, |z| < 5.8: false alarm 3e-7.
    assert correlations.abs().max() < 5.8 / 20
    neighbours = torch.corrcoef(torch.stack([noise[:-1].flatten(), noise[1:].flatten()]))[0, 1]
    assert abs(float(neighbours)) < 5.8 / 60


def test_the_strong_token_has_its_own_deviation():
    data = small_data(samples=200, tokens=4, dim=30, noise_std=0.5, strong_noise_std=4.0)
    noise = draw(data).x[:, :, 1:]
    check_normal(noise[:, :, 0], 4.0)
    check_normal(noise[:, :, 1:], 0.5)


@pytest.mark.parametrize("directions", ["axes", "random"])
def test_projected_noise_is_exactly_orthogonal_and_fills_the_rest(directions):
    data = small_data(
        samples=150,
        dim=20,
        noise_std=0.5,
        strong_noise_std=3.0,
        projected=True,
        directions=directions,
    )
    sample = draw(data, runs=2)
    noise, signal = sample.x[:, :, 1:], sample.latent["signal"]
    along = torch.einsum("rnmd,rsd->rnms", noise, signal)
    assert float(along.abs().max()) <= 1e-12 * float(noise.norm(dim=-1).max()) * 2
    for run in range(2):
        # An orthonormal basis of the complement: 18 independent normals a token.
        basis = torch.linalg.svd(signal[run]).Vh[2:]
        check_normal(noise[run, :, 0] @ basis.T, 3.0)
        check_normal(noise[run, :, 1:] @ basis.T, 0.5)


def test_unprojected_noise_meets_the_signals():
    sample = draw(small_data(samples=200, noise_std=0.5))
    along = torch.einsum("rnmd,rsd->rnms", sample.x[:, :, 1:], sample.latent["signal"] / 2)
    check_normal(along, 0.5)


def test_labels_are_fair_and_independent():
    data = small_data(samples=4000, dim=2, tokens=1)
    for split in ("train", "test/0"):
        labels = draw(data, runs=2, split=split).y
        assert set(labels.flatten().tolist()) == {-1.0, 1.0}
        check_share(labels > 0, 0.5)
        check_share(labels[:, 1:] == labels[:, :-1], 0.5)
        check_share(labels[0] == labels[1], 0.5)


def test_balanced_labels_are_balanced_in_training_only():
    data = small_data(samples=400, dim=2, tokens=1, balanced=True)
    assert draw(data, runs=3).clean_y.sum(1).tolist() == [0, 0, 0]
    test = draw(data, runs=3, split="test/0").y
    check_share(test > 0, 0.5)
    # All three runs balanced by chance: 6e-5.
    assert test.sum(1).any()


@given(st.floats(0.01, 50), st.floats(0.01, 5), st.integers(2, 60))
@settings(max_examples=30)
def test_signal_norm_and_ratio_are_two_names_of_one_number(snr, noise_std, dim):
    by_ratio = small_data(snr=snr, noise_std=noise_std, dim=dim)
    norm = by_ratio.signal_norm()
    assert norm == pytest.approx(snr * noise_std * math.sqrt(dim), rel=1e-14)
    by_norm = small_data(signal=norm, noise_std=noise_std, dim=dim)
    assert torch.equal(draw(by_ratio).x, draw(by_norm).x)
    close(draw(by_ratio).latent["signal"].norm(dim=2), doubles(norm, norm)[None])


def test_random_directions_are_orthogonal_uniform_and_differ_by_run():
    data = small_data(dim=6, signal=2.5, directions="random")
    signal = draw(data, runs=400).latent["signal"]
    close(signal @ signal.transpose(1, 2), 6.25 * torch.eye(2, dtype=FLOAT64).expand(400, 2, 2))
    # A coordinate of a uniform direction in R^6: its square is Beta(1/2, 5/2).
    squares = signal[:, :, 3].flatten().numpy() ** 2 / 6.25
    assert stats.kstest(squares, stats.beta(0.5, 2.5).cdf).pvalue > FALSE_ALARM
    check_share(signal[:, 0, 0] > 0, 0.5)


def test_train_and_test_share_the_signals_of_a_run():
    data = small_data(directions="random")
    train, test = draw(data), draw(data, split="test/0")
    assert torch.equal(train.latent["signal"], test.latent["signal"])


def test_given_directions_are_used_with_the_stated_norm():
    pair = ((1.0, 2.0, 0.0, 0.0), (-4.0, 2.0, 0.0, 3.0))
    signal = draw(small_data(dim=4, signal=5.0, directions=pair)).latent["signal"][0]
    for vector, given_ in zip(signal, pair, strict=True):
        expected = doubles(*given_)
        close(vector, 5 * expected / expected.norm())
    assert abs(float(signal[0] @ signal[1])) < 1e-13


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_training_labels_are_flipped_at_the_stated_rate(rate):
    data = small_data(samples=4000, dim=2, tokens=1, flip=rate)
    sample = draw(data, runs=2)
    flipped = sample.y != sample.clean_y
    assert torch.equal(sample.y.abs(), torch.ones_like(sample.y))
    check_share(flipped, rate)
    check_share(flipped[sample.clean_y > 0], rate)
    check_share(flipped[:, 1:] & flipped[:, :-1], rate**2)


def test_a_flip_leaves_the_points_on_their_clean_label():
    plain, flipped = draw(small_data(samples=60)), draw(small_data(samples=60, flip=0.3))
    assert torch.equal(flipped.x, plain.x)
    assert torch.equal(flipped.clean_y, plain.clean_y)
    assert (flipped.y != flipped.clean_y).any()
    plus = flipped.clean_y > 0
    assert torch.equal(flipped.x[:, :, 0, 0] > 0, plus)


def test_test_labels_are_never_flipped():
    sample = draw(small_data(samples=400, flip=0.45), split="test/0")
    assert torch.equal(sample.y, sample.clean_y)
    assert torch.equal(sample.x[:, :, 0, 0] > 0, sample.y > 0)


@pytest.mark.parametrize("split", ["train", "test/0"])
def test_labels_noise_flips_and_directions_have_streams_of_their_own(split):
    streams = NotedStreams(run_ids(1))
    small_data(flip=0.2, directions="random").sample(streams, split, 4, FLOAT64)
    assert len(set(streams.purposes)) == len(streams.purposes) >= 3
    shared = [purpose for purpose in streams.purposes if not purpose.startswith(f"{split}/")]
    assert shared == ["signal/directions"]


def test_splits_and_seeds_draw_different_points():
    data = small_data(samples=30)
    drawn = [draw(data, runs=2, split=split) for split in ("train", "test/0", "test/1")]
    noise = [sample.x[run, :, 1:].flatten() for sample in drawn for run in (0, 1)]
    correlations = torch.corrcoef(torch.stack(noise)) - torch.eye(6, dtype=FLOAT64)
    # 15 correlations of 480 pairs, |z| < 5.6: false alarm 3e-7.
    assert correlations.abs().max() < 5.6 / 480**0.5


def test_fewer_points_are_the_first_points():
    data = small_data(flip=0.2)
    few, many = draw(data, split="test/0", count=5), draw(data, split="test/0", count=9)
    assert torch.equal(few.x, many.x[:, :5])
    assert torch.equal(few.y, many.y[:, :5])


@pytest.mark.parametrize("directions", ["axes", "random"])
def test_draws_do_not_depend_on_the_batch(directions):
    fields = [
        {"signal": 1.0, "noise_std": 0.2, "strong_noise_std": 0.9, "flip": 0.0},
        {"signal": 5.0, "noise_std": 1.0, "strong_noise_std": 2.0, "flip": 0.4},
        {"signal": 0.0, "noise_std": 0.7, "strong_noise_std": 0.1, "flip": 0.2},
    ]
    models = [small_data(samples=30, directions=directions, **each) for each in fields]
    ids = run_ids(3)
    together = start([small_setup(data) for data in models], ids).sample
    for run, data in enumerate(models):
        alone = data.sample(Streams(ids[run : run + 1]), "train", 30, FLOAT64)
        picked = together.select(torch.tensor([run]))
        assert torch.equal(picked.x, alone.x)
        assert torch.equal(picked.y, alone.y)
        assert torch.equal(picked.clean_y, alone.clean_y)
        assert torch.equal(picked.latent["signal"], alone.latent["signal"])


def test_float32_points_are_the_float64_points_rounded():
    data = small_data(projected=True, directions="random", flip=0.2)
    streams = Streams(run_ids(2))
    exact, rough = (data.sample(streams, "train", 4, dtype) for dtype in (FLOAT64, torch.float32))
    assert rough.x.dtype == rough.y.dtype == rough.clean_y.dtype == torch.float32
    assert torch.equal(rough.y.double(), exact.y)
    close(rough.x.double(), exact.x, 1e-6)


def test_one_token_is_the_signal_alone():
    sample = draw(small_data(tokens=1, projected=True))
    assert sample.x.shape == (1, 4, 1, 8)
    assert (sample.x.norm(dim=-1) == 2).all()


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"snr": 1.0, "signal": 2.0}, ["`snr`", "`signal`", "one", "1.0", "2.0"]),
        ({"signal": None}, ["`snr`", "`signal`", "one"]),
        ({"samples": 5, "balanced": True}, ["`samples`", "even", "5", "6"]),
        ({"dim": 1}, ["`dim`", "2", "1"]),
        ({"dim": -3}, ["dim", "greater than or equal to 1", "-3"]),
        ({"dim": 2.5}, ["dim", "integer", "2.5"]),
        ({"samples": 0}, ["samples", "greater than or equal to 1", "0"]),
        ({"tokens": True}, ["tokens", "number", "True"]),
        ({"noise_std": 0.0}, ["noise_std", "greater than 0", "0.0"]),
        ({"noise_std": math.nan}, ["noise_std", "finite", "nan"]),
        ({"signal": -1.0}, ["signal", "greater than or equal to 0", "-1.0"]),
        ({"flip": 0.5}, ["flip", "less than 0.5", "0.5"]),
        ({"flip": -0.1}, ["flip", "greater than or equal to 0", "-0.1"]),
        ({"tokens": 1, "strong_noise_std": 2.0}, ["`strong_noise_std`", "`tokens`", "1"]),
        ({"dim": 2, "directions": ((1.0, 1.0), (1.0, 0.0))}, ["`directions`", "orthogonal", "1.0"]),
        ({"dim": 2, "directions": ((0.0, 0.0), (1.0, 0.0))}, ["`directions`", "non-zero"]),
        ({"dim": 3, "directions": ((1.0, 0.0), (0.0, 1.0))}, ["`directions`", "dim=3", "2"]),
        ({"directions": "diagonal"}, ["directions", "diagonal", "axes", "random"]),
        ({"sample": 3}, ["sample:", "`samples`"]),
    ],
)
def test_bad_data_is_refused_with_field_value_and_remedy(fields, parts):
    with pytest.raises(SpecError) as error:
        SignalNoise(
            **({"samples": 4, "tokens": 3, "dim": 8, "noise_std": 0.5, "signal": 2.0} | fields)
        )
    assert all(word in str(error.value) for word in parts), str(error.value)


def test_rules_across_fields_name_the_cell_of_the_grid():
    with pytest.raises(SpecError, match=says("`samples`", "even", "samples=5")):
        small_data(samples=[4, 5], balanced=True)
