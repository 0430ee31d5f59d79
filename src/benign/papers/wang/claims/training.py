"""Claims of Wang et al. about training: robust interpolation, the loss and its printed rates, the first step."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr

from benign.attacks.certificates import certified_margins
from benign.claims import (
    Claims,
    Direction,
    Evidence,
    Measured,
    Undecided,
    at_least,
    at_most,
    mean,
    slope_by_seed,
    worst_of_runs,
)
from benign.claims.replays import Replays
from benign.papers.statistics import cells_of, share_of_seeds
from benign.papers.wang import bounds
from benign.papers.wang.claims.extremes import (
    LemmaNumbers,
    by_cell_and_seed,
    distance_between,
    extremes_of,
    is_smooth,
    slack_text,
    steps_of,
)
from benign.papers.wang.claims.studies import (
    BY_RADIUS,
    FIRST,
    FIRST_STEP,
    GOOD_RUN,
    INSIDE,
    LONG,
    LONG_RELU,
    SMOOTHNESS,
    assumption,
    relu_only,
    smooth_only,
)
from benign.sweep.dataset import ended
from benign.training.descent import Step

CLAIMS = Claims("wang")
RAISED = 1.1
"""factor by which the evaluation attack may raise the loss under the training attack, as for masked runs"""


@CLAIMS.add(
    "thm3.1.robust-interpolation", "Theorem 3.1, item 1", at_least(GOOD_RUN), INSIDE, conditions=assumption,
    robust=Direction.RISES, levels={"loss": 0.01}, version=2,
)  # fmt: skip
def robust_interpolation(evidence: Evidence) -> Measured:
    """Adversarial training fits every training point, flipped ones included, in its whole ball, with robust loss near
    0."""
    result, level = evidence.result, evidence.levels["loss"]
    curve = result.train_loss_curve
    if (curve.isel(step=-1) > level).any() and (curve.diff("step").isel(step=-1) < 0).all():
        last = float(curve.isel(step=-1).max())
        raise Undecided(f"the loss is up to {last:.3g} after {int(curve.step[-1])} steps and falls")
    fitted = (result.train_robust_accuracy_judged == 1) & (result.train_robust_loss <= level)
    return share_of_seeds(
        f"fitted under attack with robust loss <= {level:g}", fitted, ended(result)
    )


@CLAIMS.add(
    "thm3.1.loss-to-zero",
    "Theorem 3.1, item 1",
    {"slope": at_most(-0.5), "rise": at_most(0.0), "raised": at_most(RAISED)},
    INSIDE,
    conditions=assumption,
    robust={"raised": Direction.FALLS},
    version=2,
)
def loss_to_zero(evidence: Evidence) -> dict[str, Measured]:
    """The robust training loss falls to 0 as T grows, at least as fast as T^(-1/2): so does the loss under the training
    attack, which the evaluation attack raises by less than a tenth at the end."""
    result = evidence.result
    curve = result.train_loss_curve.isel(step=slice(1, None))
    last = curve.sel(step=slice(int(curve.step[-1]) // 10, None))
    logs = np.log(last.mean("cell").transpose("seed", "step").values)
    growth = np.log(curve / curve.shift(step=1)).isel(step=slice(1, None)).transpose("seed", ...)
    raised = (result.train_robust_loss / result.train_loss).transpose("seed", "cell").values
    return {
        "slope": slope_by_seed("slope of log loss on log t, last decade", np.log(last.step), logs),
        "rise": worst_of_runs("largest growth of log loss between snapshots", growth.values),
        "raised": worst_of_runs(
            "robust loss over loss under the training attack", raised, log=True
        ),
    }


@CLAIMS.add(
    "sec3.4.one-step-interpolation", "Section 3.4", at_least(GOOD_RUN), FIRST_STEP, conditions=assumption,
    robust=Direction.RISES, version=2,
)  # fmt: skip
def one_step_interpolation(evidence: Evidence) -> Measured:
    """After one step every training point is fitted under attack, flipped ones included."""
    result = evidence.result
    fitted = result.train_robust_accuracy_judged == 1
    return share_of_seeds("robustly fitted after one step", fitted, ended(result))


@CLAIMS.add(
    "propB34.leaves-lazy",
    "Proposition B.34",
    at_least(GOOD_RUN),
    FIRST,
    conditions=assumption,
    version=2,
)
def leaves_lazy(evidence: Evidence) -> Measured:
    """The first step moves the weights by at least gamma r / 10 times their norm; for ReLU by at least this times the
    share c0 of active neurons."""
    replays, rows = evidence.replays_by_cell(), []
    for replay in replays:
        numbers, values = LemmaNumbers.of(replay.cell), extremes_of(replay)
        bound = numbers.slope * numbers.signal / 10
        if not is_smooth(replay.cell):
            bound = bound * values["active"]
        rows.append(values["first_move"] / bound)
    ratio = by_cell_and_seed(evidence, replays, rows)
    measured = share_of_seeds("seeds whose runs all move so far", ratio >= 1, ratio.notnull())
    return measured.noting(f"smallest move over its bound: {float(ratio.min()):.3g}")


def _relative_loss(
    evidence: Evidence, bound: Callable[[float, LemmaNumbers], float]
) -> dict[str, Measured]:
    """Return the largest loss over its bound of (T, numbers), at the steps at which this bound is below log 2.

    The bound falls as 1 / sqrt T. Along training the loss is that under the training attack, a lower end of the robust
    loss; at the end it is as large as the evaluation attack makes it.
    """
    result = evidence.result.isel(cell=0)
    (cell,) = cells_of(evidence.experiment)
    steps, numbers = result.step.values[1:], LemmaNumbers.of(cell)
    limits = np.array([bound(float(step), numbers) for step in steps])
    counting = limits < math.log(2)
    if not counting.any():
        needed = float(steps[-1]) * (limits[-1] / math.log(2)) ** 2
        raise Undecided(f"vacuous: the printed bound is below log 2 only from step {needed:.2g} on")
    curve: xr.DataArray = result.train_loss_curve.transpose("seed", "step")[:, 1:]
    along = worst_of_runs(
        "loss under the training attack over its bound",
        curve.values[:, counting] / limits[counting],
        log=True,
    )
    at_end = worst_of_runs(
        "robust loss over its bound, last step",
        result.train_robust_loss.values / limits[-1],
        log=True,
    )
    slack = f"not vacuous from step {int(steps[counting][0])} on"
    return {"along": along.noting(slack), "end": at_end.noting(slack_text(at_end))}


RATE = {"along": at_most(1.0), "end": at_most(1.0)}
BY_ATTACKS: dict[str, Any] = {"robust": {"end": Direction.FALLS}, "version": 2}
"""along training the loss is what training descends: attacks and certificates judge the last step"""


@CLAIMS.add("lemB15.rate-smooth", "Lemma B.15", RATE, LONG, conditions=smooth_only, **BY_ATTACKS)
def rate_smooth(evidence: Evidence) -> dict[str, Measured]:
    """With a smooth activation the robust loss after T steps is at most
    (35 + 8 sqrt(m/d^3)) / (gamma r eta T^((1 - zeta)/2))."""
    return _relative_loss(
        evidence, lambda t, n: bounds.smooth_rate(t, n.rate, n.signal, n.slope, n.width, n.dim)
    )


@CLAIMS.add(
    "corB16.rate-slrelu", "Corollary B.16", RATE, LONG, conditions=smooth_only, **BY_ATTACKS
)
def rate_smoothed_leaky(evidence: Evidence) -> dict[str, Measured]:
    """With the smoothed leaky ReLU the robust loss after T steps is at most
    (30 + 6 m^(1/4) / sqrt H) / (gamma r sqrt(eta T))."""
    return _relative_loss(
        evidence,
        lambda t, n: bounds.smoothed_leaky_rate(t, n.rate, n.signal, n.slope, n.width, SMOOTHNESS),
    )


@CLAIMS.add("lemB29.rate-relu", "Lemma B.29", RATE, LONG_RELU, conditions=relu_only, **BY_ATTACKS)
def rate_relu(evidence: Evidence) -> dict[str, Measured]:
    """With ReLU the robust loss after T steps is at most 30 / (r gamma c0 sqrt(eta T)), where c0 is the share of active
    neurons."""
    curves = ("active_neurons_min_curve", "active_points_min_curve")
    early = evidence.result.sel(step=[0, 1])
    active = min(float(early[name].min()) for name in curves)
    if active == 0:
        raise Undecided("vacuous: some neuron is active on no point of its sign, so that c0 = 0")
    return _relative_loss(
        evidence, lambda t, n: bounds.non_smooth_rate(t, n.rate, n.signal, n.slope, active)
    )


@CLAIMS.add(
    "sec4.trajectory-close",
    "Section 4",
    {"trend": at_least(0.0), "small": at_most(0.5), "whole": at_most(0.5)},
    BY_RADIUS,
    conditions=assumption,
    informational=("whole",),
    levels={"small rho": 0.1},
)
def trajectory_close(evidence: Evidence) -> dict[str, Measured]:
    """Adversarial training stays close to clean training: |W - W_clean| / |W_clean| shrinks with alpha / |mu|."""
    # The paper gives no number for "close": half the norm is ours; alpha = |mu| is informational.
    distances = _distances(evidence)
    radii = np.array(sorted(distances))
    logs = np.log([distances[rho] for rho in radii]).T
    level = evidence.levels["small rho"]
    small = [distances[rho] for rho in radii if rho <= level]
    if not small or 1.0 not in distances:
        raise Undecided(f"no runs with rho <= {level:g}, or none with rho = 1")
    return {
        "trend": slope_by_seed("slope of log distance on log rho", np.log(radii), logs),
        "small": mean(f"largest distance, rho <= {level:g}", np.max(small, axis=0)),
        "whole": mean("largest distance, rho = 1", distances[1.0]),
    }


def _distances(evidence: Evidence) -> dict[float, np.ndarray]:
    """Return the largest distance of runs from the clean runs of their seeds, by rho; NaN if a seed lacks one of
    them."""
    by_rho = {LemmaNumbers.of(replay.cell).rho: replay for replay in evidence.replays_by_cell()}
    clean = by_rho.pop(0.0, None)
    if clean is None or not by_rho:
        raise Undecided("no clean runs, or no attacked runs")
    distances = {}
    for rho, attacked in by_rho.items():
        both = sorted({*attacked.seeds} & {*clean.seeds})
        distances[rho] = np.full(evidence.experiment.seeds, np.nan)
        distances[rho][both] = distance_between(attacked.of_seeds(both), clean.of_seeds(both))
    return distances


@CLAIMS.add(
    "fn1.perturb-at-zero",
    "Footnote 1",
    {"attacked": at_least(GOOD_RUN), "attacked, largest": at_least(0.1), "clean, largest": at_least(1.0)},
    BY_RADIUS,
    informational=("attacked, largest", "clean, largest"),
    robust=Direction.RISES,
    levels={"rho": 0.1},
    version=2,
)  # fmt: skip
def perturb_at_zero(evidence: Evidence) -> dict[str, Measured]:
    """If step 0 is attacked too, robust interpolation still holds for alpha <= c |mu| with some c < 1: with c = 0.1."""
    # f = 0 at step 0, so every perturbation is a worst one; a move against the signal hurts most. PGD cannot attack
    # where f = 0, so the study leaves step 0 clean: here an attacked step 0 is put into the runs of the evidence.
    largest = {attacked: _largest_fitted(evidence, attacked) for attacked in (True, False)}
    level, of = evidence.levels["rho"], "largest rho up to which a seed interpolates"
    known = np.isfinite(largest[True])
    hits = xr.DataArray(largest[True] >= level, dims="seed")
    there = xr.DataArray(known, dims="seed")
    return {
        "attacked": share_of_seeds(
            f"interpolating up to rho = {level:g}, step 0 attacked", hits, there
        ),
        "attacked, largest": mean(f"{of}, step 0 attacked", largest[True]),
        "clean, largest": mean(f"{of}, step 0 clean", largest[False]),
    }


def _largest_fitted(evidence: Evidence, attacked: bool) -> np.ndarray:
    """Return alpha / |mu| up to which the runs of a seed fit every attacked point, by seed; NaN if it lacks a run."""
    replays = replace(evidence, end="attacked").replays_by_cell()
    largest = np.zeros(evidence.experiment.seeds)
    still = np.ones(largest.size, bool)
    for replay in sorted(replays, key=lambda replay: LemmaNumbers.of(replay.cell).rho):
        fitted = np.full(largest.size, np.nan)
        fitted[replay.seeds] = _fitting(replay, attacked)[evidence.end != "attacked"]
        largest[np.isnan(fitted)] = np.nan
        still &= fitted == 1
        if evidence.end != "unproven":
            largest[still] = LemmaNumbers.of(replay.cell).rho
    return largest


@lru_cache(maxsize=32)
def _fitting(replay: Replays, attacked: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return which runs fit every training point at the end: under the training attack, and by certificates."""
    *_, last = _attacked_first(replay) if attacked else steps_of(replay)
    attack = last.batch.setup.final_attack
    assert attack is not None
    proven = certified_margins(last.batch.target(last.batch.sample, "certified"), attack)
    return (last.margins > 0).all(1).numpy(), (proven > 0).all(1).numpy()


def _attacked_first(replay: Replays) -> Iterator[Step]:
    """Yield the steps of the runs with an attacked step 0, where every point is moved against its signal."""
    sample, radius = replay.start().sample, LemmaNumbers.of(replay.cell).radius
    signal = sample.latent["signal"]
    against = -sample.y[..., None] * radius * signal / signal.norm(dim=2, keepdim=True)
    return replay.steps_after(sample.x + against[:, :, None])
