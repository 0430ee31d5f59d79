"""Runs of a study trained again, the seeds of a cell together: what their filters do at every step, and the networks
themselves, for attacks that no stored variable knows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from benign.attacks.attack import Points, Target
from benign.claims import Evidence, Undecided
from benign.losses import correct, margin
from benign.plan.runs import Run, Unit, runs_of
from benign.streams import Streams
from benign.training.descent import Batch, descend
from benign.training.probes.features import correlations, own
from benign.training.setup import stack

Curves = Float[Tensor, "steps seeds classes width"]
Perturb = Callable[[Target], Points]
"""an attack: `attack.perturb`, or a function of a target"""


@dataclass(frozen=True)
class Trained:
    """All seeds of one cell: their filters' own features at every step, and the networks at snapshot steps."""

    end: Batch
    A: Curves
    """<w_ir, u_i>"""
    B: Curves
    """<w_ir, v_i>"""
    weights: dict[int, Tensor]
    """at snapshot steps"""

    def at(self, step: int) -> Batch:
        """The networks at a snapshot step."""
        return replace(self.end, held={"weights": self.weights[step]})

    @property
    def robust(self) -> Float[Tensor, "steps seeds classes"]:
        """max_r A"""
        return self.A.amax(3)

    @property
    def non_robust(self) -> Float[Tensor, "steps seeds classes"]:
        """max_r B"""
        return self.B.amax(3)


_TRAINED: dict[str, Trained] = {}
"""by what was computed: several claims look at the same networks"""


def trained(evidence: Evidence, study: int = 0, **cell: Any) -> Trained:
    """The cell of a study with these coordinates; the last along every axis that is not named."""
    runs = list(runs_of(evidence.experiments[study]))
    where = {**runs[-1].where, **cell}
    unit = Unit(tuple(run for run in runs if {**run.where, "seed": where["seed"]} == where))
    if unit.key not in _TRAINED:
        _TRAINED[unit.key] = _train(unit.runs)
    return _TRAINED[unit.key]


def _train(runs: Sequence[Run]) -> Trained:
    setup = stack([run.cell for run in runs], "cpu")
    batch = Batch.start(setup, Streams([run.id for run in runs], "cpu"))
    snapshots, curves, weights = set(setup.snapshot_steps()), [], {}
    for step, _ in descend(batch):
        batch = step.batch
        curves.append([own(part).clone() for part in correlations(step)])
        if step.number in snapshots:
            weights[step.number] = batch.params["weights"].clone()
    if len(batch) < len(runs):
        raise Undecided(f"{len(runs) - len(batch)} of {len(runs)} runs ended before the others")
    robust, non_robust = (torch.stack(part) for part in zip(*curves, strict=True))
    return Trained(batch, robust, non_robust, weights)


def accuracy(batch: Batch, perturb: Perturb | None, count: int) -> Float[Tensor, " seeds"]:
    """Share of the first fresh points that are classified rightly, attacked or clean."""
    target = fresh(batch, count)
    points = perturb(target) if perturb else target.x
    return correct(margin(target.run(points).outputs, target.y)).mean(1)


def fresh(batch: Batch, count: int) -> Target:
    """The first points that the evaluation saw, with the networks."""
    return batch.target(batch.fresh("test/0", count), "attack/claims")


def predicted(target: Target, points: Points) -> Int64[Tensor, "seeds samples"]:
    """The class with the largest output."""
    return target.run(points).outputs.argmax(2)
