"""Test errors of Theorems 3.1 and 3.2: upper and lower bounds, rates, closed forms."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr
from scipy import special

from benign.claims import (
    Claims,
    Direction,
    Evidence,
    Kind,
    Measured,
    Undecided,
    at_least,
    at_most,
    between,
    exponent,
    largest_mean,
    mean,
    share,
    worst,
)
from benign.papers.statistics import cells_of, share_of_seeds
from benign.papers.wang.bounds import (
    alignment,
    linear_rule_errors,
    margin_error_bound,
    robust_error_floor,
)
from benign.papers.wang.claims.extremes import LemmaNumbers, rhos
from benign.papers.wang.claims.lemmas import power_laws
from benign.papers.wang.claims.studies import (
    BY_PACE,
    BY_RADIUS,
    FLIP,
    FLOOR,
    GOOD_RUN,
    INSIDE,
    LEVELS,
    MODES,
    ONE_STEP,
    SCALING,
    assumption,
    for_robust_error,
)
from benign.sweep.dataset import ended

CLAIMS = Claims("wang")


def _radii(evidence: Evidence) -> xr.DataArray:
    """Return alpha of every cell."""
    cells = cells_of(evidence.experiment)
    return xr.DataArray([LemmaNumbers.of(cell).radius for cell in cells], dims="cell")


def _point(evidence: Evidence) -> float:
    """Return what one test point counts."""
    return 1 / evidence.experiment.evaluation.samples


def _excess(error: xr.DataArray, bound: xr.DataArray, count: int) -> np.ndarray:
    """Return by how many standard errors an error exceeds its bound, in the runs that have one."""
    spread = np.sqrt(np.maximum(bound * (1 - bound), 1 / count) / count)
    excess = ((error - bound) / spread).values.ravel()
    return excess[np.isfinite(excess)]


@CLAIMS.add(
    "lem4.2.margin-bound",
    "Lemma 4.2 (= B.2)",
    {"clean": at_most(3.0), "robust": at_most(3.0)},
    LEVELS,
    kind=Kind.IDENTITY,
    robust={"robust": Direction.FALLS},
)
def margin_bound(evidence: Evidence) -> dict[str, Measured]:
    """On Gaussian clusters, if the mean margin M_y of both classes is at least alpha ||W||_2, the robust error beyond
    the label noise is at most the mean over y of exp(-(M_y / ||W||_2 - alpha)^2 / 2)."""
    # Proven for every network: only the count of test points can exceed the bound, by less than three standard errors.
    result, count = evidence.result, evidence.experiment.evaluation.samples
    robust_bound = margin_error_bound(result, _radii(evidence))
    excesses = {
        "clean": _excess(1 - result.test_accuracy, margin_error_bound(result), count),
        "robust": _excess(1 - result.robust_accuracy, robust_bound, count),
    }
    if not all(excess.size for excess in excesses.values()):
        raise Undecided("the hypothesis M_y >= alpha ||W||_2 holds in no run")
    of = "excess over the bound, in standard errors"
    return {name: worst(of, excess) for name, excess in excesses.items()}


@CLAIMS.add(
    "thm3.1.clean-exp-rate",
    "Theorem 3.1, item 2",
    {"signal": exponent(2), "samples": exponent(1 / 2), "dim": exponent(-1 / 2)},
    SCALING,
    conditions=assumption,
)
def clean_rate(evidence: Evidence) -> dict[str, Measured]:
    """The clean error beyond the label noise is at most 2 exp(-c n r^4 / d), and falls as this: its normal quantile z
    grows as r^2 sqrt(n/d)."""
    # z is the mean over the standard deviation of y f on fresh points: inside the theorem errors are too rare to count.
    result = evidence.result
    return power_laws(evidence, result.test_margin_mean / result.test_margin_std, "z")


@CLAIMS.add(
    "thm3.1.robust-exp-rate",
    "Theorem 3.1, item 3",
    {"strength": at_least(0.0), "radius": at_most(0.0)},
    LEVELS,
    conditions=for_robust_error,
    robust=Direction.MIXED,
)
def robust_rate(evidence: Evidence) -> dict[str, Measured]:
    """The robust error beyond the label noise is exp(-c (r^2 sqrt(n/d) / C - alpha)^2): the square root of
    minus its logarithm rises with r^2 sqrt(n/d) and falls with alpha."""
    result = evidence.result
    strength = result.signal**2 * np.sqrt(result.samples / result.dim)
    given = np.stack([np.ones(strength.size), strength.values, _radii(evidence).values], 1)
    errors = (1 - result.robust_accuracy).transpose("cell", "seed").values
    # Where no error was counted, half an error, so that a logarithm exists.
    counted = np.maximum(errors, 0.5 / evidence.experiment.evaluation.samples)
    roots = np.sqrt(-np.log(np.minimum(counted, 1 - 1e-9)))
    fits = np.linalg.lstsq(given, roots, rcond=None)[0]
    return {
        "strength": mean("coefficient of r^2 sqrt(n/d)", fits[1]),
        "radius": mean("coefficient of alpha", fits[2]),
    }


@CLAIMS.add(
    "thm3.1.clean-same-as-GD",
    "Theorem 3.1 and section 3.4",
    {"small": between(-0.01, 0.01), "up_to_signal": between(-0.01, 0.01)},
    BY_RADIUS,
    conditions=assumption,
    informational=("up_to_signal",),
    levels={"small rho": 0.1},
)
def clean_as_without_attack(evidence: Evidence) -> dict[str, Measured]:
    """Adversarial training has the clean error of clean training."""
    errors = 1 - evidence.result.test_accuracy.transpose("cell", "seed").values
    rho, level = rhos(evidence.experiment), evidence.levels["small rho"]
    small = (rho > 0) & (rho <= level)
    if not (rho == 0).any() or not small.any():
        raise Undecided(f"no clean runs, or none with rho <= {level:g}")
    change = errors - errors[rho == 0]
    of, largest = "change of clean error by attacks, same draws", int(rho.argmax())
    return {
        "small": mean(f"{of}, rho <= {level:g}", np.mean(change[small], axis=0)),
        "up_to_signal": mean(f"{of}, rho = {rho[largest]:g}", change[largest]),
    }


@CLAIMS.add(
    "thm3.1.benign",
    "Theorem 3.1",
    at_least(GOOD_RUN),
    INSIDE,
    conditions=for_robust_error,
    robust=Direction.RISES,
    levels={"excess": 0.01},
    version=2,
)
def benign(evidence: Evidence) -> Measured:
    """Overfitting is benign: flipped labels are fitted robustly, and yet the robust error stays at the label noise."""
    # Against clean labels, for which there are certificates: the error beyond the label noise is at most this one.
    result, level = evidence.result, evidence.levels["excess"]
    flipped = result.flipped_fitted.notnull()  # NaN where no label was flipped
    fitted = (result.train_robust_accuracy_judged == 1) & (result.flipped_fitted == 1)
    good = fitted & (1 - result.robust_accuracy <= level)
    measured = share_of_seeds(
        f"fitted, with robust error against clean labels <= {level:g}",
        (good | ~flipped).isel(seed=flipped.any("cell").values),
        ended(result).isel(seed=flipped.any("cell").values),
    )
    return measured.noting(f"largest robust error {float(1 - result.robust_accuracy.min()):.4g}")


def _below_floor(evidence: Evidence, version: Literal["printed", "sharp"]) -> Measured:
    """Return by how many standard errors the floor exceeds the mean robust error of a cell, at alpha < |mu|."""
    result, count = evidence.result, evidence.experiment.evaluation.samples
    numbers = [LemmaNumbers.of(cell) for cell in cells_of(evidence.experiment)]
    below = [place for place, n in enumerate(numbers) if n.rho < 1]
    gaps = []
    for place in below:
        n = numbers[place]
        floor = float(robust_error_floor(n.signal, n.radius, FLIP, 1.0, version=version))
        errors = result.robust_noisy_error.isel(cell=place).values
        spread = math.sqrt(floor * (1 - floor) / count / errors.size)
        gaps.append((floor - errors.mean()) / spread)
    measured = worst("floor less robust error, in standard errors", gaps)
    return measured.noting(f"closest at rho = {numbers[below[np.argmax(gaps)]].rho:g}")


# Proven for every classifier, so that only the attack or the code can be at fault: an error below the floor, by more
# than the count of test points explains, is that of points which the attack did not break.
PROVEN: dict[str, Any] = {"kind": Kind.IDENTITY, "robust": Direction.RISES}


@CLAIMS.add("thm3.2.lower-bound", "Theorem 3.2", at_most(3.0), FLOOR, **PROVEN)
def lower_bound(evidence: Evidence) -> Measured:
    """No classifier has a robust error below beta + (1 - 2 beta)/2 Phi(-(r - alpha)) on Gaussian clusters."""
    return _below_floor(evidence, "printed")


@CLAIMS.add("derived.lower-bound-sharp", "derived", at_most(3.0), FLOOR, **PROVEN)
def lower_bound_sharp(evidence: Evidence) -> Measured:
    """The bound of Theorem 3.2 holds at twice the distance from beta: beta + (1 - 2 beta) Phi(-(r - alpha))."""
    return _below_floor(evidence, "sharp")


@CLAIMS.add("thm3.2.alpha-ge-mu", "Theorem 3.2", at_most(3.0), FLOOR, **PROVEN)
def attack_beyond_signal(evidence: Evidence) -> Measured:
    """For alpha >= |mu| every classifier has a robust error of at least 1/2."""
    places = np.flatnonzero(rhos(evidence.experiment) >= 1)
    errors = evidence.result.robust_noisy_error.isel(cell=places)
    spread = 0.5 / math.sqrt(evidence.experiment.evaluation.samples)
    gaps = ((0.5 - errors) / spread).values.ravel()
    return worst("1/2 less robust error, in standard errors", gaps)


def _alignments(evidence: Evidence) -> np.ndarray:
    """Return s = <u, mu> / |u| of the training points of every run, [cells, seeds]; NaN for a missing run."""
    rows = []
    for replay in evidence.replays_by_cell():
        sample, row = replay.start().sample, np.full(evidence.experiment.seeds, np.nan)
        aligned = alignment(sample.x[:, :, 0], sample.y, sample.latent["signal"][:, 0])
        row[replay.seeds] = aligned.numpy()
        rows.append(row)
    return np.array(rows)


@CLAIMS.add(
    "derived.one-step-closed-form",
    "derived",
    {"clean": at_most(4.0), "robust": at_most(4.0)},
    ONE_STEP,
    kind=Kind.IDENTITY,
    robust={"robust": Direction.MIXED},
    version=2,
)
def one_step_closed_form(evidence: Evidence) -> dict[str, Measured]:
    """After one step from a vanishing start a smooth network is the linear rule sum_i y_i x_i, whose clean and robust
    errors have closed forms."""
    result, count = evidence.result, evidence.experiment.evaluation.samples
    s, parts = _alignments(evidence), {}
    for part, name, radius in (
        ("clean", "test_noisy_error", 0.0),
        ("robust", "robust_noisy_error", _radii(evidence)),
    ):
        expected, spread = _linear_rule(s, np.asarray(radius).reshape(-1, 1))
        measured = result[name].transpose("cell", "seed").values
        deviations = np.abs(measured - expected) / (spread / math.sqrt(count))
        parts[part] = worst("deviation, in standard errors of the test points", deviations)
    return parts


def _linear_rule(s: np.ndarray, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the robust error of a linear rule, and the standard deviation of the contribution of one point.

    A point contributes 1 - beta if the attack can make it wrong, and beta if it can make it right; where the first is
    possible, the second is, too.
    """
    wrong, right = special.ndtr(radius - s), special.ndtr(radius + s)
    clean = 1 - FLIP
    variance = (
        clean**2 * wrong * (1 - wrong)
        + FLIP**2 * right * (1 - right)
        + 2 * FLIP * clean * wrong * (1 - right)
    )
    return clean * wrong + FLIP * right, np.sqrt(variance)


@CLAIMS.add(
    "derived.linear-predictor",
    "derived",
    at_most(0.03),
    LEVELS,
    robust=Direction.MIXED,
    version=2,
)
def linear_predictor(evidence: Evidence) -> Measured:
    """For d >= 40 n, a vanishing start and alpha <= 1, a trained network has the errors of the linear rule
    sum_i y_i x_i."""
    s, radius = map(torch.from_numpy, (_alignments(evidence), _radii(evidence).values[:, None]))
    expected = linear_rule_errors(s, radius).robust.numpy()
    errors = 1 - evidence.result.robust_accuracy.transpose("cell", "seed").values
    width = LemmaNumbers.of(cells_of(evidence.experiment)[0]).width
    measured = largest_mean(
        "gap of robust errors, mean over seeds", (errors - expected).T, absolute=True
    )
    return measured.noting(f"{width} neurons: the gap falls with their number")


@CLAIMS.add(
    "lem.noise-modes",
    "Definition 2.1",
    {"interpolation": at_least(GOOD_RUN), "error": at_most(0.01)},
    MODES,
    conditions=assumption,
    robust={"interpolation": Direction.RISES, "error": Direction.MIXED},
)
def noise_modes(evidence: Evidence) -> dict[str, Measured]:
    """Label noise that depends on the point (flips in a half space) changes nothing: training interpolates robustly,
    with the robust error of independent flips."""
    result = evidence.result.isel(cell=0)
    by_half_space = result.sel(flip_mode="half_space")
    fitted = by_half_space.train_robust_accuracy_judged == 1
    right = result.robust_accuracy  # against clean labels: no chance in test labels
    change = right.sel(flip_mode="independent") - right.sel(flip_mode="half_space")
    return {
        "interpolation": share("robustly fitted, half-space flips", fitted),
        "error": largest_mean(
            "change of robust error by half-space flips",
            change.values[:, None],
            absolute=True,
            resolution=_point(evidence),
        ),
    }


def _at_equal_time(evidence: Evidence, name: str) -> np.ndarray:
    """Return a curve at the eta T of the end of the slowest run, [step sizes, seeds], with the slowest last."""
    curve, setups = evidence.result[name], cells_of(evidence.experiment)
    rates = {LemmaNumbers.of(cell).rate: place for place, cell in enumerate(setups)}
    steps = {rate: round(int(curve.step[-1]) * min(rates) / rate) for rate in rates}
    if len(rates) < 2 or not set(steps.values()) <= set(curve.step.values.tolist()):
        raise Undecided("no two step sizes have snapshots at equal eta T")
    rows = [
        curve.isel(cell=rates[rate]).sel(step=steps[rate]).values
        for rate in sorted(rates, reverse=True)
    ]
    return np.array(rows)


@CLAIMS.add(
    "derived.eta-invariance",
    "derived",
    {"clean": at_most(0.01), "robust": at_most(0.01)},
    BY_PACE,
    robust={"robust": Direction.MIXED},
    version=2,
)
def eta_invariance(evidence: Evidence) -> dict[str, Measured]:
    """Test errors depend on eta and T through eta T alone: a larger step size may replace the tiny one of condition
    (4)."""
    parts = {}
    for name, curve in (("clean", "test_noisy_error"), ("robust", "robust_noisy_error")):
        rows = _at_equal_time(evidence, f"{curve}_curve")
        of = "change of error by the step size at equal eta T, same draws"
        parts[name] = largest_mean(
            of, (rows[:-1] - rows[-1]).T, absolute=True, resolution=_point(evidence)
        )
    return parts


@CLAIMS.add("sec3.4.ub-lb-exponent", "Section 3.4", exponent(1), SCALING, conditions=assumption)
def exponent_of_the_floor(evidence: Evidence) -> Measured:
    """The error beyond the label noise is the lower bound to a power proportional to n r^2 / d."""
    # Judged at alpha = 0, where both are functions of measured margins; "proportional" is the exponent 1.
    result = evidence.result
    z = result.test_margin_mean / result.test_margin_std
    upper = special.log_ndtr(-z)  # no label is flipped
    lower = math.log(1 / 2) + special.log_ndtr(-result.signal)
    powers = np.log(upper / lower).transpose("cell", "seed").values
    given = np.log(result.samples * result.signal**2 / result.dim).values
    slopes: Sequence[float] = np.polyfit(given, powers, 1)[0]
    return mean("slope of log(power) on log(n r^2 / d)", slopes)
