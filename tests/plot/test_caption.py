"""Captions give what is fixed, in the papers' symbols."""

from typing import Any

import pytest

import benign as bo
from benign.papers.registry import recipes
from benign.plot.caption import describe
from benign.training.optimisers import Training
from tests.says import holds
from tests.tiny import tiny

ATTACK = "attack={kind: pgd, ball: {radius: 0.1}, steps: 2}"


def test_a_caption_gives_fixed_values_but_not_axes():
    text = describe(tiny("data.samples=4", "data.snr=2.0", "training.rate=0.25"))
    assert text.startswith("N = 4, SNR = 2, d = ")
    assert holds(text, "eta = 0.25, ", "loss 0.3", "step 40, 2 seeds")
    grid = describe(tiny("data.samples=[2, 4]", "data.snr=[0.5, 2.0]", "training.rate=[0.1, 0.2]"))
    assert grid.startswith("d = ")
    assert "eta" not in grid
    assert holds(grid, "loss 0.3", "step 40")


@pytest.mark.parametrize(
    ("training", "parts"),
    [
        (bo.GradientDescent(rate=0.1, stop_loss=0, max_steps=30), ["eta = 0.1, 30 steps"]),
        (bo.GradientDescent(rate=0.1, stop_loss=[0.1, 0.2], max_steps=9), ["loss 0.1 to 0.2", "step 9"]),
        (bo.GradientDescent(rate=1 / 3, drop_every=5, max_steps=9), ["eta = 0.333 ", "by 10 ", "5 steps, "]),
        (bo.GradientDescent(rate=0.1, drop_every=9, max_steps=9), ["eta = 0.1, ", "step 9"]),
        (bo.SGD(rate=0.1, epochs=3), ["SGD, eta = 0.1, ", "loss 0.01", "epoch 3"]),
    ],
)  # fmt: skip
def test_a_caption_gives_the_rate_and_the_end_of_training(training: Any, parts: list[str]):
    data = bo.Mixture(samples=4, dim=5, signal=2.0)
    experiment = bo.Experiment(data=data, network=bo.Linear(), training=training)
    assert holds(describe(experiment), *parts)
    assert describe(experiment).startswith("N = 4, |mu| = 2, d = 5, M = 1, ")


def test_only_mini_batches_have_epochs():
    class Reversed(bo.GradientDescent):
        pass

    data = bo.Mixture(samples=4, dim=5, signal=2.0)
    try:
        training = Reversed(rate=0.1, max_steps=9)
        text = describe(bo.Experiment(data=data, network=bo.Linear(), training=training))
    finally:
        Training.choices().pop("reversed")
    assert holds(text, "Reversed, eta = 0.1, ", "step 9")
    assert "epoch" not in text


def test_the_same_ball_is_described_once():
    text = describe(tiny(ATTACK))
    assert text.count("l2 radius 0.1 per token") == 1
    assert holds(text, "Test attack: ", "PGD", "APGD", "50 steps", "same ball")
    other = "evaluation.attack={kind: pgd, ball: {radius: 0.3}, steps: 2}"
    parts = "Test attack: 2-step PGD", "l2 radius 0.3 per token"
    assert holds(describe(tiny(ATTACK, other)), *parts)
    step = "attack={kind: one_step, rate: 1.0, ball: {radius: 0.1}}"
    assert holds(describe(tiny(step)), "one step", "rate 1, ", "l2 radius 0.1 per token")


@pytest.mark.parametrize(
    "name", ["jiang/fig1", "zhang/fig1", "zhang/fig3", "compare/architectures"]
)
def test_captions_stay_short(name: str):
    """A line at page width holds 130 letters."""
    assert len(describe(recipes()[name].experiment("paper"))) < 2.2 * 130
