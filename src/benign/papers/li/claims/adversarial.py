"""Adversarial training: Theorem 4.4, off-diagonal features, the phases of Lemma 5.2, and extensions of the theorem.

Theorem 4.4 is judged inside its conditions, sigma_0 = 1/sqrt(d), where a filter's own part off the features stops it
(`theory.self_stopped`). Numbers for the smaller start of Figure 3 are informational.
"""

from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from benign.attacks.model_free import FeatureOrthogonal, FeatureSwap
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
    ADVERSARIAL,
    ATTACK_RATES,
    EPS,
    FIG3_START,
    INNER,
    SMALL_START,
    STANDARD,
    Trained,
    accuracy,
    fresh,
    linf,
    trained,
)
from benign.papers.li.recursion import Problem, saturation
from benign.papers.li.theory import conditions, robust_accuracy_limit
from benign.spec.axes import cells
from benign.training.setup import Setup

CLAIMS = Claims("li")

GOOD = 0.99
BESIDE = ("small start",)
BOTH = (ADVERSARIAL, SMALL_START)


def theorem_44(cell: Setup) -> Conditions:
    return conditions(cell, "4.4")


def where_judged(cell: Setup) -> Conditions | None:
    """Figure 3's smaller start is told beside: no theorem speaks about it."""
    small = getattr(cell.network, "init_std", None) == FIG3_START
    return None if small else conditions(cell, "4.4")


def _both(evidence: Evidence, judged: Callable[[int], Measured]) -> dict[str, Measured]:
    """The study inside the theorem, and the one with the smaller start; undecided before training has come to an end.

    The theorem speaks about T = poly(d)/eta, and says that attacked training points are fitted then.
    """
    fitted = _largest(evidence, 0, "train_robust_accuracy").mean()
    if fitted < 0.9:
        steps = evidence.experiments[0].training.most_steps()
        raise Undecided(
            f"after {steps} steps {fitted:.2f} of the attacked training points are fitted"
        )
    return {"theory's start": judged(0), "small start": judged(1)}


def _largest(evidence: Evidence, study: int, variable: str) -> np.ndarray:
    """A variable by seed, at the largest d where the study has several."""
    found = evidence.results[study][variable]
    return (found.isel(size=-1) if "size" in found.dims else found).values


@CLAIMS.add(
    "thm4.4.robust-learned", "Theorem 4.4", at_least(0.8), *BOTH, conditions=where_judged, informational=BESIDE
)  # fmt: skip
def robust_features_are_learned(evidence: Evidence) -> dict[str, Measured]:
    """Adversarial training classifies rightly from robust features alone, and learns them more than the others."""

    def judged(study: int) -> Measured:
        alone = _largest(evidence, study, "robust_feature_accuracy") >= GOOD
        robust = _largest(evidence, study, "robust_feature_learned")
        others = _largest(evidence, study, "non_robust_feature_learned")
        found = share("seeds with accuracy >= 0.99 and max A > max B", alone & (robust > others))
        return found.noting(f"max A {robust.mean():.3g}, max B {others.mean():.3g}")

    return _both(evidence, judged)


@CLAIMS.add(
    "thm4.4.delta-survives", "Theorem 4.4", at_least(0.99), *BOTH, conditions=where_judged, informational=BESIDE
)  # fmt: skip
def swapped_features_are_withstood(evidence: Evidence) -> dict[str, Measured]:
    """After adversarial training Delta(X, y), the attack that breaks standard training, is withstood."""

    def judged(study: int) -> Measured:
        swap = FeatureSwap(clip=EPS).perturb
        found = accuracy(trained(evidence, study).end, swap, evidence.size(20, 100, 500))
        return mean("accuracy under Delta", found)

    return _both(evidence, judged)


@CLAIMS.add(
    "thm4.4.robust-good.own-attack",
    "Theorem 4.4",
    at_least(0.95),
    *BOTH,
    conditions=where_judged,
    informational=BESIDE,
)
def the_own_attack_is_withstood(evidence: Evidence) -> dict[str, Measured]:
    """After adversarial training test points are classified rightly under the attack that was trained against."""

    def judged(study: int) -> Measured:
        found = _largest(evidence, study, "robust_accuracy_training_attack")
        return mean("accuracy under the training attack", found)

    return _both(evidence, judged)


# Not `robust=True`: an attack that is found bounds the accuracy from above whatever masked the training attack, and
# the training attack is among those whose minimum is taken.
@CLAIMS.add(
    "thm4.4.robust-good.any-attack",
    "Theorem 4.4",
    at_least(0.95, fails_below=0.6),
    *BOTH,
    conditions=where_judged,
    informational=BESIDE,
)
def every_attack_is_withstood(evidence: Evidence) -> dict[str, Measured]:
    """After adversarial training test points are classified rightly whatever moves by at most eps, where alpha > 2 eps.

    The least of the strong attack, the closed form against robust features, and ascents off the features.
    """

    def judged(study: int) -> Measured:
        count = evidence.size(20, 100, 500)
        ascent = FeatureOrthogonal(attack=PGD(ball=linf(), step=0.125)).perturb
        batch = trained(evidence, study).end
        off = accuracy(batch, ascent, count).numpy()
        own = _largest(evidence, study, "robust_accuracy_training_attack")
        strong = _largest(evidence, study, "robust_accuracy")
        points = fresh(batch, count)
        x, y = points.x[0].flatten(1), points.y[0]
        limit = robust_accuracy_limit(x[y == 0].numpy(), x[y == 1].numpy(), EPS)
        found = mean("lowest accuracy under an attack", np.minimum(np.minimum(off, own), strong))
        certified = _largest(evidence, study, "robust_accuracy_certified").mean()
        told = f"off the features {off.mean():.3g}, training attack {own.mean():.3g}"
        return found.noting(f"{told}; certified {certified:.3g}, possible {limit:.3g}")

    return _both(evidence, judged)


@CLAIMS.add("lemD21.offdiag-adv", "Lemma D.21", at_most(1.5), ADVERSARIAL, conditions=theorem_44)
def other_classes_stay_small(evidence: Evidence) -> Measured:
    """Adversarial training never lets a filter's product with another class's feature grow beyond its first order."""
    result = evidence.result.isel(size=-1)
    curves = xr.concat(
        [result[f"other_{kind}_features_learned_curve"] for kind in ("robust", "non_robust")],
        "kind",
    ).max("kind")
    return mean("largest C or D on the way / at first", curves.max("step") / curves.isel(step=0))


@CLAIMS.add(
    "lem5.2.plateau", "Lemma 5.2, D.22", between(0.8, 1.2), ATTACK_RATES, conditions=theorem_44
)
def non_robust_features_are_held(evidence: Evidence) -> dict[str, Measured]:
    """Non-robust features stop where eta~ beta^(q-2) sum_r B_r^q / rho^(q-1) comes near 1, for every eta~."""
    problem = Problem.of(next(iter(cells(evidence.experiment)))[1])
    found = {}
    for rate in evidence.result["rate"].values.tolist():
        cell = trained(evidence, rate=rate)
        if max(settled(cell.non_robust.mean(2))) >= len(cell.B) - 1:
            raise Undecided(f"max B still rises after {len(cell.B) - 1} steps at eta~ = {rate:g}")
        values = saturation(problem, cell.B[-1].double(), rate).mean(1)
        found[f"eta~ = {rate:g}"] = mean("eta~ beta sum B^3 at the end", values)
    return found


@CLAIMS.add(
    "lem5.2.B-scaling",
    "Lemmas D.24, E.11 (printed); Lemma 5.2 (derived)",
    {"printed": between(-1.3, -0.7), "derived": between(-0.45, -0.25)},
    ATTACK_RATES,
    conditions=theorem_44,
    informational=("derived",),
)
def the_plateau_falls_with_the_attack_rate(evidence: Evidence) -> dict[str, Measured]:
    """max_r B after adversarial training is of order 1 / eta~ (printed: d^-c0); Lemma 5.2 itself gives eta~^(-1/q)."""
    learned = evidence.result["non_robust_feature_learned"]
    # Up to 30, where one filter still leads and T = 1000 is long enough (papers/li.md 2.5).
    kept = learned.sel(rate=learned["rate"] <= 30).transpose("seed", "rate")
    rates = np.log(kept["rate"].values)
    logs = np.log(kept.where(kept > 0).values)
    found = slope_by_seed("slope of log max B on log eta~", rates, logs)
    return {"printed": found, "derived": found}


def settled(curve: Tensor) -> list[int]:
    """The first step after the steepest whose rise is below a tenth of it, for every seed of [steps, seeds]."""
    rises = curve.diff(dim=0)
    steepest = rises.argmax(0)
    slow = rises < 0.1 * rises.amax(0)
    slow &= torch.arange(len(rises))[:, None] > steepest
    return [int(row.nonzero()[0]) if row.any() else len(rises) for row in slow.T]


def phase_order(found: Trained) -> list[tuple[int, int, float]]:
    """By seed: when B settles, when A overtakes B (the last step if never), and A / B at the first."""
    robust, others = found.robust.mean(2), found.non_robust.mean(2)
    rows = []
    for seed, held in enumerate(settled(others)):
        # At first both are noise: what counts is A > B once B has begun to lead.
        ahead = (robust[held:, seed] > others[held:, seed]).nonzero()
        overtaken = held + int(ahead[0]) if len(ahead) else len(robust) - 1
        rows.append((held, overtaken, float(robust[held, seed] / others[held, seed])))
    return rows


@CLAIMS.add(
    "lem5.2.phase-order",
    "Lemmas D.23, D.24",
    {"order": at_least(0.5), "ratio": at_most(0.5)},
    ATTACK_RATES,
    conditions=theorem_44,
)
def non_robust_features_come_first(evidence: Evidence) -> dict[str, Measured]:
    """Adversarial training first learns non-robust features until they are held, and robust ones only then.

    At eta~ = 10: A is below half of B when B settles, and overtakes it later.
    """
    rows = phase_order(trained(evidence, rate=10.0))
    times = ", ".join(f"{held} and {late}" for held, late, _ in rows[:3])
    after = share("seeds in which A overtakes B after B settles", [a > h for h, a, _ in rows])
    return {
        "order": after.noting(f"steps of the first seeds: {times}"),
        "ratio": mean("max A / max B when B settles", [ratio for *_, ratio in rows]),
    }


# Extensions that the paper states, and an attack that its proof leaves out.


def _robust_features_learned(evidence: Evidence, place: int) -> Measured:
    """On one of the attacks of `studies.inner_attacks`."""
    result = evidence.result.isel(attack=place)
    robust, others = result["robust_feature_learned"], result["non_robust_feature_learned"]
    alone = result["robust_feature_accuracy"] >= GOOD
    found = share("seeds with accuracy >= 0.99 and max A > max B", alone & (robust > others))
    told = f"max A {float(robust.mean()):.3g}, max B {float(others.mean()):.3g}"
    judged = f"accuracy under the l_inf judge {float(result['robust_accuracy'].mean()):.3g}"
    return found.noting(f"{told}, {judged}")


@CLAIMS.add("rem2.5.pgd-training", "Remark 2.5", at_least(0.8), INNER, conditions=theorem_44)
def full_inner_maximisation(evidence: Evidence) -> Measured:
    """Training against the full inner maximisation, which one step approximates, learns robust features as well."""
    return _robust_features_learned(evidence, 1)


@CLAIMS.add("sec2.5.lp", "Section 2.5", at_least(0.8), INNER, conditions=theorem_44)
def other_norms(evidence: Evidence) -> Measured:
    """The main results extend to other l_p norms with p >= 2: with l2 balls robust features are learned as well."""
    return _robust_features_learned(evidence, 2)


@CLAIMS.add(
    "derived.init-residual",
    "derived; Lemma D.28 leaves it out",
    at_most(0.5),
    STANDARD,
    ADVERSARIAL,
)
def the_start_can_be_attacked(evidence: Evidence) -> dict[str, Measured]:
    """Perturbations orthogonal to all features break networks that start at sigma_0 = 1/sqrt(d), after either training.

    An l_inf attack along the signs of P_perp w(0) moves a product by 0.8 eps sqrt(d) times its size. Judged at the
    largest d: accuracy at most one half.
    """
    attack = FeatureOrthogonal(attack=PGD(ball=linf(), step=0.125)).perturb
    found = {}
    for study, name in enumerate(("standard", "adversarial")):
        result = evidence.results[study]
        ends = [trained(evidence, study, size=size.item()).end for size in result["size"].values]
        seen = [accuracy(end, attack, evidence.size(20, 100, 250)) for end in ends]
        dims = result["dim"].values
        told = [f"{float(each.mean()):.3g} at d = {dim}" for each, dim in zip(seen, dims, strict=True)]  # fmt: skip
        found[name] = mean("accuracy under ascents off the features", seen[-1]).noting(
            ", ".join(told)
        )
    return found
