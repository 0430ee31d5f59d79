"""Standard training: Theorem 4.3, what Lemma B.2 leaves of the robust feature, noise, transfer."""

import math
from dataclasses import replace

import numpy as np
import torch
import xarray as xr

from benign.attacks.model_free import FeatureSwap
from benign.attacks.pgd import PGD
from benign.claims import (
    Claims,
    Evidence,
    Measured,
    Undecided,
    at_least,
    at_most,
    between,
    mean,
    share,
    slope_by_seed,
)
from benign.claims.conditions import Conditions
from benign.papers.li.claims.studies import (
    EPS,
    NOISE,
    STANDARD,
    Trained,
    fresh,
    linf,
    predicted,
    trained,
)
from benign.papers.li.theory import Numbers, conditions, density_slack, robust_feature_bound
from benign.spec.axes import cells
from benign.stats.intervals import Estimate
from benign.training.setup import Setup

CLAIMS = Claims("li")

GOOD = 0.99
WHP = at_least(0.8)
"""with high probability: 14 seeds without a failure show 0.8"""


def theorem_43(cell: Setup) -> Conditions:
    return conditions(cell, "4.3")


def either_theorem(cell: Setup) -> Conditions:
    """A clip of 0 is standard training."""
    return conditions(cell, "4.4" if getattr(cell.attack, "clip", 0.0) else "4.3")


def _good(evidence: Evidence, variable: str, words: str) -> Measured:
    """Share of seeds, at the largest d, with an accuracy of at least 0.99."""
    found = evidence.result[variable].isel(size=-1)
    return share(f"seeds with {words} >= {GOOD}", found >= GOOD)


@CLAIMS.add("thm4.3.train-perfect", "Theorem 4.3", WHP, STANDARD, conditions=theorem_43)
def training_points_are_fitted(evidence: Evidence) -> Measured:
    """Standard training classifies every training point rightly, with high probability."""
    found = evidence.result["train_accuracy"].isel(size=-1)
    return share("seeds with every training point right", found >= 1)


@CLAIMS.add("thm4.3.clean-good", "Theorem 4.3", WHP, STANDARD, conditions=theorem_43)
def clean_points_are_right(evidence: Evidence) -> Measured:
    """Standard training reaches a clean test error that vanishes."""
    return _good(evidence, "test_accuracy", "clean accuracy")


@CLAIMS.add("thm4.3.nonrobust-learned", "Theorem 4.3", WHP, STANDARD, conditions=theorem_43)
def non_robust_features_suffice(evidence: Evidence) -> Measured:
    """Standard training classifies rightly from the non-robust features alone."""
    return _good(evidence, "non_robust_feature_accuracy", "accuracy from non-robust features alone")


def dominance(found: Trained) -> Measured:
    """min_i max_r B / max_i max_r A at the end: the geometric mean over seeds, for ratios scatter by factors."""
    ratios = found.non_robust[-1].amin(1) / found.robust[-1].amax(1)
    measured = mean("min_i max_r B / max_i max_r A", ratios.log())
    return replace(measured, estimate=Estimate(*map(math.exp, measured.estimate)))


@CLAIMS.add(
    "thm4.3.nonrobust-dominates", "Theorem 4.3, Lemma E.7", at_least(5.0), STANDARD, conditions=theorem_43
)  # fmt: skip
def non_robust_features_dominate(evidence: Evidence) -> Measured:
    """After standard training the non-robust features are learned many times as strongly as the robust ones."""
    sizes = range(evidence.result.sizes["size"])
    means = [dominance(_at(evidence, place)).estimate.value for place in sizes]
    dims = evidence.result["dim"].values
    told = ", ".join(f"{ratio:.3g} at d = {dim}" for dim, ratio in zip(dims, means, strict=True))
    return dominance(trained(evidence)).noting(told)


def _at(evidence: Evidence, place: int) -> Trained:
    return trained(evidence, size=evidence.result["size"].values[place].item())


@CLAIMS.add(
    "thm4.3.delta-breaks",
    "Theorem 4.3, Lemma D.14",
    {"accuracy": at_most(0.01), "targeted": at_least(0.99)},
    STANDARD,
    conditions=theorem_43,
)
def swapping_non_robust_features_breaks(evidence: Evidence) -> dict[str, Measured]:
    """After standard training Delta(X, y), which knows no network, makes every point one of another class y'."""
    target = fresh(trained(evidence).end, evidence.size(20, 100, 500))
    attack = FeatureSwap(clip=EPS)
    found = predicted(target, attack.perturb(target))
    right, hit = found == target.y, found == attack.rivals(target)
    return {
        "accuracy": mean("accuracy under Delta", right.double().mean(1)),
        "targeted": mean("share of points that become y'", hit.double().mean(1)),
    }


@CLAIMS.add("thm4.3.log-growth", "Lemma D.11", between(0.3, 1.2), STANDARD, conditions=theorem_43)
def outputs_grow_as_the_logarithm(evidence: Evidence) -> Measured:
    """Once F_y has reached log d it grows as log t: each doubling of t adds about log 2."""
    losses = evidence.result["train_loss_curve"].astype(float)
    late = int(losses["step"].max())
    outputs = xr.DataArray(-np.log(np.expm1(losses)))  # F_y - F_j with two classes
    then, now = (outputs.sel(step=step) for step in (late // 2, late))
    dims = evidence.result["dim"].values
    past = [place for place, dim in enumerate(dims) if (then.isel(size=place) >= np.log(dim)).all()]
    if not past:
        raise Undecided(f"F_y has not reached log d in every seed by step {late // 2}")
    grown = (now - then).isel(size=past[-1])
    return mean(f"F_y({late}) - F_y({late // 2}) at d = {dims[past[-1]]}", grown)


@CLAIMS.add("lemB2.A-stays", "Lemma D.9 by Lemma B.2", WHP, STANDARD, conditions=theorem_43)
def robust_features_stay(evidence: Evidence) -> Measured:
    """Standard training leaves max_r A within 1.5 times where the power method leaves it, y0 / (1 - S y0/x0)."""
    found, (*_, (_, cell)) = trained(evidence), cells(evidence.experiment)
    n = Numbers.of(cell)
    ratio = 1 / density_slack(n.robust_patches, n.other_patches, n.alpha, n.beta, n.q)
    starts = torch.stack((found.non_robust[0], found.robust[0], found.robust[-1]), 2).flatten(0, 1)
    kept = [(y, robust_feature_bound(x0, y0, ratio, n.q)) for x0, y0, y in starts.tolist()]
    met = [(y, bound) for y, bound in kept if bound < np.inf]
    if not met:
        raise Undecided("the hypothesis x0 > S y0 of Lemma B.2 is met by no class of any seed")
    note = f"the lemma's hypothesis is met by {len(met)} of {len(kept)}"
    return share(
        "classes with max_r A <= 1.5 y0 / (1 - S y0/x0)",
        [y <= 1.5 * b for y, b in met],
        "class-seed",
    ).noting(note)


@CLAIMS.add("lemE3.noise", "Lemmas E.3, E.10", at_most(-0.35), NOISE, conditions=either_theorem)
def noise_is_not_learned(evidence: Evidence) -> dict[str, Measured]:
    """The products of filters with the training noise stay of order 1/sqrt(d), in either training.

    The slope of the largest one on the way, for noise off the features, against d; -1/2 up to logarithms.
    """
    largest = evidence.result["noise_correlation_off_features_curve"].max("step")
    dims = np.log(evidence.result["dim"].values.astype(float))
    found = {}
    for name, clip in (("standard", 0.0), ("adversarial", EPS)):
        rows = np.log(largest.sel(clip=clip).transpose("seed", "size").values)
        found[name] = slope_by_seed("slope of log max |<w, P_perp xi>| on log d", dims, rows)
    return found


@CLAIMS.add("text.transfer", "Section 4, after Theorem 4.3", at_least(0.5), STANDARD)
def attacks_transfer(evidence: Evidence) -> Measured:
    """Adversarial examples of one standard-trained network fool another one of independent data and start.

    The paper gives no number; half of the points is asked for, as chance would leave of a network that is always wrong.
    """
    batch = trained(evidence).end
    if len(batch) < 2:
        raise Undecided("there is one network only")
    target = fresh(batch, evidence.size(20, 100, 500))
    points = PGD(ball=linf(), step=0.125, keep="best").perturb(target)
    own = (predicted(target, points) != target.y).double().mean()
    next_one = replace(target, params={"weights": target.params["weights"].roll(1, 0)})
    fooled = (predicted(next_one, points) != target.y).double().mean(1)
    told = f"their own network {float(own):.3g}"
    return mean("share of points that fool the next network", fooled).noting(told)
