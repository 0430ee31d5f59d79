"""Both ends of a robust quantity: what attacks show, and what certificates prove.

An attack bounds robust accuracy from above and the robust loss from below; a certificate bounds accuracy from below and
the loss from above. The statistic of a claim is computed from each end, by results whose robust variables are replaced.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import xarray as xr

from benign.attacks.attack import Attack
from benign.claims.claim import Evidence
from benign.experiment import Experiment
from benign.spec.axes import Axis
from benign.sweep import ends
from benign.sweep.ends import End


def at_end(evidence: Evidence, end: End) -> Evidence:
    """Return the evidence with every robust variable at another end, in all runs or in the masked ones."""
    results = tuple(ends.at_end(result, end) for result in evidence.results)
    return replace(evidence, results=results, end=end)


def masked_text(results: Iterable[xr.Dataset]) -> str:
    """Return how many runs are masked, and in how many cells; empty if none is."""
    return "; ".join(filter(None, map(ends.masked_count, results)))


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
