"""Mixture has the laws of Wang's Definition 2.1, flips as it says, and keeps what generated it.

The draws are fixed by the seed, so a test of a law passes always or never; FALSE_ALARM and the
comments state the chance that a correct law fails.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import kv
from torch import Tensor

import benign as bo
from benign.data.mixture import Mixture, _quartic_quantile
from benign.data.model import DataModel, Sample
from benign.spec.base import SpecError
from benign.streams import Streams
from tests.reference import NotedStreams, close, doubles, run_ids, small_setup, start
from tests.reference.laws import FALSE_ALARM, FLOAT64, check_share, draw

CLUSTERS = ["gaussian", "truncated", "quartic"]
FLIP_MODES = ["independent", "half_space", "fixed_count", "blocks"]
CUT = 1.1


def mixture(**fields: Any) -> Mixture:
    return Mixture(**({"samples": 12, "dim": 6, "signal": 2.0} | fields))


def noise_of(sample: Sample) -> Tensor:
    """xi = x - y mu of every point."""
    return sample.x[:, :, 0] - sample.clean_y[..., None] * sample.latent["signal"]


def quartic_tail(z: Any) -> np.ndarray:
    """P(Z > z) for z >= 0 by Gauss's rule of 200 points, and its constant by the Bessel function."""
    z = np.asarray(z, dtype=float)[..., None]
    node, weight = np.polynomial.legendre.leggauss(200)
    half = (6 - z) / 2
    x = z + half * (1 + node)
    whole = math.exp(1 / 32) * kv(0.25, 1 / 32) / math.sqrt(8)
    return (half * np.exp(-(x**2) / 2 - x**4)) @ weight / whole


class Quartic:
    """The law with density exp(-z^2 / 2 - z^4) up to its constant; moments by quadrature."""

    variance = 0.27884398841774
    fourth_moment = (1 - variance) / 4  # the mean of d/dz (z p) is zero

    @staticmethod
    def cdf(z: Any) -> np.ndarray:
        z = np.asarray(z)
        return np.where(z > 0, 1 - quartic_tail(abs(z)), quartic_tail(abs(z)))

    def ppf(self, chance: float) -> float:
        low, high = -3.0, 3.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.cdf(middle) < chance else (low, middle)
        return low


def law(cluster: str) -> Any:
    """The law of a coordinate with `noise_std` 1."""
    return {
        "gaussian": stats.norm(),
        "truncated": stats.truncnorm(-CUT, CUT),
        "quartic": Quartic(),
    }[cluster]


def moments(cluster: str) -> tuple[float, float]:
    """Second and fourth moment."""
    exact = law(cluster)
    if isinstance(exact, Quartic):
        return exact.variance, exact.fourth_moment
    return exact.moment(2), exact.moment(4)


def test_a_point_is_its_labels_centre_plus_noise():
    data = mixture(direction="random", cluster="truncated")
    near, far = draw(data, runs=2), draw(mixture(direction="random", signal=5.0), runs=2)
    assert near.x.shape == (2, 12, 1, 6)
    assert near.latent["signal"].shape == (2, 1, 6)
    still = draw(mixture(direction="random", cluster="truncated", signal=0.0), runs=2)
    close(near.x - still.x, (near.clean_y[..., None] * near.latent["signal"])[:, :, None])
    close(far.latent["signal"], 2.5 * near.latent["signal"])
    assert torch.equal(near.y, near.clean_y)
    assert data.signal_norm() == 2.0


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("direction", ["axis", "random"])
def test_noise_has_the_law_of_its_cluster(cluster, direction):
    data = mixture(
        samples=200, dim=60, cluster=cluster, cut=CUT, noise_std=0.7, direction=direction
    )
    numbers = noise_of(draw(data)).flatten().numpy() / 0.7
    assert stats.kstest(numbers, law(cluster).cdf).pvalue > FALSE_ALARM
    second, fourth = moments(cluster)
    # Means of 12000 numbers are normal: |z| < 4.9 has false alarm 1e-6.
    assert abs(numbers.mean()) < 4.9 * math.sqrt(second / numbers.size)
    spread = math.sqrt((fourth - second**2) / numbers.size)
    assert abs(np.mean(numbers**2) - second) < 4.9 * spread


def test_the_quartic_law_of_these_tests_is_the_stated_one():
    z = np.linspace(-3, 3, 6001)
    density = np.exp(-(z**2) / 2 - z**4)
    density /= (
        density.sum() * 1e-3
    )  # the trapezoid rule, exact for a density that vanishes smoothly
    assert np.sum(z**2 * density) * 1e-3 == pytest.approx(Quartic.variance, rel=1e-12)
    assert np.sum(z**4 * density) * 1e-3 == pytest.approx(Quartic.fourth_moment, rel=1e-12)
    assert Quartic.cdf(0.0) == pytest.approx(0.5, rel=1e-13)
    assert np.gradient(Quartic.cdf(z), z)[3500] == pytest.approx(density[3500], rel=1e-6)


@pytest.mark.parametrize("cluster", ["truncated", "quartic"])
def test_noise_is_the_exact_quantile_of_its_uniform_draw(cluster):
    sample = draw(mixture(samples=50, dim=40, cluster=cluster, cut=CUT))
    uniform = Streams(run_ids(1))("train/noise").uniform(50, 40)
    exact = torch.from_numpy(law(cluster).cdf(noise_of(sample).numpy()))
    assert float((exact - uniform).abs().max()) < 1e-9
    if cluster == "truncated":
        assert float(noise_of(sample).abs().max()) < CUT


def test_the_quartic_quantile_is_precise_far_into_the_tails():
    # A draw has at least the chance 2**-33 on either side, at |z| = 2.02.
    z = np.concatenate([np.geomspace(1e-6, 0.1, 200), np.linspace(0.1, 2.05, 4001)])
    chance = torch.from_numpy(quartic_tail(z))
    assert np.abs(_quartic_quantile(chance).numpy() + z).max() < 1e-9
    above = _quartic_quantile(1 - chance).numpy()
    assert np.abs(above - z)[z < 1].max() < 1e-9
    ends = _quartic_quantile(doubles(0, 2.0**-33, 0.5, 1 - 2.0**-33, 1))
    close(ends, -ends.flip(0))
    assert (ends.diff() > 0).all()


def test_noise_of_coordinates_points_and_labels_is_uncorrelated():
    sample = draw(mixture(samples=400, dim=4, cluster="quartic"))
    noise = noise_of(sample)[0]
    columns = torch.cat([noise[1:], noise[:-1], sample.clean_y[0, 1:, None]], 1)
    correlations = torch.corrcoef(columns.T) - torch.eye(9, dtype=FLOAT64)
    # 36 correlations of 399 pairs, |z| < 5.8: false alarm 3e-7.
    assert correlations.abs().max() < 5.8 / math.sqrt(399)


def test_labels_are_fair_and_balanced_ones_equal_in_training_only():
    for split in ("train", "test/0"):
        labels = draw(mixture(samples=4000, dim=1), runs=2, split=split).y
        check_share(labels > 0, 0.5)
        check_share(labels[:, 1:] == labels[:, :-1], 0.5)
    data = mixture(samples=400, balanced=True)
    assert draw(data, runs=3).clean_y.sum(1).tolist() == [0, 0, 0]
    # All three runs balanced by chance: 6e-5.
    assert draw(data, runs=3, split="test/0").y.sum(1).any()


def test_directions_have_the_stated_norm_and_law():
    axis = draw(mixture(signal=3.0)).latent["signal"]
    assert axis.flatten().tolist() == [3, 0, 0, 0, 0, 0]
    chosen = draw(mixture(dim=3, signal=5.0, direction=(0.0, -3.0, 4.0)), runs=2).latent["signal"]
    close(chosen, doubles(0, -3, 4).expand(2, 1, 3))
    random = draw(mixture(signal=2.5, direction="random"), runs=400).latent["signal"][:, 0]
    close(random.norm(dim=1), torch.full((400,), 2.5, dtype=FLOAT64))
    # A coordinate of a uniform direction in R^6: its square is Beta(1/2, 5/2).
    squares = random[:, 3].numpy() ** 2 / 6.25
    assert stats.kstest(squares, stats.beta(0.5, 2.5).cdf).pvalue > FALSE_ALARM
    check_share(random[:, 0] > 0, 0.5)


@pytest.mark.parametrize("mode", FLIP_MODES)
def test_flips_change_observed_training_labels_and_nothing_else(mode):
    fields: dict[str, Any] = {"samples": 60, "direction": "random"}
    plain = draw(mixture(**fields), runs=2)
    flipped = draw(mixture(**fields, flip=0.3, flip_mode=mode), runs=2)
    assert torch.equal(flipped.x, plain.x)
    assert torch.equal(flipped.clean_y, plain.clean_y)
    mask = flipped.latent["flipped"]
    assert torch.equal(mask, flipped.y != flipped.clean_y)
    assert mask.any()
    assert not mask.all()
    none = draw(mixture(**fields, flip=0.0, flip_mode=mode), runs=2)
    assert not none.latent["flipped"].any()
    test = draw(mixture(**fields, flip=0.3, flip_mode=mode), runs=2, split="test/0")
    assert torch.equal(test.y, test.clean_y)
    assert not test.latent["flipped"].any()


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_independent_flips_have_their_rate_whatever_the_point(rate):
    sample = draw(mixture(samples=4000, dim=2, flip=rate), runs=2)
    flipped = sample.latent["flipped"]
    check_share(flipped, rate)
    check_share(flipped[sample.clean_y > 0], rate)
    check_share(flipped[:, 1:] & flipped[:, :-1], rate**2)
    for coordinate in (0, 1):
        check_share(flipped[noise_of(sample)[..., coordinate] > 0], rate)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize(("half_space", "axis"), [("signal", 0), ("orthogonal", 1)])
def test_half_space_flips_are_the_points_of_the_half_space(cluster, half_space, axis):
    data = mixture(
        samples=3000,
        dim=3,
        cluster=cluster,
        cut=CUT,
        noise_std=0.4,
        flip=0.2,
        flip_mode="half_space",
        half_space=half_space,
    )
    sample = draw(data, runs=2)
    assert torch.equal(sample.latent["half_space"][0, 0], torch.eye(3, dtype=FLOAT64)[axis])
    flipped = sample.latent["flipped"]
    border = 0.4 * law(cluster).ppf(0.8)
    assert torch.equal(flipped, noise_of(sample)[..., axis] > border)
    check_share(flipped, 0.2)
    check_share(flipped[sample.clean_y > 0], 0.2)
    if half_space == "orthogonal":  # then x alone decides
        assert torch.equal(flipped, sample.x[:, :, 0, axis] > border)


@pytest.mark.parametrize("half_space", ["signal", "orthogonal"])
@pytest.mark.parametrize("direction", ["random", (1.0, 2.0, 0.0, -2.0)])
def test_half_spaces_of_any_direction_cut_off_the_stated_share(half_space, direction):
    data = mixture(
        samples=4000,
        dim=4,
        flip=0.1,
        flip_mode="half_space",
        half_space=half_space,
        direction=direction,
    )
    sample = draw(data, runs=2)
    normal, signal = sample.latent["half_space"], sample.latent["signal"]
    close(normal.norm(dim=2), torch.ones(2, 1, dtype=FLOAT64))
    close((normal * signal).sum(2) + 1, torch.full((2, 1), 3.0 if half_space == "signal" else 1.0))
    depth = (noise_of(sample) * normal).sum(2)
    assert torch.equal(sample.latent["flipped"], depth > float(stats.norm.ppf(0.9)))
    check_share(sample.latent["flipped"], 0.1)
    again = draw(data, runs=2, split="test/0").latent["half_space"]
    assert torch.equal(again, normal)


@given(st.integers(1, 60), st.floats(0, 0.4999))
@settings(max_examples=25)
def test_fixed_count_flips_exactly_its_count(samples, rate):
    data = mixture(samples=samples, dim=1, flip=rate, flip_mode="fixed_count")
    counts = draw(data, runs=3).latent["flipped"].sum(1).tolist()
    assert counts == [round(rate * samples)] * 3


def test_fixed_count_chooses_every_set_alike():
    data = mixture(samples=8, dim=1, flip=0.25, flip_mode="fixed_count")
    flipped = draw(data, runs=4000).latent["flipped"]
    pairs = [int((flipped[:, i] & flipped[:, j]).sum()) for i in range(8) for j in range(i)]
    assert sum(pairs) == 4000
    assert stats.chisquare(pairs).pvalue > FALSE_ALARM


def test_blocks_are_flipped_whole_and_independently():
    data = mixture(samples=4003, dim=1, flip=0.3, flip_mode="blocks", block=4)
    flipped = draw(data, runs=3).latent["flipped"]
    blocks = flipped[:, :4000].unflatten(1, (1000, 4))
    assert torch.equal(blocks.all(2), blocks.any(2))
    last = flipped[:, 4000:]
    assert torch.equal(last.all(1), last.any(1))
    whole = blocks[:, :, 0]
    check_share(whole, 0.3)
    check_share(whole[:, 1:] & whole[:, :-1], 0.09)
    # Two points of a block agree always, of neighbouring blocks with probability 1 - 2 * 0.3 * 0.7.
    check_share(flipped[:, 4:4000:4] == flipped[:, 3:3999:4], 0.58)


def test_blocks_of_one_point_are_independent_flips():
    single = draw(mixture(flip=0.3, flip_mode="blocks", block=1))
    assert torch.equal(single.y, draw(mixture(flip=0.3)).y)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("mode", FLIP_MODES)
def test_draws_do_not_depend_on_the_batch(cluster, mode):
    direction = "axis" if mode == "half_space" and cluster != "gaussian" else "random"
    fields = [
        {"signal": 1.0, "noise_std": 0.2, "cut": 0.5, "flip": 0.0},
        {"signal": 5.0, "noise_std": 1.0, "cut": 3.0, "flip": 0.4},
        {"signal": 0.0, "noise_std": 0.7, "cut": 1.4, "flip": 0.2},
    ]
    same: dict[str, Any] = {"samples": 30, "dim": 7, "direction": direction}
    models = [mixture(cluster=cluster, flip_mode=mode, **same, **each) for each in fields]
    ids = run_ids(3)
    together = start([small_setup(data) for data in models], ids).sample
    for run, data in enumerate(models):
        alone = data.sample(Streams(ids[run : run + 1]), "train", 30, FLOAT64)
        picked = together.select(torch.tensor([run]))
        for part in ("x", "y", "clean_y"):
            assert torch.equal(getattr(picked, part), getattr(alone, part))
        for name, part in alone.latent.items():
            assert torch.equal(picked.latent[name], part)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("mode", ["independent", "half_space", "blocks"])
def test_fewer_points_are_the_first_points(cluster, mode):
    data = mixture(flip=0.3, cluster=cluster, flip_mode=mode, block=3)
    few, many = draw(data, count=10), draw(data, count=25)
    assert torch.equal(few.x, many.x[:, :10])
    assert torch.equal(few.y, many.y[:, :10])


@pytest.mark.parametrize("split", ["train", "test/0"])
@pytest.mark.parametrize("mode", FLIP_MODES)
def test_labels_noise_flips_and_directions_have_streams_of_their_own(split, mode):
    streams = NotedStreams(run_ids(1))
    data = mixture(flip=0.2, flip_mode=mode, direction="random")
    data.sample(streams, split, 4, FLOAT64)
    assert len(set(streams.purposes)) == len(streams.purposes) >= 3
    shared = {purpose for purpose in streams.purposes if not purpose.startswith(f"{split}/")}
    assert shared <= {"signal/direction", "signal/half_space"}


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("mode", FLIP_MODES)
def test_float32_points_are_the_float64_points_rounded(cluster, mode):
    data = mixture(cluster=cluster, flip=0.2, flip_mode=mode)
    streams = Streams(run_ids(2))
    exact, rough = (data.sample(streams, "train", 12, dtype) for dtype in (FLOAT64, torch.float32))
    assert rough.x.dtype == rough.y.dtype == rough.latent["signal"].dtype == torch.float32
    assert torch.equal(rough.y.double(), exact.y)
    close(rough.x.double(), exact.x, 1e-6)


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"flip": 0.5}, ["flip", "less than 0.5"]),
        ({"flip": [0.1, 0.7]}, ["flip", "value 2", "less than 0.5", "0.7"]),
        ({"flip": -0.1}, ["flip", "greater than or equal to 0", "-0.1"]),
        ({"flip_mode": "rows"}, ["flip_mode", "half_space", "fixed_count", "'rows'"]),
        ({"cluster": "cauchy"}, ["cluster", "truncated", "quartic", "'cauchy'"]),
        ({"tokens": 3}, ["`tokens`", "1", "3", " out"]),
        ({"samples": 5, "balanced": True}, ["`samples`", "even", "5", "6"]),
        ({"noise_std": 0.0}, ["noise_std", "greater than 0", "0.0"]),
        ({"cut": -1.0}, ["cut", "greater than 0", "-1.0"]),
        ({"signal": -1.0}, ["signal", "greater than or equal to 0", "-1.0"]),
        ({"block": 0}, ["block", "greater than or equal to 1", "0"]),
        ({"direction": "axes"}, ["direction", "'axis'", "'random'", "axes"]),
        ({"direction": (1.0, 2.0)}, ["`direction`", "dim=6", "2"]),
        ({"direction": (0.0,) * 6}, ["`direction`", "non-zero", "zeros"]),
        ({"dim": 1, "flip_mode": "half_space"}, ["`dim`", "2", "1", "half_space: signal"]),
        (
            {"flip_mode": "half_space", "cluster": "quartic", "direction": "random"},
            ["`direction`", "quartic", "random", "direction: axis", "cluster: gaussian"],
        ),
        ({"snr": 1.0}, ["snr:", "field"]),
    ],
)
def test_bad_data_is_refused_with_field_value_and_remedy(fields, parts):
    with pytest.raises(SpecError) as error:
        mixture(**fields)
    assert all(word in str(error.value) for word in parts), str(error.value)


def test_a_mixture_is_that_of_its_fields():
    data = mixture(
        signal=[1.0, 2.0], cluster=["quartic", "gaussian"], direction=(1.0, 0, 0, 0, 0, 2.0)
    )
    again = DataModel.from_dict(data.as_dict())
    assert again == data
    assert again.as_dict() == data.as_dict()
    assert data.as_dict()["kind"] == "mixture"


def test_a_mixture_goes_through_an_experiment(tmp_path):
    attack = {"kind": "pgd", "ball": {"radius": 0.1, "relative_to": "signal"}, "steps": 2}
    fields = {
        "data": {
            "kind": "mixture",
            "samples": 8,
            "dim": 10,
            "signal": [2.0, 6.0],
            "cluster": ["gaussian", "truncated", "quartic"],
            "flip": 0.2,
            "flip_mode": ["half_space", "fixed_count"],
        },
        "network": {
            "kind": "attention",
            "hidden": 3,
            "init": {"kind": "gaussian_init", "score_std": 0.1, "value_std": 0.1},
        },
        "attack": attack,
        "training": {"rate": 0.2, "max_steps": 30},
        "evaluation": {"samples": 300, "attack": attack},
        "seeds": 2,
    }
    experiment = bo.Experiment.from_dict(fields)
    result = experiment.run(tmp_path / "run")
    sizes = {"signal": 2, "cluster": 3, "flip_mode": 2, "seed": 2}
    assert sizes.items() <= dict(result.sizes).items()
    assert result.attrs["runs_missing"] == 0
    assert result.test_accuracy.mean() > 0.6  # of 24 runs: chance stays below 0.55
    assert (result.robust_accuracy <= result.test_accuracy).all()
    assert bo.open_result(tmp_path / "run").identical(result)
    assert experiment.run(tmp_path / "run").identical(result)
