"""Claims about the text of Zhang et al. outside theorems and figures: remarks on Theorem 2, and guideline 2."""

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
    exponent,
    mean,
    slope_by_seed,
    worst_of_runs,
)
from benign.papers.attention_setting import LEVEL
from benign.papers.jiang.theory import ALL_ONE, JiangNumbers, largest_rate
from benign.papers.statistics import MOST, converged, log_steps, share_of_seeds, steps_to_loss
from benign.papers.zhang.augment import COPIES, INJECTED, worth
from benign.papers.zhang.bounds import augmented_race
from benign.papers.zhang.claims.figures import crossings
from benign.papers.zhang.claims.studies import (
    CONVERGENCE,
    MANY_TOKENS,
    OUTPUT_NORMS,
    SPARSE,
    case_1,
)
from benign.papers.zhang.theory import minimal_steps_corrected, wang_steps
from benign.spec.axes import cells

CLAIMS = Claims("zhang")


@CLAIMS.add("text.error_below_eps", "Section 4", MOST, CONVERGENCE, conditions=case_1, version=2)
def error_below_loss(evidence: Evidence) -> Measured:
    """The clean test error of a network trained to the loss eps is below eps, in most seeds at every eps."""
    reached = converged(evidence.result)
    some = reached.any([dim for dim in reached.dims if dim != "seed"]).values
    if not some.any():
        raise Undecided("no run reaches eps")
    hits = (_is_benign(evidence) | ~reached).isel(seed=some)
    return share_of_seeds("seeds whose runs that reach eps all have a test error below eps", hits)


def _is_benign(evidence: Evidence) -> xr.DataArray:
    """Return which runs reach eps with a test error below eps."""
    result = evidence.result
    eps = result.coords.get("stop_loss", evidence.experiment.training.stop_loss)
    return converged(result) & (1 - result.test_accuracy < eps)


def _benign_share(evidence: Evidence) -> Measured:
    of = "seeds whose runs all reach eps with a test error below it"
    return share_of_seeds(of, _is_benign(evidence))


@CLAIMS.add(
    "text.time_vs_wang",
    "Section 4",
    {"ratio": at_most(1.0), "power of eps": exponent(0)},
    CONVERGENCE,
    conditions=case_1,
    informational=("power of eps",),
    version=2,
)
def shorter_than_wang(evidence: Evidence) -> dict[str, Measured]:
    """The shortest training takes of the order of N max(SNR^2, SNR^-4) steps, fewer than the d^2 / (|mu|^2 eps^2) of
    earlier work. (Derived: the printed order omits a factor of eps^-2, which it counts for earlier work.)"""
    result = evidence.result
    constants, ratios, eps = [], [], []
    for where, cell in cells(evidence.experiment):
        n = JiangNumbers.of(cell, attacked=True)
        runs = result.sel(where)
        times = steps_to_loss(runs).values
        at_bound = times * n.rate / largest_rate(n.scale, n.hidden, ALL_ONE)
        ratios.append(at_bound / wang_steps(n))
        # the same law at the smallest d_h that eps allows, and so at the largest rate
        constant = times * n.rate * n.loss * n.signal * n.output_norm**2
        constants.append(np.log(constant * minimal_steps_corrected(n)))
        eps.append(np.log(n.loss))
    same = result.snr.values == result.snr.values[0]
    shortest = np.array(constants)[same].T
    of = "time at the rate of condition (4), over that of earlier work"
    return {
        "ratio": worst_of_runs(of, np.array(ratios).T, log=True),
        "power of eps": slope_by_seed("power of eps in the time", np.array(eps)[same], shortest),
    }


@CLAIMS.add(
    "text.wO_scale",
    "Section 4, on Condition 1",
    {"benign": MOST, "power of |w_O|": exponent(-2)},
    OUTPUT_NORMS,
    conditions=case_1,
    version=2,
)
def any_output_norm(evidence: Evidence) -> dict[str, Measured]:
    """|w_O| need not be of order 1: with a smaller or larger |w_O|, too, training reaches eps with a test error below
    eps (in most seeds), in a time proportional to |w_O|^-2."""
    rows = log_steps(evidence.result).transpose("seed", "w_O").values
    norms = np.log(evidence.result.output_norm.values)
    return {
        "benign": _benign_share(evidence),
        "power of |w_O|": slope_by_seed("power of |w_O| in T", norms, rows),
    }


@CLAIMS.add(
    "text.large_M",
    "Section 4, on Condition 1",
    {"benign": MOST, "power of M": exponent(0)},
    MANY_TOKENS,
    conditions=case_1,
    informational=("power of M",),
    version=2,
)
def any_number_of_tokens(evidence: Evidence) -> dict[str, Measured]:
    """M need not be of order 1: with many tokens, too, training reaches eps with a test error below eps, in most
    seeds."""
    rows = log_steps(evidence.result).transpose("seed", "tokens").values
    parts = {"benign": _benign_share(evidence)}
    if np.isfinite(rows).all():
        tokens = np.log(evidence.result.tokens.values)
        parts["power of M"] = slope_by_seed("power of M in T", tokens, rows)
    return parts


@CLAIMS.add(
    "text.sparser_signals",
    "Section 4",
    # not 0 alone: seeds in which nothing is learned all have a difference of exactly 0
    at_most(-0.01, fails_above=0.0),
    SPARSE,
    levels={"accuracy": LEVEL},
)
def attention_finds_sparser_signals(evidence: Evidence) -> Measured:
    """Learned attention generalises from sparser signals than uniform attention, which is a linear model: with one
    signal among 16 tokens its critical SNR is lower."""
    accuracy, level = evidence.result.test_accuracy, evidence.levels["accuracy"]
    learned, uniform = (
        np.log(crossings(accuracy.sel(attend=name), "snr", level, "first"))
        for name in ("learned", "uniform")
    )
    return mean("log of the critical SNR, learned less uniform", learned - uniform)


@CLAIMS.add(
    "guide.augmentation",
    "derived (practical guideline 2, taken literally)",
    {**{f"K={copies}": between(0.8, 1.25) for copies in COPIES}, "gain": at_least(1.0)},
    "zhang/augment",
    informational=("gain",),
    version=2,
)
def augmentation(evidence: Evidence) -> dict[str, Measured]:
    """Noise-injected copies are new data points: K copies of N points, with the SNR that the injected noise leaves,
    have the N SNR^2 of K N independent points of this SNR, within a factor of 1.25."""
    measured = worth(evidence.result)
    shares = measured.copied / measured.independent
    parts = {}
    for copies in COPIES:
        stated, real = augmented_race(1.0, copies, INJECTED)
        worths = mean("N SNR^2 of copies / of as many points", shares.sel(copies=copies))
        parts[f"K={copies}"] = worths.noting(f"{real / stated:.3g} if copies share their noise")
    gain = (measured.copied.isel(copies=-1) / measured.original).values
    return {**parts, "gain": mean(f"N SNR^2 with K={COPIES[-1]} copies / without", gain)}
