"""Claims about the experiments of Li and Li: Figure 3, and Tables 1 and 2 on real images.

Figure 3: the paper measures robust accuracy by "standard PGD", without its loss, steps or start. Here the cross-entropy
decides, in 20 sign steps of 2.5 eps / 20 from the point; other losses and the training attack are informational.
The audit doubts none of these numbers, since each is about the attack that it names.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr

from benign.attacks.pgd import PGD
from benign.claims import (
    Claims,
    Evidence,
    Measured,
    Undecided,
    at_least,
    at_most,
    between,
    exact,
    mean,
)
from benign.claims.rule import Rule
from benign.experiment import specification
from benign.papers.images import TITLES
from benign.papers.li.claims.adversarial import settled
from benign.papers.li.claims.standard import dominance
from benign.papers.li.claims.studies import EPS, Perturb, accuracy, fresh, linf, predicted, trained
from benign.papers.li.tables import PROSE, TABLE_2, by_training, targeted_success
from benign.stats.intervals import Estimate
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


DEVIATIONS = 3
"""standard deviations over seeds by which one accuracy must exceed another"""


def ahead(of: str, larger: xr.DataArray, smaller: xr.DataArray) -> Measured:
    """A difference by seed, as an interval of three standard deviations: one exceeds the other, or is exceeded."""
    found = (larger - smaller).values.ravel()
    if found.size < 2:
        raise Undecided(f"{of}: one seed has no deviation")
    centre, half = float(found.mean()), DEVIATIONS * float(found.std(ddof=1))
    return Measured(of, Estimate(centre, centre - half, centre + half), f"{found.size} seeds, 3 sd")


def _noted(measured: Measured, evidence: Evidence) -> Measured:
    """With a word about the images, which are not the paper's at every scale."""
    return measured.noting(TITLES[specification(evidence.result)["data"]["source"]])


def _of_others(found: xr.Dataset, training: str, kind: str) -> xr.DataArray:
    return found[f"{kind}_feature_accuracy"].sel(training=training)


def _of_themselves(found: xr.Dataset, training: str, kind: str) -> xr.DataArray | None:
    """None in runs from before this was measured."""
    known = found.get(f"{kind}_feature_accuracy_of_{training}")
    return None if known is None else known.isel(training=0)


THEMSELVES = "references themselves"
WHOSE = {"other networks": _of_others, THEMSELVES: _of_themselves}
"""whose accuracies are compared: Table 1 does not say that others than the references were tested, Table 2 does. A
reference gives an image drawn from its own features nearly its own class of the original, so that its order follows
from the construction where the search came near: told beside, it decides nothing"""


def _table_1(dataset: str) -> None:
    """The five claims about one dataset."""
    recipe = f"li/table1_{dataset}"

    def order(
        name: str, statement: str, first: tuple[str, str], second: tuple[str, str]
    ) -> Callable:
        def statistic(evidence: Evidence) -> dict[str, Measured]:
            found, of = by_training(evidence.result), "difference of feature learning accuracies"
            measured = {}
            for whose, read in WHOSE.items():
                pair = [read(found, *each) for each in (first, second)]
                if pair[0] is not None and pair[1] is not None:
                    measured[whose] = _noted(ahead(of, pair[0], pair[1]), evidence)
            return measured

        statistic.__doc__ = f"{statement} ({dataset})."
        rules = {whose: at_least(0.0) for whose in WHOSE}
        told = {"informational": (THEMSELVES,)}
        return CLAIMS.add(f"tab1.{dataset}.{name}", "Table 1", rules, recipe, **told)(statistic)

    order(
        "std-order",
        "Standard training learns non-robust features better than robust ones",
        ("standard", "non_robust"),
        ("standard", "robust"),
    )
    order(
        "adv-order",
        "Adversarial training learns robust features better than non-robust ones",
        ("adversarial", "robust"),
        ("adversarial", "non_robust"),
    )
    order(
        "nr-suppressed",
        "Adversarial training learns non-robust features less than standard training does",
        ("standard", "non_robust"),
        ("adversarial", "non_robust"),
    )
    order(
        "r-enhanced",
        "Adversarial training learns robust features better than standard training does",
        ("adversarial", "robust"),
        ("standard", "robust"),
    )

    def robust(evidence: Evidence) -> Measured:
        cell = by_training(evidence.result)["robust_accuracy"]
        gain = cell.sel(training="adversarial") - cell.sel(training="standard")
        return _noted(mean("robust accuracy gained", gain), evidence)

    robust.__doc__ = (
        f"Adversarial training raises robust accuracy by 20 points or more ({dataset})."
    )
    CLAIMS.add(f"tab1.{dataset}.rob", "Table 1", at_least(0.2), recipe, robust=True)(robust)


for _dataset in ("mnist", "cifar", "svhn"):
    _table_1(_dataset)


def _success(evidence: Evidence, training: str, attack: str) -> xr.DataArray:
    """Targeted success by pair and seed."""
    return targeted_success(evidence.result).sel(training=training, attack=attack)


@CLAIMS.add("tab2.std-nrf-dominates", "Table 2", at_least(0.1), "li/table2")
def non_robust_features_fool_standard_training(evidence: Evidence) -> Measured:
    """NRF-PGD fools a standard-trained network more often than RF-PGD does, by 10 points or more for every pair."""
    more = _success(evidence, "standard", "nrf") - _success(evidence, "standard", "rf")
    return mean("NRF less RF success, smallest over pairs", more.min("pair"))


@CLAIMS.add("tab2.adv-both-low", "Table 2", at_most(0.3), "li/table2")
def adversarial_training_withstands_both(evidence: Evidence) -> Measured:
    """Neither attack fools an adversarially trained network in more than 30 % of the points of any pair."""
    both = targeted_success(evidence.result).sel(training="adversarial")
    return mean("largest success over attacks and pairs", both.max(("attack", "pair")))


@CLAIMS.add("tab2.adv-reverses", "Table 2", at_least(0.0), "li/table2")
def adversarial_training_reverses_the_order(evidence: Evidence) -> Measured:
    """RF-PGD fools an adversarially trained network at least as often as NRF-PGD does, for every pair."""
    more = _success(evidence, "adversarial", "rf") - _success(evidence, "adversarial", "nrf")
    return mean("RF less NRF success, smallest over pairs", more.min("pair"))


@CLAIMS.add("tab2.nrf-drops", "Table 2", at_least(0.2), "li/table2")
def adversarial_training_withstands_non_robust_features(evidence: Evidence) -> Measured:
    """Adversarial training lowers the success of NRF-PGD by 20 points or more for every pair."""
    less = _success(evidence, "standard", "nrf") - _success(evidence, "adversarial", "nrf")
    return mean("NRF success lost, smallest over pairs", less.min("pair"))


@CLAIMS.add(
    "text.tab2-mislabel",
    "Appendix A.2, the text beside Table 2",
    {"adversarial, NRF-PGD": at_most(0.0), "standard, RF-PGD": at_least(0.01)},
)
def the_text_quotes_another_row(evidence: Evidence) -> dict[str, Measured]:
    """What the text quotes as RF-PGD on the standard-trained network is the table's row of NRF-PGD on the other one."""
    return {
        f"{training}, {attack}": exact(
            "largest difference between text and row, in points",
            max(abs(said - row) for said, row in zip(PROSE, TABLE_2[training, attack], strict=True)),
        )
        for training, attack in (("adversarial", "NRF-PGD"), ("standard", "RF-PGD"))
    }  # fmt: skip
