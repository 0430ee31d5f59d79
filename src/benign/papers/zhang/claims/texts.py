"""What Zhang et al. say in their text about Theorem 2, beyond its statement."""

import numpy as np

from benign.claims import (
    Claims,
    Evidence,
    Measured,
    at_least,
    at_most,
    between,
    mean,
    share,
    slope_by_seed,
    worst,
)
from benign.papers.jiang.theory import ALL_ONE, Numbers, largest_rate
from benign.papers.zhang.claims.cells import case_1
from benign.papers.zhang.claims.crossings import crossings
from benign.papers.zhang.claims.figure_studies import SPARSE
from benign.papers.zhang.claims.studies import CONVERGENCE, MANY_TOKENS, OUTPUT_NORMS
from benign.papers.zhang.setting import LEVEL
from benign.papers.zhang.times import minimal_steps_corrected, wang_steps
from benign.spec.axes import cells
from benign.training.descent import Status

CLAIMS = Claims("zhang")


@CLAIMS.add("text.error_below_eps", "Section 4", at_least(0.9), CONVERGENCE, conditions=case_1)
def error_below_loss(evidence: Evidence) -> Measured:
    """The clean test error of a network trained to the loss eps is below eps."""
    reached = (evidence.result.status == Status.CONVERGED).values
    return share(
        "runs with a test error below eps, of those that reach eps",
        _benign(evidence)[reached],
        "run",
    )


def _benign(evidence: Evidence) -> np.ndarray:
    """Whether a run reached eps and errs on a smaller share of fresh points."""
    result = evidence.result
    eps = result.coords.get("stop_loss", evidence.experiment.training.stop_loss)
    return ((result.status == Status.CONVERGED) & (1 - result.test_accuracy < eps)).values


@CLAIMS.add(
    "text.time_vs_wang",
    "Section 4",
    {"ratio": at_most(1.0), "power of eps": between(-0.3, 0.3)},
    CONVERGENCE,
    conditions=case_1,
    informational=("power of eps",),
)
def shorter_than_wang(evidence: Evidence) -> dict[str, Measured]:
    """The shortest training, of the order of N max(SNR^2, SNR^-4) steps, is shorter than the d^2 / (|mu|^2 eps^2) of
    earlier work. (Derived: the printed order leaves out a factor of eps^-2, which earlier work is charged with.)"""
    result = evidence.result
    constants, ratios, eps = [], [], []
    for where, cell in cells(evidence.experiment):
        n = Numbers.of(cell, attacked=True)
        runs = result.sel(where)
        times = runs.steps.where(runs.status == Status.CONVERGED).values
        at_bound = times * n.rate / largest_rate(n.scale, n.hidden, ALL_ONE)
        ratios.append(at_bound / wang_steps(n))
        # the same law at the smallest d_h that eps allows, where the rate may be largest
        constant = times * n.rate * n.loss * n.signal * n.output_norm**2
        constants.append(np.log(constant * minimal_steps_corrected(n)))
        eps.append(np.log(n.loss))
    same = result.snr.values == result.snr.values[0]
    shortest = np.array(constants)[same].T
    return {
        "ratio": worst("time at the rate of condition (4), over that of earlier work", ratios),
        "power of eps": slope_by_seed("power of eps in the time", np.array(eps)[same], shortest),
    }


@CLAIMS.add(
    "text.wO_scale",
    "Section 4, on Condition 1",
    {"benign": at_least(0.8), "power of |w_O|": between(-2.3, -1.7)},
    OUTPUT_NORMS,
    conditions=case_1,
)
def any_output_norm(evidence: Evidence) -> dict[str, Measured]:
    """|w_O| need not be of order 1: smaller and larger ones reach eps with a test error below it as well, in a time
    proportional to |w_O|^-2."""
    result = evidence.result
    times = np.log(result.steps.where(result.status == Status.CONVERGED))
    rows = times.transpose("seed", "w_O").values
    norms = np.log(result.output_norm.values)
    return {
        "benign": share("runs that reach eps with a test error below it", _benign(evidence), "run"),
        "power of |w_O|": slope_by_seed("power of |w_O| in T", norms, rows),
    }


@CLAIMS.add(
    "text.large_M",
    "Section 4, on Condition 1",
    {"benign": at_least(0.8), "power of M": at_most(0.5)},
    MANY_TOKENS,
    conditions=case_1,
    informational=("power of M",),
)
def any_number_of_tokens(evidence: Evidence) -> dict[str, Measured]:
    """M need not be of order 1: with many tokens training reaches eps with a test error below it as well."""
    result = evidence.result
    times = np.log(result.steps.where(result.status == Status.CONVERGED))
    rows = times.transpose("seed", "tokens").values
    found = {
        "benign": share("runs that reach eps with a test error below it", _benign(evidence), "run")
    }
    if np.isfinite(rows).all():
        tokens = np.log(result.tokens.values)
        found["power of M"] = slope_by_seed("power of M in T", tokens, rows)
    return found  # fmt: skip


@CLAIMS.add("text.sparser_signals", "Section 4", at_most(-0.01, fails_above=0.0), SPARSE)
def attention_finds_sparser_signals(evidence: Evidence) -> Measured:
    """Learned attention generalises from sparser signals than the linear model that uniform attention is: with one
    signal among 16 tokens its critical SNR is lower."""
    accuracy = evidence.result.test_accuracy
    learned, uniform = (
        np.log(crossings(accuracy.sel(attend=name), "snr", LEVEL, "first"))
        for name in ("learned", "uniform")
    )
    return mean("log of the critical SNR, learned less uniform", learned - uniform)
