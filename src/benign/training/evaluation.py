"""Fresh test points: clean and under attack."""

import torch
from torch import Tensor

from benign.attacks.attack import Attack
from benign.losses import correct, loss, margin
from benign.networks.attention import Attention, AttentionPass
from benign.training.descent import Batch
from benign.training.setup import Setup

# Test points are drawn in blocks, each from its own stream: memory stays bounded and the draws do not depend on it.
BLOCK = 250

MEANINGS: dict[str, tuple[str, str]] = {
    "test_loss": ("loss of fresh clean points", "nats"),
    "test_accuracy": ("share of fresh clean points with y f > 0, against clean labels", "1"),
    "test_margin_mean": ("mean margin (y f) over fresh clean points", "1"),
    "test_margin_std": ("standard deviation of the margin over fresh clean points", "1"),
    "test_attention_on_signal": ("attention on token 1 (the signal) of fresh clean points, mean over rows", "1"),
    "robust_loss": ("loss of fresh points under the evaluation attack", "nats"),
    "robust_accuracy": ("share of fresh points with y f > 0 under the evaluation attack: an upper end", "1"),
}  # fmt: skip


def measured(setup: Setup, attack: Attack | None) -> list[str]:
    """The names that `measure` gives for this setup."""
    names = list(MEANINGS)
    if not isinstance(setup.network, Attention):
        names.remove("test_attention_on_signal")
    return names if attack else [name for name in names if not name.startswith("robust")]


@torch.no_grad()
def measure(batch: Batch, attack: Attack | None) -> dict[str, Tensor]:
    """Test every run of the batch: numbers [runs] by the names of `measured`."""
    setup = batch.setup
    total = setup.evaluation.samples
    sums: dict[str, Tensor] = {}
    for number, begin in enumerate(range(0, total, BLOCK)):
        count = min(BLOCK, total - begin)
        for name, value in _measure_block(batch, attack, f"test/{number}", count).items():
            sums[name] = sums[name] + value if name in sums else value
    means = {name: value / total for name, value in sums.items()}
    squares = means.pop("test_margin_squared")
    means["test_margin_std"] = (squares - means["test_margin_mean"].square()).clamp_min(0).sqrt()
    return means


def _measure_block(
    batch: Batch, attack: Attack | None, split: str, count: int
) -> dict[str, Tensor]:
    """Sums over the points of one block."""
    setup, params = batch.setup, batch.params
    test = setup.data.sample(batch.streams, split, count, setup.dtype)
    seen = setup.network.run(params, test.x)
    outputs, y = seen.outputs.double(), test.y.double()
    margins = margin(outputs, y)
    sums = {
        "test_loss": loss(outputs, y),
        "test_accuracy": correct(margins),
        "test_margin_mean": margins,
        "test_margin_squared": margins.square(),
    }
    if isinstance(seen, AttentionPass):
        sums["test_attention_on_signal"] = seen.attention[..., 0].mean((2, 3)).double()
    if attack is not None:
        target = batch.target(test, f"attack/{split}")
        outputs = target.run(attack.perturb(target)).outputs.double()
        sums["robust_loss"] = loss(outputs, y)
        sums["robust_accuracy"] = correct(margin(outputs, y))
    return {name: value.sum(1) for name, value in sums.items()}
