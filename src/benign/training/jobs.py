"""Jobs: the runs that start, are tested and are recorded together, and train in slots with runs of other jobs."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benign.data.model import column
from benign.networks.network import Params
from benign.spec import axes
from benign.spec.base import digest
from benign.spec.registry import has_guarantee
from benign.streams import RunId, Streams
from benign.training.checkpoint import (
    IN_SLOTS,
    Checkpoint,
    CheckpointConfig,
    NamedTensors,
    check_like,
    fill,
    grouped,
    named,
)
from benign.training.descent import Batch, Status
from benign.training.engine import GPU_SHARE, Results, batch_size, run_bytes, weights_name
from benign.training.fast import gram_state
from benign.training.metrics import metrics_for, running_metrics_for
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup, stack

FULL = 64 * 22 * 16 * 1024 * 272
"""multiplications of a pass on the points of all slots that fill a GPU: on an H200 zhang/fig1 (22 points of 16 tokens,
d = 1024, 272 columns) trains as fast with 64 slots as with 128 (13.5 and 13.6 s)"""
FEWEST, MOST = 64, 512
"""slots on a GPU"""
WIDEST = 4
"""a run is never padded to more than this many times its points"""


def why_not(setup: Setup) -> str | None:
    """Return why runs of this setup cannot train in slots, with field and value, or None."""
    training, network, attack = setup.training, setup.network, setup.attack
    if not has_guarantee(training, "plain_update"):
        return f"`training` is {training.kind}, whose steps are not one plain update each"
    if not (training.constant_rate() or type(training).rate_at is GradientDescent.rate_at):
        return f"`training` is {training.kind}, whose rate is not known for runs at different steps"
    if not all(has_guarantee(network, name) for name in ("recordable", "separate_points")):
        return f"`network` is {network.kind}, which does not promise to treat every point and run apart"
    if attack is not None and not attack.recordable():
        return f"`attack` ({attack.kind}) draws numbers, or decides by their values how to go on"
    if attack is not None and not has_guarantee(attack, "separate_points"):
        return f"`attack` is {attack.kind}, which does not promise to treat every point apart"
    if attack is not None and training.first_attacked_step:
        return f"`training.first_attacked_step` is {training.first_attacked_step}, not the same step for all slots"
    if attack is None and _carries_products(setup):
        return "nothing is attacked: training moves products of the tokens instead of the weights, and slots do not"
    if setup.evaluation.at == "snapshots":
        return "`evaluation.at` is snapshots, where fresh points are drawn for runs at one step"
    own = [
        each.name
        for each in (*metrics_for(setup), *running_metrics_for(setup))
        if not each.function.__module__.startswith("benign.")
    ]
    return (
        f"`{own[0]}` is a metric of your own, which may read the number of the step"
        if own
        else None
    )


def _carries_products(setup: Setup) -> bool:
    """Return whether clean training of such runs moves products of tokens (`GramState`), which are those of one run."""
    small = setup.reduced()
    data, columns = small.data, small.network.cost(small.data).columns
    carries = has_guarantee(small.network, "carried_products")
    return carries and gram_state.pays(data.samples * data.tokens, data.dim, columns)


def group_of(setup: Setup) -> str:
    """Return a digest that is equal for runs that may share slots: they differ in numbers and in `data.samples`."""
    small = setup.reduced()
    running = [each.name for each in running_metrics_for(setup)]
    return digest([*(_without_numbers(each, setup) for each in (setup, small)), running])


def _without_numbers(setup: Setup, drawn: Setup) -> dict[str, Any]:
    blank: dict[axes.Path, Any] = {
        path: None if value is None else 0.0
        for path, role, value in axes.walk(setup)
        if role == "run"
    }
    if all(each.padded for each in running_metrics_for(drawn)):
        blank["data", "samples"] = 0
    fields = axes.replace(setup, blank).as_dict()
    fields.pop("seeds", None)
    return fields


def padded_samples(samples: int, largest: int) -> int:
    """Return to how many points runs are padded in a sweep whose largest runs have `largest`."""
    while largest >= WIDEST * samples:
        largest //= WIDEST
    return largest


def slot_count(setup: Setup, samples: int, device: str) -> int:
    """Return how many slots with so many points fill a GPU, within its memory.

    By the kind of device, not by what is free: the same slots give the same bits.
    """
    small = setup.reduced()
    pass_of_a_run = samples * small.network.cost(small.data).multiplies
    wanted = min(max(FEWEST, FULL // max(pass_of_a_run, 1)), MOST)
    memory = torch.cuda.get_device_properties(device).total_memory
    return max(1, min(wanted, int(GPU_SHARE * memory / 2) // run_bytes(setup)))


class Job:
    """Runs that start, are tested and are recorded together."""

    def __init__(
        self,
        cells: Sequence[Setup],
        ids: Sequence[RunId],
        device: str,
        config: CheckpointConfig = CheckpointConfig(),  # noqa: B008
    ):
        setup = stack(list(cells), device)
        self.batch = Batch.start(setup, Streams(ids, device))
        self.results = Results(setup, len(cells))
        self.results.allocate(self.batch)
        # By the setup of all runs: labels may be flipped in some of them only.
        self.metrics = [each.name for each in metrics_for(self.batch.setup)]
        self.running = [each.name for each in running_metrics_for(self.batch.setup)]
        self.numbers = np.zeros(len(cells), np.int64)
        """steps that every run has made"""
        self.ended = np.zeros(len(cells), bool)
        """runs that a checkpoint interrupted between their last step and the writing of their end"""
        self.states: NamedTensors = {}
        """states of the running metrics of runs that a checkpoint has interrupted"""
        self.seconds = 0.0
        """its share of the time that the slots took"""
        self._config = config
        self._names = [weights_name(*run) for run in zip(cells, ids, strict=True)]
        runs = digest(self._names)
        path = config.checkpoints and config.checkpoints / f"{IN_SLOTS}{runs}.safetensors"
        self.checkpoint = Checkpoint(path, runs, config)
        self.checkpoint.resume(device, self._resume)
        self.waiting = deque(np.flatnonzero(self._left()).tolist())
        """places of the runs that are in no slot yet"""

    @property
    def samples(self) -> int:
        return self.batch.setup.data.samples

    def _left(self) -> np.ndarray:
        return self.results.arrays["status"] == Status.MISSING

    @property
    def left(self) -> int:
        """The number of runs that have not ended."""
        return int(self._left().sum())

    @property
    def step(self) -> int:
        """The largest number of steps of a run."""
        return int(self.numbers.max())

    def params_of(self, places: Tensor) -> Params:
        """Return the weights of runs that go into slots: those of the start, or those of a checkpoint."""
        resumed = torch.as_tensor(self.numbers[places.cpu().numpy()] > 0, device=places.device)
        begun, final = self.batch.raw_params, self.results.final.raw_params
        return {
            name: torch.where(
                column(resumed, part[places]).bool(), final[name][places], part[places]
            )
            for name, part in begun.items()
        }

    def end(self) -> dict[str, np.ndarray]:
        """Test the runs, when all have ended, and return every variable as an array with a leading runs axis."""
        self.results.test()
        if self._config.weights:
            self.results.write_weights(self._config, self._names)
        return self.results.arrays

    def tensors(
        self, numbers: np.ndarray, ended: np.ndarray, weights: Params, states: NamedTensors
    ) -> NamedTensors:
        """Return the tensors of a checkpoint: steps, weights and states of all runs."""
        return (
            named("place", {"numbers": numbers, "ended": ended})
            | named("weights", weights)
            | named("arrays", self.results.arrays)
            | named("states", states)
        )

    def _resume(self, tensors: NamedTensors) -> None:
        states, final = grouped(tensors, "states"), self.results.final.raw_params
        if states.keys() != set(self.running) and states:
            raise ValueError("it has other running metrics than its runs")
        if any(len(state) != len(self.numbers) for state in states.values()):
            raise ValueError("its running metrics belong to other runs")
        check_like(tensors, self.tensors(self.numbers, self.ended, final, states))
        numbers = tensors["place/numbers"].cpu().numpy()
        if not ((numbers >= 0) & (numbers <= self.batch.setup.training.most_steps())).all():
            raise ValueError("it is of steps that its runs do not have")
        if numbers.any() and not states and self.running:
            raise ValueError("it lacks the running metrics of its runs")
        fill(final, grouped(tensors, "weights"))
        for name, values in grouped(tensors, "arrays").items():
            self.results.arrays[name][...] = values.cpu().numpy()
        self.numbers, self.states = numbers.copy(), states
        self.ended = tensors["place/ended"].cpu().numpy().copy()


def why_job_not(cells: Sequence[Setup], device: str) -> str | None:
    """Return why these runs of one shape cannot be a job, or None."""
    if reason := why_not(cells[0]):
        return reason
    if not any(cell.training.stop_loss for cell in cells):
        return (
            "`training.stop_loss` is 0: all runs end at the last step, so their batches stay full"
        )
    size = batch_size(cells[0], device)
    return f"only {size} of its {len(cells)} runs fit into memory" if size < len(cells) else None
