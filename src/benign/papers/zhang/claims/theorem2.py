"""The two cases of Theorem 2: whether training converges, how long it takes, and how large test errors are."""

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
    share,
    slope_by_seed,
)
from benign.claims.rule import EXPONENT
from benign.papers.attention_setting import LEVEL
from benign.papers.statistics import MOST, converged, log_steps, share_of_seeds
from benign.papers.zhang.appendix import HEADS
from benign.papers.zhang.claims.figures import crossings
from benign.papers.zhang.claims.studies import (
    CASES,
    CONVERGENCE,
    ERROR_LAW,
    NEEDED_RATIO,
    SLOWDOWN,
    THRESHOLD,
    case_1,
    case_2,
    either_case,
    weak_radius,
)

CLAIMS = Claims("zhang")

ACCURACY = {"accuracy": LEVEL}
"""at which a boundary is read off"""


@CLAIMS.add(
    "thm2.case1.convergence",
    "Theorem 2, Case 1",
    {"reached": MOST, "eps": exponent(-1), "eta": exponent(-1), "|mu|": exponent(-2)},
    CONVERGENCE,
    conditions=case_1,
    version=2,
)
def time_of_case_1(evidence: Evidence) -> dict[str, Measured]:
    """Clean training reaches the loss eps after T steps, with T of order 1 / (eta eps |mu|^2 |w_O|^2)."""
    result = evidence.result
    names = ("eps", "eta", "|mu|")
    reached = share_of_seeds("seeds whose runs all reach eps", converged(result))
    return {"reached": reached} | {
        name: mean(f"exponent of {name} in T", powers)
        for name, powers in zip(names, _time_exponents(result), strict=True)
    }


def _time_exponents(result: xr.Dataset) -> np.ndarray:
    """Return the powers of eps, eta and |mu| in T of every seed, by least squares: [3, seeds]."""
    factors = [result.stop_loss, result.rate, result.snr]  # noise has length 1, so |mu| is the SNR
    design = np.stack([np.ones(result.sizes["cell"]), *map(np.log, factors)], 1)
    times = log_steps(result).transpose("cell", "seed").values
    fits = [np.linalg.lstsq(design, column, rcond=None)[0][1:] for column in times.T]
    return np.where(np.isfinite(times).all(0), np.array(fits).T, np.nan)


@CLAIMS.add(
    "thm2.case2.convergence",
    "Theorem 2, Case 2",
    MOST,
    CASES,
    conditions=case_2,
    robust=Direction.RISES,
    # a run stops once the training attack's loss is at eps, so the robust one may be a little larger; a run that has
    # learned nothing is at log 2
    levels={"slack": 1.1, "unmoved": 0.01},
    version=2,
)
def case_2_converges(evidence: Evidence) -> dict[str, Measured]:
    """Training against radii between |mu| / log d_h and |mu| still reaches a robust training loss of eps (up to a
    tenth), in most seeds."""
    result, levels = _radii_of_case_2(evidence), evidence.levels
    reached = result.train_robust_loss <= levels["slack"] * evidence.experiment.training.stop_loss
    # a run at the step cap whose loss has left log 2 may still get there: it does not count
    settled = converged(result) | (result.train_loss >= np.log(2) - levels["unmoved"])
    hits_by_radius = {
        f"r={float(r):g}": reached.sel(radius=r).values[settled.sel(radius=r).values]
        for r in result.radius
    }
    if not any(hits.size for hits in hits_by_radius.values()):
        raise Undecided("all runs are at the step cap with a loss between eps and log 2")
    return {
        name: share("seeds that reach eps, of those that do or have learned nothing", hits)
        for name, hits in hits_by_radius.items()
        if hits.size
    }


@CLAIMS.add(
    "lem5.uniform",
    "Lemma 5",
    # a row of two tokens with 0.9 of the largest entropy is 0.184 away from uniform
    at_most(0.05, fails_above=0.184),
    CASES,
    conditions=case_2,
    version=2,
)
def attention_stays_uniform(evidence: Evidence) -> dict[str, Measured]:
    """Against radii between |mu| / log d_h and |mu|, attention stays at 1/M + o(1) throughout training, of clean tokens
    and of attacked ones, which the paper's queries and keys are of."""
    result = _radii_of_case_2(evidence)
    tokens = evidence.experiment.data.tokens
    # log M - H = (M / 2) sum of squared departures, up to higher orders: nothing cancels in it
    deficit = (np.log(tokens) - result.attention_entropy_curve).clip(0)
    clean = np.sqrt(2 * deficit) / tokens
    attacked = abs(result.attention_on_signal_attacked_curve - 1 / tokens)
    return {
        "clean tokens": mean("largest departure of attention from 1/M", _largest(clean)),
        "attacked tokens": mean("largest departure of mean attention from 1/M", _largest(attacked)),
    }


def _largest(curves: xr.DataArray) -> np.ndarray:
    """Return the largest value over steps and radii, by seed."""
    return curves.max([dim for dim in curves.dims if dim != "seed"]).values


def _radii_of_case_2(evidence: Evidence) -> xr.Dataset:
    """Return the runs with a radius of Case 2."""
    result, edge = evidence.result, weak_radius(evidence.experiment)
    return result.sel(radius=result.radius[result.radius > edge])


@CLAIMS.add(
    "thm2.time_vs_tau",
    "derived (S8, against the formula of Lemma 21)",
    {
        "focused": at_least(2 * (1 - EXPONENT)),
        "uniform": at_most(2 * (1 + EXPONENT)),
        "printed": at_most(0.0),
    },
    CASES,
    conditions=case_1,
    informational=("printed",),
    version=2,
)
def time_grows_with_the_radius(evidence: Evidence) -> dict[str, Measured]:
    """The time T until the training loss is eps grows with the radius r = tau / |mu|: at least as (1 - sqrt(2) r)^-2,
    the law of focused attention, and at most as (1 - sqrt(2) M r)^-2, that of uniform attention. (The formula of Lemma
    21 has T fall as (1 + r)^-2, a factor that the constant in its T could hide.)"""
    result, experiment = evidence.result, evidence.experiment
    weak = result.sel(radius=result.radius[result.radius <= weak_radius(experiment)])
    if weak.sizes["radius"] < 2:
        raise Undecided("fewer than two radii of Case 1")
    times = log_steps(weak).transpose("seed", "radius").values
    radius = weak.radius.values
    focused = -np.log(1 - np.sqrt(2) * radius)
    uniform = -np.log(1 - np.sqrt(2) * experiment.data.tokens * radius)
    return {
        "focused": slope_by_seed("slope of log T on -log(1 - sqrt2 r)", focused, times),
        "uniform": slope_by_seed("slope of log T on -log(1 - sqrt2 M r)", uniform, times),
        "printed": slope_by_seed("d log T / d r", radius, times),
    }


@CLAIMS.add(
    "thm2.robust_error_factor",
    "Theorem 2 (iii)",
    MOST,
    CASES,
    conditions=either_case,
    robust=Direction.RISES,
    levels=ACCURACY,
    version=2,
)
def robust_error_is_small_below_mu(evidence: Evidence) -> dict[str, Measured]:
    """The robust test error is at most exp(-C d SNR^2 (1 - tau/|mu|)^2), so for large d SNR^2 it is small (at most 1/4)
    at every radius below |mu|, in most seeds. (Derived instead: below |mu| / sqrt(2) at best, |mu| / (sqrt(2) M) for
    uniform attention.)"""
    accuracy = evidence.result.robust_accuracy
    level = evidence.levels["accuracy"]
    return {
        f"r={float(r):g}": share(
            f"seeds with a robust accuracy of {level:g} or more",
            accuracy.sel(radius=r) >= level,
        )
        for r in accuracy.radius
    }


@CLAIMS.add(
    "thm2.case2.slowdown_M",
    "Section 4, on Theorem 2",
    {"printed": exponent(1), "derived": exponent(2)},
    SLOWDOWN,
    informational=("derived",),
)
def uniform_attention_is_slower(evidence: Evidence) -> dict[str, Measured]:
    """Uniform attention, which is a linear model, takes M times as long as attention focused on the signal. (Derived
    instead: M^2 times, at r = 0.)"""
    times = log_steps(evidence.result)
    ratio = times.sel(attend="uniform") - times.sel(attend="signal")
    power = (ratio / np.log(evidence.result.tokens)).mean("tokens").values
    measured = mean("log(T uniform / T focused) / log M", power)
    return {"printed": measured, "derived": measured}


@CLAIMS.add(
    "thm2.case2.snr_requirement",
    "Section 4, on Theorem 2",
    exponent(1),
    NEEDED_RATIO,
    levels=ACCURACY,
)
def linear_model_needs_more_signal(evidence: Evidence) -> Measured:
    """Uniform attention generalises only if N SNR^2 is of order 1/eps: the N SNR^2 that it needs grows as the training
    loss to reach falls."""
    losses, accuracy = evidence.result.stop_loss, evidence.result.test_accuracy
    level = evidence.levels["accuracy"]
    critical = [crossings(accuracy.sel(stop_loss=e), "snr", level, "first") for e in losses]
    of = "power of 1/eps in the needed N SNR^2"
    return slope_by_seed(of, -np.log(losses.values), 2 * np.log(np.stack(critical, axis=1)))


@CLAIMS.add(
    "thm2.case1.log_dh_threshold",
    "Theorem 2",
    exponent(-1),
    THRESHOLD,
    conditions=case_1,
    levels={"gain": 0.5, "range": 0.5},
    version=2,
)
def threshold_falls_with_the_width(evidence: Evidence) -> Measured:
    """The radius up to which attention learns is proportional to |mu| / log d_h."""
    result, levels = evidence.result, evidence.levels
    logs = np.log(np.log(result.hidden.values))
    if np.ptp(logs) < levels["range"]:
        raise Undecided(f"log log d_h spans only {np.ptp(logs):.2g}: too little for its power")
    gained = result.attention_on_signal - 1 / evidence.experiment.data.tokens
    excess = gained / gained.sel(radius=0.0) - levels["gain"]
    widths = range(excess.sizes["width"])
    critical = [crossings(excess.isel(width=place), "radius", 0.0) for place in widths]
    return slope_by_seed(
        "slope of log r_c on log log d_h, r_c where half of the clean gain is left",
        logs,
        np.log(np.stack(critical, axis=1)),
    )


@CLAIMS.add(
    "thm2.clean_error_law",
    "Theorem 2 (ii)",
    # the powers 1 and 2 of the bound, less what agrees with an exponent
    {
        "d": at_least(1 - EXPONENT),
        "SNR": at_least(2 * (1 - EXPONENT)),
        "d, of y f": at_least(1 - EXPONENT),
        "SNR, of y f": at_least(2 * (1 - EXPONENT)),
    },
    ERROR_LAW,
    conditions=case_1,
    informational=("d, of y f", "SNR, of y f"),
)
def clean_error_law(evidence: Evidence) -> dict[str, Measured]:
    """The clean test error is at most exp(-C d SNR^2): z^2 grows at least as d and as SNR^2, where z is the value of a
    signal in standard deviations of the value of fresh noise."""
    result = evidence.result
    values = _z_of_values(result, evidence.experiment.data.tokens)
    return _powers(values, "") | _powers(_z_of_margins(result), ", of y f")


def _z_of_values(result: xr.Dataset, tokens: int) -> xr.DataArray:
    """Return log z^2 of S7, z the smaller |V_+-| over sigma_p sqrt(M - 1) |P u|, P u orthogonal to the signals.

    It decides, not the mean over the standard deviation of y f: here the latter is the scatter of attention, which
    multiplies a margin by a positive number and so causes no error.
    """
    positive, negative = result.value_positive_signal, result.value_negative_signal
    norm2 = (result.snr * result.noise_std) ** 2 * result.dim
    off2 = result.value_norm**2 - (positive**2 + negative**2) / norm2
    signal2 = np.minimum(positive**2, negative**2)
    return np.log(signal2 / (result.noise_std**2 * (tokens - 1) * off2))


def _z_of_margins(result: xr.Dataset) -> xr.DataArray:
    """Return log z^2 of y f over fresh points, z the mean over the standard deviation within classes."""
    between_classes = (result.test_margin_positive - result.test_margin_negative) / 2
    within = result.test_margin_std**2 - between_classes**2
    return np.log(result.test_margin_mean**2 / within.where(within > 0))


def _powers(z2: xr.DataArray, suffix: str) -> dict[str, Measured]:
    """Return the slopes on log d and on log SNR, each averaged over the other."""
    dims, ratios = np.log(z2["dim"].values), np.log(z2["snr"].values)
    by_dim = z2.mean("snr").transpose("seed", "d").values
    by_ratio = z2.mean("d").transpose("seed", "snr").values
    return {
        f"d{suffix}": slope_by_seed("slope of log z^2 on log d", dims, by_dim),
        f"SNR{suffix}": slope_by_seed("slope of log z^2 on log SNR", ratios, by_ratio),
    }


@CLAIMS.add(
    "appD.mha_same",
    "Appendix D",
    between(-np.log(2), np.log(2)),
    HEADS,
    robust=Direction.MIXED,
    levels=ACCURACY,
)
def several_heads_do_the_same(evidence: Evidence) -> dict[str, Measured]:
    """Several heads behave as one: their critical N SNR^2 is that of a single head, within a factor of 2."""
    accuracy, level = evidence.result.robust_accuracy, evidence.levels["accuracy"]
    log_snr = {
        int(h): np.log(crossings(accuracy.sel(heads=h), "snr", level, "first"))
        for h in accuracy.heads
    }
    return {
        f"H={h}": mean("log of the ratio of critical N SNR^2", 2 * (critical - log_snr[1]))
        for h, critical in log_snr.items()
        if h > 1
    }
