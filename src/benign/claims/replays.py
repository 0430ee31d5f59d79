"""Replays: the runs of a result, trained again for a claim that needs their weights or single steps.

At the end of every run the replay is compared with the record in the result. So a claim cannot judge runs that are not
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
"""statuses of runs whose final weights are judged"""
# One last digit of every initial weight, as another device or number of threads may round it, moved final losses of
# replayed studies by up to 2e-15 in float64, in float32 by 2e-5, or 9e-3 where one-step attacks of a large rate make
# training chaotic (li/attack_rates). Another seed moved them by 3e-7 or more in float64.
CLOSE = {"float64": 1e-8, "float32": 2e-2, "tf32": 2e-2, "bf16x3": 2e-2, "mixed": 2e-2}
"""largest relative difference of final losses between a replay and its record, by precision"""


class Recorded(NamedTuple):
    """A run, and how it ended according to the result."""

    run: Run
    status: int
    steps: float
    loss: float


@dataclass(frozen=True, eq=False)
class Replays:
    """Runs of one shape, trained again as one batch. Equal if runs and records are equal, so it can be a key."""

    records: tuple[Recorded, ...]

    @cached_property
    def key(self) -> str:
        """A digest of the runs and how they ended."""
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
        """The cell of the first run, or of all runs if they share one."""
        return self.records[0].run.cell

    def of_seeds(self, seeds: Collection[int]) -> "Replays":
        """Return the runs of some seeds."""
        return Replays(tuple(each for each in self.records if each.run.seed in seeds))

    def start(self) -> Batch:
        """Return the runs before training, with their points and initial weights."""
        setup = stack([run.cell for run in self.runs], "cpu")
        return Batch.start(setup, Streams([run.id for run in self.runs], "cpu"))

    def steps(self) -> Iterator[tuple[Step, Int[Tensor, " runs"]]]:
        """Yield every step before its update, with the status of its runs. `batch.index` gives positions in `records`.

        Weights change in place: copy what you keep. Raise Undecided if a run ends otherwise than in the result; this is
        noticed only at the end of the run.
        """
        due = torch.tensor([record.steps for record in self.records])
        for step, status in descend(self.start()):
            ending = status != Status.MISSING
            wrong = ending != (due[step.batch.index] <= step.number)
            if ending.any() or wrong.any():
                self._compare(step, status, ending | wrong)
            yield step, status

    def first_step(self) -> Step:
        """Return the first step alone; its weights are not updated."""
        return next(self.steps())[0]

    def ended(self, *statuses: Status) -> Iterator[tuple[list[Run], Batch]]:
        """Yield the runs with their final weights, grouped by the step at which they end. `statuses`: only these."""
        for step, status in self.steps():
            ending = torch.isin(status, torch.tensor(statuses or JUDGED, dtype=status.dtype))
            if ending.any():
                batch = step.batch.select(ending)
                yield [self.runs[index] for index in batch.index.tolist()], batch

    @torch.no_grad()
    def steps_after(self, points: Tensor) -> Iterator[Step]:
        """Yield the steps of training with `points` as the points of the first step, up to the step cap.

        No record is compared: the result has no such run.
        """
        batch = self.start()
        step = Step(0, batch, points, batch.setup.network.run(batch.params, points))
        while True:
            yield step
            if step.number >= batch.setup.training.most_steps():
                return
            update(batch, step.gradient(), step.number)
            step = attacked_step(batch, step.number + 1)

    def _compare(self, step: Step, status: Tensor, which: Tensor) -> None:
        """Raise Undecided if a run that ends here, or should, differs from its record."""
        at_end = subset_step(step)
        close = CLOSE[self.cell.precision]
        for index, now, loss in zip(
            step.batch.index[which].tolist(),
            status[which].tolist(),
            at_end.loss[which].tolist(),
            strict=True,
        ):
            record = self.records[index]
            same = record.status == now and record.steps == step.number
            if not (same and math.isclose(record.loss, loss, rel_tol=close)):
                raise Undecided(
                    f"the run at {_place(record.run.where)} ends otherwise when it is trained again: "
                    f"{_end(now, step.number, loss)}; in the result {_end(*record[1:])}"
                )


def _end(status: int, steps: float, loss: float) -> str:
    state = "still training" if status == Status.MISSING else Status(status).label
    return f"{state} after {steps:g} steps with a loss of {loss:.6g}"


def _place(where: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in where.items())


def by_unit(experiment: Experiment, result: xr.Dataset) -> tuple[Replays, ...]:
    """Return the runs of a result by the units of its experiment; units too large for a CPU are split."""
    records = {each.run.key: each for each in _judged(_recorded(experiment, result))}
    replays = []
    for unit in experiment.units():
        usable = [records[run.key] for run in unit.runs if run.key in records]
        size = batch_size(unit.runs[0].cell, "cpu")
        replays += [
            Replays(tuple(usable[first : first + size])) for first in range(0, len(usable), size)
        ]
    return tuple(replays)


def by_cell(
    experiment: Experiment, result: xr.Dataset, where: Mapping[str, Any] | None = None
) -> tuple[Replays, ...]:
    """Return the runs of a result by cell, in the order of the grid; of all cells, or of those at some coordinates."""
    wanted = (where or {}).items()
    records: dict[tuple[Any, ...], list[Recorded]] = {}
    for each in _recorded(experiment, result):
        place = each.run.where
        if all(name in place and place[name] == value for name, value in wanted):
            cell = tuple(value for name, value in place.items() if name != "seed")
            records.setdefault(cell, []).append(each)
    if not records:
        raise Undecided(f"the result has no runs at {_place(where or {})}")
    return tuple(Replays(tuple(_judged(cell))) for cell in records.values())


def _recorded(experiment: Experiment, result: xr.Dataset) -> list[Recorded]:
    """Return every run of the grid with its record in the result."""
    dims = [*(dim.name for dim in dimensions(experiment)), "seed"]
    status, steps, loss = (
        result[name].transpose(*dims).values.ravel().tolist()
        for name in ("status", "steps", "train_loss")
    )
    return [Recorded(*each) for each in zip(runs_of(experiment), status, steps, loss, strict=True)]


def _judged(records: list[Recorded]) -> list[Recorded]:
    """Return the records that can be judged. Raise Undecided if too many cannot."""
    usable = [each for each in records if each.status in JUDGED]
    if not usable or len(usable) < (1 - MOST_MISSING) * len(records):
        raise Undecided(f"only {len(usable)} of {len(records)} runs have final weights to judge")
    return usable
