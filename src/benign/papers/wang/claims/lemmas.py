"""The lemmas of Section 4 and Appendix B along training: attacked points, margins, activations, weights, gradients."""

import math

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from benign.claims import (
    Claims,
    Evidence,
    Measured,
    Undecided,
    at_least,
    at_most,
    exponent,
    mean,
    share,
    slope_by_seed,
    worst_of_runs,
)
from benign.papers.statistics import cells_of, share_of_seeds
from benign.papers.wang import bounds
from benign.papers.wang.claims.extremes import (
    LemmaNumbers,
    aligned_share,
    by_cell_and_seed,
    extremes_of,
    is_smooth,
    slack_text,
    steps_of,
    two_layer,
)
from benign.papers.wang.claims.studies import (
    ACTIVE,
    CASES,
    FIRST,
    GOOD_RUN,
    INSIDE,
    SCALING,
    assumption,
    relu_only,
    smooth_only,
)
from benign.training.setup import Setup

CLAIMS = Claims("wang")


def _extremes(evidence: Evidence, name: str) -> list[Tensor]:
    """Return an extreme of the runs of every cell: ReLU first, then smooth."""
    return [extremes_of(replay)[name] for replay in evidence.replays_by_cell()]


def _by_seed(evidence: Evidence, name: str) -> xr.DataArray:
    """Return the same as [cells, seeds]; NaN for runs that were not replayed."""
    return by_cell_and_seed(evidence, evidence.replays_by_cell(), _extremes(evidence, name))


@CLAIMS.add(
    "lem4.1.span-distance",
    "Lemma 4.1 (= B.10, B.27)",
    {"bound": at_least(GOOD_RUN), "scaling": exponent(1)},
    FIRST,
    conditions=assumption,
    version=2,
)
def span_distance(evidence: Evidence) -> dict[str, Measured]:
    """Attacked points stay within min(omega sqrt(m d) / eta, alpha) of the span of the training points; the distance
    is proportional to omega."""
    result, cells = evidence.result, cells_of(evidence.experiment)
    largest = result.span_distance_curve.max("step").transpose("cell", "seed")
    starts = np.array([_start(cell) for cell in cells])
    radii = np.array([LemmaNumbers.of(cell).radius for cell in cells])
    ratio = largest / xr.DataArray(np.minimum(starts, radii), dims="cell")
    smooth = np.array([is_smooth(cell) for cell in cells])
    if not np.array_equal(starts[~smooth], starts[smooth]):
        raise Undecided("ReLU and smooth networks start at different sizes")
    logs = np.log(largest.values)
    rows = (logs[smooth] + logs[~smooth]).T / 2
    within = share_of_seeds("seeds within the bound", ratio <= 1 + 1e-6, largest.notnull())
    return {
        "bound": within.noting(f"largest distance over bound {float(ratio.max()):.3g}"),
        "scaling": slope_by_seed(
            "slope of log distance on log omega", np.log(starts[smooth]), rows
        ),
    }


def _start(cell: Setup) -> float:
    """Return omega sqrt(m d) / eta, which condition (3) bounds by 1."""
    numbers, std = LemmaNumbers.of(cell), two_layer(cell).init_std or 0.0
    return float(f"{std * math.sqrt(numbers.width * numbers.dim) / numbers.rate:.6g}")


@CLAIMS.add(
    "sec4.1.perturbation-angle",
    "Section 4.1",
    {"relu": at_least(GOOD_RUN), "smooth": at_least(GOOD_RUN)},
    INSIDE,
    conditions=assumption,
    levels={"cosine": 0.9},
)
def perturbation_angle(evidence: Evidence) -> dict[str, Measured]:
    """Every perturbation of a training point, times its label, is at a small angle to -sum_k y_k x_k."""
    least = evidence.levels["cosine"]  # the paper gives no number
    return {
        case: share(f"runs whose smallest cosine is at least {least:g}", cosines >= least).noting(
            f"smallest cosine {float(cosines.min()):.3g}"
        )
        for case, cosines in zip(CASES, _extremes(evidence, "cosine"), strict=True)
    }


@CLAIMS.add(
    "lemB9.monotone-margin", "Lemma B.9", at_least(GOOD_RUN), INSIDE, conditions=smooth_only
)
def monotone_margin(evidence: Evidence) -> Measured:
    """With a smooth activation y_i f grows in every step, at the training points and in their balls."""
    _, rises = _extremes(evidence, "rise")
    growing = share("runs in which every margin grows", rises >= -1e-12)
    return growing.noting(f"smallest growth {float(rises.min()):.3g}")


@CLAIMS.add(
    "lem4.4.loss-ratio",
    "Lemma 4.4 (= B.9)",
    {"bound": at_most(1.0), "order_one": at_most(20.0)},
    INSIDE,
    conditions=smooth_only,
    informational=("order_one",),
    version=2,
)
def loss_ratio(evidence: Evidence) -> dict[str, Measured]:
    """At all times the slopes of the loss at any two training points differ by at most a constant factor."""
    ratios = evidence.result.isel(cell=1).loss_ratio_curve.max("step").values
    bound = bounds.loss_ratio_bound(LemmaNumbers.of(cells_of(evidence.experiment)[1]).slope)
    over = worst_of_runs("largest ratio over the printed C_r", ratios / bound, log=True)
    return {
        "bound": over.noting(slack_text(over)),
        "order_one": worst_of_runs("largest ratio", ratios, log=True),
    }


@CLAIMS.add(
    "lemB11.signal-in-adv-examples",
    "Lemmas B.11 and B.28",
    at_least(GOOD_RUN),
    INSIDE,
    conditions=assumption,
    version=2,
)
def signal_in_attacked(evidence: Evidence) -> Measured:
    """An attacked training point x with clean label y_c keeps its signal: y_c <mu, x> stays between r^2/3 and 3 r^2."""
    low, high = (_by_seed(evidence, f"signal_{end}") for end in ("low", "high"))
    inside = (low >= 1 / 3) & (high <= 3)
    within = share_of_seeds("seeds within [1/3, 3] r^2", inside, low.notnull())
    return within.noting(f"range {float(low.min()):.3g} to {float(high.max()):.3g}")


@CLAIMS.add(
    "lemB12.norm-growth",
    "Lemma B.12, (5)",
    {"bound": at_most(1.0), "spread": at_most(2.0)},
    INSIDE,
    SCALING,
    conditions=assumption,
    version=2,
)
def norm_growth(evidence: Evidence) -> dict[str, Measured]:
    """|W_t| grows by at most C2 eta sqrt(d/n) times the sum of G over the steps, with one C2 for all n, r and d."""
    seeds = min(each.seeds for each in evidence.experiments)
    rows, limits = [], []
    for replay in [cell for study in (0, 1) for cell in evidence.replays_by_cell(study)]:
        growth = dict(zip(replay.seeds, extremes_of(replay)["growth"].tolist(), strict=True))
        rows.append([growth.get(seed, math.nan) for seed in range(seeds)])
        limits.append(bounds.norm_growth_bound(LemmaNumbers.of(replay.cell).slope))
    growths = np.array(rows).T
    over = worst_of_runs("largest C2 over the proof's 594 / gamma", growths / limits, log=True)
    spread = np.exp(np.ptp(np.log(growths), axis=1))
    return {
        "bound": over.noting(f"C2 itself is up to {np.nanmax(growths):.3g}; {slack_text(over)}"),
        "spread": worst_of_runs(
            "largest over smallest C2 of the cells of a seed", spread, log=True
        ),
    }


@CLAIMS.add(
    "lemB15.gradient-lower-bound",
    "Lemmas B.15 and B.29",
    {"relu": at_least(GOOD_RUN), "smooth": at_least(GOOD_RUN)},
    INSIDE,
    conditions=assumption,
)
def gradient_lower_bound(evidence: Evidence) -> dict[str, Measured]:
    """The component of the negative gradient along the signal is at least gamma r G / 4; for ReLU at least this times
    the share c0 of active neurons."""
    relu, smooth = (LemmaNumbers.of(cell).slope for cell in cells_of(evidence.experiment))
    pulls, active = _extremes(evidence, "pull"), _extremes(evidence, "active")[0]
    limits = [relu * active / 4, smooth / 4]
    return {
        case: share("runs with <-grad, V> / (r G) above its bound", pull >= limit).noting(
            f"smallest over its bound {float((pull / limit).min()):.3g}"
        )
        for case, pull, limit in zip(CASES, pulls, limits, strict=True)
    }


@CLAIMS.add(
    "lem4.5.active-neurons",
    "Lemma 4.5 (= B.21)",
    {"share": at_least(GOOD_RUN), "trend": at_least(0.0)},
    ACTIVE,
    conditions=relu_only,
    levels={"share": 0.05},
)
def active_neurons(evidence: Evidence) -> dict[str, Measured]:
    """Before and after the first step every neuron is active on a constant share of the points of its sign, and a
    constant share of the neurons is active on the ball of every point."""
    early = evidence.result.sel(step=[0, 1])
    least = np.minimum(early.active_neurons_min_curve, early.active_points_min_curve).min("step")
    largest = least.isel(cell=-1)
    level = evidence.levels["share"]  # c0 is a constant that the paper does not give
    constant = share(f"runs with both shares >= {level:g}", largest >= level)
    rows = least.transpose("seed", "cell").values
    return {
        "share": constant.noting(
            f"smallest share {float(largest.min()):.3g}, at the largest n = m"
        ),
        "trend": slope_by_seed(
            "slope of the smallest share on log n, m = n", np.log(least.samples), rows
        ),
    }


@CLAIMS.add(
    "lemB26.nested-activation", "Lemma B.26, (E1)", at_least(GOOD_RUN), INSIDE, conditions=relu_only
)
def nested_activation(evidence: Evidence) -> Measured:
    """A neuron that is active on the ball of a point of its sign stays active there in all later steps."""
    lost = evidence.result.isel(cell=0).activation_lost
    nested = share("runs that lose no active pair", lost == 0)
    return nested.noting(f"largest share of pairs lost {float(lost.max()):.3g}")


@CLAIMS.add(
    "lemB26.margin-increment-band",
    "Lemma B.26, (E2)",
    at_least(GOOD_RUN),
    INSIDE,
    conditions=relu_only,
)
def increment_band(evidence: Evidence) -> Measured:
    """With ReLU a step increases a margin y_i f by an amount of order eta d g_i / n, within the printed constants."""
    names = ("band_low", "band_high", "active")
    low, high, active = (_extremes(evidence, name)[0] for name in names)
    within = share("runs within the band", (low >= active) & (high <= 1))
    return within.noting(
        f"smallest over its lower end {float((low / active).min()):.3g}, "
        f"largest over its upper end {float(high.max()):.3g}"
    )


@CLAIMS.add(
    "corB31.all-neurons-align", "Corollary B.31", at_least(GOOD_RUN), INSIDE, conditions=relu_only
)
def all_neurons_align(evidence: Evidence) -> Measured:
    """On a fresh point every neuron has the sign of a_s y, except with probability 4 (d/n)^(-11)."""
    # The three standard errors are those of the printed probability: those of the measured share would excuse any few
    # misses.
    count, replay = evidence.size(100, 250, 250), evidence.replays_by_cell()[0]
    numbers = LemmaNumbers.of(replay.cell)
    aligned = aligned_share(replay, count).numpy()
    chance = 4 * (numbers.dim / numbers.samples) ** -11
    error = math.sqrt(max(chance * (1 - chance), 1 / count) / count)
    rare = share(
        "runs that miss no more points than this probability", aligned >= 1 - chance - 3 * error
    )
    return rare.noting(f"aligned on {aligned.mean():.5g} of {aligned.size * count} points")


@CLAIMS.add(
    "lemB14.margin-scaling",
    "Lemma B.14",
    {
        "signal": exponent(2),
        "samples": exponent(1 / 2),
        "dim": exponent(-1 / 2),
        "constant": at_most(0.2),
    },
    SCALING,
    conditions=assumption,
)
def margin_scaling(evidence: Evidence) -> dict[str, Measured]:
    """From the first step on E[y f] / ||W||_2 on fresh points is at least a constant times r^2 sqrt(n/d): it grows as
    this, by a factor that stays along training."""
    result = evidence.result
    margin = np.minimum(result.test_margin_positive, result.test_margin_negative)
    powers = power_laws(evidence, margin / result.spectral_norm, "E[y f] / ||W||")
    change = mean("change of the margin over steps, base cell", _margin_changes(evidence))
    return powers | {"constant": change}


def power_laws(evidence: Evidence, values: xr.DataArray, of: str) -> dict[str, Measured]:
    """Return the exponents of r, n and d, from one fit of all cells for each seed."""
    result = evidence.result
    names = ("signal", "samples", "dim")
    logs = np.stack([np.ones(result.sizes["cell"]), *(np.log(result[name]) for name in names)], 1)
    fits = np.linalg.lstsq(logs, np.log(values.transpose("cell", "seed").values), rcond=None)[0]
    return {
        name: mean(f"exponent of {name} in {of}", fit)
        for name, fit in zip(names, fits[1:], strict=True)
    }


def _margin_changes(evidence: Evidence) -> np.ndarray:
    """Return the largest |kappa_t / kappa_T - 1| over t >= 1, by seed; kappa is the mean margin over ||W||_2."""
    kappas = []
    for step in steps_of(evidence.replays_by_cell()[0]):
        if step.number:
            fresh = step.batch.test_points("test/0", 250)
            margins = (fresh.clean_y * step.batch.run(fresh).outputs).mean(1)
            kappas.append(margins / torch.linalg.matrix_norm(step.batch.params["inner"], 2))
    curve = torch.stack(kappas)
    return (curve / curve[-1] - 1).abs().amax(0).numpy()
