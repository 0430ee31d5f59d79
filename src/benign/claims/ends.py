"""Both ends of a robust quantity: what attacks show, and what certificates prove.

An attack bounds robust accuracy from above and the robust loss from below; a certificate bounds accuracy from below and
the loss from above. The statistic of a claim is computed from each end, by results whose robust variables are replaced.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import xarray as xr

from benign.attacks.attack import Attack
from benign.claims.claim import End, Evidence
from benign.experiment import Experiment
from benign.spec.axes import Axis
from benign.sweep.dataset import masked

ACCURACIES = ("robust_accuracy", "train_robust_accuracy")
ERRORS = ("robust_error", "robust_noisy_error")
LOSSES = ("robust_loss", "train_robust_loss")
"""first words of the names of variables that attacks bound"""
CERTIFIED = "_certified"


def at_end(evidence: Evidence, end: End) -> Evidence:
    """Return the evidence with every robust variable at another end, in all runs or in the masked ones."""
    results = tuple(_replaced(result, end) for result in evidence.results)
    return replace(evidence, results=results, end=end)


def _replaced(result: xr.Dataset, end: End) -> xr.Dataset:
    """Return the result with robust variables at an end other than the attacked one; missing values stay missing."""
    if end == "masked runs certified" and "audit" not in result:
        return result
    new = {}
    for name in map(str, result):
        proven = _proven(result, name, certificates=end != "unproven")
        if proven is not None:
            there = result[name].notnull()
            there = there & masked(result) if end == "masked runs certified" else there
            values = xr.where(there, proven, result[name]).transpose(*result[name].dims)
            new[name] = values.assign_attrs(result[name].attrs)
    return result.assign(new)


def _proven(result: xr.Dataset, name: str, certificates: bool) -> xr.DataArray | float | None:
    """Return what is proven for a variable on the side on which attacks prove nothing; None if no attack bounds it.

    Without a certificate that is an accuracy of 0, an error of 1, an infinite loss.
    """
    if name.endswith(CERTIFIED):
        return None
    for starts, trivial in ((ACCURACIES, 0.0), (ERRORS, 1.0), (LOSSES, math.inf)):
        for start in starts:
            if name.startswith(start):
                known = certificates and f"{start}{CERTIFIED}" in result
                return result[f"{start}{CERTIFIED}"] if known and "_curve" not in name else trivial
    return None


def masked_text(results: Iterable[xr.Dataset]) -> str:
    """Return the share of runs, and of cells with such runs, in which the attack is masked; empty if there is none."""
    parts = []
    for result in results:
        if "audit" not in result:
            continue
        flags = masked(result)
        hits, audited = int(flags.sum()), int(result["audit"].notnull().sum())
        if hits:
            cells = flags.any("seed") if "seed" in flags.dims else flags
            share = f"{100 * hits / audited:.0f} % of the {audited} audited runs"
            parts.append(f"{share}, in {int(cells.sum())} of {cells.size} cells")
    return "; ".join(parts)


def attacks_of(experiments: Iterable[Experiment]) -> tuple[str, ...]:
    """Return the attacks that judge robust numbers at the end of training, in words, each once."""
    texts = []
    for experiment in experiments:
        attack = experiment.final_attack
        for each in attack.values if isinstance(attack, Axis) else [attack]:
            if isinstance(each, Attack):
                texts.append(_attack_text(each))
    return tuple(dict.fromkeys(texts))


def _attack_text(attack: Attack) -> str:
    """Return the kind of an attack and the numbers that make it strong; its ball is that of the experiment."""
    fields = attack.model_dump(exclude={"kind", "ball"})
    settings = [f"{name} {value}" for name, value in fields.items() if _short(value)]
    return ", ".join([attack.kind, *settings])


def _short(value: object) -> bool:
    return isinstance(value, int | float | str | np.number) and not isinstance(value, bool)
