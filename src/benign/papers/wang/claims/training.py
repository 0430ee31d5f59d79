"""What Wang et al. say about training: robust interpolation, the loss and its printed rates, the first step."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
import xarray as xr

from benign.claims import (
    Claims,
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
from benign.papers.wang import bounds
from benign.papers.wang.claims import replayed
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
from benign.training.setup import Setup

CLAIMS = Claims("wang")
OFTEN = 0.95
"""share of seeds that papers/wang.md 4 asks for"""


@CLAIMS.add(
    "thm3.1.robust-interpolation", "Theorem 3.1, item 1", at_least(OFTEN), INSIDE, conditions=assumption, robust=True
)  # fmt: skip
def robust_interpolation(evidence: Evidence) -> Measured:
    """Adversarial training fits every training point, flipped ones too, in its whole ball, with robust loss near 0."""
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
    "sec3.4.one-step-interpolation", "Section 3.4", at_least(OFTEN), FIRST, conditions=assumption, robust=True
)  # fmt: skip
def one_step_interpolation(evidence: Evidence) -> Measured:
    """After one step every training point is right under attack, flipped ones too."""
    return share("robustly fitted after one step", evidence.result.first_fit == 1, "run")


@CLAIMS.add("propB34.leaves-lazy", "Proposition B.34", at_least(0.8), FIRST, conditions=assumption)
def leaves_lazy(evidence: Evidence) -> Measured:
    """The first step moves the weights by at least gamma r / 10 times their norm, for ReLU times the share c0 of
    active neurons."""
    hits, least = [], math.inf
    for replay in evidence.replays_by_cell():
        numbers, found = replayed.Numbers.of(replay.cell), replayed.trail(replay)
        bound = numbers.slope * numbers.signal / 10
        if not replayed.is_smooth(replay.cell):
            bound = bound * found["active"]
        ratio = found["first_move"] / bound
        hits.append(ratio >= 1)
        least = min(least, float(ratio.min()))
    found = share("runs that move so far", torch.cat(hits), "run")
    return found.noting(f"smallest move over its bound: {least:.3g}")


def _under(evidence: Evidence, bound: Callable[[Setup, float], float]) -> Measured:
    """Largest loss over its bound, at all steps at which the bound, which falls as 1 / sqrt T, is below log 2."""
    result = evidence.result.isel(cell=0)
    (cell,) = replayed.cells_of(evidence.experiment)
    steps = result.step.values[1:]
    bounds = np.array([bound(cell, float(step)) for step in steps])
    telling = bounds < math.log(2)
    if not telling.any():
        needed = float(steps[-1]) * (bounds[-1] / math.log(2)) ** 2
        raise Undecided(f"vacuous: the printed bound is below log 2 only from step {needed:.2g} on")
    curve: xr.DataArray = result.train_loss_curve.transpose("seed", "step")[:, 1:]
    return worst(
        "loss over its bound", (curve.values[:, telling] / bounds[telling]).ravel()
    ).noting(f"telling from step {int(steps[telling][0])} on")


@CLAIMS.add("lemB15.rate-smooth", "Lemma B.15", at_most(1.0), LONG, conditions=smooth_only)
def rate_smooth(evidence: Evidence) -> Measured:
    """With a smooth activation the robust loss after T steps is at most
    (35 + 8 sqrt(m/d^3)) / (gamma r eta T^((1 - zeta)/2))."""

    def bound(cell: Setup, steps: float) -> float:
        n = replayed.Numbers.of(cell)
        return bounds.smooth_rate(steps, n.rate, n.signal, n.slope, n.width, n.dim)

    return _under(evidence, bound)


@CLAIMS.add("corB16.rate-slrelu", "Corollary B.16", at_most(1.0), LONG, conditions=smooth_only)
def rate_smoothed_leaky(evidence: Evidence) -> Measured:
    """With the smoothed leaky ReLU the robust loss after T steps is at most
    (30 + 6 m^(1/4) / sqrt H) / (gamma r sqrt(eta T))."""

    def bound(cell: Setup, steps: float) -> float:
        n = replayed.Numbers.of(cell)
        return bounds.smoothed_leaky_rate(steps, n.rate, n.signal, n.slope, n.width, SMOOTHNESS)

    return _under(evidence, bound)


@CLAIMS.add("lemB29.rate-relu", "Lemma B.29", at_most(1.0), LONG_RELU, conditions=relu_only)
def rate_relu(evidence: Evidence) -> Measured:
    """With ReLU the robust loss after T steps is at most 30 / (r gamma c0 sqrt(eta T)), where c0 is the share of active
    neurons."""
    curves = ("active_neurons_min_curve", "active_points_min_curve")
    early = evidence.result.sel(step=[0, 1])
    active = min(float(early[name].min()) for name in curves)
    if active == 0:
        raise Undecided("vacuous: some neuron is active on no point of its sign, so that c0 = 0")

    def bound(cell: Setup, steps: float) -> float:
        n = replayed.Numbers.of(cell)
        return bounds.non_smooth_rate(steps, n.rate, n.signal, n.slope, active)

    return _under(evidence, bound)


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
    # "Close" has no number in the paper: half the norm is ours; alpha = |mu| is told beside.
    found = _distances(evidence)
    radii = np.array(sorted(found))
    logs = np.log([found[rho] for rho in radii]).T
    small = [found[rho] for rho in radii if rho <= 0.1]
    if not small or 1.0 not in found:
        raise Undecided("no runs with rho <= 0.1, or none with rho = 1")
    return {
        "trend": slope_by_seed("slope of log distance on log rho", np.log(radii), logs),
        "small": mean("largest distance, rho <= 0.1", np.max(small, axis=0)),
        "whole": mean("largest distance, rho = 1", found[1.0]),
    }


def _distances(evidence: Evidence) -> dict[float, np.ndarray]:
    """How far runs go from the clean runs of their seeds, by rho; NaN for a seed that lacks one of the two."""
    cells = {replayed.Numbers.of(each.cell).rho: each for each in evidence.replays_by_cell()}
    clean = cells.pop(0.0, None)
    if clean is None or not cells:
        raise Undecided("no clean runs, or none that are attacked")
    found = {}
    for rho, attacked in cells.items():
        both = sorted({*attacked.seeds} & {*clean.seeds})
        found[rho] = np.full(evidence.experiment.seeds, np.nan)
        found[rho][both] = replayed.distance_between(attacked.of_seeds(both), clean.of_seeds(both))
    return found


@CLAIMS.add(
    "fn1.perturb-at-zero",
    "Footnote 1",
    {"attacked": at_least(0.1), "clean": at_least(1.0)},
    BY_RADIUS,
    informational=("clean",),
    robust=True,
)
def perturb_at_zero(evidence: Evidence) -> dict[str, Measured]:
    """Where step 0 is attacked too, robust interpolation still holds for alpha <= c |mu| with some c < 1."""
    # f = 0 at step 0, so that every perturbation is a worst one; against the signal hurts most. The runs of the study
    # leave step 0 clean, which PGD could not attack where f = 0: its attacked step is put into runs of the evidence.
    largest = {True: 0.0, False: 0.0}
    for replay in evidence.replays_by_cell():
        rho = replayed.Numbers.of(replay.cell).rho
        for attacked in largest:
            fitted = _interpolating(replay, attacked)
            largest[attacked] = max(largest[attacked], rho * (fitted >= OFTEN))
    told = "largest alpha / |mu| at which 95 % of the runs interpolate"
    return {
        "attacked": worst(f"{told}, step 0 attacked", [largest[True]]),
        "clean": worst(f"{told}, step 0 clean", [largest[False]]),
    }


def _interpolating(replay: Replays, attacked: bool) -> float:
    """Share of runs that fit every attacked point at the end."""
    *_, last = _attacked_first(replay) if attacked else replayed.walked(replay)
    return float((last.margins > 0).all(1).double().mean())


def _attacked_first(replay: Replays) -> Iterator[Step]:
    """What the runs would be if step 0 were attacked too: every point moved against its signal."""
    sample, radius = replay.start().sample, replayed.Numbers.of(replay.cell).radius
    signal = sample.latent["signal"]
    against = -sample.y[..., None] * radius * signal / signal.norm(dim=2, keepdim=True)
    return replay.steps_after(sample.x + against[:, :, None])
