"""Claims about Figures 1 to 6 of Wang et al., in their settings: synthetic data, and two digits of MNIST."""

import numpy as np
from scipy.special import ndtri

from benign.claims import (
    Claims,
    Direction,
    Evidence,
    Measured,
    Undecided,
    at_least,
    at_most,
    between,
    mean,
    slope_by_seed,
    worst,
)
from benign.papers.statistics import boundary_slope, cells_of
from benign.papers.wang import exponents, images
from benign.papers.wang.claims.extremes import LemmaNumbers
from benign.papers.wang.claims.studies import SWITCH
from benign.papers.wang.exponents import LEVEL
from benign.papers.wang.figures import FIG1, FIG3
from benign.papers.wang.images import (
    CASES,
    FIG4,
    FIG5,
    FIG6,
    UNDERTRAINING,
    accuracy_map,
    change,
    radius_map,
)
from benign.spec.axes import dimensions
from benign.stats.boundary import boundary
from benign.training.optimisers import GradientDescent

CLAIMS = Claims("wang")
FIG2, EXPONENTS = "wang/fig2", "wang/exponents"
LAW = "signal * dim**p"
RADIUS_SLOPE = "slope of log rho* on log d"
NOISE = 0.1
"""share of flipped labels in all figures of synthetic data"""
FIG2_STEPS, LOSS_ZERO = 1000, 0.01

Setting = tuple[float, float, float]
"""signal, dimension and rho"""


@CLAIMS.add("fig1.clean-exponent-4", "Figure 1", between(3.5, 4.5), FIG1)
def clean_exponent(evidence: Evidence) -> Measured:
    """The transition of clean accuracy is at a dimension d* that grows as r^4."""
    edge = boundary(evidence.result.test_accuracy, LEVEL, LAW)
    return boundary_slope("slope of log d* on log r, clean", edge, "signals")


@CLAIMS.add("fig1.robust-exponent-2", "Figure 1", between(1.7, 2.3), FIG1, robust=Direction.MIXED)
def robust_exponent(evidence: Evidence) -> Measured:
    """The transition of robust accuracy is at a dimension d* that grows as r^2, in the window of the figure."""
    edge = boundary(evidence.result.robust_accuracy, LEVEL, LAW)
    return boundary_slope("slope of log d* on log r, robust", edge, "signals")


@CLAIMS.add("fig1.robust-below-clean", "Figure 1", at_most(0.0), FIG1)
def robust_below_clean(evidence: Evidence) -> Measured:
    """Robust accuracy is nowhere above clean accuracy."""
    difference = evidence.result.robust_accuracy - evidence.result.test_accuracy
    return worst("robust less clean accuracy", difference.values.ravel())


@CLAIMS.add(
    "fig1.robust-exponent-2-asymptotic",
    "Figure 1 and section 3.4",
    between(1.9, 2.1),
    EXPONENTS,
    robust=Direction.MIXED,
)
def robust_exponent_far_out(evidence: Evidence) -> Measured:
    """Where rho r is large, the dimension at the transition of robust accuracy grows as r^2."""
    # Local exponents against 1/(1 + rho r): the predictor's are linear in it, and in 1/(rho r) only for large rho r.
    robust = boundary(exponents.accuracy_map(evidence.result, "robust_accuracy"), LEVEL, LAW)
    rows = robust.critical_per_seed.dropna("signal")
    if rows.sizes["signal"] < 3:
        raise Undecided(
            f"{rows.sizes['signal']} signals have a boundary in every seed, 3 are needed"
        )
    logs, given = np.log(rows.transpose("seed", "signal").values), np.log(rows.signal.values)
    local = np.diff(logs, axis=1) / np.diff(given)
    middle = np.exp((given[1:] + given[:-1]) / 2)
    far = 1 / (1 + NOISE * middle)
    limits = [np.polyfit(far, row, 1)[1] for row in local]
    return mean("exponent of d* as rho r grows without bound", limits)


@CLAIMS.add(
    "lit.radius-switch",
    "Section 5",
    {"literal": between(3.5, 4.5), "difference": at_least(0.0)},
    SWITCH,
    robust=Direction.MIXED,
)
def radius_switch(evidence: Evidence) -> dict[str, Measured]:
    """With a radius of 0.1, as printed, the robust boundary has the exponent 4; with a radius of 0.1 |mu| a smaller
    one."""
    result = evidence.result
    radii = [LemmaNumbers.of(cell).radius for cell in cells_of(evidence.experiment)]
    literal = np.isclose(radii, 0.1)
    slopes = {}
    for name, chosen in (("literal", literal), ("intended", ~literal)):
        rows = result[["robust_accuracy"]].isel(cell=np.flatnonzero(chosen))
        table = rows.set_index(cell=["signal", "dim"]).unstack("cell").robust_accuracy
        critical = boundary(table, LEVEL, LAW).critical_per_seed.transpose("seed", "signal")
        slopes[name] = _seed_slopes(np.log(critical.signal.values), np.log(critical.values))
    difference = np.subtract(slopes["literal"], slopes["intended"])
    return {
        "literal": mean("slope of log d* on log r, radius 0.1", slopes["literal"]),
        "difference": mean("literal less intended slope", difference),
    }


def _seed_slopes(x: np.ndarray, rows: np.ndarray) -> list[float]:
    """Return the slope of every row; NaN where fewer than three points are known."""
    slopes = []
    for row in rows:
        known = np.isfinite(row)
        slope = np.polyfit(x[known], row[known], 1)[0] if known.sum() > 2 else np.nan
        slopes.append(float(slope))
    return slopes


@CLAIMS.add("fig2.loss-zero", "Figure 2", at_most(LOSS_ZERO), FIG2)
def loss_zero(evidence: Evidence) -> Measured:
    """The robust training loss goes to 0 in every setting."""
    loss = worst("final robust training loss", evidence.result.train_loss.values.ravel())
    steps = evidence.experiment.training.most_steps()
    if loss.estimate.value > LOSS_ZERO and steps < FIG2_STEPS:
        raise Undecided(
            f"{loss.estimate.value:.3g} after {steps} steps; the figure has {FIG2_STEPS}"
        )
    return loss


@CLAIMS.add(
    "fig2.error-to-noise",
    "Figure 2",
    between(NOISE - 0.01, NOISE + 0.03),
    FIG2,
    robust=Direction.MIXED,
)
def error_to_noise(evidence: Evidence) -> Measured:
    """The robust test error goes to the label noise of 10 % in every setting."""
    errors = evidence.result.robust_noisy_error
    furthest = int(np.abs(errors.mean("seed").values - NOISE).argmax())
    chosen = errors.isel(setting=furthest)
    setting = f"r = {float(chosen.signal):g}, d = {int(chosen.dim)}"
    return mean("final robust error of the setting furthest from the noise", chosen).noting(setting)


def _settings(evidence: Evidence) -> list[Setting]:
    """Return the settings of Figure 2, in the order of the result."""
    return [
        (n.signal, n.dim, round(n.radius / n.signal, 6))
        for n in map(LemmaNumbers.of, cells_of(evidence.experiment))
    ]


def _worse(evidence: Evidence, better: Setting, worse: Setting) -> Measured:
    """Return the robust error of one setting less that of another."""
    known = _settings(evidence)
    errors = evidence.result.robust_noisy_error.transpose("setting", "seed").values
    change = errors[known.index(worse)] - errors[known.index(better)]
    return mean("rise of robust error", change)


def _middle(evidence: Evidence) -> float:
    """Return the dimension of most settings."""
    dims = [dim for _, dim, _ in _settings(evidence)]
    return max(dims, key=dims.count)


@CLAIMS.add(
    "fig2.monotone-mu",
    "Figure 2, top",
    {"4_against_6": at_least(0.0), "trend": at_least(0.0)},
    FIG2,
    robust=Direction.MIXED,
)
def monotone_signal(evidence: Evidence) -> dict[str, Measured]:
    """A smaller signal leads to a larger robust error."""
    dim, known = _middle(evidence), _settings(evidence)
    signals = [4.0, 6.0, 8.0, 10.0]
    places = [known.index((signal, dim, 0.1)) for signal in signals]
    errors = evidence.result.robust_noisy_error.isel(setting=places)
    z = _quantile(errors.transpose("seed", "setting").values, evidence)
    return {
        "4_against_6": _worse(evidence, (6.0, dim, 0.1), (4.0, dim, 0.1)),
        "trend": slope_by_seed("slope of z = -Phi^-1(error) on log r", np.log(signals), z),
    }


def _quantile(errors: np.ndarray, evidence: Evidence) -> np.ndarray:
    """Return -Phi^-1 of the error beyond the noise; an error below half a point counts as half a point."""
    least = 0.5 / evidence.experiment.evaluation.samples
    return -ndtri(np.clip((errors - NOISE) / (1 - 2 * NOISE), least, 0.5))


@CLAIMS.add("fig2.monotone-d", "Figure 2, middle", at_least(0.0), FIG2, robust=Direction.MIXED)
def monotone_dim(evidence: Evidence) -> Measured:
    """A larger dimension leads to a larger robust error."""
    dims = sorted({dim for signal, dim, _ in _settings(evidence) if signal == 5})
    return _worse(evidence, (5.0, dims[0], 0.1), (5.0, dims[-1], 0.1))


@CLAIMS.add("fig2.monotone-alpha", "Figure 2, bottom", at_least(0.0), FIG2, robust=Direction.MIXED)
def monotone_radius(evidence: Evidence) -> Measured:
    """A larger radius leads to a larger robust error."""
    dim = _middle(evidence)
    return _worse(evidence, (5.0, dim, 0.05), (5.0, dim, 0.15))


@CLAIMS.add("sec3.4.no-robust-overfitting", "Section 3.4", at_most(0.005), FIG2)
def no_robust_overfitting(evidence: Evidence) -> Measured:
    """After the step size drops, the robust training loss keeps falling, and the robust test error does not rise."""
    # 0.005 is what 10 runs of 2000 points resolve (papers/wang.md 3.2).
    curve = evidence.result.robust_noisy_error_curve
    training = evidence.experiment.training
    assert isinstance(training, GradientDescent)
    drop = training.drop_every
    before = curve.sel(step=slice(None, drop)).isel(step=-1)
    change = (curve.isel(step=-1) - before).mean("setting")
    return mean("robust error at the end less that at the drop", change)


@CLAIMS.add("fig3.tradeoff", "Figure 3", at_most(0.0), FIG3, robust=Direction.MIXED)
def tradeoff(evidence: Evidence) -> Measured:
    """The larger the dimension, the smaller the radius up to which robust accuracy is at least 80 %."""
    (axis,) = [dim for dim in dimensions(evidence.experiment) if dim.name == "rho"]
    radii = list(next(iter(axis.fields.values())))
    accuracy = (1 - evidence.result.robust_noisy_error).assign_coords(rho=radii)
    return boundary_slope(RADIUS_SLOPE, boundary(accuracy, 0.8, "dim * rho**p"), "signals")


# Figures 4 to 6: two digits, images scaled to norm r.


STEPS, ZERO = 1000, 0.02
"""steps of figure 6, and the largest number that counts as zero"""


@CLAIMS.add(
    "fig4.mnist-transition",
    "Figure 4",
    {"clean": between(1 / 4.5, 1 / 3.5), "robust": between(1 / 2.3, 1 / 1.7)},
    FIG4,
    robust=Direction.MIXED,
)
def mnist_transition(evidence: Evidence) -> dict[str, Measured]:
    """On two digits of MNIST with images scaled to norm r, the transitions of accuracy are at d ~ r^4 (clean) and
    d ~ r^2 (robust)."""
    # The power of d in r*: 1/4 and 1/2. It may be 0, where d* would have no exponent.
    return {
        kind: boundary_slope(
            f"slope of log r* on log d, {kind}",
            boundary(accuracy_map(evidence.result, kind), images.LEVEL, images.LAW),
            "dimensions",
        )
        for kind in images.ACCURACIES
    }


@CLAIMS.add(
    "fig4.is-undertraining",
    "derived",
    {
        "clean, rescaled": between(-0.01, 0.01),
        "robust, rescaled": between(-0.01, 0.01),
        "robust, as it is": at_most(-0.01),
    },
    UNDERTRAINING,
    informational=("robust, as it is",),
)
def is_undertraining(evidence: Evidence) -> dict[str, Measured]:
    """The transition of Figure 4 is undertraining: with step size and start rescaled, the smallest r has the accuracy
    of the largest."""
    _, plain, rescaled = CASES
    changes = {
        "clean, rescaled": change(evidence.result, "test_accuracy", rescaled),
        "robust, rescaled": change(evidence.result, "robust_accuracy", rescaled),
        "robust, as it is": change(evidence.result, "robust_accuracy", plain),
    }
    of = "accuracy at r = 0.1 less that at r = 2"
    return {part: mean(of, difference.mean("dim")) for part, difference in changes.items()}


@CLAIMS.add("fig5.tradeoff-mnist", "Figure 5", at_most(0.0), FIG5, robust=Direction.MIXED)
def tradeoff_mnist(evidence: Evidence) -> Measured:
    """On two digits of MNIST, the larger the dimension, the smaller the radius up to which robust accuracy is at least
    80 %."""
    return boundary_slope(
        RADIUS_SLOPE,
        boundary(radius_map(evidence.result), images.RADIUS_LEVEL, images.BY_RADIUS),
        "dimensions",
    )


@CLAIMS.add("fig6.zero-zero", "Figure 6", at_most(ZERO), FIG6, robust=Direction.MIXED)
def zero_zero(evidence: Evidence) -> dict[str, Measured]:
    """On two digits of MNIST the robust training loss and the robust test error go to 0 in every setting."""
    result, steps = evidence.result, evidence.experiment.training.most_steps()
    loss, error = float(result.train_loss.mean("seed").max()), 1 - result.robust_accuracy
    if loss > ZERO and steps < STEPS:
        raise Undecided(f"loss {loss:.3g} after {steps} steps; the figure has {STEPS}")
    largest = error.isel(setting=int(error.mean("seed").argmax("setting")))
    return {
        "loss": worst("final robust training loss", result.train_loss.mean("seed")),
        "error": mean("final robust test error of the setting where it is largest", largest),
    }
