"""What an experiment would cost: which part of its time is known before."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.data.images import Images
from benign.data.mixture import Mixture
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import TorchDefault
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.streams import RunId, Streams
from benign.sweep.estimate import estimate, operations
from benign.training.descent import Batch, descend
from benign.training.feature_tests import FeatureTests
from benign.training.metrics.evaluation import measure
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup, stack
from tests.tiny import tiny


def seconds(*losses: float) -> tuple[float, float]:
    """Least and most time of the small experiment with these losses to reach."""
    cost = estimate(tiny(f"training.stop_loss={list(losses)}").units(), "cpu")
    return cost.least_seconds, cost.most_seconds


def test_only_runs_that_may_end_early_have_an_uncertain_time():
    least, most = seconds(0.0)
    assert least == most
    assert seconds(0.01)[0] < most / 10
    assert seconds(0.01)[1] == most
    lower, upper = seconds(0.0, 0.01)  # of which half the runs take all steps
    assert lower == pytest.approx(upper / 2, rel=0.2)


def test_steps_are_sure_where_no_loss_ends_them():
    """`--compile` is suggested from this number on a GPU."""
    costs = [estimate(tiny(f"training.stop_loss={loss}").units(), "cpu") for loss in (0.0, 0.01)]
    assert 0 < costs[0].sure_training < costs[0].least_seconds
    assert costs[1].sure_training == 0


PGD_20 = PGD(ball=Ball(radius=0.1), steps=20)
SETUPS = {
    "attention": (
        SignalNoise(samples=20, tokens=16, dim=512, snr=1.0, noise_std=1.0),
        Attention(hidden=64, init=TorchDefault()),
    ),
    "two layers": (Mixture(samples=50, dim=400, signal=3.0), TwoLayer(width=200, init_std=0.01)),
}


@pytest.mark.parametrize("name", SETUPS)
def test_operations_are_those_that_torch_counts(name):
    data, network = SETUPS[name]
    setup = Setup(
        data=data,
        network=network,
        attack=PGD_20,
        training=GradientDescent(rate=0.01, max_steps=10, first_attacked_step=1),
        evaluation=Evaluation(samples=100, attack=PGD(ball=PGD_20.ball, steps=20, keep="best")),
    )
    batch = Batch.start(stack([setup], "cpu"), Streams([RunId(0, 0, "")], "cpu"))
    steps = descend(batch)
    next(steps)
    next(steps)
    with FlopCounterMode(display=False) as step:
        next(steps)
    with FlopCounterMode(display=False) as test:
        measure(batch, setup.final_attack)
    assert step.get_total_flops() == pytest.approx(
        operations(setup, 1) - operations(setup, 0), rel=0.25
    )
    assert test.get_total_flops() == pytest.approx(operations(setup, 0), rel=0.25)


def test_references_are_counted_once_for_runs_that_share_them(monkeypatch):
    """Two trainings and two searches of each image, whatever the run's own attack; by hand at one product a second."""
    monkeypatch.setattr("benign.sweep.estimate._products_per_second", lambda *_: 1.0)
    attack = PGD(ball=Ball(p="inf", radius=0.1, per="sample"), steps=3)
    asked = FeatureTests(attack=attack, samples=10, steps=7, pairs=((0, 1),), matching_steps=5)
    found = []
    for features in (None, asked):
        experiment = Experiment(
            data=Images(source="digits", samples=20),
            network=PatchCNN(width=2, classes=10, threshold=1.0, init_std=0.1),
            attack=[None, attack],
            training=GradientDescent(rate=0.1, stop_loss=0.0, max_steps=4),
            evaluation=Evaluation(samples=30, attack=attack, features=features),
            seeds=2,
        )
        found.append(estimate(experiment.units(), "cpu").most_seconds)
    each = experiment.network.cost(experiment.data).multiplies
    by_hand = 4 * 20 * (2 + 2 + attack.passes()) + 10 * 2 * 2 * (7 + 5)
    assert found[1] - found[0] == pytest.approx(2 * by_hand * each)


def test_the_floor_is_the_operations_at_the_peak(monkeypatch):
    """Half a run's operations are multiplications, which the peak counts."""
    monkeypatch.setattr("benign.sweep.estimate._products_per_second", lambda *_: 1e6)
    experiment = tiny("training.stop_loss=[0.0, 0.01]", "training.max_steps=50")
    runs = [run.cell for unit in experiment.units() for run in unit.runs]
    whole = sum(operations(cell, 50) for cell in runs) / 2e6
    ended = sum(operations(cell, 0) for cell in runs[: len(runs) // 2]) / 2e6
    cost = estimate(experiment.units(), "cpu")
    assert cost.most_floor == pytest.approx(whole)
    assert cost.least_floor == pytest.approx(whole / 2 + ended)
    assert cost.most_floor < cost.most_seconds
