"""The runs of a result, trained again: for what a claim asks of weights and steps that no variable of the result holds.

A replay is compared with the record of the result at the end of every run. So a claim cannot judge runs that are not in
its evidence.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from benign.claims.measure import MOST_MISSING, Undecided
from benign.experiment import Experiment
from benign.spec.axes import dimensions
from benign.spec.base import digest
from benign.streams import Streams
from benign.sweep.plan import Run, runs_of
from benign.training.descent import Batch, Status, Step, attacked_step, descend, subset_step, update
from benign.training.engine import batch_size
from benign.training.setup import Setup, stack

JUDGED = (Status.CONVERGED, Status.STEP_CAP)
"""statuses of runs whose weights mean something"""
# One last digit of every initial weight, as another device or number of threads may round it, moved final losses of
# replayed studies by up to 2e-15 in float64, in float32 by 2e-5, or 9e-3 where one-step attacks of a large rate make
# training chaotic (li/attack_rates). Another seed moved them by 3e-7 or more in float64.
CLOSE = {"float64": 1e-8, "float32": 2e-2, "tf32": 2e-2, "mixed": 2e-2}
"""relative difference of final losses up to which a replay is the run of the record, by precision"""


class Recorded(NamedTuple):
    """A run, and how the result says that it ended."""

    run: Run
    status: int
    steps: float
    loss: float


@dataclass(frozen=True, eq=False)
class Replays:
    """Runs of one shape, trained again together. Equal where runs and records are equal, so that it can be a key."""

    records: tuple[Recorded, ...]

    @cached_property
    def key(self) -> str:
        """Identifies the runs and how they ended."""
        return digest([[r.run.key, r.status, r.steps, r.loss] for r in self.records])

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replays) and self.key == other.key

    def __len__(self) -> int:
        return len(self.records)

    @property
    def runs(self) -> list[Run]:
        return [record.run for record in self.records]

    @property
    def seeds(self) -> list[int]:
        return [record.run.seed for record in self.records]

    @property
    def cell(self) -> Setup:
        """Of the first run; of all where they are the runs of one cell."""
        return self.records[0].run.cell

    def of_seeds(self, seeds: Collection[int]) -> "Replays":
        """Those of some seeds."""
        return Replays(tuple(each for each in self.records if each.run.seed in seeds))

    def start(self) -> Batch:
        """The runs before training: their points and initial weights."""
        setup = stack([run.cell for run in self.runs], "cpu")
        return Batch.start(setup, Streams([run.id for run in self.runs], "cpu"))

    def steps(self) -> Iterator[tuple[Step, Int[Tensor, " runs"]]]:
        """Every step before its update, with the status of its runs; `index` of the batch is the place in `records`.

        Weights change in place: copy what you keep. Undecided where a run ends otherwise than the result says; go on to
        the end, or this is not noticed.
        """
        due = torch.tensor([record.steps for record in self.records])
        for step, status in descend(self.start()):
            ending = status != Status.MISSING
            wrong = ending != (due[step.batch.index] <= step.number)
            if ending.any() or wrong.any():
                self._compare(step, status, ending | wrong)
            yield step, status

    def first_step(self) -> Step:
        """The first step, of runs that go no further: its weights stay."""
        return next(self.steps())[0]

    def ended(self, *statuses: Status) -> Iterator[tuple[list[Run], Batch]]:
        """The runs with their final weights, those together that end at the same step; of all statuses, or of some."""
        for step, status in self.steps():
            over = torch.isin(status, torch.tensor(statuses or JUDGED, dtype=status.dtype))
            if over.any():
                batch = step.batch.select(over)
                yield [self.runs[place] for place in batch.index.tolist()], batch

    @torch.no_grad()
    def steps_after(self, points: Tensor) -> Iterator[Step]:
        """What training would be if its first step were taken on these points: to the step cap, without a record."""
        batch = self.start()
        step = Step(0, batch, points, batch.setup.network.run(batch.params, points))
        while True:
            yield step
            if step.number >= batch.setup.training.most_steps():
                return
            update(batch, step.gradient(), step.number)
            step = attacked_step(batch, step.number + 1)

    def _compare(self, step: Step, status: Tensor, which: Tensor) -> None:
        """Undecided where a run that ends here, or should, is not as recorded."""
        at_end = subset_step(step)
        close = CLOSE[self.cell.precision]
        for place, now, loss in zip(
            step.batch.index[which].tolist(),
            status[which].tolist(),
            at_end.loss[which].tolist(),
            strict=True,
        ):
            record = self.records[place]
            same = record.status == now and record.steps == step.number
            if not (same and math.isclose(record.loss, loss, rel_tol=close)):
                raise Undecided(
                    f"the run at {_place(record.run.where)} ends otherwise when it is trained again: "
                    f"{_end(now, step.number, loss)}, in the result {_end(*record[1:])}"
                )


def _end(status: int, steps: float, loss: float) -> str:
    state = "still training" if status == Status.MISSING else Status(status).words
    return f"{state} after {steps:g} steps with a loss of {loss:.6g}"


def _place(where: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in where.items())


def by_unit(experiment: Experiment, result: xr.Dataset) -> tuple[Replays, ...]:
    """The runs of a result, in the units of its experiment, or the batches that a CPU makes of large ones."""
    records = {each.run.key: each for each in _judged(_recorded(experiment, result))}
    found = []
    for unit in experiment.units():
        kept = [records[run.key] for run in unit.runs if run.key in records]
        size = batch_size(unit.runs[0].cell, "cpu")
        found += [Replays(tuple(kept[at : at + size])) for at in range(0, len(kept), size)]
    return tuple(found)


def by_cell(
    experiment: Experiment, result: xr.Dataset, where: Mapping[str, Any] | None = None
) -> tuple[Replays, ...]:
    """The runs of every cell of a result, or of those at some coordinates, in the order of the grid."""
    asked = (where or {}).items()
    found: dict[tuple[Any, ...], list[Recorded]] = {}
    for each in _recorded(experiment, result):
        at = each.run.where
        if all(name in at and at[name] == value for name, value in asked):
            cell = tuple(value for name, value in at.items() if name != "seed")
            found.setdefault(cell, []).append(each)
    if not found:
        raise Undecided(f"the result has no runs at {_place(where or {})}")
    return tuple(Replays(tuple(_judged(cell))) for cell in found.values())


def _recorded(experiment: Experiment, result: xr.Dataset) -> list[Recorded]:
    """Every run of the grid, and how the result says that it ended."""
    dims = [*(dim.name for dim in dimensions(experiment)), "seed"]
    status, steps, loss = (
        result[name].transpose(*dims).values.ravel().tolist()
        for name in ("status", "steps", "train_loss")
    )
    return [Recorded(*each) for each in zip(runs_of(experiment), status, steps, loss, strict=True)]


def _judged(records: list[Recorded]) -> list[Recorded]:
    """Those that can be judged; undecided where too many cannot, as for numbers of seeds."""
    kept = [each for each in records if each.status in JUDGED]
    if not kept or len(kept) < (1 - MOST_MISSING) * len(records):
        raise Undecided(f"only {len(kept)} of {len(records)} runs have final weights to judge")
    return kept
