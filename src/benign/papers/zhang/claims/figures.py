"""Claims about the figures of Zhang et al.: synthetic data (1 to 3) and real images (4 to 8)."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr

from benign.claims import (
    Claims,
    Direction,
    Evidence,
    Measured,
    Undecided,
    at_least,
    at_most,
    between,
    exponent,
    mean,
    worst_of_runs,
)
from benign.papers.attention_setting import LEVEL
from benign.papers.statistics import boundary_slope, by_seed, converged, rows_by_seed
from benign.papers.zhang.claims.studies import OUTPUT_SCALES
from benign.papers.zhang.figures import FIGURE_2, FIGURE_3
from benign.papers.zhang.images import (
    CUT_OFF,
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
    source,
)
from benign.stats.boundary import Boundary, boundary, boundary_shift
from benign.stats.intervals import Estimate
from benign.stats.monotone import largest_fall
from benign.training.descent import Status

CLAIMS = Claims("zhang")

ACCURACY = {"accuracy": LEVEL}
"""at which a boundary is read off"""
STUCK = 0.6
"""training loss above which a run has learned nothing; it starts at log 2 = 0.693"""
RISING = {"fall": at_most(0.05), "rise": at_least(0.1)}
"""what it takes that accuracy rises: no fall along an axis beyond this, and a rise from corner to corner"""
AT_STOP = 0.011
"""the loss 0.01 at which training stops, up to a tenth: it stops by its own attack, and the robust loss is larger"""


@CLAIMS.add(
    "fig1.phase_transition",
    "Figure 1a, b",
    {
        "fall, clean": RISING["fall"],
        "fall, robust": RISING["fall"],
        "low corner": at_most(0.6),
        "high corner": at_least(0.95),
    },
    "zhang/fig1",
    robust={
        "fall, robust": Direction.MIXED,
        "low corner": Direction.RISES,
        "high corner": Direction.RISES,
    },
    version=2,
)
def phase_transition(evidence: Evidence) -> dict[str, Measured]:
    """Clean and robust accuracy rise with N and with SNR (they fall nowhere by more than 0.05), robust accuracy from
    chance to 1."""
    result = evidence.result
    low, high = (result.robust_accuracy.isel(samples=i, snr=i) for i in (0, -1))
    return {
        "fall, clean": fall(result.test_accuracy, ("samples", "snr")),
        "fall, robust": fall(result.robust_accuracy, ("samples", "snr")),
        "low corner": mean("robust accuracy at the smallest N and SNR", low).within(0, 1),
        "high corner": mean("robust accuracy at the largest N and SNR", high).within(0, 1),
    }


@CLAIMS.add(
    "fig1.boundary_exponent",
    "Figure 1a, b",
    exponent(-0.5),
    "zhang/fig1",
    robust={"robust": Direction.MIXED},
    levels=ACCURACY,
)
def boundary_exponent(evidence: Evidence) -> dict[str, Measured]:
    """The boundary has the form N SNR^2 = const: the critical SNR falls as N^(-1/2)."""
    of = "slope of log SNR* on log N"
    parts, reasons = {}, []
    names = ("clean", "robust")
    for name, edge in zip(names, edges(evidence.result, evidence.levels["accuracy"]), strict=True):
        try:
            parts[name] = boundary_slope(of, edge)
        except Undecided as reason:
            reasons.append(str(reason))
            parts[name] = _unknown(of, edge.reason)
    if len(reasons) == len(parts):
        raise Undecided("; ".join(dict.fromkeys(reasons)))
    return parts


def _unknown(of: str, reason: str) -> Measured:
    """Return a number of which the runs say nothing, beside others of the same claim that they do decide."""
    return Measured.by(
        of, lambda confidence: Estimate(math.nan, -math.inf, math.inf), "not determined", reason
    )


@CLAIMS.add(
    "fig1.necessity",
    "Section 6 on figure 1",
    at_most(0.95),
    "zhang/fig1",
    robust=Direction.RISES,
    levels={**ACCURACY, "below": 0.1},
    version=2,
)
def a_large_ratio_is_necessary(evidence: Evidence) -> Measured:
    """N SNR^2 of order 1 is necessary: no cell below a tenth of the N SNR^2 of the boundary is robust."""
    result, levels = evidence.result, evidence.levels
    _, robust = edges(result, levels["accuracy"])
    if not robust.critical.notnull().any():
        raise Undecided(f"robust accuracy crosses {levels['accuracy']:g} in no row")
    race = result.samples * result.snr**2
    constant = np.exp(np.log(result.samples * robust.critical**2).mean())
    below = result.robust_accuracy.where(race < levels["below"] * constant)
    largest = below.max([dim for dim in below.dims if dim != "seed"])
    of = "robust accuracy where N SNR^2 is below a tenth of the boundary's"
    return worst_of_runs(of, rows_by_seed(largest)).within(0, 1)


@CLAIMS.add(
    "fig1.clean_vs_robust_boundary",
    "derived (Figure 1a, b)",
    between(-np.log(1.6), np.log(1.6)),  # 1.6 is the smallest ratio in the legends of figures 6, 8
    "zhang/fig1",
    robust=Direction.MIXED,
    levels=ACCURACY,
    version=2,
)
def one_boundary(evidence: Evidence) -> Measured:
    """Clean and robust accuracy have one boundary N SNR^2 = c: their constants differ by less than a factor of 1.6."""
    return shift_of_boundary(evidence.result, evidence.levels["accuracy"])


@CLAIMS.add(
    "fig2.loss_always_falls",
    "Figure 2a, c",
    at_most(AT_STOP),
    FIGURE_2,
    robust={"robust": Direction.FALLS},
    informational=("training attack",),
    version=2,
)
def loss_always_falls(evidence: Evidence) -> dict[str, Measured]:
    """Whatever N and SNR, the robust training loss falls to 0.01, up to a tenth. (The loss under the training attack
    does so by construction: training stops there.)"""
    result = evidence.result
    trained = result.train_loss.values
    above = trained > evidence.experiment.training.stop_loss
    if evidence.scale != "paper" and above.any():
        cap = evidence.experiment.training.most_steps()
        raise Undecided(
            f"{above.sum()} of {above.size} runs are at the step cap of {cap}, with losses up to {trained.max():.2g}; "
            "only the paper's scale trains for long enough"
        )
    robust, own = rows_by_seed(result.train_robust_loss), rows_by_seed(result.train_loss)
    return {
        "robust": worst_of_runs("robust training loss at the end", robust, log=True),
        "training attack": worst_of_runs("training loss at the end", own, log=True),
    }


@CLAIMS.add(
    "fig2.acc_needs_snr",
    "Figure 2b, d",
    {f"{what}, {name}": rule for name in ("snr", "samples") for what, rule in RISING.items()},
    FIGURE_2,
    robust=Direction.MIXED,
    version=2,
)
def accuracy_needs_signal(evidence: Evidence) -> dict[str, Measured]:
    """Robust test accuracy rises only if SNR or N is large, and the more, the larger they are: it ends higher by 0.1 or
    more at the largest than at the smallest, and nowhere lower by more than 0.05."""
    result = evidence.result
    parts = {}
    for name, fixed in (("snr", "samples"), ("samples", "snr")):
        common = _most_common(result[fixed].values)
        curves = result.robust_accuracy.isel(curve=np.flatnonzero(result[fixed].values == common))
        curves = curves.swap_dims(curve=name).drop_duplicates(name).sortby(name)
        parts[f"fall, {name}"] = fall(curves, (name,))
        parts[f"rise, {name}"] = rise(curves, (name,))
    return parts


def _most_common(values: np.ndarray) -> float:
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[counts.argmax()])


@CLAIMS.add(
    "fig3a.converge",
    "Figure 3a",
    {"r=0.02": at_most(AT_STOP), "r=0.1": at_most(AT_STOP), "r=0.5": at_least(STUCK)},
    FIGURE_3,
    robust=Direction.FALLS,
    version=2,
)
def which_radii_converge(evidence: Evidence) -> dict[str, Measured]:
    """The robust training loss goes to 0 for tau = 0.02 |mu| and 0.1 |mu| (to 0.01, where training stops, up to a
    tenth), and does not fall from log 2 for 0.5 |mu|."""
    _need_convergence(evidence)
    return {
        f"r={r:g}": mean("robust training loss at the end", _at(evidence, "train_robust_loss", r))
        for r in (0.02, 0.1, 0.5)
    }


@CLAIMS.add("fig3a.order", "Figure 3a", at_most(0.0), FIGURE_3)
def weaker_attacks_converge_sooner(evidence: Evidence) -> Measured:
    """Training against 0.02 |mu| converges sooner than against 0.1 |mu|, by the loss under the training attack."""
    _need_convergence(evidence)
    ratio = np.log(_at(evidence, "steps", 0.02)) - np.log(_at(evidence, "steps", 0.1))
    return mean("log(T(0.02) / T(0.1))", ratio)


@CLAIMS.add(
    "fig3b.entropy",
    "Figure 3b",
    {"r=0.02": at_most(0.1), "r=0.1": at_least(0.9)},
    FIGURE_3,
    informational=("r=0.02",),
    version=2,
)
def entropies(evidence: Evidence) -> dict[str, Measured]:
    """Attention ends nearly uniform for tau = 0.1 |mu|. (And focused, with an entropy of about 0, for 0.02 |mu|, which
    does not decide: the paper does not say which rows it averages, and if the signal's row alone has an entropy of 0,
    the mean over rows is half of log 2.)"""
    _need_convergence(evidence)
    entropy = evidence.result.attention_entropy / np.log(2)
    return {
        f"r={r:g}": mean("entropy of attention / log 2", entropy.sel(radius=r)) for r in (0.02, 0.1)
    }


@CLAIMS.add("fig3c.wv", "Figure 3c", at_least(np.log(1.2), fails_below=0.0), FIGURE_3)
def growth_of_values(evidence: Evidence) -> dict[str, Measured]:
    """W_V grows most for tau = 0.1 |mu|, mildly for 0.02 |mu|, and not for 0.5 |mu|. The growth of |u|, u = W_V w_O,
    has a factor of at least 1.2 between any two in this order (W_V moves along w_O alone)."""
    _need_convergence(evidence)
    start = evidence.result.value_norm_curve.isel(step=0)
    grown = {r: _at(evidence, "value_norm", r) - start.sel(radius=r) for r in (0.02, 0.1, 0.5)}
    logs = {r: np.log(np.maximum(growth, 1e-12)) for r, growth in grown.items()}
    of = "log of the ratio of growths of |u|"
    return {
        "0.1 against 0.02": mean(of, logs[0.1] - logs[0.02]),
        "0.02 against 0.5": mean(of, logs[0.02] - logs[0.5]),
    }


def _need_convergence(evidence: Evidence) -> None:
    """Raise if runs against the weakest attack have not converged at a scale whose step cap may be too low."""
    ended = _at(evidence, "status", 0.02)
    if evidence.scale != "paper" and (ended != Status.CONVERGED).any():
        raise Undecided(
            "the step cap of this scale is too low: runs at 0.02 |mu| have not converged"
        )


def _at(evidence: Evidence, name: str, radius: float) -> xr.DataArray:
    return evidence.result[name].sel(radius=radius)


@CLAIMS.add(
    "fig3.thm3_attribution",
    "Figure 3 and Theorem 3",
    at_least(0.9),
    FIGURE_3,
    levels={"stuck": STUCK},
)
def failure_is_that_of_theorem_3(evidence: Evidence) -> Measured:
    """Theorem 3, whose radius is |mu|, explains why training fails at 0.5 |mu|. (Derived: uniform attention stalls at
    0.354 |mu|, and classifiers that ignore the order of tokens fail from 0.501 |mu| on.)"""
    edge = crossings(evidence.result.train_loss, "radius", evidence.levels["stuck"])
    return mean("radius / |mu| from which on training is stuck", edge)


@CLAIMS.add("robust.attack_strength", "derived", at_most(0.02), "zhang/fig1", FIGURE_3, version=2)
def attack_strength(evidence: Evidence) -> dict[str, Measured]:
    """The training attack (20 steps of PGD) is strong enough: a thorough attack lowers robust accuracy by at most 0.02
    more, on test and on training points."""
    parts = {}
    for name, result in zip(("figure 1", "figure 3"), evidence.results, strict=True):
        test = result.robust_accuracy_training_attack - result.robust_accuracy
        train = result.train_robust_accuracy - result.train_robust_accuracy_judged
        for points, drop in (("test", test), ("training", train)):
            of = "robust accuracy lost to a thorough attack, mean over cells"
            parts[f"{name}, {points} points"] = mean(of, by_seed(drop))
    return parts


@CLAIMS.add("repro.wO_scale", "derived", between(-0.2, 0.2), OUTPUT_SCALES)
def output_scale_matters(evidence: Evidence) -> Measured:
    """Figures 1 and 3 can be reproduced from the text alone: whether w_O is divided by 16 as well, which the paper
    leaves open, changes the share of runs that converge within 5000 steps by at most 0.2."""
    shares = (
        converged(evidence.result).astype(float).mean("snr").transpose("seed", "network").values
    )
    return mean("share converged, w_O undivided less divided", shares[:, 0] - shares[:, 1])


IMAGES = ("figure 4", "figure 5", "figure 6")
KINDS = {"clean": "test_accuracy", "robust": "robust_accuracy"}


@CLAIMS.add(
    "fig4-6.monotone",
    "Figures 4 to 6",
    {
        f"{name}, {what}, {kind}": rule
        for name in IMAGES
        for what, rule in RISING.items()
        for kind in KINDS
    },
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    robust={f"{name}, {what}, robust": Direction.MIXED for name in IMAGES for what in RISING},
    version=2,
)
def images_rise(evidence: Evidence) -> dict[str, Measured]:
    """On MNIST, CIFAR-10 and Tiny-ImageNet clean and robust accuracy rise with N and with SNR: by 0.1 or more from
    corner to corner, and nowhere do they fall by more than 0.05."""
    axes = ("samples", "snr")
    parts = {}
    for name, result in zip(IMAGES, evidence.results, strict=True):
        for kind, variable in KINDS.items():
            parts[f"{name}, fall, {kind}"] = fall(result[variable], axes)
            parts[f"{name}, rise, {kind}"] = rise(result[variable], axes)
    return parts


@CLAIMS.add(
    "fig7.multinorm_lower", "Figure 7", at_most(0.0), FIGURE_4, FIGURE_7, robust=Direction.MIXED
)
def several_norms_are_harder(evidence: Evidence) -> Measured:
    """Against attacks in several norms at once robust accuracy is lower than against one norm."""
    single, several = (result.robust_accuracy for result in evidence.results)
    return mean("robust accuracy, several norms less l2", by_seed(several - single))


@CLAIMS.add(
    "fig8.boundary_shift",
    "Figure 8",
    at_least(0.0),
    FIGURE_8,
    robust=Direction.MIXED,
    version=2,
)
def robust_boundary_is_later(evidence: Evidence) -> Measured:
    """The boundary of robust accuracy is at a larger N SNR^2 than that of clean accuracy."""
    # At the cut-off of the image set, at which the paper draws its curves.
    return shift_of_boundary(evidence.result, CUT_OFF[source(evidence.result)])


def fall(accuracy: xr.DataArray, axes: Sequence[str]) -> Measured:
    """Return the largest fall of a map along its axes, between any two cells of a line, in the map's units.

    Its interval is simultaneous over all lines and axes: runs differ by chance, so some cell is always below another.
    """
    falls = [largest_fall(accuracy, axis) for axis in axes]

    def interval(confidence: float) -> Estimate:
        each = [found.at(1 - (1 - confidence) / len(falls)) for found in falls]
        return Estimate(*(max(ends) for ends in zip(*each, strict=True)))

    seeds = falls[0].seeds
    basis = f"{seeds} seed{'s' * (seeds != 1)}"
    return Measured.by(f"largest fall along {' or '.join(axes)}", interval, basis)


def rise(accuracy: xr.DataArray, axes: Sequence[str]) -> Measured:
    """Return how much accuracy is higher at the upper ends of the axes than at the lower ends, by seed."""
    low, high = (accuracy.isel(dict.fromkeys(axes, end)) for end in (0, -1))
    return mean("rise from corner to corner", by_seed(high - low))


def edges(result: xr.Dataset, level: float) -> tuple[Boundary, Boundary]:
    """Return where clean and robust accuracy cross the level."""
    return boundary(result.test_accuracy, level), boundary(result.robust_accuracy, level)


def shift_of_boundary(result: xr.Dataset, level: float) -> Measured:
    """Return log(c_robust / c_clean) of N SNR^2 = c, a number for each seed."""
    try:
        shifts = boundary_shift(*edges(result, level))
    except ValueError as error:
        raise Undecided(str(error)) from None
    return mean("log(c_robust / c_clean)", shifts)


def crossings(
    values: xr.DataArray, axis: str, level: float, which: Literal["first", "last"] = "last"
) -> np.ndarray:
    """Return where the curve of every seed crosses the level, linearly interpolated; NaN if it does not cross.

    The last crossing is where something ends for good. Accuracy over SNR needs the first one, because single runs lose
    accuracy again at large SNR.
    """
    curves = values.transpose("seed", axis).values.astype(float)
    x = values[axis].values.astype(float)
    return np.array([_crossing(x, curve - level, which) for curve in curves])


def _crossing(x: np.ndarray, above: np.ndarray, which: str) -> float:
    known = np.isfinite(above)
    x, above = x[known], above[known]
    changes = np.flatnonzero((above[1:] >= 0) != (above[:-1] >= 0))
    if not changes.size:
        return np.nan
    left = changes[0 if which == "first" else -1]
    share = above[left] / (above[left] - above[left + 1])
    return float(x[left] + share * (x[left + 1] - x[left]))
