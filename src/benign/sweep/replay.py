"""Train one run again, step by step, with access to everything in it."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from benign.data.model import Sample
from benign.experiment import Experiment
from benign.streams import Streams
from benign.sweep.plan import Run, find_run
from benign.training.descent import Batch, Step, descend, subset_step
from benign.training.machine import check_device
from benign.training.metrics import metrics_for
from benign.training.setup import Setup, stack


class Replay:
    """One run, trained again with access to everything in it."""

    def __init__(self, run: Run, device: str):
        self.run = run
        self.streams = Streams([run.id], device)
        self.setup: Setup = stack([run.cell], device)

    @cached_property
    def train(self) -> Sample:
        """The training points, with a runs axis of length one."""
        return Batch.start(self.setup, self.streams).sample

    def test(self, count: int = 250) -> Sample:
        """Return the first fresh test points of the evaluation."""
        return Batch.start(self.setup, self.streams).test_points("test/0", count)

    def steps(self) -> Iterator[Step]:
        """Yield every step before its update. The weights change in place: copy what you keep."""
        for step, _ in descend(Batch.start(self.setup, self.streams)):
            yield step

    @cached_property
    def last(self) -> Step:
        """The step at which the run ended."""
        *_, last = self.steps()
        return last

    def trace(self) -> xr.Dataset:
        """Return every snapshot metric at every step; the curves of the result have the same numbers."""
        probes = metrics_for(self.setup)
        steps = map(subset_step, self.steps())
        rows = [[float(probe.function(step)[0]) for probe in probes] for step in steps]
        columns = np.array(rows).T
        data = {
            probe.name: ("step", column, {"long_name": probe.definition, "units": probe.units})
            for probe, column in zip(probes, columns, strict=True)
        }
        return xr.Dataset(data, {"step": np.arange(len(rows))})


def replay(experiment: Experiment, seed: int, device: str, where: dict[str, Any]) -> Replay:
    """Return the run with these coordinates and this seed, ready to be trained again."""
    check_device(device)
    return Replay(find_run(experiment, where, seed), device)
