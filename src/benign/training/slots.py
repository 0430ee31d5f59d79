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

On a GPU trays of slots make their steps at the same time, each as one CUDA graph. A tray without runs makes none, so
that the last, long runs of a queue do not pay for empty slots. The ends of a step are read while the next one is made.

Left out (`benign.training.jobs.why_not`): what draws numbers at every step, mini-batches, networks that mix the points
of a batch or run one by one, curves of fresh points, and metrics of a user's own, which may read the number of the
step.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from benign.data.model import Sample, column
from benign.networks.network import Params
from benign.spec import axes
from benign.streams import Streams
from benign.training.checkpoint import NamedTensors
from benign.training.descent import Batch, Status, Step
from benign.training.engine import Numbers, finished
from benign.training.fast.recording import recorded, training_pass
from benign.training.jobs import Job
from benign.training.metrics import METRICS
from benign.training.metrics.metric import Metric, RunningMetric
from benign.training.setup import Setup

TRAY = 16
"""slots that make a step together: few enough that the last runs of a queue do not pay for many empty slots. On an H200
zhang/fig1 (660 runs of 1 to 964 steps) trained in 22.9 s with one batch of 64, its metrics launched kernel by kernel,
in 14.9 s with four trays of 16, and in 13.5 s with recorded metrics"""


class _SlotBatch(Batch):
    """Runs in slots: steps move their weights, because products of tokens would change with every new run."""

    gram_state = None  # pyright: ignore[reportAssignmentType]


@dataclass(eq=False)
class _Occupant:
    """The run in a slot."""

    job: Job
    place: int
    """its position in the job"""
    slot: int
    number: int
    """steps before, as far as the host knows"""


@dataclass(frozen=True)
class _Slotted:
    """The tensors of all slots, or views of some of them. They never change their place in memory."""

    batch: _SlotBatch
    numbers: Float64[Tensor, " slots"]
    """steps before; in float64 for `rate_at`"""
    ended: Bool[Tensor, " slots"]
    """whether the run has ended: it stays as it is until the host has read its end"""
    attacked: Tensor
    """the points trained on in the last step"""
    states: NamedTensors
    """states of the running metrics, from the first step on"""

    def part(self, slots: slice) -> "_Slotted":
        """Return views of some of the slots; the states are those of all slots."""
        whole = self.batch
        numbers = {path: value[slots] for path, value in _numbers_of(whole.setup)}
        assert whole.initial_params is not None
        assert whole.point_weights is not None
        params, initial = (
            {name: value[slots] for name, value in parts.items()}
            for parts in (whole.raw_params, whole.initial_params)
        )
        batch = replace(
            whole,
            setup=axes.replace(whole.setup, numbers),
            index=whole.index[slots],
            sample=whole.sample.select(slots),
            raw_params=params,
            point_weights=whole.point_weights[slots],
            initial_params=initial,
        )
        return _Slotted(
            batch, self.numbers[slots], self.ended[slots], self.attacked[slots], self.states
        )

    def tensors(self) -> list[Tensor]:
        """Return everything that belongs to a run and outlives a step."""
        batch, sample = self.batch, self.batch.sample
        assert batch.initial_params is not None
        assert batch.point_weights is not None
        return [
            *(value for _, value in _numbers_of(batch.setup)),
            *(sample.x, sample.y, sample.clean_y, *sample.latent.values()),
            *(batch.point_weights, self.numbers, self.ended),
            *batch.raw_params.values(),
            *(batch.initial_params[name] for name in self.moved),
            *self.states.values(),
        ]

    def state(self, name: str, like: Tensor) -> Tensor:
        """Return the state of a running metric in all slots, zeros at first; `like`: that of some runs."""
        if name not in self.states:
            self.states[name] = like.new_zeros(len(self.numbers), *like.shape[1:])
        return self.states[name]

    @property
    def moved(self) -> tuple[str, ...]:
        """The names of the parameters that training moves."""
        return self.batch.setup.network.trained(self.batch.raw_params)


class _Tray:
    """Slots that make their steps together; on a GPU in a stream of their own, as one CUDA graph."""

    def __init__(self, whole: _Slotted, slots: slice, running: list[str]):
        self._whole, self._mine, self._running = whole, whole.part(slots), running
        self.slots = slots
        self.device = whole.numbers.device
        self._is_warm = False
        self._graph: torch.cuda.CUDAGraph | None = None
        if self.device.type == "cuda":
            self._stream = torch.cuda.Stream(self.device)
            self._pool = torch.cuda.graph_pool_handle()
        self.status: Tensor
        """how the runs end at this step"""
        self._gradient: Params

    def launch(self) -> None:
        """Begin a step: attack the points, run the network, and find out which runs end."""
        if self.device.type != "cuda" or not self._is_warm:
            self._compute()
            self._is_warm = True
            return
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            if self._graph is None:
                self._graph, _ = recorded(self._compute, self._pool)
            else:
                self._graph.replay()

    def wait(self) -> None:
        """Let what follows wait for the step."""
        if self._graph is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._stream)

    def _compute(self) -> None:
        mine, batch = self._mine, self._mine.batch
        points, forward_pass = training_pass(batch.setup.attack, batch.target(batch.sample, ""))
        mine.attacked.copy_(points)
        step = Step(mine.numbers, batch, points, forward_pass)
        self.status, self._gradient = step.status(), step.gradient()
        for name in self._running:
            self._update_state(name, step)

    def _update_state(self, name: str, step: Step) -> None:
        """Bring a running metric up to this step; a new run has no state before, an ended one keeps its last."""
        metric = METRICS[name]
        assert isinstance(metric, RunningMetric)
        first = metric.function(None, step)
        state = self._whole.state(name, first)[self.slots]
        new, ended = (
            mask.reshape(-1, *[1] * (first.ndim - 1))
            for mask in (self._mine.numbers == 0, self._mine.ended)
        )
        later = torch.where(new, first, metric.function(state, step))
        state.copy_(torch.where(ended, state, later))

    def move(self) -> None:
        """Make the update of every run that goes on."""
        mine = self._mine
        goes_on = self.status == Status.MISSING
        rate = mine.batch.setup.training.rate_at(mine.numbers)
        for name, part in self._gradient.items():
            # A diverged run may have a gradient of NaN, which times 0 would spoil its last weights.
            step = part.masked_fill(~column(goes_on, part).bool(), 0)
            mine.batch.raw_params[name].addcmul_(step, -column(rate, part))
        mine.numbers.add_(goes_on)
        mine.ended.copy_(~goes_on)


class _Meter:
    """Computes metrics of a fixed number of runs of one N at their last step; on a GPU as one CUDA graph.

    Nine in ten steps of zhang/fig1 took at most 17.7 ms on an H200, and 25.7 ms with metrics launched kernel by kernel.
    """

    def __init__(self, whole: _Slotted, samples: int, metrics: list[str], count: int, pool: Any):
        self._whole, self._samples, self._metrics, self._pool = whole, samples, metrics, pool
        self._at = torch.zeros(count, dtype=torch.int64, device=whole.numbers.device)
        self._is_warm = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Tensor
        self.names = [*metrics, *whole.states]

    def read(self, slots: list[int]) -> Float64[Tensor, "names runs"]:
        """Return the metrics of the runs in at most so many slots; the next reading may overwrite them."""
        filled = slots + slots[:1] * (len(self._at) - len(slots))
        self._at.copy_(torch.tensor(filled))
        if self._graph is not None:
            self._graph.replay()
        elif self._is_warm and self._at.is_cuda:
            self._graph, self._result = recorded(self._compute, self._pool)
        else:
            self._result = self._compute()
            self._is_warm = True
        return self._result

    def _compute(self) -> Float64[Tensor, "names runs"]:
        step = self._first_points()
        values = []
        for name in self._metrics:
            metric = METRICS[name]
            assert isinstance(metric, Metric)
            values.append(metric.function(step))
        states = self._whole.states.items()
        values += [finished(name, state[self._at]) for name, state in states]
        return torch.stack([part.double() for part in values])

    def _first_points(self) -> Step:
        """Return the last step of the runs in these slots, as runs of so many points see it."""
        whole, batch, at = self._whole, self._whole.batch, self._at
        assert batch.initial_params is not None
        setup = axes.replace(axes.select(batch.setup, at), {("data", "samples"): self._samples})
        shared, few = setup.data.latent_vectors, slice(self._samples)
        latent = {
            name: part[at] if name in shared else part[:, few][at]
            for name, part in batch.sample.latent.items()
        }
        x, y, clean = batch.sample.x, batch.sample.y, batch.sample.clean_y
        sample = Sample(x[:, few][at], y[:, few][at], clean[:, few][at], latent)
        cut = replace(
            batch,
            setup=setup,
            streams=Streams([], at.device),  # no metric of a step draws
            index=at,
            sample=sample,
            raw_params={name: part[at] for name, part in batch.raw_params.items()},
            initial_params={name: part[at] for name, part in batch.initial_params.items()},
            point_weights=None,
        )
        points = sample.x if setup.attack is None else whole.attacked[:, few][at]
        forward_pass = cut.target(sample, "").training_pass(points)
        return Step(whole.numbers[at], cut, points, forward_pass)


@dataclass(frozen=True)
class _Row:
    """A run whose metrics are computed."""

    run: _Occupant
    column: int | None = None
    """column of the curves, at a snapshot"""
    status: int | None = None
    """how it ended, at its end"""


class _Fetched:
    """A tensor on its way to the host: what the device does next need not wait for it."""

    def __init__(self, tensor: Tensor):
        self._event = None
        if not tensor.is_cuda:
            self._host = tensor.clone()
            return
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._host.copy_(tensor, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def numpy(self) -> np.ndarray:
        if self._event is not None:
            self._event.synchronize()
        return self._host.numpy()


@dataclass(frozen=True, eq=False)
class _Measured:
    """Values of metrics of some runs: [names, rows]."""

    names: list[str]
    rows: list[_Row]
    values: _Fetched


class Slots:
    """A fixed number of slots for runs with at most `samples` points, of one group (`jobs.group_of`)."""

    def __init__(self, first: Job, count: int, samples: int):
        """`first` is a job of the group: its first run fills all slots with numbers until they get runs.

        `count` is rounded up to whole trays.
        """
        start, device = first.batch, first.batch.index.device
        self._tray_size = min(count, TRAY)
        count = -(-count // self._tray_size) * self._tray_size
        zeros = torch.zeros(count, dtype=torch.int64, device=device)
        setup = axes.replace(axes.select(start.setup, zeros), {("data", "samples"): samples})
        self._points = torch.arange(samples, device=device)
        sample = self._padded(start, zeros)
        params = {name: part[zeros] for name, part in start.raw_params.items()}
        moved = start.setup.network.trained(start.raw_params)
        batch = _SlotBatch(
            setup,
            Streams([start.streams.runs[0]] * count, device),
            torch.arange(count, device=device),
            sample,
            params,
            dim=start.dim,
            point_weights=sample.y.new_zeros(sample.y.shape),
            initial_params=params | {name: params[name].clone() for name in moved},
        )
        numbers = torch.zeros(count, dtype=torch.float64, device=device)
        self._whole = _Slotted(batch, numbers, numbers > 0, sample.x.clone(), {})
        self._trays = [
            _Tray(self._whole, slice(begin, begin + self._tray_size), first.running)
            for begin in range(0, count, self._tray_size)
        ]
        self._slots: list[_Occupant | None] = [None] * count
        self._ends: tuple[_Fetched, list[_Occupant | None]] | None = None
        """how the runs ended at the last step, on the way to the host"""
        self._values: list[_Measured] = []
        """values on the way to the host"""
        on_gpu = device.type == "cuda"
        self._meter_pool = torch.cuda.graph_pool_handle() if on_gpu else None
        self._meters: dict[tuple[int | str, ...], _Meter] = {}
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

    @torch.no_grad()
    def step(self) -> list[Job]:
        """Make a step of the run in every slot. Return the jobs whose last run has ended.

        The ends of a step are read while the device makes the next one. So a run that ends stays in its slot for one
        more step, in which its weights do not move and its last metrics are computed.
        """
        self._refill()
        trays = [tray for tray, runs in zip(self._trays, self._by_tray(), strict=True) if runs]
        for tray in trays:
            tray.launch()
        ends, before = self._read_ends(), list(self._values)
        for tray in trays:
            tray.wait()
        self._measure(ends)
        for tray in trays:
            tray.move()
        if trays:
            statuses = torch.cat([tray.status for tray in trays])
            runs = [run for tray in trays for run in self._slots[tray.slots]]
            self._ends = _Fetched(statuses), runs
        self._write(before)
        done = [job for job in self.jobs if not job.left]
        self.jobs = [job for job in self.jobs if job.left]
        return done

    def write_checkpoints(self) -> None:
        """Write the checkpoints of jobs that are due."""
        due = [job for job in self.jobs if job.checkpoint.due()]
        if due:
            self._write(list(self._values))
        for job in due:
            job.checkpoint.write(self._tensors_of(job))

    def _tensors_of(self, job: Job) -> NamedTensors:
        """Return the tensors of a checkpoint of a job, whose measured values have been written."""
        runs = [run for run in self._slots if run and run.job is job]
        slots, places = [run.slot for run in runs], [run.place for run in runs]
        whole, numbers, ended = self._whole, job.numbers.copy(), job.ended.copy()
        # Those of the device: the host has not read yet how the runs ended at the last step.
        numbers[places] = whole.numbers[slots].long().cpu().numpy()
        ended[places] = whole.ended[slots].cpu().numpy()
        weights, states = {}, {}
        for name, part in job.results.final.raw_params.items():
            weights[name] = part.clone()
            weights[name][places] = whole.batch.raw_params[name][slots]
        for name, state in whole.states.items():
            states[name] = state.new_zeros(len(numbers), *state.shape[1:])
            states[name][places] = state[slots]
            if job.states:  # resumed runs that still wait
                states[name][list(job.waiting)] = job.states[name][list(job.waiting)]
        return job.tensors(numbers, ended, weights, states)

    def _by_tray(self) -> list[list[_Occupant]]:
        """Return the runs in every tray."""
        return [[run for run in self._slots[tray.slots] if run] for tray in self._trays]

    def _refill(self) -> None:
        """Put runs that wait into free slots. If none waits, gather the rest in as few trays as possible."""
        free = deque(slot for slot, run in enumerate(self._slots) if run is None)
        for job in self.jobs:
            count = min(len(free), len(job.waiting))
            if count:
                places = [job.waiting.popleft() for _ in range(count)]
                self._load(job, places, [free.popleft() for _ in range(count)])
        if not self.waiting:
            self._gather()

    def _gather(self) -> None:
        by_tray = self._by_tray()
        needed = -(-sum(map(len, by_tray)) // self._tray_size)
        used = [place for place, runs in enumerate(by_tray) if runs]
        if len(used) <= needed:
            return
        used.sort(key=lambda place: -len(by_tray[place]))
        free = [
            slot
            for place in used[:needed]
            for slot in range(len(self))[self._trays[place].slots]
            if self._slots[slot] is None
        ]
        runs = [run for place in used[needed:] for run in by_tray[place]]
        before, after = [run.slot for run in runs], free[: len(runs)]
        for tensor in self._whole.tensors():
            tensor[after] = tensor[before]
        self._occupy(runs, after)

    def _occupy(self, runs: list[_Occupant], slots: list[int]) -> None:
        """Note that these runs are in these slots now."""
        streams = list(self._whole.batch.streams.runs)
        for run, slot in zip(runs, slots, strict=True):
            if self._slots[run.slot] is run:
                self._slots[run.slot] = None
            self._slots[slot], run.slot = run, slot
            streams[slot] = run.job.batch.streams.runs[run.place]
        self._whole.batch.streams = Streams(streams, self._points.device)

    def _load(self, job: Job, places: list[int], slots: list[int]) -> None:
        """Copy runs of a job into slots."""
        whole, start, device = self._whole, job.batch, self._points.device
        batch = whole.batch
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
        for name, part in job.params_of(at).items():
            batch.raw_params[name][to] = part
            batch.initial_params[name][to] = start.raw_params[name][at]
        whole.numbers[to] = torch.as_tensor(job.numbers[places], device=device).double()
        whole.ended[to] = torch.as_tensor(job.ended[places], device=device)
        for name, state in job.states.items():
            whole.state(name, state)[to] = state[at]
        numbers = job.numbers[places].tolist()
        runs = [
            _Occupant(job, place, slot, number)
            for place, slot, number in zip(places, slots, numbers, strict=True)
        ]
        self._occupy(runs, slots)

    def _padded(self, start: Batch, places: Tensor) -> Sample:
        """Return the points of runs, repeated until there are as many as a slot holds."""
        sample, shared = start.sample.select(places), start.setup.data.latent_vectors
        return sample.points((self._points % sample.y.shape[1]).expand(len(places), -1), shared)

    def _read_ends(self) -> list[_Row]:
        """Count the last step of the runs that go on after it; return how the others ended."""
        if self._ends is None:
            return []
        (fetched, runs), self._ends = self._ends, None
        rows = []
        for run, status in zip(runs, fetched.numpy().tolist(), strict=True):
            if run is None:
                continue
            if status == Status.MISSING:
                run.number += 1
                run.job.numbers[run.place] = run.number
            else:
                rows.append(_Row(run, status=status))
        return rows

    def _measure(self, ended: list[_Row]) -> None:
        """Compute the metrics of the runs at a snapshot and of those that have ended, which leave their slots.

        For so many runs at a time as a tray has, of one N: no shape depends on which runs are at a snapshot.
        """
        leaving = {id(row.run) for row in ended}
        rows = ended + [
            _Row(run, self._columns[run.number])
            for run in self._slots
            if run and run.number in self._columns and id(run) not in leaving
        ]
        by_samples: dict[int, list[_Row]] = {}
        for row in rows:
            by_samples.setdefault(row.run.job.samples, []).append(row)
        for samples, several in by_samples.items():
            for begin in range(0, len(several), self._tray_size):
                few = several[begin : begin + self._tray_size]
                self._values.append(self._measured(samples, few))
        for job in {id(row.run.job): row.run.job for row in ended}.values():
            runs = [row.run for row in ended if row.run.job is job]
            slots, places = [run.slot for run in runs], [run.place for run in runs]
            for name, part in self._whole.batch.raw_params.items():
                job.results.final.raw_params[name][places] = part[slots]
        for row in ended:
            self._slots[row.run.slot] = None

    def _measured(self, samples: int, rows: list[_Row]) -> _Measured:
        # By the setups of all runs of a job: labels may be flipped in some of them only.
        names = list(dict.fromkeys(name for row in rows for name in row.run.job.metrics))
        key = samples, *names
        if key not in self._meters:
            self._meters[key] = _Meter(
                self._whole, samples, names, self._tray_size, self._meter_pool
            )
        meter = self._meters[key]
        return _Measured(meter.names, rows, _Fetched(meter.read([row.run.slot for row in rows])))

    def _write(self, measured: list[_Measured]) -> None:
        """Write values that have come to the host."""
        for each in measured:
            self._values.remove(each)
            values = each.values.numpy()
            for job in {id(row.run.job): row.run.job for row in each.rows}.values():
                self._write_of(job, each, values)

    def _write_of(self, job: Job, measured: _Measured, values: np.ndarray) -> None:
        mine = [place for place, row in enumerate(measured.rows) if row.run.job is job]
        ends = [place for place in mine if measured.rows[place].status is not None]
        curves = [place for place in mine if measured.rows[place].column is not None]

        def chosen(rows: list[int], names: list[str]) -> Numbers:
            by_name = zip(measured.names, values, strict=True)
            return {name: row[rows] for name, row in by_name if name in names}

        def of(rows: list[int], what: Callable[[_Row], int | None]) -> np.ndarray:
            return np.array([what(measured.rows[place]) for place in rows])

        if curves:
            places, columns = (
                of(curves, what) for what in (lambda row: row.run.place, lambda row: row.column)
            )
            job.results.write_curves(places, columns, chosen(curves, job.metrics))
        if ends:
            places, status, numbers = (
                of(ends, what)
                for what in (
                    lambda row: row.run.place,
                    lambda row: row.status,
                    lambda row: row.run.number,
                )
            )
            numbers_at_end = chosen(ends, job.metrics + job.running)
            job.results.write_end(places, status, numbers, numbers_at_end)


def _numbers_of(setup: Setup) -> list[tuple[axes.Path, Tensor]]:
    """Return the numbers that differ by run, as tensors [runs]."""
    return [
        (path, value)
        for path, role, value in axes.walk(setup)
        if role == "run" and isinstance(value, Tensor)
    ]
