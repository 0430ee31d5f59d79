"""Claims about the figures of Zhang et al.: synthetic data (1 to 3) and real images (4 to 8)."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
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
    contains,
    exact,
    mean,
    worst,
)
from benign.papers.attention_setting import LEVEL
from benign.papers.statistics import boundary_slope, by_seed, converged
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
from benign.stats.boundary import Boundary, boundary
from benign.training.descent import Status

CLAIMS = Claims("zhang")

STUCK = 0.6
"""training loss above which a run has learned nothing; it starts at log 2 = 0.693"""


@CLAIMS.add(
    "fig1.phase_transition",
    "Figure 1a, b",
    {
        "rises, clean": at_least(0.9),
        "rises, robust": at_least(0.9),
        "low corner": at_most(0.6),
        "high corner": at_least(0.95),
    },
    "zhang/fig1",
    robust=Direction.MIXED,
)
def phase_transition(evidence: Evidence) -> dict[str, Measured]:
    """Clean and robust accuracy rise with N and with SNR, from chance to 1."""
    result, points = evidence.result, evidence.experiment.evaluation.samples
    low, high = (result.robust_accuracy.mean("seed").isel(samples=i, snr=i).item() for i in (0, -1))
    axes = ("samples", "snr")
    of = "share of pairs of cells that rise"
    return {
        "rises, clean": concordant(of, result.test_accuracy, axes, points),
        "rises, robust": concordant(of, result.robust_accuracy, axes, points),
        "low corner": exact("robust accuracy at the smallest N and SNR", low),
        "high corner": exact("robust accuracy at the largest N and SNR", high),
    }


@CLAIMS.add(
    "fig1.boundary_exponent",
    "Figure 1a, b",
    contains(-0.5, but_not=(-0.25,)),
    "zhang/fig1",
    robust=Direction.MIXED,
)
def boundary_exponent(evidence: Evidence) -> dict[str, Measured]:
    """The boundary has the form N SNR^2 = const: the critical SNR falls as N^(-1/2)."""
    of = "slope of log SNR* on log N"
    clean, robust = edges(evidence.result)
    return {"clean": boundary_slope(of, clean), "robust": boundary_slope(of, robust)}


@CLAIMS.add(
    "fig1.necessity", "Section 6 on figure 1", at_most(0.95), "zhang/fig1", robust=Direction.MIXED
)
def a_large_ratio_is_necessary(evidence: Evidence) -> Measured:
    """N SNR^2 of order 1 is necessary: no cell below a tenth of the N SNR^2 of the boundary is robust."""
    result = evidence.result
    _, robust = edges(result)
    if not robust.critical.notnull().any():
        raise Undecided("robust accuracy crosses 0.75 in no row")
    race = result.samples * result.snr**2
    below = result.robust_accuracy.mean("seed").where(race < robust.constant_for(2.0).value / 10)
    values = below.values[np.isfinite(below.values)]
    return worst("robust accuracy where N SNR^2 is below a tenth of the boundary's", values)


@CLAIMS.add(
    "fig1.clean_vs_robust_boundary",
    "Figure 1a, b",
    between(-np.log(1.6), np.log(1.6)),  # 1.6 is the smallest ratio in the legends of figures 6, 8
    "zhang/fig1",
    robust=Direction.MIXED,
)
def one_boundary(evidence: Evidence) -> Measured:
    """Clean and robust accuracy have one boundary N SNR^2 = c: their constants differ by less than a factor of 1.6."""
    shift = mean("log(c_robust / c_clean)", shift_of_boundary(evidence.result))
    return shift.noting("over rows of the map in place of seeds")


@CLAIMS.add("fig2.loss_always_falls", "Figure 2a, c", at_most(0.01), FIGURE_2)
def loss_always_falls(evidence: Evidence) -> Measured:
    """Whatever N and SNR, the robust training loss falls below 0.01."""
    result = evidence.result
    loss = result.train_loss.values
    above = loss > evidence.experiment.training.stop_loss
    if evidence.scale != "paper" and above.any():
        cap = evidence.experiment.training.most_steps()
        raise Undecided(
            f"{above.sum()} of {above.size} runs are at the step cap of {cap}, with losses up to {loss.max():.2g}; "
            "only the paper's scale trains for long enough"
        )
    return worst("training loss at the end", loss)


@CLAIMS.add("fig2.acc_needs_snr", "Figure 2b, d", at_least(0.9), FIGURE_2, robust=Direction.MIXED)
def accuracy_needs_signal(evidence: Evidence) -> dict[str, Measured]:
    """Robust test accuracy rises only if SNR or N is large, and the more, the larger they are."""
    result, points = evidence.result, evidence.experiment.evaluation.samples
    of = "share of pairs of curves that end in this order"
    parts = {}
    for name, fixed in (("snr", "samples"), ("samples", "snr")):
        common = _most_common(result[fixed].values)
        curves = result.robust_accuracy.isel(curve=np.flatnonzero(result[fixed].values == common))
        curves = curves.swap_dims(curve=name).drop_duplicates(name)
        parts[f"along {name}"] = concordant(of, curves, (name,), points)
    return parts


def _most_common(values: np.ndarray) -> float:
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[counts.argmax()])


@CLAIMS.add(
    "fig3a.converge",
    "Figure 3a",
    {"r=0.02": at_most(0.0101), "r=0.1": at_most(0.0101), "r=0.5": at_least(STUCK)},
    FIGURE_3,
)
def which_radii_converge(evidence: Evidence) -> dict[str, Measured]:
    """The robust training loss goes to 0 for tau = 0.02 |mu| and 0.1 |mu|, and stays near log 2 for 0.5 |mu|."""
    _need_convergence(evidence)
    return {
        f"r={r:g}": mean("training loss at the end", _at(evidence, "train_loss", r))
        for r in (0.02, 0.1, 0.5)
    }


@CLAIMS.add("fig3a.order", "Figure 3a", at_most(0.0), FIGURE_3)
def weaker_attacks_converge_sooner(evidence: Evidence) -> Measured:
    """Training against 0.02 |mu| converges sooner than against 0.1 |mu|."""
    _need_convergence(evidence)
    ratio = np.log(_at(evidence, "steps", 0.02)) - np.log(_at(evidence, "steps", 0.1))
    return mean("log(T(0.02) / T(0.1))", ratio)


@CLAIMS.add(
    "fig3b.entropy", "Figure 3b", {"r=0.02": at_most(0.1), "r=0.1": at_least(0.9)}, FIGURE_3
)
def entropies(evidence: Evidence) -> dict[str, Measured]:
    """Attention ends focused (entropy about 0) for tau = 0.02 |mu| and nearly uniform for 0.1 |mu|."""
    _need_convergence(evidence)
    entropy = evidence.result.attention_entropy / np.log(2)
    return {
        f"r={r:g}": mean("entropy of attention / log 2", entropy.sel(radius=r)) for r in (0.02, 0.1)
    }


@CLAIMS.add("fig3c.wv", "Figure 3c", at_least(np.log(1.2), fails_below=0.0), FIGURE_3)
def growth_of_values(evidence: Evidence) -> dict[str, Measured]:
    """W_V grows most for tau = 0.1 |mu|, mildly for 0.02 |mu| and not for 0.5 |mu|, with a factor of at least 1.2
    between any two in this order."""
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


@CLAIMS.add("fig3.thm3_attribution", "Figure 3 and Theorem 3", at_least(0.9), FIGURE_3)
def failure_is_that_of_theorem_3(evidence: Evidence) -> Measured:
    """Theorem 3, whose radius is |mu|, explains why training fails at 0.5 |mu|. (Derived: uniform attention stalls at
    0.354 |mu|, and classifiers that ignore the order of tokens fail from 0.501 |mu| on.)"""
    edge = crossings(evidence.result.train_loss, "radius", STUCK)
    return mean("radius / |mu| from which on training is stuck", edge)


@CLAIMS.add("robust.attack_strength", "derived", at_most(0.02), "zhang/fig1", FIGURE_3)
def attack_strength(evidence: Evidence) -> dict[str, Measured]:
    """The training attack (20 steps of PGD) is strong enough: a thorough attack lowers robust accuracy by at most 0.02
    more, on test and on training points."""
    parts = {}
    for name, result in zip(("figure 1", "figure 3"), evidence.results, strict=True):
        test = result.robust_accuracy_training_attack - result.robust_accuracy
        train = result.train_robust_accuracy - result.train_robust_accuracy_judged
        for points, drop in (("test", test), ("training", train)):
            lost = mean("robust accuracy lost to a thorough attack", drop.values.ravel())
            parts[f"{name}, {points} points"] = lost.noting("over runs in place of seeds")
    return parts


@CLAIMS.add("repro.wO_scale", "derived", between(-0.2, 0.2), OUTPUT_SCALES)
def output_scale_matters(evidence: Evidence) -> Measured:
    """Figures 1 and 3 can be reproduced from the text alone: whether w_O is divided by 16 as well, which the paper
    leaves open, changes the share of runs that converge within 5000 steps by at most 0.2."""
    shares = (
        converged(evidence.result).astype(float).mean("snr").transpose("seed", "network").values
    )
    return mean("share converged, w_O undivided less divided", shares[:, 0] - shares[:, 1])


@CLAIMS.add(
    "fig4-6.monotone",
    "Figures 4 to 6",
    at_least(0.9),
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    robust=Direction.MIXED,
)
def images_rise(evidence: Evidence) -> dict[str, Measured]:
    """On MNIST, CIFAR-10 and Tiny-ImageNet clean and robust accuracy rise with N and with SNR."""
    of, axes = "share of pairs of cells that rise", ("samples", "snr")
    figures = ("figure 4", "figure 5", "figure 6")
    parts = {}
    for name, experiment, result in zip(
        figures, evidence.experiments, evidence.results, strict=True
    ):
        points = experiment.evaluation.samples
        for kind in ("test accuracy", "robust accuracy"):
            accuracy = result[kind.replace(" ", "_")]
            parts[f"{name}, {kind}"] = concordant(of, accuracy, axes, points)
    return parts


@CLAIMS.add(
    "fig7.multinorm_lower", "Figure 7", at_most(0.0), FIGURE_4, FIGURE_7, robust=Direction.MIXED
)
def several_norms_are_harder(evidence: Evidence) -> Measured:
    """Against attacks in several norms at once robust accuracy is lower than against one norm."""
    single, several = (result.robust_accuracy for result in evidence.results)
    return mean("robust accuracy, several norms less l2", by_seed(several - single))


@CLAIMS.add("fig8.boundary_shift", "Figure 8", at_least(0.0), FIGURE_8, robust=Direction.MIXED)
def robust_boundary_is_later(evidence: Evidence) -> Measured:
    """The boundary of robust accuracy is at a larger N SNR^2 than that of clean accuracy."""
    # At the cut-off of the image set, at which the paper draws its curves.
    shift = shift_of_boundary(evidence.result, CUT_OFF[source(evidence.result)])
    return replace(mean("log(c_robust / c_clean)", shift), basis=f"{shift.size} rows of the map")


ERRORS = 2.0
"""standard errors by which two accuracies must differ, or they are a tie"""


def concordant(of: str, accuracy: xr.DataArray, axes: Sequence[str], points: int) -> Measured:
    """Return the share of pairs of cells along the axes of a map whose accuracy rises, ties left out.

    points: test points of a run, which decide what is a tie.
    """
    seeds = accuracy.sizes["seed"]
    tie = ERRORS * math.sqrt(2 * 0.25 / (points * seeds))
    map_ = accuracy.mean("seed")
    rises = [rise for axis in axes for rise in _rises(map_, axis) if abs(rise) > tie]
    if not rises:
        raise Undecided(f"{of}: no two cells differ by more than chance")
    return exact(of, float(np.mean([rise > 0 for rise in rises])), f"{len(rises)} pairs")


def _rises(map_: xr.DataArray, axis: str) -> list[float]:
    """Return the differences of all pairs of cells along an axis."""
    lines = map_.sortby(axis).transpose(..., axis).values.reshape(-1, map_.sizes[axis])
    pairs = itertools.combinations(range(lines.shape[1]), 2)
    return [float(line[j] - line[i]) for i, j in pairs for line in lines]


def edges(result: xr.Dataset, level: float = LEVEL) -> tuple[Boundary, Boundary]:
    """Return where clean and robust accuracy cross the level."""
    return boundary(result.test_accuracy, level), boundary(result.robust_accuracy, level)


def shift_of_boundary(result: xr.Dataset, level: float = LEVEL) -> np.ndarray:
    """Return log(c_robust / c_clean) of N SNR^2 = c, in every row where both accuracies cross."""
    clean, robust = edges(result, level)
    rows = 2 * (np.log(robust.critical.values) - np.log(clean.critical.values))
    shifts = rows[np.isfinite(rows)]
    if shifts.size < 2:
        raise Undecided(f"both accuracies cross {level} in only {shifts.size} of {rows.size} rows")
    return shifts


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
