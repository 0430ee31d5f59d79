"""`TwoLayer(preset="vanishing")` is `theory` in the limit of a start that vanishes (papers/wang.md 6.3)."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from benign.attacks.attack import Attack
from benign.data.mixture import Mixture
from benign.networks.two_layer import TwoLayer
from benign.papers.wang import theory
from benign.spec import axes
from benign.spec.base import SpecError
from benign.training.descent import Batch, attacked_step, descend, update
from benign.training.engine import train_runs
from benign.training.setup import Setup
from tests.reference import Fields, close, run_ids, small_data, small_pgd, small_setup, start
from tests.says import says

RATE = 0.02
WIDTH, DIM = 40, 600
PGD_5 = small_pgd(0.4, per="sample", steps=5, step=0.3)
PHI: dict[str, dict[str, Any]] = {
    "relu": {},
    "leaky": {"activation": "leaky_relu", "slope": 0.1},
    "smooth": {"activation": "smoothed_leaky_relu", "slope": 0.1, "smoothness": 2.0},
}


def setup(samples: int = 10, attack: Attack | None = PGD_5, **network: Any) -> Setup:
    data = Mixture(samples=samples, dim=DIM, signal=4.0, flip=0.1)
    two_layer = TwoLayer(width=WIDTH, **network)
    return small_setup(data, two_layer, attack, max_steps=12, rate=RATE, first_attacked_step=1)


def vanishing(**fields: Any) -> Batch:
    return start([setup(preset="vanishing", **fields)] * 2)


def near(ratio: float, **fields: Any) -> Batch:
    """The same draw with omega sqrt(m d) / eta at this value, at most 1 in condition (3)."""
    return start([setup(init_std=ratio * RATE / math.sqrt(WIDTH * DIM), **fields)] * 2)


def trained(batch: Batch) -> tuple[Tensor, Tensor]:
    """Losses of all steps, and outputs on fresh points."""
    losses = torch.stack([step.loss for step, _ in descend(batch)])
    return losses, batch.setup.network.run(batch.params, batch.test_points("test/0", 200).x).outputs


def apart(one: Batch, other: Batch) -> float:
    """The largest relative difference of a loss, or difference of an output."""
    (losses, outputs), (others, other_outputs) = trained(one), trained(other)
    return max(
        float((losses / others - 1).abs().max()), float((outputs - other_outputs).abs().max())
    )


@pytest.mark.parametrize("phi", PHI)
def test_it_is_the_limit(phi):
    """The distance falls as omega does: at most a tenth of its share of (3), and more than a millionth of it."""
    for ratio in (1e-4, 1e-8):
        distance = apart(near(ratio, **PHI[phi]), vanishing(**PHI[phi]))
        assert 1e-6 * ratio < distance < 0.1 * ratio, (ratio, distance)


def test_the_signs_of_a_vanishing_start_matter_and_its_size_does_not():
    larger, turned = vanishing(), vanishing()
    larger.params["inner"].mul_(1e200)
    assert apart(larger, vanishing()) < 1e-12
    turned.params["inner"].neg_()
    assert apart(turned, vanishing()) > 1e-2


def test_a_neuron_that_no_point_moves_keeps_its_signs():
    """With three points one neuron in eight starts with no point on its side; attacks bring points there later."""
    strong = {"samples": 3, "attack": small_pgd(20.0, per="sample", steps=5)}
    batch = vanishing(**strong)
    asleep = []
    for step, _ in descend(batch):
        small = step.batch.params["inner"].abs().amax(2) < 1e-100
        asleep.append(int(small.sum()))
    assert asleep[0] == 2 * WIDTH
    assert 0 < asleep[-1] < asleep[1] < 2 * WIDTH, "some wake up"
    assert apart(near(1e-8, **strong), vanishing(**strong)) < 1e-8
    dropped = vanishing(**strong)
    first_step(dropped)
    dropped.params["inner"][dropped.params["inner"].abs() < 1e-100] = 0
    assert apart(dropped, near(1e-8, **strong)) > 1e-3, "a start of zero is another one"


def first_step(batch: Batch) -> Tensor:
    """Take step 0; its increments of the weights."""
    with torch.no_grad():
        gradient = attacked_step(batch, 0).gradient()
        update(batch, gradient, 0)
    rate = torch.as_tensor(batch.setup.training.rate_at(0), dtype=gradient["inner"].dtype)
    return -rate.reshape(-1, 1, 1) * gradient["inner"]


@pytest.mark.parametrize(
    ("precision", "dim", "scale"),
    [("float64", DIM, 1.0), ("float32", DIM, 1.0), ("float32", 10**12, 1e-6), ("float32", 10**12, 1.0)],
)  # fmt: skip
def test_after_the_first_step_the_weights_are_its_increment(precision, dim, scale):
    """To the last bit, with tokens of length 1 and sqrt(d). A coordinate that no point moves keeps what vanishes."""
    data = Mixture(samples=20, dim=dim, signal=scale * dim**0.3, noise_std=scale)
    rate = 0.1 / (scale**2 * dim)
    cell = small_setup(data, TwoLayer(width=8, preset="vanishing"), rate=rate, precision=precision)
    mode = "ambient" if dim == DIM else "sampled"
    batch = start([axes.replace(cell, {("coordinates",): mode})])
    assert 0 < attacked_step(batch, 0).attacked_pass.outputs.abs().max() < 1e-20
    increment, inner = first_step(batch), batch.params["inner"]
    assert torch.equal(inner[increment != 0], increment[increment != 0])
    assert (inner - increment).abs().max() < 1e-27


def test_the_twins_start_alike():
    inner = vanishing().params["inner"]
    assert torch.equal(*inner.chunk(2, dim=1))
    assert inner.abs().min() > 0


def test_an_attack_before_the_first_step_is_refused():
    network = TwoLayer(width=8, preset="vanishing")
    with pytest.raises(
        SpecError,
        match=says("`training.first_attacked_step`", "1", "`network.preset: vanishing`", "0"),
    ):
        Setup.from_dict(small_setup(network=network, attack=small_pgd()).as_dict())
    allowed: list[Fields] = [
        {"attack": small_pgd(), "first_attacked_step": 1},
        {"test_attack": small_pgd()},
    ]
    for fields in allowed:
        Setup.from_dict(small_setup(network=network, **fields).as_dict())


@pytest.mark.parametrize("mode", ["projected", "sampled"])
def test_the_span_is_that_of_signal_and_points(mode):
    cell = axes.replace(setup(preset="vanishing"), {("coordinates",): mode})
    assert cell.space.dim == 10 + 1
    batch = start([cell])
    assert batch.params["inner"].shape == (1, WIDTH, 11)
    assert batch.params["inner"].abs().max() < 1e-100
    tokens = axes.replace(
        small_setup(small_data(dim=90), TwoLayer(width=6, preset="vanishing")),
        {("coordinates",): mode},
    )
    assert tokens.space.dim == 2 + 4 * 2


def test_training_at_a_dimension_that_no_array_has():
    data = Mixture(samples=20, dim=10**12, signal=1e4, flip=0.1)
    cell = small_setup(data, TwoLayer(width=8, preset="vanishing"), small_pgd(0.1, relative_to="signal"),
                       rate=1e-10, max_steps=30, first_attacked_step=1, precision="float32")  # fmt: skip
    found = train_runs([axes.replace(cell, {("coordinates",): "auto"})], run_ids(1))
    assert found["train_loss"][0] < 0.1
    assert found["test_accuracy"][0] == 1


def test_condition_3_holds_with_slack():
    condition = theory.conditions(setup(preset="vanishing"))["(3)"]
    assert (condition.value, condition.ratio) == (0, math.inf)
    close(
        torch.tensor(theory.conditions(setup(preset="hybrid"))["(3)"].value),
        torch.tensor(math.sqrt(WIDTH / 3)),
        1e-6,
    )
