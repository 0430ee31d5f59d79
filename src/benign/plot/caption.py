"""What a figure must say beside its picture: sizes, seeds, attacks, and the runs that give no value."""

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
from benign.sweep.terminal import counted, statuses
from benign.training.descent import Status
from benign.training.optimisers import GradientDescent, Training

FIXED = ("samples", "snr", "signal")
"""fields of data that are told where they are one number: as axes they are drawn, or told as chosen"""


def describe(experiment: Experiment) -> str:
    """The sizes, training, seeds and attacks of an experiment, in the papers' symbols."""
    sizes = f"{_data(experiment.data)}, {_network(experiment.network)}"
    return (
        f"{sizes}, {_training(experiment.training)}, {counted(experiment.seeds, 'seed')}, "
        f"{counted(experiment.evaluation.samples, 'test point')} a run. "
        f"Training attack: {_attack(experiment.attack)}. {_test_attack(experiment)} {experiment.precision}."
    )


def _training(training: Training | Axis) -> str:
    """The rate, and the loss or the step at which a run ends."""
    if isinstance(training, Axis):
        return "several trainings"
    plainly, most = isinstance(training, GradientDescent), training.most_steps()
    told = [] if plainly else [type(training).__name__]
    if not isinstance(training.rate, Axis):
        told.append(f"{SYMBOLS['rate']} = {_told(training.rate)}{_drops(training)}")
    step = "step" if plainly else "epoch"
    until = f"until loss {_told(training.stop_loss)} or {step} {most}"
    told.append(counted(most, step) if training.stop_loss == 0 else until)
    return ", ".join(told)


def _drops(training: Training) -> str:
    """How the rate of plain descent falls, if it does before the last step."""
    if not isinstance(training, GradientDescent) or training.plain():
        return ""
    if training.drop_every >= training.max_steps:
        return ""
    return f" divided by {_told(training.drop_by)} every {training.drop_every} steps"


def _test_attack(experiment: Experiment) -> str:
    """Along training, test points meet the training attack."""
    each = isinstance(experiment.attack, Axis) and experiment.evaluation.attack is None
    judge = "a thorough one in the balls of each" if each else _judge(experiment)
    if experiment.attack is None or experiment.evaluation.at != "snapshots":
        return f"Test attack: {judge}."
    return f"Test attack along training: the training attack; at the end: {judge}."


def endings(result: xr.Dataset) -> str:
    """What a caption must say of runs that did not reach their loss; empty where all did.

    Those at the step cap count in means like the others; the rest have no value.
    """
    status = result["status"]
    others = {**counts_of(status), Status.CONVERGED: 0}
    return f"Of {status.size} runs {statuses(others)}." if any(others.values()) else ""


def origin(result: xr.Dataset) -> str:
    """Where a result was computed, and what the audit of its step size found, if there was one."""
    told = f"Computed on {result.attrs['devices']}." if result.attrs.get("devices") else ""
    return f"{told} {result.attrs.get('rate_audit', 'Step size: not audited.')}".strip()


def _data(data: DataModel | Axis) -> str:
    """The sizes of a data model, as the papers write them."""
    if isinstance(data, Axis):
        return "several data models"
    values = {name: getattr(data, name, None) for name in FIXED}
    fixed = {name: each for name, each in values.items() if isinstance(each, int | float)}
    sizes = fixed | {"dim": data.dim, "tokens": data.tokens}
    return ", ".join(f"{SYMBOLS[name]} = {_told(each)}" for name, each in sizes.items())


def _network(network: Network | Axis) -> str:
    """The width of a network, as the papers write it."""
    if isinstance(network, Axis):
        return "several networks"
    if not isinstance(network, Attention):
        return network.label()
    return f"d_h = {_told(network.hidden)}"


def _judge(experiment: Experiment) -> str:
    """The attack at the end; a ball that has been told is not told again."""
    told, before = _attack(experiment.final_attack), experiment.attack
    if isinstance(before, PGD | APGD) and isinstance(before.ball, Ball):
        return told.replace(_ball(before.ball), "same ball")
    return told


def _attack(attack: Attack | Axis | None) -> str:
    """An attack in a few words."""
    if isinstance(attack, Axis):
        return "several"
    if isinstance(attack, OneStep):
        clipped = f" clipped to {_told(attack.clip)}"
        inside = clipped if attack.ball is None else f", {_ball(attack.ball)}"
        return f"one step of rate {_told(attack.rate)}{inside}, loss {attack.loss}"
    if isinstance(attack, PGD):
        return f"{attack.steps}-step PGD, {_ball(attack.ball)}, {attack.keep} iterate"
    if isinstance(attack, APGD):
        return f"{attack.steps}-step APGD, {_ball(attack.ball)}"
    if isinstance(attack, EnsembleAttack) and isinstance(attack.ball, Ball):
        return f"the worst of PGD and APGD, {attack.steps} steps, {_ball(attack.ball)}"
    return "none" if attack is None else attack.label()


def _ball(ball: Ball) -> str:
    unit = {"signal": " |mu|", "point": " |x|"}.get(ball.relative_to or "", "")
    return f"l{ball.p} radius {_told(ball.radius)}{unit} per {ball.per}"


def _told(value: Any) -> str:
    """A number, or the range of an axis."""
    if isinstance(value, Axis):
        low, high = _told(min(value.values)), _told(max(value.values))
        return low if low == high else f"{low} to {high}"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:.2g}" if isinstance(value, int) and value > 10**6 else str(value)
