"""Sentences of captions: sizes, training, seeds and attacks of an experiment, and runs without a value, masked runs."""

from __future__ import annotations

from typing import Any

import xarray as xr

from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack
from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.data.model import DataModel
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.network import Network
from benign.spec.axes import Axis
from benign.sweep.dataset import SYMBOLS, counts_of
from benign.sweep.ends import masked_text
from benign.sweep.terminal import counted, statuses
from benign.training.descent import Status
from benign.training.optimisers import GradientDescent, MiniBatches, Training

FIXED = ("samples", "snr", "signal")
"""fields of data that a caption gives if they are one number, not an axis"""


def describe(experiment: Experiment) -> str:
    """Return the sizes, training, seeds and attacks of an experiment in the papers' symbols."""
    sizes = f"{_data(experiment.data)}, {_network(experiment.network)}"
    return (
        f"{sizes}, {_training(experiment.training)}, {counted(experiment.seeds, 'seed')}, "
        f"{counted(experiment.evaluation.samples, 'test point')} a run. "
        f"Training attack: {_attack(experiment.attack)}. {_test_attack(experiment)} {experiment.precision}."
    )


def _training(training: Training | Axis) -> str:
    """Return the learning rate, and the loss or step at which a run ends."""
    if isinstance(training, Axis):
        return "several trainings"
    most = training.most_steps()
    parts = [] if training.kind == training.default_kind else [type(training).__name__]
    if not isinstance(training.rate, Axis):
        parts.append(f"{SYMBOLS['rate']} = {_value_text(training.rate)}{_rate_drops(training)}")
    step = "epoch" if isinstance(training, MiniBatches) else "step"
    until = f"until loss {_value_text(training.stop_loss)} or {step} {most}"
    parts.append(counted(most, step) if training.stop_loss == 0 else until)
    return ", ".join(parts)


def _rate_drops(training: Training) -> str:
    """Return how the rate of gradient descent falls; empty if it does not fall before the last step."""
    if not isinstance(training, GradientDescent) or training.constant_rate():
        return ""
    if training.drop_every >= training.max_steps:
        return ""
    return f" divided by {_value_text(training.drop_by)} every {training.drop_every} steps"


def _test_attack(experiment: Experiment) -> str:
    """Return the attack on test points; along training it is the training attack."""
    of_each = isinstance(experiment.attack, Axis) and experiment.evaluation.attack is None
    final = "a thorough one in the balls of each" if of_each else _final_attack(experiment)
    if experiment.attack is None or experiment.evaluation.at != "snapshots":
        return f"Test attack: {final}."
    return f"Test attack along training: the training attack; at the end: {final}."


def endings(result: xr.Dataset) -> str:
    """Return how many runs did not reach their loss, and why, and how many are masked; empty if there are none.

    Runs at the step cap count in means like the others; the rest have no value.
    """
    status = result["status"]
    others = {**counts_of(status), Status.CONVERGED: 0}
    ended = f"Of {status.size} runs {statuses(others)}." if any(others.values()) else ""
    return f"{ended} {masked_text(result)}".strip()


def origin(result: xr.Dataset) -> str:
    """Return where a result was computed, and what the audit of its step size found, if it was audited."""
    devices = f"Computed on {result.attrs['devices']}." if result.attrs.get("devices") else ""
    return f"{devices} {result.attrs.get('rate_audit', 'Step size: not audited.')}".strip()


def _data(data: DataModel | Axis) -> str:
    """Return the sizes of a data model as the papers write them."""
    if isinstance(data, Axis):
        return "several data models"
    values = {name: getattr(data, name, None) for name in FIXED}
    fixed = {name: each for name, each in values.items() if isinstance(each, int | float)}
    sizes = fixed | {"dim": data.dim, "tokens": data.tokens}
    return ", ".join(f"{SYMBOLS[name]} = {_value_text(each)}" for name, each in sizes.items())


def _network(network: Network | Axis) -> str:
    """Return the width of a network as the papers write it."""
    if isinstance(network, Axis):
        return "several networks"
    if not isinstance(network, Attention):
        return network.label()
    return f"d_h = {_value_text(network.hidden)}"


def _final_attack(experiment: Experiment) -> str:
    """Return the attack at the end of training; the ball of the training attack is called the same ball."""
    text, in_training = _attack(experiment.final_attack), experiment.attack
    if isinstance(in_training, PGD | APGD) and isinstance(in_training.ball, Ball):
        return text.replace(_ball(in_training.ball), "same ball")
    return text


def _attack(attack: Attack | Axis | None) -> str:
    """Return an attack in a few words."""
    if isinstance(attack, Axis):
        return "several"
    if isinstance(attack, OneStep):
        clipped = f" clipped to {_value_text(attack.clip)}"
        inside = clipped if attack.ball is None else f", {_ball(attack.ball)}"
        return f"one step of rate {_value_text(attack.rate)}{inside}, loss {attack.loss}"
    if isinstance(attack, PGD):
        return f"{attack.steps}-step PGD, {_ball(attack.ball)}, {attack.keep} iterate"
    if isinstance(attack, APGD):
        return f"{attack.steps}-step APGD, {_ball(attack.ball)}"
    if isinstance(attack, EnsembleAttack) and isinstance(attack.ball, Ball):
        return f"the worst of PGD and APGD, {attack.steps} steps, {_ball(attack.ball)}"
    return "none" if attack is None else attack.label()


def _ball(ball: Ball) -> str:
    unit = {"signal": " |mu|", "point": " |x|"}.get(ball.relative_to or "", "")
    return f"l{ball.p} radius {_value_text(ball.radius)}{unit} per {ball.per}"


def _value_text(value: Any) -> str:
    """Return a number, or the range of an axis."""
    if isinstance(value, Axis):
        low, high = _value_text(min(value.values)), _value_text(max(value.values))
        return low if low == high else f"{low} to {high}"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:.2g}" if isinstance(value, int) and value > 10**6 else str(value)
