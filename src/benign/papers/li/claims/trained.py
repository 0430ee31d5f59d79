"""Runs of a study trained again, the seeds of a cell together: what their filters do at every step, and the networks
themselves, for attacks that no stored variable knows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from benign.attacks.attack import Points, Target
from benign.claims import Evidence, Undecided
from benign.claims.replays import Replays
from benign.losses import correct, margin
from benign.spec.axes import dimensions
from benign.training.descent import Batch
from benign.training.metrics.features import correlations, own

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


def trained(evidence: Evidence, study: int = 0, **cell: Any) -> Trained:
    """The cell of a study with these coordinates; the last along every axis that is not named."""
    last = {dim.name: dim.values[-1] for dim in dimensions(evidence.experiments[study])}
    return _trained(evidence.replay(study, **(last | cell)))


@lru_cache(maxsize=8)
def _trained(replay: Replays) -> Trained:
    """Kept, as several claims ask for the same: at most the three sizes of two studies, or five rates."""
    batch, snapshots = replay.start(), set(replay.cell.snapshot_steps())
    curves, weights = [], {}
    for step, _ in replay.steps():
        batch = step.batch
        curves.append([own(part).clone() for part in correlations(step)])
        if step.number in snapshots:
            weights[step.number] = batch.params["weights"].clone()
    if len(batch) < len(replay):
        raise Undecided(f"{len(replay) - len(batch)} of {len(replay)} runs ended before the others")
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
