"""Slots: runs that end are replaced by runs that wait, so that a batch stays full and never changes its shape.

A batch of `train_runs` shrinks as its runs end, and on a GPU every smaller batch launches its kernels one by one until
it is recorded anew. Here a fixed number of slots trains one run each. All tensors keep their shape and their memory, so
that a step is recorded once; a slot whose run has ended gets the next one, of the same or of another job. A job is what
`train_runs` takes: its runs are drawn together, tested together and recorded together, in a batch of their own.

Runs of different N share the slots: the points of a run are repeated until there are as many as the slots hold. A
repeated point is attacked as its original is and has weight 0 in the mean loss, so that loss and gradient are those of
the run; what is largest, smallest or true of all points is the same with copies. (Points of zeros would be a second
kind of point for every attack, network and running metric to handle.) All other metrics are computed on the first N
points alone. They are computed for all slots once for every N that is needed, so that no shape depends on which runs
are at a snapshot: a run has the same bits whatever its slot and its neighbours are.

Left out (`why_not`): what draws numbers at every step, mini-batches, networks that mix the points of a batch or run
one by one, curves of fresh points, and metrics of a user's own, which may read the number of the step.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benign.data.model import Sample, column
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
from benign.training.descent import Batch, Status, Step, attacked_step
from benign.training.engine import (
    GPU_SHARE,
    Numbers,
    Results,
    batch_size,
    finished,
    run_bytes,
    weights_name,
)
from benign.training.metrics import METRICS, metrics_for, running_metrics_for
from benign.training.metrics.metric import Metric, RunningMetric
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup, stack

FULL = 64 * 22 * 16 * 1024 * 272
"""multiplications of a pass on the points of all slots that fill a GPU: on an H200 the time of a step of zhang/fig1
(22 points of 16 tokens, d = 1024, 272 columns) is proportional to the number of runs from about 64 on"""
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
        return (
            f"`attack` is {attack.label()}, which draws numbers or decides by values how to go on"
        )
    if attack is not None and not has_guarantee(attack, "separate_points"):
        return f"`attack` is {attack.kind}, which does not promise to treat every point apart"
    if attack is not None and training.first_attacked_step:
        return f"`training.first_attacked_step` is {training.first_attacked_step}, not the same step for all slots"
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


def group_of(setup: Setup) -> str:
    """Return a digest that is equal for runs that may share slots: they differ in numbers and in `data.samples`."""
    small = setup.reduced()
    return digest([_without_numbers(each, setup) for each in (setup, small)])


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


def slot_count(setup: Setup, device: str) -> int:
    """Return how many slots fill a GPU with such runs, within its memory; by the kind of device, not what is free."""
    small = setup.reduced()
    pass_of_a_run = small.data.samples * small.network.cost(small.data).multiplies
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

    def tensors(self, weights: Params, states: NamedTensors) -> NamedTensors:
        """Return the tensors of a checkpoint: weights and states of all runs at their steps."""
        return (
            {"place/numbers": torch.as_tensor(self.numbers)}
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
        check_like(tensors, self.tensors(final, states))
        numbers = tensors["place/numbers"].cpu().numpy()
        if not ((numbers >= 0) & (numbers <= self.batch.setup.training.most_steps())).all():
            raise ValueError("it is of steps that its runs do not have")
        if numbers.any() and not states and self.running:
            raise ValueError("it lacks the running metrics of its runs")
        fill(final, grouped(tensors, "weights"))
        for name, values in grouped(tensors, "arrays").items():
            self.results.arrays[name][...] = values.cpu().numpy()
        self.numbers, self.states = numbers.copy(), states


def why_job_not(cells: Sequence[Setup], device: str) -> str | None:
    """Return why these runs of one shape cannot be a job, or None."""
    if reason := why_not(cells[0]):
        return reason
    size = batch_size(cells[0], device)
    return f"only {size} of its {len(cells)} runs fit into memory" if size < len(cells) else None


class _SlotBatch(Batch):
    """The runs in the slots: steps move their weights, because products of tokens would change with every new run."""

    gram_state = None  # pyright: ignore[reportAssignmentType]


@dataclass(frozen=True)
class _Occupant:
    """The run in a slot."""

    job: Job
    place: int
    """its position in the job"""


class Slots:
    """A fixed number of slots for runs with at most `samples` points, of one group (`group_of`)."""

    def __init__(self, first: Job, count: int, samples: int):
        """`first` is a job of the group: its first run fills all slots with numbers until they get runs."""
        start, device = first.batch, first.batch.index.device
        zeros = torch.zeros(count, dtype=torch.int64, device=device)
        setup = axes.replace(axes.select(start.setup, zeros), {("data", "samples"): samples})
        self._points = torch.arange(samples, device=device)
        sample = self._padded(start, zeros)
        params = {name: part[zeros] for name, part in start.raw_params.items()}
        moved = start.setup.network.trained(start.raw_params)
        self._batch = _SlotBatch(
            setup,
            Streams([start.streams.runs[0]] * count, device),
            torch.arange(count, device=device),
            sample,
            params,
            dim=start.dim,
            point_weights=sample.y.new_zeros(sample.y.shape),
            initial_params=params | {name: params[name].clone() for name in moved},
        )
        self._numbers = torch.zeros(count, dtype=torch.float64, device=device)
        """steps before, of every slot; counted in float64 for `rate_at`"""
        self._states: NamedTensors = {}
        self._slots: list[_Occupant | None] = [None] * count
        self._columns = {number: at for at, number in enumerate(setup.snapshot_steps())}
        self.samples = samples
        self.jobs: list[Job] = []
        """jobs with a run that has not ended, in the order in which they came"""

    def add(self, job: Job) -> None:
        """Add a job of the same group; its runs get slots as these become free."""
        self.jobs.append(job)

    @property
    def waiting(self) -> int:
        """The number of runs that wait for a slot."""
        return sum(len(job.waiting) for job in self.jobs)

    def __len__(self) -> int:
        return len(self._slots)

    @cached_property
    def _training(self) -> Any:
        return self._batch.setup.training

    @torch.no_grad()
    def step(self) -> list[Job]:
        """Make a step of the run in every slot. Return the jobs whose last run has ended."""
        self._refill()
        batch = self._batch
        step = attacked_step(batch, self._numbers)
        status, gradient = step.status(), step.gradient()
        self._update_states(step)
        numbers, occupied = self._host_numbers()
        at_snapshot = occupied & np.isin(numbers, list(self._columns))
        values = self._metrics_of(step, at_snapshot, {})
        ends = status.cpu().numpy()  # waits for the device: everything above is under way there
        ending = occupied & (ends != Status.MISSING)
        values = self._metrics_of(step, ending, values)
        known = {samples: part.cpu().numpy() for samples, part in values.items()}
        self._write_curves(at_snapshot, numbers, known)
        if ending.any():
            self._write_ends(ending, ends, numbers, known)
        self._move(gradient)
        done = [job for job in self.jobs if not job.left]
        self.jobs = [job for job in self.jobs if job.left]
        return done

    def write_checkpoints(self) -> None:
        """Write the checkpoints of jobs that are due."""
        for job in self.jobs:
            if job.checkpoint.due():
                job.checkpoint.write(self._tensors_of(job))

    def _tensors_of(self, job: Job) -> NamedTensors:
        slots, places = self._places_of(job, np.full(len(self), True))
        weights, states = {}, {}
        for name, part in job.results.final.raw_params.items():
            weights[name] = part.clone()
            weights[name][places] = self._batch.raw_params[name][slots]
        for name in job.running:
            if (state := self._states.get(name)) is not None:
                states[name] = state.new_zeros(len(job.numbers), *state.shape[1:])
                states[name][places] = state[slots]
                if job.states and job.waiting:  # resumed runs that still wait
                    rest = list(job.waiting)
                    states[name][rest] = job.states[name][rest]
        return job.tensors(weights, states)

    def _refill(self) -> None:
        """Put runs that wait into free slots."""
        free = deque(slot for slot, run in enumerate(self._slots) if run is None)
        for job in self.jobs:
            count = min(len(free), len(job.waiting))
            if not count:
                continue
            places = [job.waiting.popleft() for _ in range(count)]
            slots = [free.popleft() for _ in range(count)]
            for slot, place in zip(slots, places, strict=True):
                self._slots[slot] = _Occupant(job, place)
            self._load(job, slots, places)

    def _load(self, job: Job, slots: list[int], places: list[int]) -> None:
        """Copy runs of a job into slots."""
        batch, start, device = self._batch, job.batch, self._numbers.device
        to, at = (torch.tensor(part, device=device) for part in (slots, places))
        theirs = dict(_numbers_of(start.setup))
        for path, mine in _numbers_of(batch.setup):
            mine[to] = theirs[path][at]
        sample = self._padded(start, at)
        for name in ("x", "y", "clean_y"):
            getattr(batch.sample, name)[to] = getattr(sample, name)
        for name, part in sample.latent.items():
            batch.sample.latent[name][to] = part
        assert batch.point_weights is not None
        assert batch.initial_params is not None
        batch.point_weights[to] = (self._points < job.samples).to(sample.y) / job.samples
        begun = start.raw_params
        for name, part in job.params_of(at).items():
            batch.raw_params[name][to] = part
            batch.initial_params[name][to] = begun[name][at]
        self._numbers[to] = torch.as_tensor(job.numbers[places], device=device).double()
        for name, state in job.states.items():
            if name not in self._states:
                self._states[name] = state.new_zeros(len(self), *state.shape[1:])
            self._states[name][to] = state[at]
        runs = list(batch.streams.runs)
        for slot, place in zip(slots, places, strict=True):
            runs[slot] = start.streams.runs[place]
        batch.streams = Streams(runs, device)

    def _padded(self, start: Batch, places: Tensor) -> Sample:
        """Return the points of runs, repeated until there are as many as a slot holds."""
        sample, shared = start.sample.select(places), start.setup.data.latent_vectors
        return sample.points((self._points % sample.y.shape[1]).expand(len(places), -1), shared)

    def _host_numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of steps of the run in every slot, and which slots have one, without asking the device."""
        numbers = [run.job.numbers[run.place] if run else 0 for run in self._slots]
        return np.array(numbers), np.array([run is not None for run in self._slots])

    def _update_states(self, step: Step) -> None:
        """Bring the running metrics up to this step; a run that is new in its slot has no state before."""
        new = self._numbers == 0
        for name in dict.fromkeys(name for job in self.jobs for name in job.running):
            metric = METRICS[name]
            assert isinstance(metric, RunningMetric)
            before, first = self._states.get(name), metric.function(None, step)
            if before is not None:
                later = metric.function(before, step)
                first = torch.where(new.reshape(-1, *[1] * (first.ndim - 1)), first, later)
            self._states[name] = first

    @property
    def _metric_names(self) -> list[str]:
        """The metrics of a step that some job needs."""
        return list(dict.fromkeys(name for job in self.jobs for name in job.metrics))

    def _metrics_of(
        self, step: Step, mask: np.ndarray, known: dict[int, Tensor]
    ) -> dict[int, Tensor]:
        """Return the metrics of all slots [metrics, slots] by N, for every N of the slots in the mask."""
        names, values = self._metric_names, dict(known)
        for samples in sorted({run.job.samples for run in self._chosen(mask)} - known.keys()):
            cut = self._first_points(step, samples)
            rows = [self._metric(name).function(cut).double() for name in names]
            values[samples] = torch.stack(rows)
        return values

    def _metric(self, name: str) -> Metric:
        metric = METRICS[name]
        assert isinstance(metric, Metric)
        return metric

    def _chosen(self, mask: np.ndarray) -> list[_Occupant]:
        return [run for run, inside in zip(self._slots, mask, strict=True) if run and inside]

    def _first_points(self, step: Step, samples: int) -> Step:
        """Return the step as runs of so many points see it."""
        whole, batch = self._batch.sample, self._batch
        setup = axes.replace(batch.setup, {("data", "samples"): samples})
        x, y, clean = (part[:, :samples].contiguous() for part in (whole.x, whole.y, whole.clean_y))
        latent = {
            name: part if name in setup.data.latent_vectors else part[:, :samples].contiguous()
            for name, part in whole.latent.items()
        }
        sample = Sample(x, y, clean, latent)
        cut = replace(batch, setup=setup, sample=sample, point_weights=None)
        points = x
        if setup.attack is not None:
            sets = step.attacked.unflatten(1, (-1, self.samples))  # an attack may return several
            points = sets[:, :, :samples].flatten(1, 2)
        return Step(step.number, cut, points, cut.target(sample, "").training_pass(points))

    def _places_of(self, job: Job, mask: np.ndarray) -> tuple[list[int], list[int]]:
        """Return the slots in the mask that hold runs of a job, and the places of these runs in it."""
        slots = [
            slot
            for slot, run in enumerate(self._slots)
            if run is not None and run.job is job and mask[slot]
        ]
        return slots, [run.place for slot in slots if (run := self._slots[slot])]

    def _values_of(self, job: Job, slots: list[int], known: dict[int, np.ndarray]) -> Numbers:
        rows = zip(self._metric_names, known[job.samples], strict=True)
        return {name: row[slots] for name, row in rows if name in job.metrics}

    def _write_curves(
        self, mask: np.ndarray, numbers: np.ndarray, known: dict[int, np.ndarray]
    ) -> None:
        for job in self.jobs:
            slots, places = self._places_of(job, mask)
            if slots:
                columns = np.array([self._columns[number] for number in numbers[slots].tolist()])
                values = self._values_of(job, slots, known)
                job.results.write_curves(np.array(places), columns, values)

    def _write_ends(
        self,
        mask: np.ndarray,
        ends: np.ndarray,
        numbers: np.ndarray,
        known: dict[int, np.ndarray],
    ) -> None:
        """Write how runs have ended, and free their slots."""
        for job in self.jobs:
            slots, places = self._places_of(job, mask)
            if not slots:
                continue
            values = self._values_of(job, slots, known)
            for name in job.running:
                value = finished(name, self._states[name][slots])
                values[name] = value.double().cpu().numpy()
            job.results.write_end(np.array(places), ends[slots], numbers[slots], values)
            for name, part in self._batch.raw_params.items():
                job.results.final.raw_params[name][places] = part[slots]
            for slot in slots:
                self._slots[slot] = None

    def _move(self, gradient: Params) -> None:
        """Make the update of every slot and count the step of the runs that go on."""
        rate = self._training.rate_at(self._numbers)
        for name, part in gradient.items():
            self._batch.raw_params[name].addcmul_(part, -column(rate, part))
        self._numbers += 1
        for run in self._chosen(np.full(len(self), True)):
            run.job.numbers[run.place] += 1


def _numbers_of(setup: Setup) -> list[tuple[axes.Path, Tensor]]:
    """Return the numbers that differ by run, as tensors [runs]."""
    return [
        (path, value)
        for path, role, value in axes.walk(setup)
        if role == "run" and isinstance(value, Tensor)
    ]
