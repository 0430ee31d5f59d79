"""Metrics of fresh points besides accuracy: flipped labels, margins by class, learned features."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from benign.data.feature_patches import FeaturePatches
from benign.data.mixture import Mixture
from benign.data.model import DataModel, Sample, column
from benign.networks.linear import Linear
from benign.networks.patch_cnn import PatchCNN
from benign.spec.axes import PerRun, default
from benign.spec.base import FlipRate
from benign.streams import Streams
from benign.training.descent import Batch
from benign.training.engine import train_runs
from benign.training.metrics.evaluation import measure
from tests.reference import normal_cdf, run_ids, small_data, small_pgd, small_setup, start

POINTS = 20_000


def linear_batch(radius: float = 0.4, points: int = POINTS, **fields: Any) -> Batch:
    """A linear classifier at a known angle to the signal, on a Gaussian mixture."""
    data = Mixture(**({"samples": 4, "dim": 6, "signal": 1.5, "flip": 0.2} | fields))
    attack = small_pgd(radius, steps=12, step=0.5)
    batch = start([small_setup(data, Linear(), attack, test_samples=points)])
    direction = torch.tensor([2.0, 1.0, 0.5, 0.0, 0.0, 0.0], dtype=torch.float64)
    batch.params["u"].copy_(direction)
    return batch


def within(measured: torch.Tensor, chance: float) -> bool:
    """Within 4 standard errors, which a right value misses once in 16 000 times."""
    return abs(float(measured) - chance) <= 4 * math.sqrt(chance * (1 - chance) / POINTS)


def test_noisy_errors_of_a_linear_classifier_are_the_closed_form():
    """papers/wang.md 2.3: beta + (1 - 2 beta) Phi(-s), and (1 - beta) Phi(alpha - s) + beta Phi(alpha + s)."""
    batch = linear_batch()
    values = measure(batch, batch.setup.attack)
    s, beta, alpha = 1.5 * 2 / math.sqrt(5.25), 0.2, 0.4
    assert within(values["test_noisy_error"], beta + (1 - 2 * beta) * normal_cdf(-s))
    robust = (1 - beta) * normal_cdf(alpha - s) + beta * normal_cdf(alpha + s)
    assert within(values["robust_noisy_error"], robust)
    assert within(1 - values["robust_accuracy"], normal_cdf(alpha - s))


@pytest.mark.parametrize("half_space", ["orthogonal", "signal"])
def test_flips_that_depend_on_the_point_count_at_that_point(half_space):
    """Against labels flipped by hand, from the definition of the half space."""
    batch = linear_batch(points=2_000, flip_mode="half_space", half_space=half_space)
    values = measure(batch, batch.setup.attack)
    cut = -math.sqrt(2) * torch.erfinv(torch.tensor(2 * 0.2 - 1, dtype=torch.float64))
    errors, points = 0, 0
    for block in range(2_000 // 250):
        test = batch.setup.data.sample(batch.streams, f"test/{block}", 250, torch.float64)
        x, y = test.x[0, :, 0], test.y[0]
        depth = x[:, 0] - 1.5 * y if half_space == "signal" else x[:, 1]
        noisy = torch.where(depth > cut, -y, y)
        errors += int((noisy * (x @ batch.params["u"][0]) <= 0).sum())
        points += len(y)
    assert float(values["test_noisy_error"]) == pytest.approx(errors / points, abs=1e-12)
    assert values["robust_noisy_error"] > values["test_noisy_error"]


def test_runs_without_flips_have_no_noisy_error():
    cells = [
        small_setup(small_data(flip=flip), attack=small_pgd(), test_samples=20)
        for flip in (0.0, 0.3)
    ]
    together = start(cells)
    values = measure(together, together.setup.attack)
    for name in ("test_noisy_error", "robust_noisy_error"):
        assert values[name].isnan().tolist() == [True, False]
    clean = start(cells[:1])
    assert "test_noisy_error" not in measure(clean, clean.setup.attack)


class NoisyLabels(DataModel):
    """A data model of a user's own: the field of its flips has a name of its own."""

    noise_rate: PerRun[FlipRate] = default(0.0)

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        clean = streams(f"{split}/labels").signs(count, dtype=dtype)
        x = streams(f"{split}/points").normal(count, self.tokens, self.dim, dtype=dtype)
        x[..., 0] += clean[:, :, None]
        chance = streams(f"{split}/flips").uniform(count, dtype=torch.float64)
        flipped = (chance < column(self.noise_rate, chance)) & (split == "train")
        return Sample(x, torch.where(flipped, -clean, clean), clean)

    def flip_rate(self) -> Any:
        return self.noise_rate


def test_flips_count_whatever_their_field_is_called():
    """The error against flipped labels of rate p is p + (1 - 2 p) times the error against clean ones."""
    cells = [
        small_setup(
            NoisyLabels(samples=8, tokens=1, dim=6, noise_rate=rate), Linear(), small_pgd(0.1)
        )
        for rate in (0.0, 0.3)
    ]
    found = train_runs(cells, run_ids(2))
    noisy, clean = found["test_noisy_error"], 1 - found["test_accuracy"]
    assert np.isnan(noisy[0])
    assert noisy[1] == pytest.approx(0.3 + 0.4 * clean[1])
    assert np.isnan(found["robust_noisy_error"]).tolist() == [True, False]
    assert "flipped_fitted" in found


def test_margins_by_class():
    """E[y f | y] = <mu, u> for both classes of a mixture; means over one class, within 4 standard errors."""
    batch = linear_batch(flip=0.0)
    values = measure(batch, None)
    error = 4 * math.sqrt(5.25 / (POINTS * 0.48))
    assert abs(float(values["test_margin_positive"]) - 3.0) < error
    assert abs(float(values["test_margin_negative"]) - 3.0) < error
    batch.params["u"] *= -1
    assert measure(batch, None)["test_margin_positive"] == -values["test_margin_positive"]


@pytest.mark.parametrize("learned", ["robust", "non_robust"])
def test_feature_learning_accuracy(learned):
    """Li Definition 4.1: weights along one kind of feature know points that show it, and nothing of others."""
    data = FeaturePatches(
        samples=4, tokens=4, dim=12, classes=3, robust_patches=2, alpha=2.0, beta=1.0, noise_std=0.0
    )
    network = PatchCNN(width=2, classes=3, threshold=0.5, init_std=1.0)
    batch = start([small_setup(data, network, test_samples=300)])
    features = batch.sample.latent["features"].unflatten(1, (2, 3))
    kind = 0 if learned == "robust" else 1
    batch.params["weights"].copy_(features[:, kind, :, None].expand(-1, -1, 2, -1))
    values = measure(batch, None)
    other = "non_robust" if learned == "robust" else "robust"
    assert values[f"{learned}_feature_accuracy"] == 1
    assert values[f"{other}_feature_accuracy"] == 0  # all outputs are 0: ties are errors
    assert values["test_accuracy"] == 1
