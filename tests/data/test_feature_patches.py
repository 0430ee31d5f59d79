"""FeaturePatches has the law of Li's Definitions 2.1, 2.2 and 4.1 and keeps what generated it.

The draws are fixed by the seed, so a test of a law passes always or never; FALSE_ALARM and the
comments state the chance that a correct law fails.
"""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import benign as bo
from benign.data.feature_patches import FeaturePatches
from benign.data.model import DataModel, Sample
from benign.networks.network import Network
from benign.spec.axes import stack
from benign.spec.base import SpecError
from benign.streams import Streams
from tests.reference import NotedStreams, close, doubles, run_ids
from tests.reference.laws import FALSE_ALARM, FLOAT64, check_share, draw
from tests.says import says

RULES = ["first", "random", "by_class", "independent"]
DIRECTIONS = ["axes", "random"]


def patches(**fields: Any) -> FeaturePatches:
    """Three classes; `alpha_by_class` may take the place of `alpha`, and so with beta."""
    own: dict[str, Any] = {"samples": 12, "tokens": 5, "dim": 9, "classes": 3}
    own |= {"robust_patches": 2, "noise_std": 0.3}
    for name, strength in (("alpha", 2.0), ("beta", 1.0)):
        if f"{name}_by_class" not in fields:
            own[name] = strength
    return FeaturePatches(**(own | fields))


def along_features(sample: Sample, x: Tensor | None = None) -> Tensor:
    """<x_p, f> of every patch and feature, [runs, samples, tokens, 2k]."""
    x = sample.x if x is None else x
    return torch.einsum("rnpd,rfd->rnpf", x, sample.latent["features"])


def signal_of(sample: Sample, classes: int) -> Tensor:
    """alpha_p u_y or beta_p v_y of every patch, put together one by one."""
    signal = torch.zeros_like(sample.x)
    for run, point, patch in np.ndindex(*sample.x.shape[:3]):
        label = int(sample.clean_y[run, point])
        place = label if sample.latent["robust"][run, point, patch] else classes + label
        size = sample.latent["strength"][run, point, patch]
        signal[run, point, patch] = size * sample.latent["features"][run, place]
    return signal


@pytest.mark.parametrize("directions", DIRECTIONS)
@pytest.mark.parametrize("rule", RULES)
def test_a_noiseless_patch_is_its_strength_times_one_feature_of_its_class(rule, directions):
    data = patches(
        noise_std=0.0, partition=rule, directions=directions, alpha_spread=0.2, beta_spread=0.3
    )
    sample = draw(data, runs=2)
    assert sample.x.shape == (2, 12, 5, 9)
    along = along_features(sample)
    robust, strength = sample.latent["robust"], sample.latent["strength"]
    expected = torch.zeros_like(along)
    for run, point, patch in np.ndindex(2, 12, 5):
        label = int(sample.y[run, point])
        column = label if robust[run, point, patch] else 3 + label
        expected[run, point, patch, column] = strength[run, point, patch]
    close(along, expected)
    # Without noise only the features remain: the patch is as long as its strength.
    close(sample.x.norm(dim=3), strength)
    assert ((strength >= 1.6) & (strength <= 2.4))[robust].all()
    assert ((strength >= 0.7) & (strength <= 1.3))[~robust].all()


@pytest.mark.parametrize("only", ["both", "robust", "non_robust"])
@pytest.mark.parametrize("projected", [False, True])
def test_a_patch_is_signal_plus_the_noise_of_its_stream(only, projected):
    data = patches(partition="random", directions="random", projected=projected, only=only)
    sample = draw(data, runs=2)
    noise = 0.3 * Streams(run_ids(2))("train/noise").normal(12, 5, 9)
    if projected:
        along = along_features(sample, noise)
        noise -= torch.einsum("rnpf,rfd->rnpd", along, sample.latent["features"])
    signal = signal_of(sample, 3)
    if only != "both":
        signal *= (sample.latent["robust"] == (only == "robust"))[..., None]
    close(sample.x, signal + noise)


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_projected_noise_is_orthogonal_to_every_feature_and_nothing_more(directions):
    data = patches(projected=True, directions=directions, samples=400, dim=8)
    sample = draw(data, runs=2)
    noise = sample.x - signal_of(sample, 3)
    assert float(along_features(sample, noise).abs().max()) < 1e-13
    # The rest has dim - 2k = 2 free coordinates: chi-squared of two degrees.
    squares = (noise.norm(dim=3) / 0.3).square().flatten().numpy()
    assert stats.kstest(squares, stats.chi2(2).cdf).pvalue > FALSE_ALARM
    plain = draw(patches(directions=directions))
    assert (along_features(plain, plain.x - signal_of(plain, 3)).abs() > 1e-4).all()


def test_noise_is_gaussian_with_the_covariance_of_the_identity():
    sample = draw(patches(samples=800, tokens=2, dim=7, directions="random", robust_patches=1))
    noise = ((sample.x - signal_of(sample, 3)) / 0.3)[0]
    numbers = noise.flatten().numpy()
    assert stats.kstest(numbers, stats.norm.cdf).pvalue > FALSE_ALARM
    # Means of 11200 numbers are normal: |z| < 4.9 has false alarm 1e-6.
    assert abs(numbers.mean()) < 4.9 / math.sqrt(numbers.size)
    assert abs(np.mean(numbers**2) - 1) < 4.9 * math.sqrt(2 / numbers.size)
    columns = torch.cat([noise[1:].flatten(1), noise[:-1, 0], sample.y[0, 1:, None]], 1)
    correlations = torch.corrcoef(columns.T) - torch.eye(22, dtype=FLOAT64)
    # 231 correlations of 799 pairs, |z| < 6.2: false alarm 2e-7.
    assert correlations.abs().max() < 6.2 / math.sqrt(799)


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_features_are_orthonormal_and_the_same_for_every_split(directions):
    data = patches(directions=directions)
    features = draw(data, runs=3).latent["features"]
    assert features.shape == (3, 6, 9)
    close(features @ features.transpose(1, 2), torch.eye(6, dtype=FLOAT64).expand(3, 6, 6))
    assert torch.equal(features, draw(data, runs=3, split="test/0").latent["features"])
    if directions == "axes":
        assert torch.equal(features[1], torch.eye(6, 9, dtype=FLOAT64))
    else:
        assert not torch.equal(features[0], features[1])


def test_random_features_are_uniform_on_the_sphere():
    features = draw(patches(directions="random", samples=1, dim=6), runs=400).latent["features"]
    for row in (0, 5):
        # A coordinate of a uniform direction in R^6: its square is Beta(1/2, 5/2).
        squares = features[:, row, 3].numpy() ** 2
        assert stats.kstest(squares, stats.beta(0.5, 2.5).cdf).pvalue > FALSE_ALARM
        check_share(features[:, row, row] > 0, 0.5)


def test_features_may_fill_the_whole_space():
    sample = draw(patches(dim=6, directions="random"))
    close(torch.linalg.det(sample.latent["features"]).abs(), doubles(1))


def test_constant_strengths_are_exact():
    sample = draw(patches(partition="random"))
    robust, strength = sample.latent["robust"], sample.latent["strength"]
    assert strength[robust].unique().tolist() == [2.0]
    assert strength[~robust].unique().tolist() == [1.0]


def test_random_strengths_are_uniform_around_their_mean_and_independent():
    data = patches(samples=2000, dim=6, alpha_spread=0.5, beta_spread=0.2, partition="random")
    sample = draw(data)
    robust, strength = sample.latent["robust"], sample.latent["strength"]
    for mask, mean, spread in ((robust, 2.0, 0.5), (~robust, 1.0, 0.2)):
        law = stats.uniform(mean * (1 - spread), 2 * mean * spread)
        assert stats.kstest(strength[mask].numpy(), law.cdf).pvalue > FALSE_ALARM
    deviation = torch.where(robust, (strength - 2) / 1.0, (strength - 1) / 0.2)[0]
    columns = torch.cat([deviation[1:], deviation[:-1], sample.y[0, 1:, None]], 1)
    correlations = torch.corrcoef(columns.T) - torch.eye(11, dtype=FLOAT64)
    # 55 correlations of 1999 pairs, |z| < 5.9: false alarm 2e-7.
    assert correlations.abs().max() < 5.9 / math.sqrt(1999)


def test_strengths_of_each_class_may_differ():
    data = patches(alpha_by_class=(2.0, 3.0, 0.0), beta_by_class=(1.0, 0.5, 0.25), alpha_spread=0.1)
    sample = draw(data, runs=2, count=60)
    robust, strength = sample.latent["robust"], sample.latent["strength"]
    for label, (alpha, beta) in enumerate([(2.0, 1.0), (3.0, 0.5), (0.0, 0.25)]):
        own = (sample.y == label)[..., None]
        assert strength[own & ~robust].unique().tolist() == [beta]
        inside = (strength[own & robust] - alpha).abs() <= 0.1 * alpha
        assert inside.all()
        assert inside.numel()


def test_equal_strengths_of_all_classes_are_one_strength():
    fields: dict[str, Any] = {"partition": "random", "alpha_spread": 0.3}
    alike = patches(alpha_by_class=(2.0,) * 3, beta_by_class=(1.0,) * 3, **fields)
    assert torch.equal(draw(alike).x, draw(patches(**fields)).x)


def test_labels_are_uniform_and_balanced_ones_equal_in_training_only():
    for split in ("train", "test/0"):
        labels = draw(patches(samples=3000, tokens=2), runs=2, split=split).y
        counts = [int((labels == label).sum()) for label in range(3)]
        assert sum(counts) == labels.numel()
        assert stats.chisquare(counts).pvalue > FALSE_ALARM
        check_share(labels[:, 1:] == labels[:, :-1], 1 / 3)
    data = patches(samples=300, tokens=2, balanced=True)
    balanced = draw(data, runs=2).y
    assert all((balanced == label).sum(1).tolist() == [100, 100] for label in range(3))
    # Both runs balanced by chance: 3e-6.
    test = draw(data, runs=2, split="test/0").y
    assert any((test == label).sum(1).tolist() != [100, 100] for label in range(3))


def test_two_classes_have_the_labels_0_and_1():
    sample = draw(patches(classes=2, dim=4))
    assert sample.y.unique().tolist() == [0.0, 1.0]
    assert torch.equal(sample.y, sample.clean_y)


def test_the_first_patches_are_robust_by_the_rule_first():
    robust = draw(patches(), runs=2).latent["robust"]
    assert torch.equal(robust, torch.tensor([1, 1, 0, 0, 0]).bool().expand(2, 12, 5))


def test_random_partitions_are_drawn_for_every_point_and_all_alike():
    robust = draw(patches(samples=4000, partition="random", dim=6)).latent["robust"][0]
    assert (robust.sum(1) == 2).all()
    pairs = [int((robust[:, i] & robust[:, j]).sum()) for i, j in combinations(range(5), 2)]
    assert sum(pairs) == 4000
    assert stats.chisquare(pairs).pvalue > FALSE_ALARM
    check_share((robust[1:] == robust[:-1]).all(1), 1 / 10)


def test_partitions_by_class_belong_to_the_class_of_a_run():
    data = patches(samples=40, tokens=8, robust_patches=3, partition="by_class", dim=6)
    train, test = draw(data, runs=200), draw(data, runs=200, split="test/0")
    sets = torch.zeros(200, 3, 8, dtype=torch.bool)
    for run in range(200):
        for label in range(3):
            own = train.latent["robust"][run, train.y[run] == label]
            fresh = test.latent["robust"][run, test.y[run] == label]
            assert len({tuple(row) for row in torch.cat([own, fresh]).tolist()}) == 1
            sets[run, label] = own[0]
    assert (sets.sum(2) == 3).all()
    check_share(sets[:, :, 0], 3 / 8)
    # Classes draw their sets apart: two are equal with probability 1 / 56.
    check_share((sets[:, 0] == sets[:, 1]).all(1), 1 / math.comb(8, 3))


def test_independent_partitions_have_the_stated_rate_and_any_size():
    robust = draw(patches(samples=3000, partition="independent", dim=6)).latent["robust"][0]
    check_share(robust, 2 / 5)
    counts = torch.bincount(robust.sum(1), minlength=6).numpy()
    expected = 3000 * stats.binom.pmf(np.arange(6), 5, 2 / 5)
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


@given(st.sampled_from(RULES), st.integers(1, 6), st.data())
@settings(max_examples=25, deadline=None)
def test_any_number_of_patches_may_be_robust(rule, tokens, more):
    size = more.draw(st.integers(0, tokens))
    robust = draw(patches(tokens=tokens, robust_patches=size, partition=rule)).latent["robust"]
    if rule != "independent":
        assert (robust.sum(2) == size).all()
    elif size in (0, tokens):
        assert (robust == bool(size)).all()


def test_another_rule_is_a_class_that_overrides_the_mask():
    class LastPatches(FeaturePatches):
        def robust_mask(self, streams, split, labels):
            return super().robust_mask(streams, split, labels).flip(2)

    fields = patches(noise_std=0.0).as_dict() | {"kind": "last_patches"}
    data = DataModel.from_dict(fields)
    assert isinstance(data, LastPatches)
    assert torch.equal(draw(data).x, draw(patches(noise_std=0.0)).x.flip(2))


def test_hidden_features_leave_the_noise_and_the_latent_parts():
    data = patches(partition="random", alpha_spread=0.2)
    whole = draw(data, runs=2)
    robust = whole.latent["robust"][..., None]
    shown = {only: draw(data.showing(only), runs=2) for only in ("robust", "non_robust")}
    for only, sample in shown.items():
        assert torch.equal(sample.y, whole.y)
        for name, part in whole.latent.items():
            assert torch.equal(sample.latent[name], part)
        kept = robust if only == "robust" else ~robust
        assert torch.equal(sample.x[kept.expand_as(sample.x)], whole.x[kept.expand_as(sample.x)])
    noise = whole.x - signal_of(whole, 3)
    # Every patch is hidden in one of the two.
    close(shown["robust"].x + shown["non_robust"].x, whole.x + noise)
    assert data.showing("both") == data
    with pytest.raises(ValueError, match=says("`only`", "both", "robust", "non_robust", "neither")):
        data.showing("neither")


@pytest.mark.parametrize("directions", DIRECTIONS)
@pytest.mark.parametrize("rule", RULES)
def test_draws_do_not_depend_on_the_batch(rule, directions):
    numbers = [
        {"alpha": 1.0, "beta": 0.5, "noise_std": 0.2, "alpha_spread": 0.0, "beta_spread": 0.1},
        {"alpha": 7.0, "beta": 0.0, "noise_std": 0.0, "alpha_spread": 0.9, "beta_spread": 0.0},
        {"alpha": 3.0, "beta": 2.0, "noise_std": 1.0, "alpha_spread": 0.3, "beta_spread": 0.7},
    ]
    same: dict[str, Any] = {"partition": rule, "directions": directions, "projected": True}
    models = [patches(only="robust", **same, **each) for each in numbers]
    ids = run_ids(3)
    together = stack(models, torch.DoubleTensor).sample(Streams(ids), "train", 12, FLOAT64)
    for run, data in enumerate(models):
        alone = data.sample(Streams(ids[run : run + 1]), "train", 12, FLOAT64)
        picked = together.select(torch.tensor([run]))
        for part in ("x", "y", "clean_y"):
            assert torch.equal(getattr(picked, part), getattr(alone, part))
        for name, part in alone.latent.items():
            assert torch.equal(picked.latent[name], part)


@pytest.mark.parametrize("rule", RULES)
def test_fewer_points_are_the_first_points(rule):
    data = patches(partition=rule, alpha_spread=0.5)
    few, many = draw(data, count=10), draw(data, count=25)
    assert torch.equal(few.x, many.x[:, :10])
    assert torch.equal(few.y, many.y[:, :10])


@pytest.mark.parametrize("split", ["train", "test/0"])
@pytest.mark.parametrize("rule", RULES)
def test_labels_partitions_strengths_and_noise_have_streams_of_their_own(split, rule):
    streams = NotedStreams(run_ids(1))
    patches(partition=rule, directions="random").sample(streams, split, 4, FLOAT64)
    assert len(set(streams.purposes)) == len(streams.purposes) >= 4
    shared = {purpose for purpose in streams.purposes if not purpose.startswith(f"{split}/")}
    assert shared <= {"features/directions", "features/partition"}


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_float32_points_are_the_float64_points_rounded(directions):
    data = patches(directions=directions, partition="random", alpha_spread=0.3, projected=True)
    streams = Streams(run_ids(2))
    exact, rough = (data.sample(streams, "train", 12, dtype) for dtype in (FLOAT64, torch.float32))
    assert {rough.x.dtype, rough.y.dtype, rough.latent["strength"].dtype} == {torch.float32}
    assert torch.equal(rough.y.double(), exact.y)
    assert torch.equal(rough.latent["robust"], exact.latent["robust"])
    close(rough.x.double(), exact.x, 1e-6)


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"robust_patches": 6}, ["`robust_patches`", "tokens=5", "6", "`tokens`"]),
        ({"robust_patches": -1}, ["robust_patches", "greater than or equal to 0", "-1"]),
        ({"robust_patches": [2, 6]}, ["`robust_patches`", "robust_patches=6"]),
        ({"dim": 5}, ["`dim`", "6", "3 classes", "5", "`classes`"]),
        ({"classes": 1}, ["`classes`", "2", "1"]),
        ({"alpha": -1.0}, ["alpha", "greater than or equal to 0", "-1.0"]),
        ({"beta": [1.0, -0.5]}, ["beta", "value 2", "greater than or equal to 0", "-0.5"]),
        ({"alpha": None}, ["`alpha`", "`alpha_by_class`", "one"]),
        ({"beta": 1.0, "beta_by_class": (1.0, 1.0, 1.0)}, ["`beta`", "`beta_by_class`", "one"]),
        ({"alpha_by_class": (1.0, 2.0)}, ["`alpha_by_class`", "3 classes", "2"]),
        ({"beta_by_class": (1.0, -2.0, 1.0)}, ["beta_by_class.1", "equal to 0", "-2.0"]),
        ({"alpha_spread": 1.0}, ["alpha_spread", "less than 1", "1.0"]),
        ({"beta_spread": -0.1}, ["beta_spread", "greater than or equal to 0", "-0.1"]),
        ({"noise_std": -0.1}, ["noise_std", "greater than or equal to 0", "-0.1"]),
        ({"samples": 8, "balanced": True}, ["`samples`", "classes=3", "8", "9"]),
        ({"partition": "last"}, ["partition", "'random'", "'by_class'", "'last'"]),
        ({"directions": "axis"}, ["directions", "'axes'", "'random'", "'axis'"]),
        ({"only": "u"}, ["only", "'robust'", "'non_robust'", "'u'"]),
        ({"signal": 1.0}, ["signal:", "field"]),
    ],
)
def test_bad_data_is_refused_in_one_line_with_field_value_and_remedy(fields, parts):
    with pytest.raises(SpecError) as error:
        patches(**fields)
    assert all(word in str(error.value) for word in parts), str(error.value)
    assert "\n" not in str(error.value)


def test_feature_patches_are_those_of_their_fields():
    data = patches(
        alpha=[1.0, 2.0],
        beta_by_class=(1.0, 0.5, 0.25),
        partition=["first", "random"],
        only=["robust", "both"],
        robust_patches=[1, 2],
    )
    again = DataModel.from_dict(data.as_dict())
    assert again == data
    assert again.as_dict() == data.as_dict()
    assert data.as_dict()["kind"] == "feature_patches"
    assert data.signal_norm() is None


class SumOfPatches(Network):
    """F_i(X) = <w_i, sum_p x_p>: one output a class."""

    def output_count(self) -> int:
        return 3

    def initial_params(self, data, streams, dtype):
        assert isinstance(data, FeaturePatches)
        return {"w": 0.01 * streams("init").normal(data.dim, data.classes, dtype=dtype)}

    def forward(self, params, x):
        return x.sum(2) @ params["w"]


def test_feature_patches_go_through_an_experiment(tmp_path):
    fields = {
        "data": patches(
            alpha=[0.5, 4.0], only=["both", "non_robust"], partition="random", balanced=True
        ).as_dict(),
        "network": {"kind": "sum_of_patches"},
        "training": {"rate": 0.05, "max_steps": 100},
        "evaluation": {"samples": 300},
        "seeds": 2,
    }
    experiment = bo.Experiment.from_dict(fields)
    result = experiment.run(tmp_path / "run")
    assert {"alpha": 2, "only": 2, "seed": 2}.items() <= dict(result.sizes).items()
    assert result.attrs["runs_missing"] == 0
    assert (result.test_accuracy > 0.8).all()
    weak, strong = (result.test_loss.sel(alpha=alpha, only="both") for alpha in (0.5, 4.0))
    assert (strong < weak).all()
    assert bo.open_result(tmp_path / "run").identical(result)
