"""Claims about the figures of Zhang et al., synthetic (1 to 3) and on real images (4 to 8)."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import xarray as xr

from benign.claims import (
    Claims,
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
from benign.papers.zhang.claims.studies import OUTPUT_SCALES
from benign.papers.zhang.fig2 import FIGURE_2
from benign.papers.zhang.fig3 import FIGURE_3
from benign.papers.zhang.fig8 import FIGURE_8
from benign.papers.zhang.image_maps import FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, source
from benign.papers.zhang.images import CUT_OFF
from benign.papers.zhang.setting import LEVEL
from benign.stats.boundary import Boundary, boundary
from benign.training.descent import Status

CLAIMS = Claims("zhang")

STUCK = 0.6
"""training loss, of log 2 = 0.693 at the start, above which a run has learned nothing"""


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
    robust=True,
)
def phase_transition(evidence: Evidence) -> dict[str, Measured]:
    """Clean and robust accuracy rise with N and with SNR, from chance to certainty."""
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
    robust=True,
)
def boundary_exponent(evidence: Evidence) -> dict[str, Measured]:
    """The boundary has the form N SNR^2 = const: the critical SNR falls as N^(-1/2)."""
    of = "slope of log SNR* on log N"
    result = evidence.result
    return {
        "clean": boundary_slope(of, result.test_accuracy),
        "robust": boundary_slope(of, result.robust_accuracy),
    }


@CLAIMS.add("fig1.necessity", "Section 6 on figure 1", at_most(0.95), "zhang/fig1", robust=True)
def a_large_ratio_is_necessary(evidence: Evidence) -> Measured:
    """N SNR^2 of order 1 is necessary: no cell with a tenth of the N SNR^2 of the boundary is robust."""
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
    robust=True,
)
def one_boundary(evidence: Evidence) -> Measured:
    """Clean and robust accuracy have one boundary N SNR^2 = c: their constants differ by less than a factor of 1.6."""
    found = mean("log(c_robust / c_clean)", shift_of_boundary(evidence.result))
    return found.noting("over rows of the map in place of seeds")


@CLAIMS.add("fig2.loss_always_falls", "Figure 2a, c", at_most(0.01), FIGURE_2)
def loss_always_falls(evidence: Evidence) -> Measured:
    """Whatever N and SNR, the robust training loss falls below 0.01."""
    result = evidence.result
    loss = result.train_loss.values
    above = loss > evidence.experiment.training.stop_loss
    if evidence.scale != "paper" and above.any():
        cap = evidence.experiment.training.most_steps()
        raise Undecided(
            f"{above.sum()} of {above.size} runs are at the step cap of {cap}, losses up to {loss.max():.2g}; "
            "only the paper's scale trains for long"
        )
    return worst("training loss at the end", loss)


@CLAIMS.add("fig2.acc_needs_snr", "Figure 2b, d", at_least(0.9), FIGURE_2, robust=True)
def accuracy_needs_signal(evidence: Evidence) -> dict[str, Measured]:
    """Robust test accuracy rises only where SNR or N is large: the more so, the larger."""
    result, points = evidence.result, evidence.experiment.evaluation.samples
    of = "share of pairs of curves that end in this order"
    found = {}
    for name, fixed in (("snr", "samples"), ("samples", "snr")):
        common = _most_common(result[fixed].values)
        curves = result.robust_accuracy.isel(curve=np.flatnonzero(result[fixed].values == common))
        curves = curves.swap_dims(curve=name).drop_duplicates(name)
        found[f"along {name}"] = concordant(of, curves, (name,), points)
    return found


def _most_common(values: np.ndarray) -> float:
    found, counts = np.unique(values, return_counts=True)
    return float(found[counts.argmax()])


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
    return {
        f"r={r:g}": mean(
            "entropy of attention / log 2", _at(evidence, "attention_entropy", r) / np.log(2)
        )
        for r in (0.02, 0.1)
    }


@CLAIMS.add("fig3c.wv", "Figure 3c", at_least(np.log(1.2), fails_below=0.0), FIGURE_3)
def growth_of_values(evidence: Evidence) -> dict[str, Measured]:
    """W_V grows most for tau = 0.1 |mu|, mildly for 0.02 |mu| and not for 0.5 |mu|: by a factor of 1.2 each."""
    _need_convergence(evidence)
    start = evidence.result.value_norm_curve.isel(step=0)
    grown = {r: _at(evidence, "value_norm", r) - start.sel(radius=r) for r in (0.02, 0.1, 0.5)}
    logs = {r: np.log(np.maximum(each, 1e-12)) for r, each in grown.items()}
    of = "log of the ratio of growths of |u|"
    return {
        "0.1 against 0.02": mean(of, logs[0.1] - logs[0.02]),
        "0.02 against 0.5": mean(of, logs[0.02] - logs[0.5]),
    }


def _need_convergence(evidence: Evidence) -> None:
    """At a scale below the paper's a step cap may be too low: runs against the weakest attack must have got there."""
    ended = _at(evidence, "status", 0.02)
    if evidence.scale != "paper" and (ended != Status.CONVERGED).any():
        raise Undecided(
            "the step cap of this scale is too low: runs at 0.02 |mu| have not converged"
        )


def _at(evidence: Evidence, name: str, radius: float) -> xr.DataArray:
    return evidence.result[name].sel(radius=radius)


@CLAIMS.add("fig3.thm3_attribution", "Figure 3 and Theorem 3", at_least(0.9), FIGURE_3)
def failure_is_that_of_theorem_3(evidence: Evidence) -> Measured:
    """Training fails at 0.5 |mu| since the radius is beyond what any classifier can bear, which is |mu|. (Derived: the
    stall radius of uniform attention is 0.354 |mu|, that of classifiers blind to order 0.501 |mu|.)"""
    edge = crossings(evidence.result.train_loss, "radius", STUCK)
    return mean("radius / |mu| from which on training is stuck", edge)


@CLAIMS.add("robust.attack_strength", "derived", at_most(0.02), "zhang/fig1", FIGURE_3)
def attack_strength(evidence: Evidence) -> dict[str, Measured]:
    """The training attack (20 steps of PGD) is strong enough: a thorough attack takes at most 0.02 more robust
    accuracy, of test and of training points."""
    found = {}
    for name, result in zip(("figure 1", "figure 3"), evidence.results, strict=True):
        test = result.robust_accuracy_training_attack - result.robust_accuracy
        train = result.train_robust_accuracy - result.train_robust_accuracy_judged
        for points, drop in (("test", test), ("training", train)):
            lost = mean("robust accuracy lost to a thorough attack", drop.values.ravel())
            found[f"{name}, {points} points"] = lost.noting("over runs in place of seeds")
    return found


@CLAIMS.add("repro.wO_scale", "derived", between(-0.2, 0.2), OUTPUT_SCALES)
def output_scale_matters(evidence: Evidence) -> Measured:
    """Figures 1 and 3 can be reproduced from the text alone: whether w_O is divided by 16 as well, which the paper does
    not say, changes the share of runs that converge within 5000 steps by no more than 0.2."""
    converged = (evidence.result.status == Status.CONVERGED).astype(float)
    shares = converged.mean("snr").transpose("seed", "network").values
    return mean("share converged, w_O undivided less divided", shares[:, 0] - shares[:, 1])


@CLAIMS.add(
    "fig4-6.monotone", "Figures 4 to 6", at_least(0.9), FIGURE_4, FIGURE_5, FIGURE_6, robust=True
)
def images_rise(evidence: Evidence) -> dict[str, Measured]:
    """On MNIST, CIFAR-10 and Tiny-ImageNet clean and robust accuracy rise with N and with SNR."""
    found = {}
    for name, experiment, result in zip(
        ("figure 4", "figure 5", "figure 6"), evidence.experiments, evidence.results, strict=True
    ):
        for kind in ("test_accuracy", "robust_accuracy"):
            found[f"{name}, {kind.replace('_', ' ')}"] = concordant(
                "share of pairs of cells that rise",
                result[kind],
                ("samples", "snr"),
                experiment.evaluation.samples,
            )
    return found


@CLAIMS.add("fig7.multinorm_lower", "Figure 7", at_most(0.0), FIGURE_4, FIGURE_7, robust=True)
def several_norms_are_harder(evidence: Evidence) -> Measured:
    """Against attacks in several norms at once robust accuracy is lower than against one norm."""
    single, several = (result.robust_accuracy for result in evidence.results)
    less = (several - single).mean([dim for dim in single.dims if dim != "seed"])
    return mean("robust accuracy, several norms less l2", less)


@CLAIMS.add("fig8.boundary_shift", "Figure 8", at_least(0.0), FIGURE_8, robust=True)
def robust_boundary_is_later(evidence: Evidence) -> Measured:
    """The boundary of robust accuracy lies at a larger N SNR^2 than that of clean accuracy."""
    # At the cut-off of the image set, where the paper draws its curves.
    shift = shift_of_boundary(evidence.result, CUT_OFF[source(evidence.result)])
    return replace(mean("log(c_robust / c_clean)", shift), basis=f"{shift.size} rows of the map")


ERRORS = 2.0
"""standard errors by which two accuracies must differ to be no tie"""


def concordant(of: str, accuracy: xr.DataArray, axes: Sequence[str], points: int) -> Measured:
    """The share of pairs along rows and columns of a map that rise with their axis, of those that are no tie.

    `points` are the test points of a run, which decide what is a tie.
    """
    seeds = accuracy.sizes["seed"]
    tie = ERRORS * math.sqrt(2 * 0.25 / (points * seeds))
    mean = accuracy.mean("seed")
    rises = [rise for axis in axes for rise in _rises(mean, axis) if abs(rise) > tie]
    if not rises:
        raise Undecided(f"{of}: no two cells differ by more than chance")
    note = f"{len(rises)} pairs"
    return exact(of, float(np.mean([rise > 0 for rise in rises])), note)


def _rises(mean: xr.DataArray, axis: str) -> list[float]:
    lines = mean.sortby(axis).transpose(..., axis).values.reshape(-1, mean.sizes[axis])
    pairs = itertools.combinations(range(lines.shape[1]), 2)
    return [float(line[j] - line[i]) for i, j in pairs for line in lines]


def boundary_slope(of: str, accuracy: xr.DataArray) -> Measured:
    """Slope of log SNR* on log N, SNR* where accuracy is 0.75: -1/2 means N SNR^2 = const."""
    edge = boundary(accuracy, LEVEL)
    if edge.fit is None:
        raise Undecided(f"{of}: {edge.reason}")
    slope = edge.fit.growth
    return Measured(of, slope, f"{edge.fit.rows} rows")


def edges(result: xr.Dataset, level: float = LEVEL) -> tuple[Boundary, Boundary]:
    """Where clean and robust accuracy cross the level."""
    return boundary(result.test_accuracy, level), boundary(result.robust_accuracy, level)


def shift_of_boundary(result: xr.Dataset, level: float = LEVEL) -> np.ndarray:
    """log(c_rob / c_clean) of N SNR^2 = c, in every row where both accuracies cross."""
    clean, robust = edges(result, level)
    shift = 2 * (np.log(robust.critical.values) - np.log(clean.critical.values))
    found = shift[np.isfinite(shift)]
    if found.size < 2:
        raise Undecided(f"both accuracies cross {level} in {found.size} of {shift.size} rows only")
    return found


def crossings(
    values: xr.DataArray, axis: str, level: float, which: Literal["first", "last"] = "last"
) -> np.ndarray:
    """For every seed the place on the axis where its curve crosses the level, linearly between places; NaN where it
    does not. The last place is where something ends for good; accuracy over SNR is asked for the first, since single
    runs lose it again at large SNR."""
    curves = values.transpose("seed", axis).values.astype(float)
    places = values[axis].values.astype(float)
    return np.array([_place(places, curve - level, which) for curve in curves])


def _place(places: np.ndarray, above: np.ndarray, which: str) -> float:
    known = np.isfinite(above)
    places, above = places[known], above[known]
    changes = np.flatnonzero((above[1:] >= 0) != (above[:-1] >= 0))
    if not changes.size:
        return np.nan
    left = changes[0 if which == "first" else -1]
    share = above[left] / (above[left] - above[left + 1])
    return float(places[left] + share * (places[left + 1] - places[left]))
