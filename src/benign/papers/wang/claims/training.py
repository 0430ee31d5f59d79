"""Claims of Wang et al. about training: robust interpolation, the loss and its printed rates, the first step."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
import xarray as xr

from benign.claims import (
    Claims,
    Direction,
    Evidence,
    Measured,
    Undecided,
    at_least,
    at_most,
    mean,
    share,
    slope_by_seed,
    worst,
)
from benign.claims.replays import Replays
from benign.papers.statistics import cells_of
from benign.papers.wang import bounds
from benign.papers.wang.claims.extremes import (
    LemmaNumbers,
    distance_between,
    extremes_of,
    is_smooth,
    steps_of,
)
from benign.papers.wang.claims.studies import (
    BY_RADIUS,
    FIRST,
    INSIDE,
    LONG,
    LONG_RELU,
    SMOOTHNESS,
    assumption,
    relu_only,
    smooth_only,
)
from benign.training.descent import Step

CLAIMS = Claims("wang")
OFTEN = 0.95
"""share of seeds (papers/wang.md 4)"""


@CLAIMS.add(
    "thm3.1.robust-interpolation", "Theorem 3.1, item 1", at_least(OFTEN), INSIDE, conditions=assumption,
    robust=Direction.RISES,
)  # fmt: skip
def robust_interpolation(evidence: Evidence) -> Measured:
    """Adversarial training fits every training point, flipped ones included, in its whole ball, with robust loss near
    0."""
    result = evidence.result
    fitted = (result.train_robust_accuracy_judged == 1) & (result.train_loss <= 0.01)
    return share("fitted under attack with loss <= 0.01", fitted, "run")


@CLAIMS.add(
    "thm3.1.loss-to-zero",
    "Theorem 3.1, item 1",
    {"slope": at_most(-0.5), "rise": at_most(0.0)},
    INSIDE,
    conditions=assumption,
)
def loss_to_zero(evidence: Evidence) -> dict[str, Measured]:
    """The robust training loss falls to 0 as T grows, at least as fast as T^(-1/2)."""
    curve = evidence.result.train_loss_curve.isel(step=slice(1, None))
    last = curve.sel(step=slice(int(curve.step[-1]) // 10, None))
    logs = np.log(last.stack(run=("cell", "seed")).transpose("run", "step").values)
    fitted = slope_by_seed("slope of log loss on log t, last decade", np.log(last.step), logs)
    rise = worst("largest growth of the loss between snapshots", curve.diff("step").values.ravel())
    return {"slope": fitted, "rise": rise}


@CLAIMS.add(
    "sec3.4.one-step-interpolation", "Section 3.4", at_least(OFTEN), FIRST, conditions=assumption,
    robust=Direction.RISES,
)  # fmt: skip
def one_step_interpolation(evidence: Evidence) -> Measured:
    """After one step every training point is fitted under attack, flipped ones included."""
    return share("robustly fitted after one step", evidence.result.first_fit == 1, "run")


@CLAIMS.add("propB34.leaves-lazy", "Proposition B.34", at_least(0.8), FIRST, conditions=assumption)
def leaves_lazy(evidence: Evidence) -> Measured:
    """The first step moves the weights by at least gamma r / 10 times their norm; for ReLU by at least this times the
    share c0 of active neurons."""
    ratios = []
    for replay in evidence.replays_by_cell():
        numbers, values = LemmaNumbers.of(replay.cell), extremes_of(replay)
        bound = numbers.slope * numbers.signal / 10
        if not is_smooth(replay.cell):
            bound = bound * values["active"]
        ratios.append(values["first_move"] / bound)
    ratio = torch.cat(ratios)
    measured = share("runs that move so far", ratio >= 1, "run")
    return measured.noting(f"smallest move over its bound: {float(ratio.min()):.3g}")


def _relative_loss(evidence: Evidence, bound: Callable[[float, LemmaNumbers], float]) -> Measured:
    """Return the largest loss over its bound of (T, numbers), at the steps at which this bound is below log 2.

    The bound falls as 1 / sqrt T.
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
    ratios = (curve.values[:, counting] / limits[counting]).ravel()
    first = int(steps[counting][0])
    return worst("loss over its bound", ratios).noting(f"not vacuous from step {first} on")


@CLAIMS.add("lemB15.rate-smooth", "Lemma B.15", at_most(1.0), LONG, conditions=smooth_only)
def rate_smooth(evidence: Evidence) -> Measured:
    """With a smooth activation the robust loss after T steps is at most
    (35 + 8 sqrt(m/d^3)) / (gamma r eta T^((1 - zeta)/2))."""
    return _relative_loss(
        evidence, lambda t, n: bounds.smooth_rate(t, n.rate, n.signal, n.slope, n.width, n.dim)
    )


@CLAIMS.add("corB16.rate-slrelu", "Corollary B.16", at_most(1.0), LONG, conditions=smooth_only)
def rate_smoothed_leaky(evidence: Evidence) -> Measured:
    """With the smoothed leaky ReLU the robust loss after T steps is at most
    (30 + 6 m^(1/4) / sqrt H) / (gamma r sqrt(eta T))."""
    return _relative_loss(
        evidence,
        lambda t, n: bounds.smoothed_leaky_rate(t, n.rate, n.signal, n.slope, n.width, SMOOTHNESS),
    )


@CLAIMS.add("lemB29.rate-relu", "Lemma B.29", at_most(1.0), LONG_RELU, conditions=relu_only)
def rate_relu(evidence: Evidence) -> Measured:
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
)
def trajectory_close(evidence: Evidence) -> dict[str, Measured]:
    """Adversarial training stays close to clean training: |W - W_clean| / |W_clean| shrinks with alpha / |mu|."""
    # The paper gives no number for "close": half the norm is ours; alpha = |mu| is informational.
    distances = _distances(evidence)
    radii = np.array(sorted(distances))
    logs = np.log([distances[rho] for rho in radii]).T
    small = [distances[rho] for rho in radii if rho <= 0.1]
    if not small or 1.0 not in distances:
        raise Undecided("no runs with rho <= 0.1, or none with rho = 1")
    return {
        "trend": slope_by_seed("slope of log distance on log rho", np.log(radii), logs),
        "small": mean("largest distance, rho <= 0.1", np.max(small, axis=0)),
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
    {"attacked": at_least(0.1), "clean": at_least(1.0)},
    BY_RADIUS,
    informational=("clean",),
    robust=Direction.MIXED,
)
def perturb_at_zero(evidence: Evidence) -> dict[str, Measured]:
    """If step 0 is attacked too, robust interpolation still holds for alpha <= c |mu| with some c < 1."""
    # f = 0 at step 0, so every perturbation is a worst one; a move against the signal hurts most. PGD cannot attack
    # where f = 0, so the study leaves step 0 clean: here an attacked step 0 is put into the runs of the evidence.
    largest = {True: 0.0, False: 0.0}
    for replay in evidence.replays_by_cell():
        rho = LemmaNumbers.of(replay.cell).rho
        for attacked in largest:
            fitted = _interpolating(replay, attacked)
            largest[attacked] = max(largest[attacked], rho * (fitted >= OFTEN))
    of = "largest alpha / |mu| at which 95 % of the runs interpolate"
    return {
        "attacked": worst(f"{of}, step 0 attacked", [largest[True]]),
        "clean": worst(f"{of}, step 0 clean", [largest[False]]),
    }


def _interpolating(replay: Replays, attacked: bool) -> float:
    """Return the share of runs that fit every attacked point at the end."""
    *_, last = _attacked_first(replay) if attacked else steps_of(replay)
    return float((last.margins > 0).all(1).double().mean())


def _attacked_first(replay: Replays) -> Iterator[Step]:
    """Yield the steps of the runs with an attacked step 0, where every point is moved against its signal."""
    sample, radius = replay.start().sample, LemmaNumbers.of(replay.cell).radius
    signal = sample.latent["signal"]
    against = -sample.y[..., None] * radius * signal / signal.norm(dim=2, keepdim=True)
    return replay.steps_after(sample.x + against[:, :, None])
