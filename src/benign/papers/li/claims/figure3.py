"""What Figure 3 of Li and Li shows, on its own recipe and in each of its readings.

The paper's robust accuracy is under "standard PGD", without its loss, steps or start: the cross-entropy decides here,
in 20 sign steps of 2.5 eps / 20 from the point, and what other losses and the training attack give is told beside.
None of these numbers is doubted by the audit, for each is about the attack that it names.
"""

import numpy as np

from benign.attacks.pgd import PGD
from benign.claims import Claims, Evidence, Measured, Undecided, at_least, at_most, between, mean
from benign.claims.rule import Rule
from benign.papers.li.claims.adversarial import settled
from benign.papers.li.claims.standard import dominance
from benign.papers.li.claims.studies import EPS, Perturb, accuracy, fresh, linf, predicted, trained
from benign.training.descent import Batch
from benign.training.metrics.attacked_patches import own_ascent

CLAIMS = Claims("li")

FIG3 = "li/fig3"
TRANSITION, LAST = 150, 1000
"""epochs of the phase transition, as the text has it, and of the end"""
RISEN = 0.05
"""robust accuracy above that of Phase I: what Phase I itself may have"""
BESIDE = ("margin", "own loss", "one step")


def _attacks(batch: Batch) -> dict[str, Perturb]:
    assert batch.setup.attack is not None
    return {
        "cross-entropy": PGD(ball=linf(), step=0.125, loss="cross_entropy").perturb,
        "margin": PGD(ball=linf(), step=0.125).perturb,
        "own loss": lambda target: own_ascent(target, linf()),
        "one step": batch.setup.attack.perturb,
    }


def _by_attack(rule: Rule) -> dict[str, Rule]:
    return {name: rule for name in ("cross-entropy", *BESIDE)}


def _accuracies(evidence: Evidence, name: str, step: int) -> np.ndarray:
    """Of adversarially trained networks at a snapshot step, under one of the attacks, by seed."""
    batch = trained(evidence, clip=EPS).at(step)
    return accuracy(batch, _attacks(batch)[name], evidence.size(20, 100, 250)).numpy()


def _snapshots(evidence: Evidence) -> list[int]:
    return sorted(trained(evidence, clip=EPS).weights)


def _turn(evidence: Evidence) -> int:
    """The snapshot nearest to the transition."""
    nearest = min(_snapshots(evidence), key=lambda step: abs(step - TRANSITION))
    if nearest < TRANSITION / 2:
        raise Undecided(f"training ends at step {nearest}, before the transition at {TRANSITION}")
    return nearest


@CLAIMS.add("fig3.std.dominance", "Figure 3, first panel", at_least(5.0), FIG3)
def standard_training_learns_non_robust_features(evidence: Evidence) -> Measured:
    """In standard training the non-robust features dominate."""
    return dominance(trained(evidence, clip=0.0))


@CLAIMS.add("fig3.adv.phase150", "Figure 3, second panel", between(100, 200), FIG3)
def the_transition_is_near_150(evidence: Evidence) -> Measured:
    """Adversarial training stops learning the non-robust features near epoch 150."""
    _turn(evidence)
    curve = trained(evidence, clip=EPS).non_robust.mean(2)
    return mean("first step at which max B rises by a tenth of its fastest", settled(curve))


@CLAIMS.add(
    "fig3.adv.phase1-robust-zero", "Figure 3, fourth panel", _by_attack(at_most(0.05)), FIG3, informational=BESIDE
)  # fmt: skip
def robust_accuracy_is_zero_at_first(evidence: Evidence) -> dict[str, Measured]:
    """In Phase I of adversarial training clean accuracy is perfect and robust accuracy zero."""
    clean = evidence.result["test_accuracy_curve"].sel(clip=EPS).min("seed")
    steps = [s for s in _snapshots(evidence) if s <= _turn(evidence) and clean.sel(step=s) >= 0.99]
    if not steps:
        raise Undecided(
            f"clean accuracy is not yet 0.99 in every seed at step {_turn(evidence)}: no Phase I to look at"
        )
    words = f"largest accuracy at steps {steps[0]} to {steps[-1]}"
    return {
        name: mean(words, np.max([_accuracies(evidence, name, step) for step in steps], 0))
        for name in ("cross-entropy", *BESIDE)
    }


@CLAIMS.add(
    "fig3.adv.phase2-robust-up", "Figure 3, fourth panel", _by_attack(at_least(0.3)), FIG3, informational=BESIDE
)  # fmt: skip
def robust_accuracy_rises_then(evidence: Evidence) -> dict[str, Measured]:
    """In Phase II of adversarial training robust accuracy increases."""
    turn, end = _turn(evidence), _snapshots(evidence)[-1]
    if end < LAST:
        raise Undecided(f"training ends at step {end}, the figure's Phase II lasts until {LAST}")
    return {
        name: mean(
            f"accuracy at step {end} less that at {turn}",
            _accuracies(evidence, name, end) - _accuracies(evidence, name, turn),
        )
        for name in ("cross-entropy", *BESIDE)
    }


@CLAIMS.add(
    "fig3.adv.phase2-immediate", "Figure 3, fourth panel", _by_attack(at_most(100)), FIG3, informational=BESIDE
)  # fmt: skip
def robust_accuracy_rises_at_once(evidence: Evidence) -> dict[str, Measured]:
    """Robust accuracy begins to increase within 100 epochs of the transition."""
    turn, steps = _turn(evidence), _snapshots(evidence)
    later = [step for step in steps if step >= turn]
    held = settled(trained(evidence, clip=EPS).non_robust.mean(2))
    found = {}
    for name in ("cross-entropy", *BESIDE):
        curves = np.array([_accuracies(evidence, name, step) for step in later])
        risen = curves > curves[0] + RISEN
        never = int((~risen.any(0)).sum())
        delays = [
            (later[int(row.argmax())] if row.any() else steps[-1]) - begin
            for row, begin in zip(risen.T, held, strict=True)
        ]
        told = f"in {never} of {len(held)} seeds it never rises: counted as the last step"
        found[name] = mean("steps from the transition to the rise", delays).noting(told)
    return found


@CLAIMS.add("label-leak", "derived", at_least(0.9), FIG3)
def perturbations_give_the_label_away(evidence: Evidence) -> dict[str, Measured]:
    """After adversarial training the one-step perturbation itself tells the label.

    Put on pure noise it is classified as y, and made with the wrong label y' it turns X into y'.
    """
    batch = trained(evidence, clip=EPS).end
    target, attack = fresh(batch, evidence.size(20, 100, 250)), batch.setup.attack
    assert attack is not None
    noise = target.streams("noise").normal(*target.x.shape[1:], dtype=target.x.dtype)
    delta = attack.perturb(target) - target.x
    told = predicted(target, 0.1 * noise + delta) == target.y
    rival = 1 - target.y
    turned = predicted(target, attack.perturb(target.relabelled(rival))) == rival
    return {
        "on noise": mean("share classified as y", told.double().mean(1)),
        "wrong label": mean("share classified as y'", turned.double().mean(1)),
    }
