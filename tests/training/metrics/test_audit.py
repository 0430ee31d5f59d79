"""Masked attacks, broken certificates and impossible accuracies are found out."""

import math
from typing import Any

import pytest
import torch

from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.data.images import Images
from benign.data.mixture import Mixture
from benign.losses import loss, margin
from benign.networks.linear import Linear
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.spec.axes import replace
from benign.training.descent import attacked_step
from benign.training.engine import train_runs
from benign.training.metrics import METRICS, audit, variables
from benign.training.metrics.evaluation import measure
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup, stack
from tests.reference import run_ids, small_data, small_network, small_setup, start
from tests.registry import forgetting


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
    assert flags(values) == {
        "training_attack_weaker_on_test_points",
        "masked_on_training_points",
        "zero_gradients",
    }


WEIGHTS = torch.tensor([[2.0, -2.0, 0, 0, 0, 0, 0, 0]])
"""on the two signals, with margins of 4 on clean points"""
FEEBLE = PGD(ball=Ball(radius=0.5), steps=1, step=1e-3)
STRONG = PGD(ball=Ball(radius=0.5), steps=20)


def on_signals(trained: Attack | None, judge: Attack | None = None, **fields: Any) -> Any:
    """The audit of these weights on data without noise."""
    setup = setup_with(trained, judge, data=small_data(tokens=1), **fields)
    return audited(setup, WEIGHTS)


def test_a_run_is_masked_by_its_training_loss_where_accuracy_shows_nothing():
    """Margins fall from 4 to 4 - |u| / 2: every point stays right, and the loss is four times as large."""
    values = on_signals(FEEBLE)
    for name in ("robust_accuracy_training_attack", "robust_accuracy"):
        assert values[name] == 1
    assert values["train_robust_accuracy_judged"] == 1
    assert flags(values) == {"masked_on_training_points"}
    clean, robust = (math.log1p(math.exp(-m)) for m in (4, 4 - 0.5 * math.sqrt(8)))
    assert float(values["train_robust_loss"]) == pytest.approx(robust, rel=1e-5)
    assert float(values["train_loss_raised"]) == pytest.approx(robust - clean, rel=1e-2)
    assert int(values["audit"]) & audit.MASKING


def test_an_honest_run_is_not_masked():
    values = on_signals(STRONG)
    assert float(values["train_loss_raised"]) == pytest.approx(0, abs=1e-6)
    assert not int(values["audit"]) & audit.MASKING


@pytest.mark.parametrize(
    "trained",
    [
        None,
        PGD(ball=Ball(radius=0.1), steps=20),
        PGD(ball=Ball(p="inf", radius=0.5), steps=1, step=1e-3),
        PGD(ball=Ball(radius=0.5, relative_to="signal"), steps=1, step=1e-3),
        PGD(ball=Ball(radius=0.5, box=(-9.0, 9.0)), steps=1, step=1e-3),
    ],
    ids=["clean", "smaller", "other norm", "other unit", "box"],
)
def test_a_run_trained_in_another_ball_is_not_masked(trained):
    """Its robust loss is larger than its training loss because it was not trained against this ball."""
    values = on_signals(trained, STRONG)
    assert not flags(values) & {
        "masked_on_training_points",
        "training_attack_weaker_on_test_points",
    }
    if trained is not None:
        assert values["train_loss_raised"] > audit.LEAST_RISE


def test_a_run_trained_in_a_larger_ball_is_compared_in_the_smaller_one():
    """The training attack's points lie outside the ball of the evaluation attack: they do not count there."""
    values = on_signals(PGD(ball=Ball(radius=1.0), steps=20), STRONG)
    assert values["train_loss_raised"] < 0
    assert values["train_robust_loss"] == pytest.approx(
        float(values["train_robust_loss_certified"]), rel=1e-5
    )
    assert "masked_on_training_points" not in flags(values)


def test_the_robust_loss_is_the_largest_of_all_attacks_point_by_point():
    """Here the training attack is the stronger one."""
    values = on_signals(STRONG, FEEBLE)
    exact = math.log1p(math.exp(-4 + 0.5 * math.sqrt(8)))
    assert float(values["train_robust_loss"]) == pytest.approx(exact, rel=1e-5)
    assert values["train_loss_raised"] == 0


def test_attacks_that_lower_the_loss_leave_that_of_the_clean_points():
    with forgetting():

        class Away(Attack):
            def perturb(self, target: Target) -> Points:
                return target.x + 0.1 * target.run(target.x).inputs_gradient(target.y)

            def threat(self) -> Ball:
                return Ball(radius=0.5)

        values = on_signals(Away(), Away())
    clean, lower = (math.log1p(math.exp(-m)) for m in (4, 4 + 0.1 * 8))
    assert float(values["train_robust_loss"]) == pytest.approx(clean, rel=1e-5)
    assert float(values["train_loss_raised"]) == pytest.approx(clean - lower, rel=1e-4)
    assert "masked_on_training_points" in flags(values)


def test_a_run_trained_by_an_attack_without_a_ball_is_not_masked():
    with forgetting():

        class Unbounded(Attack):
            def perturb(self, target: Target) -> Points:
                return target.x

        assert "masked_on_training_points" not in flags(on_signals(Unbounded(), STRONG))


@pytest.mark.parametrize(
    ("trained", "judged", "masked"),
    [
        (1.0, 1.09, False),
        (1.0, 1.11, True),
        (1e-4, 1e-4 + 0.9e-3, False),
        (1e-4, 1e-4 + 1.1e-3, True),
        (0.0, 1.1e-3, True),
        (math.nan, math.nan, False),
    ],
)
def test_how_far_the_loss_must_rise(trained, judged, masked):
    """By a tenth, and by a thousandth of a nat: a rise of losses that are nearly 0 means nothing."""
    values = {"train_robust_loss": judged, "train_loss_raised": judged - trained}
    values |= {"robust_accuracy": 1.0}
    found = audit.flags(
        {k: torch.tensor([v]).double() for k, v in values.items()}, setup_with(STRONG)
    )
    assert bool(int(found) & 2) is masked


def test_a_sound_run_is_not_flagged():
    """A linear network: the training attack is exact, and so is the certificate."""
    values = audited(setup_with(PGD(ball=Ball(radius=0.2), steps=20)))
    assert values["robust_accuracy"] == values["robust_accuracy_training_attack"]
    assert values["robust_accuracy"] == values["robust_accuracy_certified"]
    assert not flags(values)


CLASSES = Images(source="digits", samples=12, classes=(1, 7, 4))


@pytest.mark.parametrize(
    ("network", "data"),
    [
        (small_network(), small_data()),
        (TwoLayer(width=6, preset="torch_default"), small_data()),
        (PatchCNN(width=4, classes=3, threshold=1.0, init_std=0.1), CLASSES),
    ],
    ids=["attention", "two_layer", "patch_cnn"],
)
def test_certified_accuracies_and_losses_are_the_other_ends(network, data):
    values = audited(setup_with(PGD(ball=Ball(radius=0.05)), network=network, data=data))
    assert values["robust_accuracy_certified"] <= values["robust_accuracy"]
    assert values["train_robust_accuracy_certified"] <= values["train_robust_accuracy_judged"]
    assert values["train_robust_loss_certified"] > values["train_robust_loss"]
    assert not {"below_certificate", "above_possible"} & flags(values)


def test_certified_ends_are_exact_where_the_certificate_is():
    """A linear network; and a ball of radius 0, where k = 2 classes have the loss log(1 + exp(-margin))."""
    values = audited(setup_with(PGD(ball=Ball(radius=0.2), steps=20)))
    judged, certified = (values[f"train_robust_accuracy_{end}"] for end in ("judged", "certified"))
    assert judged == certified
    lower, upper = (values[name] for name in ("train_robust_loss", "train_robust_loss_certified"))
    assert float(lower) == pytest.approx(float(upper), rel=1e-5)
    two = replace(CLASSES, {("classes",): (1, 7)})
    network = PatchCNN(width=4, classes=2, threshold=1.0, init_std=0.1)
    values = audited(setup_with(PGD(ball=Ball(radius=0.0)), network=network, data=two))
    assert float(values["train_robust_loss"]) == pytest.approx(
        float(values["train_robust_loss_certified"]), rel=1e-5
    )


@pytest.mark.parametrize("classes", [2, 5])
def test_no_point_has_more_loss_than_its_margin_allows(classes):
    """And a point whose rivals are all equal has that loss."""
    outputs = 3 * torch.randn(1, 500, classes, generator=torch.Generator().manual_seed(0)).double()
    y = torch.zeros(1, 500, dtype=torch.float64)
    assert (loss(outputs, y) <= audit.largest_loss(margin(outputs, y), classes) + 1e-12).all()
    outputs[..., 1:] = outputs[..., 1:2]
    largest = audit.largest_loss(margin(outputs, y), classes)
    torch.testing.assert_close(loss(outputs, y), largest)


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
    names.remove("robust_exactly")  # for linear networks alone
    assert len(names) == 9
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
