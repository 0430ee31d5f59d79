"""Claims about the experiments of Li and Li: Figure 3, and Tables 1 and 2 on real images.

Figure 3: the paper measures robust accuracy by "standard PGD" and gives no loss, steps or start. Here PGD on the
cross-entropy decides, with 20 sign steps of 2.5 eps / 20 from the point; other losses and the training attack are
informational. Rises of robust accuracy, and success of targeted attacks, are about the attack that is named, and known
exactly; that robust accuracy is zero, an attack proves.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr

from benign.attacks.pgd import PGD
from benign.claims import (
    Claims,
    Direction,
    Evidence,
    Kind,
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
from benign.training.descent import Batch
from benign.training.metrics.attacked_patches import own_ascent

CLAIMS = Claims("li")

FIG3 = "li/fig3"
TURN = {"transition": 150}
"""epoch of the phase transition, by the paper's text"""
LAST = {"last": 1000}
"""epoch at which the figure ends"""
NOT_JUDGED = ("margin", "own loss", "one step")
ATTACKS = ("cross-entropy", *NOT_JUDGED)


def _attacks(batch: Batch) -> dict[str, Perturb]:
    assert batch.setup.attack is not None
    return {
        "cross-entropy": PGD(ball=linf(), step=0.125, loss="cross_entropy").perturb,
        "margin": PGD(ball=linf(), step=0.125).perturb,
        "own loss": lambda target: own_ascent(target, linf()),
        "one step": batch.setup.attack.perturb,
    }


def _by_attack(rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(ATTACKS, rule)


def _accuracies(evidence: Evidence, name: str, step: int) -> np.ndarray:
    """Return accuracies under an attack of adversarially trained networks at a snapshot step, by seed."""
    batch = trained(evidence, clip=EPS).at(step)
    return accuracy(batch, _attacks(batch)[name], evidence.size(20, 100, 250)).numpy()


def _snapshots(evidence: Evidence) -> list[int]:
    return sorted(trained(evidence, clip=EPS).weights)


def _turn(evidence: Evidence) -> int:
    """Return the snapshot nearest to the transition."""
    transition = evidence.levels["transition"]
    nearest = min(_snapshots(evidence), key=lambda step: abs(step - transition))
    if nearest < transition / 2:
        raise Undecided(f"training ends at step {nearest}, before the transition at {transition:g}")
    return nearest


@CLAIMS.add("fig3.std.dominance", "Figure 3, first panel", at_least(5.0), FIG3)
def standard_training_learns_non_robust_features(evidence: Evidence) -> Measured:
    """In standard training the non-robust features dominate."""
    return dominance(trained(evidence, clip=0.0))


@CLAIMS.add("fig3.adv.phase150", "Figure 3, second panel", between(100, 200), FIG3, levels=TURN)
def the_transition_is_near_150(evidence: Evidence) -> Measured:
    """Adversarial training stops learning the non-robust features near epoch 150."""
    _turn(evidence)
    curve = trained(evidence, clip=EPS).non_robust.mean(2)
    return mean(
        "first step at which max B rises by less than a tenth of its fastest", settled(curve)
    )


@CLAIMS.add(
    "fig3.adv.phase1-robust-zero",
    "Figure 3, fourth panel",
    _by_attack(at_most(0.05)),
    FIG3,
    informational=NOT_JUDGED,
    robust=Direction.RISES,
    levels=TURN | {"clean": 0.99},
)
def robust_accuracy_is_zero_at_first(evidence: Evidence) -> dict[str, Measured]:
    """In Phase I of adversarial training clean accuracy is perfect and robust accuracy is zero."""
    clean = evidence.result["test_accuracy_curve"].sel(clip=EPS).min("seed")
    perfect, turn = evidence.levels["clean"], _turn(evidence)
    steps = [s for s in _snapshots(evidence) if s <= turn and clean.sel(step=s) >= perfect]
    if not steps:
        raise Undecided(
            f"clean accuracy is not yet {perfect:g} in every seed at step {turn}, so there is no Phase I"
        )
    of = f"largest accuracy at steps {steps[0]} to {steps[-1]}"
    return {
        name: mean(of, np.max([_accuracies(evidence, name, step) for step in steps], 0))
        for name in ATTACKS
    }


@CLAIMS.add(
    "fig3.adv.phase2-robust-up",
    "Figure 3, fourth panel",
    _by_attack(at_least(0.3)),
    FIG3,
    informational=NOT_JUDGED,
    levels=TURN | LAST,
)
def robust_accuracy_rises_then(evidence: Evidence) -> dict[str, Measured]:
    """In Phase II of adversarial training robust accuracy under PGD increases, here by 0.3 or more."""
    turn, end, last = _turn(evidence), _snapshots(evidence)[-1], evidence.levels["last"]
    if end < last:
        raise Undecided(f"training ends at step {end}; Phase II of the figure lasts until {last:g}")
    of = f"accuracy at step {end} less that at {turn}"
    return {
        name: mean(of, _accuracies(evidence, name, end) - _accuracies(evidence, name, turn))
        for name in ATTACKS
    }


@CLAIMS.add(
    "fig3.adv.phase2-immediate",
    "derived (Figure 3, fourth panel: robust accuracy starts to increase in Phase II)",
    _by_attack(at_most(100)),
    FIG3,
    informational=NOT_JUDGED,
    levels=TURN | {"rise": 0.05},
)
def robust_accuracy_rises_at_once(evidence: Evidence) -> dict[str, Measured]:
    """Robust accuracy under PGD begins to increase within 100 epochs after the transition. The number of epochs is
    ours: the paper gives none."""
    turn, steps = _turn(evidence), _snapshots(evidence)
    later = [step for step in steps if step >= turn]
    transitions = settled(trained(evidence, clip=EPS).non_robust.mean(2))
    parts = {}
    for name in ATTACKS:
        curves = np.array([_accuracies(evidence, name, step) for step in later])
        risen = curves > curves[0] + evidence.levels["rise"]
        never = int((~risen.any(0)).sum())
        delays = [
            (later[int(row.argmax())] if row.any() else steps[-1]) - transition
            for row, transition in zip(risen.T, transitions, strict=True)
        ]
        note = f"in {never} of {len(transitions)} seeds it never rises: counted as the last step"
        parts[name] = mean("steps from the transition to the rise", delays).noting(note)
    return parts


@CLAIMS.add("label-leak", "derived", at_least(0.9), FIG3)
def perturbations_give_the_label_away(evidence: Evidence) -> dict[str, Measured]:
    """After adversarial training the one-step perturbation alone gives the label away.

    Added to pure noise, it is classified as y; computed with the wrong label y', it turns the class of X into y'.
    """
    batch = trained(evidence, clip=EPS).end
    target, attack = fresh(batch, evidence.size(20, 100, 250)), batch.setup.attack
    assert attack is not None
    noise = target.streams("noise").normal(*target.x.shape[1:], dtype=target.x.dtype)
    delta = attack.perturb(target) - target.x
    leaked = predicted(target, 0.1 * noise + delta) == target.y
    rival = 1 - target.y
    turned = predicted(target, attack.perturb(target.relabelled(rival))) == rival
    return {
        "on noise": mean("share classified as y", leaked.double().mean(1)),
        "wrong label": mean("share classified as y'", turned.double().mean(1)),
    }


def _with_images(measured: Measured, evidence: Evidence) -> Measured:
    """Note which images were used, which are not the paper's at every scale."""
    return measured.noting(TITLES[specification(evidence.result)["data"]["source"]])


def _of_others(result: xr.Dataset, training: str, kind: str) -> xr.DataArray:
    return result[f"{kind}_feature_accuracy"].sel(training=training)


def _of_themselves(result: xr.Dataset, training: str, kind: str) -> xr.DataArray | None:
    """Return the accuracy of the references; None in older runs, which lack it."""
    accuracies = result.get(f"{kind}_feature_accuracy_of_{training}")
    return None if accuracies is None else accuracies.isel(training=0)


THEMSELVES = "references themselves"
WHOSE = {"other networks": _of_others, THEMSELVES: _of_themselves}
"""networks whose accuracies are compared: Table 2 says that others than the references were tested, Table 1 does not.
A reference classifies an image made from its own features nearly as the original image, so its order follows from the
construction if the search came close: informational"""


Column = tuple[str, str]
"""training and kind of features"""
ORDERS: dict[str, tuple[str, Column, Column]] = {
    "std-order": (
        "Standard training learns non-robust features better than robust ones",
        ("standard", "non_robust"),
        ("standard", "robust"),
    ),
    "adv-order": (
        "Adversarial training learns robust features better than non-robust ones",
        ("adversarial", "robust"),
        ("adversarial", "non_robust"),
    ),
    "nr-suppressed": (
        "Adversarial training learns non-robust features less than standard training does",
        ("standard", "non_robust"),
        ("adversarial", "non_robust"),
    ),
    "r-enhanced": (
        "Adversarial training learns robust features better than standard training does",
        ("adversarial", "robust"),
        ("standard", "robust"),
    ),
}
"""statements of Table 1, and the accuracies that must be larger and smaller"""


def _order(larger: Column, smaller: Column) -> Callable[[Evidence], dict[str, Measured]]:
    def statistic(evidence: Evidence) -> dict[str, Measured]:
        result, of = by_training(evidence.result), "difference of feature learning accuracies"
        parts = {}
        for whose, read in WHOSE.items():
            more, less = read(result, *larger), read(result, *smaller)
            if more is not None and less is not None:
                parts[whose] = _with_images(mean(of, (more - less).values), evidence)
        return parts

    return statistic


def _table_1(dataset: str) -> None:
    """Add the five claims about one dataset."""
    recipe = f"li/table1_{dataset}"

    for name, (statement, larger, smaller) in ORDERS.items():
        statistic = _order(larger, smaller)
        statistic.__doc__ = f"{statement} ({dataset})."
        CLAIMS.add(
            f"tab1.{dataset}.{name}",
            "Table 1",
            dict.fromkeys(WHOSE, at_least(0.0)),
            recipe,
            informational=(THEMSELVES,),
            version=2,
        )(statistic)

    def robust(evidence: Evidence) -> Measured:
        accuracies = by_training(evidence.result)["robust_accuracy"]
        gain = accuracies.sel(training="adversarial") - accuracies.sel(training="standard")
        return _with_images(mean("robust accuracy gained", gain), evidence)

    robust.__doc__ = (
        f"Adversarial training raises robust accuracy by 20 points or more ({dataset})."
    )
    CLAIMS.add(f"tab1.{dataset}.rob", "Table 1", at_least(0.2), recipe, robust=Direction.MIXED)(
        robust
    )


for _dataset in ("mnist", "cifar", "svhn"):
    _table_1(_dataset)


def _success(evidence: Evidence, training: str, attack: str) -> xr.DataArray:
    """Return targeted success by pair and seed."""
    return targeted_success(evidence.result).sel(training=training, attack=attack)


@CLAIMS.add("tab2.std-nrf-dominates", "Table 2", at_least(0.1), "li/table2")
def non_robust_features_fool_standard_training(evidence: Evidence) -> Measured:
    """NRF-PGD fools a standard-trained network more often than RF-PGD does, by 10 points or more for every pair."""
    more = _success(evidence, "standard", "nrf") - _success(evidence, "standard", "rf")
    return mean("NRF less RF success, smallest over pairs", more.min("pair"))


@CLAIMS.add("tab2.adv-both-low", "Table 2", at_most(0.3), "li/table2")
def adversarial_training_withstands_both(evidence: Evidence) -> Measured:
    """Neither attack fools an adversarially trained network on more than 30 % of the points of any pair."""
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
    "derived (Appendix A.2, the text on targeted attacks)",
    {"adversarial, NRF-PGD": at_most(0.0), "standard, RF-PGD": at_least(0.01)},
    kind=Kind.IDENTITY,
)
def the_text_quotes_another_row(evidence: Evidence) -> dict[str, Measured]:
    """The rates that the text quotes for RF-PGD on the standard-trained network are the row of the table for NRF-PGD on
    the adversarially trained one."""
    return {
        f"{training}, {attack}": exact(
            "largest difference between text and row, in points",
            max(abs(said - row) for said, row in zip(PROSE, TABLE_2[training, attack], strict=True)),
        )
        for training, attack in (("adversarial", "NRF-PGD"), ("standard", "RF-PGD"))
    }  # fmt: skip
