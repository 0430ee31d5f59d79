"""Tables 1 and 2 of Li and Li: real images, on recipes `li/table1_mnist`, `_cifar`, `_svhn` and `li/table2`."""

from collections.abc import Callable

import xarray as xr

from benign.claims import Claims, Evidence, Measured, Undecided, at_least, at_most, exact, mean
from benign.experiment import specification
from benign.papers.image_questions import TITLES
from benign.papers.li.tables import PROSE, TABLE_2, by_training, targeted_success
from benign.stats.intervals import Estimate

CLAIMS = Claims("li")

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
            for whose, accuracy in WHOSE.items():
                pair = [accuracy(found, *each) for each in (first, second)]
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
