"""What Li and Li say their results extend to, and what their proof leaves out."""

from benign.attacks.model_free import FeatureOrthogonal
from benign.attacks.pgd import PGD
from benign.claims import Claims, Evidence, Measured, at_least, at_most, mean, share
from benign.papers.li.claims.adversarial import GOOD, theorem_44
from benign.papers.li.claims.studies import ADVERSARIAL, INNER, STANDARD, linf
from benign.papers.li.claims.trained import accuracy, trained

CLAIMS = Claims("li")


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
