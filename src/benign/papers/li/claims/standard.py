"""Standard training: Theorem 4.3, the robust feature by Lemma B.2, noise, transfer."""

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
from benign.papers.li.theory import LiNumbers, conditions, density_slack, robust_feature_bound
from benign.papers.statistics import cells_of, share_of_seeds
from benign.stats.intervals import Estimate
from benign.training.setup import Setup

CLAIMS = Claims("li")

GOOD = {"accuracy": 0.99}
"""stands for a vanishing error"""
WHP = at_least(0.8)
"""with high probability: 14 seeds without a failure show 0.8"""


def theorem_43(cell: Setup) -> Conditions:
    """Return the conditions of Theorem 4.3."""
    return conditions(cell, "4.3")


def either_theorem(cell: Setup) -> Conditions:
    """Return the conditions of Theorem 4.3 if the clip is 0, which is standard training, else of Theorem 4.4."""
    return conditions(cell, "4.4" if getattr(cell.attack, "clip", 0.0) else "4.3")


def _good(evidence: Evidence, variable: str, text: str) -> Measured:
    """Return the share of seeds, at the largest d, with an accuracy of at least the level."""
    accuracies, level = evidence.result[variable].isel(size=-1), evidence.levels["accuracy"]
    of = f"seeds with {text} >= {level:g}"
    return share_of_seeds(of, accuracies >= level, accuracies.notnull())


@CLAIMS.add(
    "thm4.3.train-perfect",
    "Theorem 4.3",
    WHP,
    STANDARD,
    conditions=theorem_43,
    levels={"accuracy": 1.0},
)
def training_points_are_fitted(evidence: Evidence) -> Measured:
    """Standard training classifies every training point correctly, with high probability."""
    return _good(evidence, "train_accuracy", "training accuracy")


@CLAIMS.add("thm4.3.clean-good", "Theorem 4.3", WHP, STANDARD, conditions=theorem_43, levels=GOOD)
def clean_points_are_right(evidence: Evidence) -> Measured:
    """Standard training reaches a vanishing clean test error."""
    return _good(evidence, "test_accuracy", "clean accuracy")


@CLAIMS.add(
    "thm4.3.nonrobust-learned", "Theorem 4.3", WHP, STANDARD, conditions=theorem_43, levels=GOOD
)
def non_robust_features_suffice(evidence: Evidence) -> Measured:
    """After standard training the non-robust features alone suffice for correct classification."""
    return _good(evidence, "non_robust_feature_accuracy", "accuracy from non-robust features alone")


def dominance(runs: Trained) -> Measured:
    """Return the final min_i max_r B / max_i max_r A, as a geometric mean over seeds: ratios scatter by factors."""
    ratios = runs.non_robust[-1].amin(1) / runs.robust[-1].amax(1)
    of = "min_i max_r B / max_i max_r A"
    logs = mean(of, ratios.log())

    def interval(confidence: float) -> Estimate:
        return Estimate(*map(_exp, logs.at(confidence)))

    return Measured.by(of, interval, logs.basis, logs.note)


def _exp(power: float) -> float:
    return math.exp(power) if power < 700 else math.inf


@CLAIMS.add(
    "thm4.3.nonrobust-dominates", "Theorem 4.3, Lemma E.7", at_least(5.0), STANDARD, conditions=theorem_43
)  # fmt: skip
def non_robust_features_dominate(evidence: Evidence) -> Measured:
    """After standard training the non-robust features are learned many times as strongly as the robust ones."""
    by_size = [
        dominance(trained(evidence, size=size.item())) for size in evidence.result["size"].values
    ]
    dims = evidence.result["dim"].values
    means = zip((each.estimate.value for each in by_size), dims, strict=True)
    return by_size[-1].noting(", ".join(f"{ratio:.3g} at d = {dim}" for ratio, dim in means))


@CLAIMS.add(
    "thm4.3.delta-breaks",
    "Theorem 4.3, Lemma D.14",
    WHP,
    STANDARD,
    conditions=theorem_43,
    levels={"accuracy": 0.01, "targeted": 0.99},
    version=2,
)
def swapping_non_robust_features_breaks(evidence: Evidence) -> dict[str, Measured]:
    """After standard training every point is classified as another class y' under Delta(X, y), which is independent of
    the network."""
    target = fresh(trained(evidence).end, evidence.size(20, 100, 500))
    attack, most = FeatureSwap(clip=EPS), evidence.levels["accuracy"]
    classes, least = predicted(target, attack.perturb(target)), evidence.levels["targeted"]
    right = (classes == target.y).double().mean(1)
    hit = (classes == attack.rivals(target)).double().mean(1)
    return {
        "accuracy": share(f"seeds with accuracy <= {most:g} under Delta", right <= most).noting(
            f"mean accuracy {float(right.mean()):.3g}"
        ),
        "targeted": share(f"seeds in which {least:g} of the points become y'", hit >= least),
    }


@CLAIMS.add(
    "thm4.3.log-growth",
    "derived (Lemma D.11 bounds F_y by the order of log d)",
    between(0.3, 1.2),
    STANDARD,
    conditions=theorem_43,
)
def outputs_grow_as_the_logarithm(evidence: Evidence) -> Measured:
    """Once F_y has reached log d it grows as log t: each doubling of t adds about log 2."""
    losses = evidence.result["train_loss_curve"].astype(float)
    late = int(losses["step"].max())
    outputs = xr.DataArray(-np.log(np.expm1(losses)))  # F_y - F_j with two classes
    then, now = (outputs.sel(step=step) for step in (late // 2, late))
    dims = evidence.result["dim"].values
    reached = [at for at, dim in enumerate(dims) if (then.isel(size=at) >= np.log(dim)).all()]
    if not reached:
        raise Undecided(f"F_y has not reached log d in every seed by step {late // 2}")
    growth = (now - then).isel(size=reached[-1])
    return mean(f"F_y({late}) - F_y({late // 2}) at d = {dims[reached[-1]]}", growth)


@CLAIMS.add(
    "lemB2.A-stays",
    "Lemma D.9 by Lemma B.2",
    WHP,
    STANDARD,
    conditions=theorem_43,
    levels={"times the limit": 1.5},
    version=2,
)
def robust_features_stay(evidence: Evidence) -> Measured:
    """Standard training leaves max_r A at no more than 1.5 times y0 / (1 - S y0/x0), its limit by the power method, in
    every class that satisfies the hypothesis of Lemma B.2."""
    runs, n = trained(evidence), LiNumbers.of(cells_of(evidence.experiment)[-1])
    ratio = 1 / density_slack(n.robust_patches, n.other_patches, n.alpha, n.beta, n.q)
    starts = torch.stack((runs.non_robust[0], runs.robust[0], runs.robust[-1]), 2)
    most, within, classes = evidence.levels["times the limit"], [], 0
    for seed in starts.tolist():
        limits = [(y, robust_feature_bound(x0, y0, ratio, n.q)) for x0, y0, y in seed]
        met = [y <= most * limit for y, limit in limits if limit < np.inf]
        classes += len(met)
        if met:
            within.append(all(met))
    if not within:
        raise Undecided("no class of any seed satisfies the hypothesis x0 > S y0 of Lemma B.2")
    measured = share(f"seeds with max_r A <= {most:g} y0 / (1 - S y0/x0)", within)
    total = starts.shape[0] * starts.shape[1]
    return measured.noting(f"{classes} of {total} classes satisfy the hypothesis of the lemma")


@CLAIMS.add("lemE3.noise", "Lemmas E.3, E.10", at_most(-0.35), NOISE, conditions=either_theorem)
def noise_is_not_learned(evidence: Evidence) -> dict[str, Measured]:
    """In standard and in adversarial training the products of filters with the training noise stay of order 1/sqrt(d).

    Judged by the slope in d of the largest product along training, for noise orthogonal to the features: -1/2 up to
    logarithms, one of which adds 0.15 between d = 100 and 6400.
    """
    largest = evidence.result["noise_correlation_off_features_curve"].max("step")
    dims = np.log(evidence.result["dim"].values.astype(float))
    parts = {}
    for name, clip in (("standard", 0.0), ("adversarial", EPS)):
        rows = np.log(largest.sel(clip=clip).transpose("seed", "size").values)
        parts[name] = slope_by_seed("slope of log max |<w, P_perp xi>| on log d", dims, rows)
    return parts


@CLAIMS.add(
    "text.transfer",
    "derived (Section 4: Theorem 4.3 could also help explain that attacks transfer)",
    at_least(0.5),
    STANDARD,
    version=2,
)
def attacks_transfer(evidence: Evidence) -> Measured:
    """Adversarial examples of one standard-trained network fool another one with independent data and start.

    The paper gives no number; judged at half of the points, the error of guessing. Networks are taken in pairs that
    share none, so that pairs are independent.
    """
    batch = trained(evidence).end
    pairs = len(batch) // 2
    if not pairs:
        raise Undecided("transfer needs two networks, and there is only one")
    target = fresh(batch, evidence.size(20, 100, 500))
    points = PGD(ball=linf(), step=0.125, keep="best").perturb(target)
    own = (predicted(target, points) != target.y).double().mean()
    partner = torch.arange(len(batch))
    partner[: 2 * pairs] = partner[: 2 * pairs].view(pairs, 2).flip(1).flatten()
    other = replace(target, params={"weights": target.params["weights"][partner]})
    fooled = (predicted(other, points) != target.y).double().mean(1)
    both = fooled[: 2 * pairs].view(pairs, 2).mean(1)
    measured = mean("share of points that fool the other network of a pair", both)
    return replace(measured, basis=f"{pairs} pairs of seeds").noting(
        f"their own network {float(own):.3g}"
    )
