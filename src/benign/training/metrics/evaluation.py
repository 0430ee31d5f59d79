"""Fresh test points: clean and under attack."""

import torch
from torch import Tensor

from benign.attacks.attack import Attack, Target, repeated
from benign.data.feature_patches import FeaturePatches
from benign.data.model import BLOCK, Sample
from benign.losses import correct, loss, margin
from benign.networks.attention import Attention, AttentionPass
from benign.networks.network import Pass
from benign.training.descent import Batch
from benign.training.metrics import audit
from benign.training.metrics import image_features as features
from benign.training.setup import Setup

MEANINGS: dict[str, tuple[str, str]] = {
    "test_loss": ("loss of fresh clean points", "nats"),
    "test_accuracy": ("share of fresh clean points with y f > 0, against clean labels", "1"),
    "test_noisy_error": ("share of fresh clean points with y f <= 0, against labels flipped as in training", "1"),
    "test_margin_mean": ("mean margin (y f) over fresh clean points", "1"),
    "test_margin_std": ("standard deviation of the margin over fresh clean points", "1"),
    "test_margin_positive": ("mean margin over fresh clean points of class +1 (Wang's M_+)", "1"),
    "test_margin_negative": ("mean margin over fresh clean points of class -1 (Wang's M_-)", "1"),
    "test_attention_on_signal": ("attention on token 1 (the signal) of fresh clean points, mean over rows", "1"),
    "robust_feature_accuracy": ("accuracy on fresh points that show robust features alone (Li Definition 4.1)", "1"),
    "non_robust_feature_accuracy": ("accuracy on fresh points that show non-robust features alone", "1"),
    "robust_loss": ("loss of fresh points under the evaluation attack", "nats"),
    "robust_accuracy": ("share of fresh points with y f > 0 under the evaluation attack: an upper end", "1"),
    "robust_noisy_error": ("share of fresh points with y f <= 0 under the evaluation attack, against labels flipped "
                           "as in training: a lower end", "1"),
}  # fmt: skip


def measured(setup: Setup, attack: Attack | None) -> list[str]:
    """The names that `measure` gives for this setup."""
    attention = isinstance(setup.network, Attention)
    learned = isinstance(setup.data, FeaturePatches) or setup.evaluation.features is not None
    two_classes = setup.data.label_count() is None
    wanted = {
        "test_attention_on_signal": attention,
        "robust_feature_accuracy": learned,
        "non_robust_feature_accuracy": learned,
        "test_margin_positive": two_classes,
        "test_margin_negative": two_classes,
        "test_noisy_error": setup.flips_labels(),
        "robust_loss": attack is not None,
        "robust_accuracy": attack is not None,
        "robust_noisy_error": attack is not None and setup.flips_labels(),
    }
    return [name for name in MEANINGS if wanted.get(name, True)]


@torch.no_grad()
def measure(batch: Batch, attack: Attack | None, audited: bool = False) -> dict[str, Tensor]:
    """Test every run of the batch: numbers [runs] by the names of `measured`; at the end, which is audited, also the
    audit's and those of `benign.training.metrics.image_features`."""
    total = batch.setup.evaluation.samples
    sums: dict[str, Tensor] = {}
    for number, begin in enumerate(range(0, total, BLOCK)):
        count = min(BLOCK, total - begin)
        for name, value in _measure_block(batch, attack, f"test/{number}", count, audited).items():
            sums[name] = sums[name] + value if name in sums else value
    found = _finish({name: value / total for name, value in sums.items()})
    asked = batch.setup.evaluation.features is not None
    return found | (features.measure(batch, at_end=audited) if asked else {})


def _finish(means: dict[str, Tensor]) -> dict[str, Tensor]:
    """Means over all points become a deviation, and means over the points of a class."""
    squares = means.pop("test_margin_squared")
    means["test_margin_std"] = (squares - means["test_margin_mean"].square()).clamp_min(0).sqrt()
    if "test_positive" in means:
        positive = means.pop("test_positive")
        means["test_margin_positive"] = means["test_margin_positive"] / positive
        means["test_margin_negative"] = means["test_margin_negative"] / (1 - positive)
    return means


def _measure_block(
    batch: Batch, attack: Attack | None, split: str, count: int, audited: bool
) -> dict[str, Tensor]:
    """Sums over the points of one block."""
    setup = batch.setup
    test = batch.test_points(split, count)
    values = _clean(setup, batch.run(test), test)
    if isinstance(setup.data, FeaturePatches):
        for kind in ("robust", "non_robust"):
            shown = batch.test_points(split, count, view=kind)
            outputs = batch.run(shown).outputs.double()
            values[f"{kind}_feature_accuracy"] = correct(margin(outputs, shown.y.double()))
    if attack is not None:
        target = batch.target(test, f"attack/{split}")
        values |= _attacked(setup, attack, batch.widened_for(attack, target))
        if audited:
            values |= audit.of_points(setup, target, attack)
    return {name: value.sum(1) for name, value in values.items()}


def _clean(setup: Setup, seen: Pass, test: Sample) -> dict[str, Tensor]:
    """What every clean point adds."""
    outputs, y = seen.outputs.double(), test.y.double()
    margins = margin(outputs, y)
    values = {
        "test_loss": loss(outputs, y),
        "test_accuracy": correct(margins),
        "test_margin_mean": margins,
        "test_margin_squared": margins.square(),
    }
    if setup.data.label_count() is None:
        positive = (y > 0).double()
        values |= {
            "test_positive": positive,
            "test_margin_positive": margins * positive,
            "test_margin_negative": margins * (1 - positive),
        }
    if setup.flips_labels():
        values["test_noisy_error"] = _noisy_error(setup, test, margins, margins)
    if isinstance(seen, AttentionPass):
        values["test_attention_on_signal"] = seen.attention[..., 0].mean((2, 3)).double()
    return values


def _attacked(setup: Setup, attack: Attack, target: Target) -> dict[str, Tensor]:
    """What every attacked point adds; the mean where an attack gives several for it."""
    points = attack.perturb(target)
    outputs, y = target.run(points).outputs.double(), repeated(target.y.double(), points)
    margins = margin(outputs, y)
    values = {"robust_loss": loss(outputs, y), "robust_accuracy": correct(margins)}
    if setup.flips_labels():
        raised = target.relabelled(-target.y)
        highest = margin(raised.run(attack.perturb(raised)).outputs.double(), y)
        values["robust_noisy_error"] = _noisy_error(setup, target.sample, margins, highest)
    sets = (-1, target.y.shape[1])
    return {name: value.unflatten(1, sets).mean(1) for name, value in values.items()}


def _noisy_error(setup: Setup, test: Sample, lowest: Tensor, highest: Tensor) -> Tensor:
    """Chance of an error where the label may be flipped: an adversary then raises y f above 0 instead.

    NaN in runs without flips, which measure nothing new.
    """
    chance = repeated(setup.data.flip_chance(test).double(), lowest)
    error = (1 - chance) * (1 - correct(lowest)) + chance * (1 - correct(-highest))
    return error.where(setup.flipping().reshape(-1, 1).to(error.device), torch.nan)
