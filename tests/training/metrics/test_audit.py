"""Masked attacks, broken certificates and impossible accuracies are found out."""

import math
from typing import Any

import pytest
import torch

from benign.attacks.attack import Attack
from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.data.mixture import Mixture
from benign.networks.linear import Linear
from benign.networks.two_layer import TwoLayer
from benign.training.descent import attacked_step
from benign.training.engine import train_runs
from benign.training.metrics import METRICS, audit, variables
from benign.training.metrics.evaluation import measure
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup, stack
from tests.reference import run_ids, small_data, small_network, small_setup, start


def setup_with(attack: Attack | None, judge: Attack | None = None, **fields: Any) -> Setup:
    """Return a setup evaluated with `judge`, or else with the default evaluation attack."""
    parts: dict[str, Any] = {"data": small_data(), "network": Linear(init_std=1.0)} | fields
    return Setup(
        attack=attack,
        training=GradientDescent(rate=0.1, max_steps=0),
        evaluation=Evaluation(samples=40, attack=judge),
        **parts,
    )


def audited(setup: Setup, u: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """The audit of one run, with these weights of a linear network."""
    batch = start([setup])
    if u is not None:
        batch.params["u"].copy_(u)
    known = {}
    if setup.attack is not None:
        step = attacked_step(batch, 0)
        known["train_robust_accuracy"] = (step.margins > 0).double().mean(1)
    return measure(batch, setup.final_attack, at_end=True, known=known)


def flags(values: dict[str, torch.Tensor]) -> set[str]:
    return {name for code, name in audit.FLAGS.items() if int(values["audit"]) & code}


def test_a_saturated_training_attack_is_found_out():
    """Margins above 100 in float32: the cross-entropy has gradient 0, the margin has not."""
    signal = torch.zeros(1, 8)
    signal[0, 0], signal[0, 1] = 200.0, -200.0
    data = small_data(signal=2.0, tokens=1)
    attack = PGD(ball=Ball(radius=1.8), loss="cross_entropy")
    values = audited(setup_with(attack, data=data), signal)
    assert values["robust_accuracy_training_attack"] == 1
    assert values["robust_accuracy"] == 0
    assert values["zero_gradient_share"] == 1
    assert flags(values) == {"masked_on_test_points", "masked_on_training_points", "zero_gradients"}


def test_a_sound_run_is_not_flagged():
    """A linear network: the training attack is exact, and so is the certificate."""
    values = audited(setup_with(PGD(ball=Ball(radius=0.2), steps=20)))
    assert values["robust_accuracy"] == values["robust_accuracy_training_attack"]
    assert values["robust_accuracy"] == values["robust_accuracy_certified"]
    assert not flags(values)


@pytest.mark.parametrize(
    "network", [small_network(), TwoLayer(width=6, preset="torch_default")], ids=lambda n: n.kind
)
def test_certified_accuracy_is_a_lower_end(network):
    values = audited(setup_with(PGD(ball=Ball(radius=0.05)), network=network))
    assert values["robust_accuracy_certified"] <= values["robust_accuracy"]
    assert not {"below_certificate", "above_possible"} & flags(values)


def test_more_than_any_classifier_can_reach_is_flagged():
    """At tau >= |mu| / sqrt 2 no classifier errs less than half the time: a weak attack shows more."""
    weak = PGD(ball=Ball(radius=1.5), steps=1, step=1e-3)
    signal = torch.tensor([[1.0, -1.0, 0, 0, 0, 0, 0, 0]])
    strong = audited(
        setup_with(None, PGD(ball=Ball(radius=1.5)), data=small_data(tokens=1)), signal
    )
    doubtful = audited(setup_with(None, weak, data=small_data(tokens=1)), signal)
    assert doubtful["robust_accuracy"] == 1
    assert "above_possible" in flags(doubtful)
    assert "above_possible" not in flags(strong)


def test_an_evaluation_weaker_than_the_training_attack_is_flagged():
    signal = torch.tensor([[1.0, -1.0, 0, 0, 0, 0, 0, 0]])
    trained, weak = PGD(ball=Ball(radius=1.2)), PGD(ball=Ball(radius=1.2), steps=1, step=1e-3)
    values = audited(setup_with(trained, weak, data=small_data(signal=1.0, tokens=1)), signal)
    assert "evaluation_attack_weaker_than_training_attack" in flags(values)


def test_an_accuracy_below_its_certificate_is_a_bug():
    setup = setup_with(None, PGD(ball=Ball(radius=0.1)))
    values = {
        "robust_accuracy": torch.tensor([0.5]),
        "robust_accuracy_certified": torch.tensor([0.6]),
    }
    found = audit.flags({name: value.double() for name, value in values.items()}, setup)
    assert int(found) & 8


def test_what_no_classifier_can_beat():
    """The printed numbers: 1/2 from |mu| / sqrt 2 on, and Phi(-(r - alpha)) for two Gaussian clusters."""
    data = small_data(signal=2.0)
    assert data.least_robust_error(2, 1.42, "token") == 0.5
    assert data.least_robust_error(2, 1.41, "token") == 0
    assert data.least_robust_error("inf", 1.0, "token") == 0.5
    assert data.least_robust_error(1, 1.99, "token") == 0
    mixture = Mixture(samples=4, dim=6, signal=3.0, noise_std=2.0)
    half = math.erfc((3 - 1) / 2 / math.sqrt(2)) / 2
    assert float(mixture.least_robust_error(2, 1.0, "sample")) == pytest.approx(half, rel=1e-12)
    assert float(mixture.least_robust_error(2, 4.0, "sample")) == 0.5


def test_the_audit_is_stored_with_every_attacked_run():
    attacked = small_setup(attack=OneStep(rate=0.5, clip=0.1))
    clean = small_setup()
    names = {name for name, each in METRICS.items() if each.function.__module__ == audit.__name__}
    assert len(names) == 5
    assert names & set(variables(clean)) == set()
    assert names <= set(variables(attacked))
    arrays = train_runs([attacked], run_ids(1))
    for name in names:
        assert math.isfinite(arrays[name][0]), name


def test_a_run_trained_without_an_attack_is_beaten_and_not_masked():
    """Also where other runs of the batch are attacked: a radius of 0 is none."""
    attacks = [PGD(ball=Ball(radius=radius), steps=5) for radius in (0.0, 1.5)]
    cells = [
        setup_with(attack, EnsembleAttack(ball=Ball(radius=1.5), steps=5)) for attack in attacks
    ]
    same = audit._same_ball(stack(cells, "cpu"), torch.zeros(2))
    assert same.tolist() == [False, True]
    other = setup_with(attacks[1], EnsembleAttack(ball=Ball(p="inf", radius=1.5), steps=5))
    assert audit._same_ball(stack([other], "cpu"), torch.zeros(1)).tolist() == [False]


def test_a_judge_of_the_training_attacks_own_kind_is_flagged():
    attack = PGD(ball=Ball(radius=0.2), steps=5)
    name = "judged_by_the_kind_of_attack_that_trained"
    assert name in flags(audited(setup_with(attack, attack)))
    assert name not in flags(audited(setup_with(attack)))


def test_a_radius_that_is_a_share_of_the_points_is_not_compared_with_what_is_possible():
    """It would be compared as if it were a length, and change with the units of the data."""
    ball = Ball(radius=0.9, relative_to="point")
    values = audited(setup_with(PGD(ball=ball, steps=1, step=1e-9), data=small_data(tokens=1)))
    assert "above_possible" not in flags(values)
