"""Captions tell what is fixed, in the papers' symbols."""

from typing import Any

import pytest

import benign as bo
from benign.papers.recipes import recipes
from benign.plot.caption import describe
from tests.tiny import tiny

ATTACK = "attack={kind: pgd, ball: {radius: 0.1}, steps: 2}"


def test_what_is_fixed_is_told_and_axes_are_not():
    told = describe(tiny("data.samples=4", "data.snr=2.0", "training.rate=0.25"))
    assert told.startswith("N = 4, SNR = 2, d = ")
    assert "eta = 0.25, until loss 0.3 or step 40, 2 seeds" in told
    grid = describe(tiny("data.samples=[2, 4]", "data.snr=[0.5, 2.0]", "training.rate=[0.1, 0.2]"))
    assert grid.startswith("d = ")
    assert "eta" not in grid
    assert "until loss 0.3 or step 40" in grid


@pytest.mark.parametrize(
    ("training", "told"),
    [
        (bo.GradientDescent(rate=0.1, stop_loss=0, max_steps=30), "eta = 0.1, 30 steps"),
        (bo.GradientDescent(rate=0.1, stop_loss=[0.1, 0.2], max_steps=9), "until loss 0.1 to 0.2 or step 9"),
        (bo.GradientDescent(rate=1 / 3, drop_every=5, max_steps=9), "eta = 0.333 divided by 10 every 5 steps, until"),
        (bo.GradientDescent(rate=0.1, drop_every=9, max_steps=9), "eta = 0.1, until"),
        (bo.SGD(rate=0.1, epochs=3), "SGD, eta = 0.1, until loss 0.01 or epoch 3"),
    ],
)  # fmt: skip
def test_trainings_are_told_by_their_rate_and_their_end(training: Any, told: str):
    data = bo.Mixture(samples=4, dim=5, signal=2.0)
    experiment = bo.Experiment(data=data, network=bo.Linear(), training=training)
    assert f", {told}" in describe(experiment)
    assert describe(experiment).startswith("N = 4, |mu| = 2, d = 5, M = 1, ")


def test_a_ball_is_told_once():
    told = describe(tiny(ATTACK))
    assert told.count("l2 radius 0.1 per token") == 1
    assert "Test attack: the worst of PGD and APGD, 50 steps, same ball." in told
    other = "evaluation.attack={kind: pgd, ball: {radius: 0.3}, steps: 2}"
    assert "Test attack: 2-step PGD, l2 radius 0.3 per token" in describe(tiny(ATTACK, other))
    step = "attack={kind: one_step, rate: 1.0, ball: {radius: 0.1}}"
    assert "one step of rate 1, l2 radius 0.1 per token" in describe(tiny(step))


@pytest.mark.parametrize(
    "name", ["jiang/fig1", "zhang/fig1", "zhang/fig3", "compare/architectures"]
)
def test_captions_stay_short(name: str):
    """A line at page width holds 130 letters."""
    assert len(describe(recipes()[name].experiment("paper"))) < 2.2 * 130
