"""Trainings against torch's own optimisers, and mini-batches against a loop that is obvious."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from benign.attacks.pgd import PGD
from benign.data.mixture import Mixture
from benign.losses import loss
from benign.networks.two_layer import TwoLayer
from benign.spec.axes import replace
from benign.streams import Streams
from benign.sweep.plan import Run
from benign.sweep.replay import Replay
from benign.training import descent
from benign.training.descent import Batch, Status, descend
from benign.training.engine import train_runs
from benign.training.metrics import metrics_for, variables
from benign.training.optimisers import (
    SGD,
    AdamW,
    GradientDescent,
    Training,
    gradient_descent_at_one_rate,
)
from benign.training.setup import Evaluation, Setup, stack
from tests.reference import run_ids, small_pgd, start
from tests.says import says

DATA = Mixture(samples=10, dim=6, signal=2.0)
STEPS = 7


def setup(training: Training, attack: PGD | None = None, samples: int = 10) -> Setup:
    return Setup(
        data=replace(DATA, {("samples",): samples}),
        network=TwoLayer(width=5, activation="relu", preset="torch_default"),
        attack=attack,
        training=training,
        evaluation=Evaluation(samples=20),
        precision="float64",
    )


METHODS = {
    "sgd": (
        SGD(rate=0.3, epochs=STEPS, batch=10, schedule="constant", weight_decay=0.01),
        lambda w: torch.optim.SGD(w, 0.3, momentum=0.9, weight_decay=0.01),
    ),
    "adamw": (
        AdamW(rate=0.1, epochs=STEPS, batch=10, schedule="constant", weight_decay=0.05),
        lambda w: torch.optim.AdamW(w, 0.1, weight_decay=0.05),
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_updates_are_those_of_torch(name):
    """A sequence of made-up gradients, two runs at once."""
    training, theirs = METHODS[name]
    generator = torch.Generator().manual_seed(0)

    def drawn() -> Tensor:
        return torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)

    start = drawn()
    params = {"w": start.clone()}
    moments = training.moments(params)
    expected = start.clone().requires_grad_()
    optimiser = theirs([expected])
    for number in range(STEPS):
        gradient = drawn()
        training.update(params, {"w": gradient}, moments, number, number)
        expected.grad = gradient.clone()
        optimiser.step()
    torch.testing.assert_close(params["w"], expected.detach(), rtol=1e-10, atol=1e-12)


def test_a_rate_of_each_run_moves_each_run():
    slow, fast = (AdamW(rate=rate, epochs=3) for rate in (0.1, 0.2))
    both = replace(slow, {("rate",): torch.tensor([0.1, 0.2])})
    gradient = torch.tensor([[1.0, -2.0], [1.0, -2.0]])
    together = {"w": torch.zeros(2, 2)}
    both.update(together, {"w": gradient}, both.moments(together), 1, 3)
    for run, training in enumerate((slow, fast)):
        alone = {"w": torch.zeros(1, 2)}
        training.update(alone, {"w": gradient[:1]}, training.moments(alone), 1, 3)
        torch.testing.assert_close(together["w"][run], alone["w"][0])


def test_schedules():
    rates = {
        schedule: [SGD(rate=1.0, epochs=8, schedule=schedule).rate_at(step) for step in range(9)]
        for schedule in ("constant", "cosine", "drops")
    }
    assert rates["constant"] == [1.0] * 9
    assert rates["drops"] == pytest.approx([1.0] * 4 + [0.1] * 2 + [0.01] * 3)
    assert rates["cosine"] == pytest.approx([(1 + math.cos(math.pi * t / 8)) / 2 for t in range(9)])
    warmed = SGD(rate=1.0, epochs=8, schedule="constant", warm_up=2)
    assert [warmed.rate_at(step) for step in (0, 0.5, 1, 2, 3)] == [0, 0.25, 0.5, 1, 1]


def test_a_rate_that_drops_beyond_the_smallest_number_is_0():
    training = GradientDescent(rate=1.0, drop_every=1, max_steps=1000)
    assert training.rate_at(300) == pytest.approx(1e-300)
    assert training.rate_at(400) == 0.0


@pytest.mark.parametrize(
    ("training", "constant", "of_the_theorems"),
    [
        (GradientDescent(rate=1.0), True, True),
        (GradientDescent(rate=1.0, drop_every=3, max_steps=9), False, False),
        (SGD(rate=1.0, epochs=4, schedule="constant"), True, False),
        (SGD(rate=1.0, epochs=4, schedule="constant", warm_up=2), False, False),
        (AdamW(rate=1.0, epochs=4), False, False),
    ],
)
def test_theorems_are_about_plain_gradient_descent_at_one_rate(training, constant, of_the_theorems):
    steps = [0, training.most_steps() / 2, training.most_steps()]
    assert training.constant_rate() is constant
    assert (len({training.rate_at(step) for step in steps}) == 1) is constant
    assert gradient_descent_at_one_rate(training) is of_the_theorems


@pytest.mark.parametrize("attacked", [False, True])
def test_full_batches_without_momentum_are_gradient_descent(attacked):
    attack = small_pgd() if attacked else None
    plain = setup(GradientDescent(rate=0.2, max_steps=6, stop_loss=0.0), attack)
    epochs = setup(
        SGD(rate=0.2, momentum=0.0, epochs=6, batch=10, schedule="constant", stop_loss=0.0), attack
    )
    expected, found = (train_runs([each], run_ids(1)) for each in (plain, epochs))
    for name, values in expected.items():
        torch.testing.assert_close(*map(torch.as_tensor, (found[name], values)), equal_nan=True)


def test_an_epoch_goes_through_every_point_once_in_a_new_order():
    batch = Batch.start(
        stack([setup(SGD(rate=0.1, epochs=3, batch=4))] * 2, "cpu"), Streams(run_ids(2))
    )
    assert batch.batches_per_epoch == 3
    first, second = batch.order(0), batch.order(1)
    for order in (first, second):
        assert torch.equal(order.sort(1).values, torch.arange(10).expand(2, 10))
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    sizes = [part().sample.y.shape[1] for part in descent._parts(batch, 0)]
    assert sizes == [4, 3, 3]


def obvious_loop(batch: Batch, epochs: int, training: SGD) -> tuple[Tensor, list[float]]:
    """One run, its parts one after another, with torch's own optimiser; clean points."""
    weights = {name: value.clone().requires_grad_() for name, value in batch.params.items()}
    optimiser = torch.optim.SGD(list(weights.values()), training.rate, momentum=training.momentum)
    means = []
    for epoch in range(epochs):
        losses = []
        for places in batch.order(epoch).tensor_split(3, dim=1):
            x, y = batch.sample.x[:, places[0]], batch.sample.y[:, places[0]]
            with torch.enable_grad():
                value = loss(batch.setup.network.forward(weights, x), y).mean()
                optimiser.zero_grad()
                value.backward()
            optimiser.step()
            losses.append(value.item())
        means.append(sum(losses) / 3)
    return torch.cat([value.detach().flatten() for value in weights.values()]), means


def test_mini_batches_are_those_of_an_obvious_loop():
    training = SGD(rate=0.2, epochs=4, batch=4, schedule="constant", stop_loss=0.0)
    cell = setup(training)
    streams = Streams(run_ids(1))
    expected, _ = obvious_loop(Batch.start(stack([cell], "cpu"), streams), 4, training)
    *_, (last, _) = descend(Batch.start(stack([cell], "cpu"), streams))
    found = torch.cat([value.flatten() for value in last.batch.params.values()])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_the_mean_loss_of_an_epoch_stops_a_run():
    """A run that stops leaves the others as they would have been without it."""
    training = SGD(rate=0.2, epochs=60, batch=4, schedule="constant", stop_loss=0.05)
    cell = setup(training)
    _, means = obvious_loop(Batch.start(stack([cell], "cpu"), Streams(run_ids(1))), 60, training)
    expected = next(epoch for epoch, mean in enumerate(means, 1) if mean <= 0.05)
    cells = [cell, setup(SGD(rate=0.2, epochs=60, batch=4, schedule="constant", stop_loss=0.01))]
    together = train_runs(cells, [run_ids(1)[0]] * 2)
    alone = train_runs(cells[1:], run_ids(1))
    assert together["status"][0] == Status.CONVERGED
    assert together["steps"][0] == expected
    assert together["steps"][1] == alone["steps"][0] > expected
    torch.testing.assert_close(together["test_loss"][1], alone["test_loss"][0], rtol=1e-9, atol=0)


def test_values_of_the_end_are_those_of_all_training_points():
    training = SGD(rate=0.2, epochs=2, batch=4, stop_loss=0.0)
    found = train_runs([setup(training, small_pgd())], run_ids(1))
    *_, (last, _) = descend(
        Batch.start(stack([setup(training, small_pgd())], "cpu"), Streams(run_ids(1)))
    )
    whole = descent.subset_step(last)
    assert whole.attacked.shape[1] == 10 > last.attacked.shape[1]
    assert found["train_loss"][0] == pytest.approx(float(whole.loss[0]), rel=1e-12)


@pytest.mark.parametrize("first", [0, 2])
def test_curves_of_mini_batches_are_of_the_points_that_ends_are_of(first):
    """All ten in their order, clean before the first attacked step; so are those of a replay."""
    training = SGD(rate=0.2, epochs=3, batch=4, stop_loss=0.0, first_attacked_step=first)
    cell = replace(setup(training, small_pgd()), {("pairing",): "common"})
    found = train_runs([cell], run_ids(1))
    batch = start([cell])
    target = batch.target(batch.sample, "attack/0/watched")
    points = target.x if first else small_pgd().perturb(target)
    expected = loss(target.run(points).outputs, target.y).mean()
    assert found["train_loss_curve"][0, 0] == pytest.approx(float(expected), rel=1e-12)
    trace = Replay(Run(cell, 0, {}), "cpu").trace()
    for metric in metrics_for(cell):
        curve = found[f"{metric.name}_curve"][0]
        assert curve[-1] == found[metric.name][0]
        np.testing.assert_allclose(trace[metric.name], curve, rtol=1e-12)


def test_a_run_of_mini_batches_goes_through_all_its_points_before_it_converges():
    """However easy its first mini-batch is: one loss has been computed, of the points of one update."""
    found = train_runs([setup(SGD(rate=0.2, epochs=3, batch=4, stop_loss=100.0))], run_ids(1))
    assert found["status"].tolist() == [Status.CONVERGED]
    assert found["steps"].tolist() == [1]


def test_what_follows_points_from_step_to_step_is_not_asked_of_mini_batches():
    """The first mini-batch of a step has other points than that of the last."""
    full, parts = (setup(SGD(rate=0.2, epochs=3, batch=size)) for size in (10, 4))
    assert "activation_lost" in variables(full)
    assert variables(full).keys() - variables(parts).keys() == {"activation_lost"}


def test_closed_forms_refuse_mixed_precision():
    cell = setup(GradientDescent(rate=0.1))
    with pytest.raises(
        ValueError, match=says("`precision`", "mixed", "`network`", "float32", "tf32")
    ):
        Setup.from_dict({**cell.as_dict(), "precision": "mixed"})


def test_small_coordinates_are_for_gradient_descent():
    cell = setup(AdamW(rate=0.1, epochs=2))
    with pytest.raises(ValueError, match=says("`coordinates`", "`training`", "adam_w", "ambient")):
        Setup.from_dict({**cell.as_dict(), "coordinates": "projected"})
    assert Setup.from_dict({**cell.as_dict(), "coordinates": "auto"}).space.mode == "ambient"


def test_small_coordinates_are_not_for_a_method_that_promises_nothing():
    class Halved(GradientDescent):
        def rate_at(self, step):
            return super().rate_at(step) / 2

    cell = setup(Halved(rate=0.1))
    try:
        with pytest.raises(ValueError, match=says("`coordinates`", "`training`", "halved")):
            Setup.from_dict({**cell.as_dict(), "coordinates": "projected"})
    finally:
        Training.choices().pop("halved")
