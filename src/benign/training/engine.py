"""Trains and measures a list of runs of one shape, in as few batches as the memory allows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from benign.attacks.attack import Attack
from benign.data.model import BLOCK
from benign.spec.base import digest
from benign.streams import RunId, Streams
from benign.training import references
from benign.training.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    NamedTensors,
    fill,
    grouped,
    named,
    position_tensors,
    restored_position,
)
from benign.training.descent import (
    MEASURED_POINTS,
    Batch,
    Position,
    Status,
    Step,
    descend,
    subset_step,
)
from benign.training.fast.recording import quick_collections
from benign.training.metrics import (
    METRICS,
    RunningMetric,
    metrics_for,
    running_metrics_for,
    variables,
)
from benign.training.metrics.evaluation import measure
from benign.training.setup import Setup, stack

# Of one batch, in one of several processes; fixed, so that the same runs are batched the same way on every machine.
CPU_BUDGET = 2 * 2**30
GPU_SHARE = 0.6

Progress = Callable[[int, int], None]
"""called at every step with its number and the number of runs still training, and before all runs are tested with
`TESTING` and their number"""
TESTING = -1

Places = np.ndarray
"""positions of runs in their batch, or columns"""
Numbers = dict[str, np.ndarray]
"""values of runs by the name of the metric"""


def train_runs(
    cells: Sequence[Setup],
    ids: Sequence[RunId],
    device: str = "cpu",
    progress: Progress | None = None,
    config: CheckpointConfig = CheckpointConfig(),  # noqa: B008
) -> dict[str, np.ndarray]:
    """Train runs of one shape and return every variable as an array with a leading runs axis.

    A batch that does not fit into memory is halved; a run that does not fit alone ends with status OUT_OF_MEMORY.
    """
    size = batch_size(cells[0], device)
    parts: list[dict[str, np.ndarray]] = []
    with (
        products(cells[0].precision, device),
        quick_collections(device),
        references.checkpointing(config, progress),
    ):
        for begin in range(0, len(cells), size):
            batch = slice(begin, begin + size)
            parts += _train_or_halve(cells[batch], ids[batch], device, progress, config)
    return _joined(parts)


def _train_or_halve(
    cells: Sequence[Setup],
    ids: Sequence[RunId],
    device: str,
    progress: Progress | None,
    config: CheckpointConfig,
) -> list[dict[str, np.ndarray]]:
    try:
        return [_train_batch(cells, ids, device, progress, config)]
    except (RuntimeError, MemoryError) as error:
        if not _lacks_memory(error):
            raise
    # Outside the handler, because the error refers to the memory of the failed batch.
    if device != "cpu":
        torch.cuda.empty_cache()
    if len(cells) == 1:
        return [Results(stack(list(cells), "cpu"), 1).ended(Status.OUT_OF_MEMORY)]
    half = len(cells) // 2
    first = _train_or_halve(cells[:half], ids[:half], device, progress, config)
    return first + _train_or_halve(cells[half:], ids[half:], device, progress, config)


def _lacks_memory(error: Exception) -> bool:
    """Return whether an error means out of memory; on a CPU torch raises a plain RuntimeError."""
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or "can't allocate memory" in str(error)


def _joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return one array a variable, NaN for a part without it (because no label is flipped there)."""
    shapes = {name: array.shape[1:] for part in parts for name, array in part.items()}
    return {
        name: np.concatenate(
            [part.get(name, np.full((len(part["status"]), *shape), np.nan)) for part in parts]
        )
        for name, shape in shapes.items()
    }


def run_bytes(setup: Setup) -> int:
    """Estimate the memory of one run: its weights, and its training points or a block of test points in a pass.

    Small coordinates need more to get there: rows, a basis, and for a projection a block of points in R^d.
    """
    small = setup.reduced()
    cost = small.network.cost(small.data)
    tested = min(BLOCK, setup.evaluation.samples)
    batches_per_epoch = small.training.batches_per_epoch(small.data.samples)
    measured = min(MEASURED_POINTS, small.data.samples) if batches_per_epoch > 1 else 0
    trained = max(-(-small.data.samples // batches_per_epoch), measured)
    points = max(trained, tested)
    inputs = small.data.tokens * small.data.dim
    # Drawing points takes four times their size; a pass holds them and its own numbers. Final weights and training
    # points stay until all runs are tested; the points of metrics are copies.
    numbers = 2 * cost.weights + (small.data.samples + measured) * inputs
    numbers += points * max(4 * inputs, cost.point + inputs)
    numbers += max(
        _attack_numbers(small, setup.attack, trained),
        _attack_numbers(small, setup.final_attack, points if setup.attack else tested),
    )
    numbers += setup.space.cost(setup.data, setup.network, points, cost.weights)
    return numbers * setup.dtype.itemsize


def _attack_numbers(setup: Setup, attack: Attack | None, points: int) -> int:
    """Return the numbers an attack holds: points of R^d, or coefficients of the weights' columns and their products."""
    if attack is None:
        return 0
    columns, data = setup.network.cost(setup.data).columns, setup.data
    return (
        points * data.tokens * attack.stored_perturbations() * max(data.dim, 2 * columns)
        + columns**2
    )


def batch_size(setup: Setup, device: str) -> int:
    """Return how many runs are trained together: by the memory of the kind of device, not by what is free now."""
    budget = CPU_BUDGET
    if device != "cpu":
        budget = int(GPU_SHARE * torch.cuda.get_device_properties(device).total_memory)
    return max(1, budget // run_bytes(setup))


def _train_batch(
    cells: Sequence[Setup],
    ids: Sequence[RunId],
    device: str,
    progress: Progress | None,
    config: CheckpointConfig,
) -> dict[str, np.ndarray]:
    setup = stack(list(cells), device)
    batch = Batch.start(setup, Streams(ids, device))
    training = _Training(batch, Results(setup, len(cells)), _checkpoint(cells, ids, config))
    results = training.results
    results.allocate(batch)
    for step, status in descend(batch, training.resumed(device), training.write_checkpoint):
        if progress:
            progress(step.number, len(step.batch))
        training.record(step, status)
    if progress:
        progress(TESTING, len(cells))
    results.test()
    if config.weights:
        results.write_weights(config, [weights_name(*run) for run in zip(cells, ids, strict=True)])
    return results.arrays


def _checkpoint(
    cells: Sequence[Setup], ids: Sequence[RunId], config: CheckpointConfig
) -> Checkpoint:
    """Return the checkpoint file of a batch of runs."""
    runs = digest([weights_name(*run) for run in zip(cells, ids, strict=True)])
    path = config.checkpoints and config.checkpoints / f"{runs}.safetensors"
    return Checkpoint(path, runs, config)


def weights_name(cell: Setup, id: RunId) -> str:
    """Return the name of the files of a run, which no other run has."""
    return digest([cell.fingerprint, id.seed, id.index, id.cell])


class _Training:
    """A batch in training: its running metrics, its results and its checkpoint."""

    def __init__(self, batch: Batch, results: "Results", checkpoint: Checkpoint):
        self.results, self.checkpoint = results, checkpoint
        self._start = batch
        self._running = {each.name: each for each in running_metrics_for(batch.setup)}
        self._states: dict[str, Tensor | None] = dict.fromkeys(self._running)

    def record(self, step: Step, status: Tensor) -> None:
        states = {
            name: each.function(self._states[name], step) for name, each in self._running.items()
        }
        ending = status != Status.MISSING
        self.results.record(step, status, ending, states)
        self._states = {name: state[~ending] for name, state in states.items()}

    def write_checkpoint(self, position: Position) -> None:
        """Write a checkpoint if one is due; not with a Gram state, because reading the weights would round them."""
        if not self.checkpoint.due() or position.batch.gram_state is not None:
            return
        states = {name: state for name, state in self._states.items() if state is not None}
        tensors = position_tensors(position) | named("tallies", states) | self._result_tensors()
        self.checkpoint.write(tensors)

    def resumed(self, device: str) -> Position | None:
        """Return the position in the checkpoint, or None if there is no usable one."""
        return self.checkpoint.resume(device, self._resume)

    def _resume(self, tensors: NamedTensors) -> Position:
        states = grouped(tensors, "tallies")
        runs = len(tensors["place/index"])
        if any(len(state) != runs for state in states.values()):
            raise ValueError("its running metrics belong to other runs")
        if states.keys() != (self._running.keys() if int(tensors["place/number"]) else set()):
            raise ValueError("it has other running metrics than the batch")
        # Everything is compared before the first number is copied, so that a failure leaves the batch as it was.
        like = named("tallies", states) | self._result_tensors()
        position = restored_position(self._start, tensors, like)
        fill(self.results.final.raw_params, grouped(tensors, "final"))
        for name, values in grouped(tensors, "arrays").items():
            self.results.arrays[name][...] = values.cpu().numpy()
        self._states |= states
        return position

    def _result_tensors(self) -> NamedTensors:
        return named("final", self.results.final.raw_params) | named("arrays", self.results.arrays)


class Results:
    """Arrays and final weights of a batch, filled when its runs reach snapshots and ends; the rest stays NaN."""

    def __init__(self, setup: Setup, runs: int):
        self.snapshot_steps = setup.snapshot_steps()
        self.arrays: dict[str, np.ndarray] = {}
        for name, variable in variables(setup).items():
            self.arrays[name] = variable.blank(runs, self.snapshot_steps)
        self.arrays["status"] = np.full(runs, Status.MISSING, np.int8)
        self.arrays["steps"] = np.full(runs, -1, np.int64)

    def allocate(self, batch: Batch) -> None:
        """Allocate the final weights of all runs.

        Runs end at different steps but are tested together, because a test takes hundreds of calls for any number of
        runs (12 runs of the README: 5 times faster).
        """
        zeros = {name: torch.zeros_like(value) for name, value in batch.raw_params.items()}
        self.final = replace(batch, raw_params=zeros)

    def ended(self, status: Status) -> dict[str, np.ndarray]:
        self.arrays["status"][:] = status
        return self.arrays

    def record(self, step: Step, status: Tensor, ending: Tensor, states: dict[str, Tensor]) -> None:
        at_snapshot = step.number in self.snapshot_steps
        if not (at_snapshot or ending.any()):
            return
        setup = step.batch.setup
        subset = subset_step(step)
        values = {each.name: each.function(subset) for each in metrics_for(setup)}
        if at_snapshot:
            along = setup.evaluation.at == "snapshots"
            fresh = measure(step.batch, setup.attack, known=values) if along else {}
            self._write_curves(step, values | fresh)
        if ending.any():
            self._write_end(step, status, ending, values | states)

    def _write_curves(self, step: Step, values: dict[str, Tensor]) -> None:
        column = self.snapshot_steps.index(step.number)
        numbers = {name: _numbers(value) for name, value in values.items()}
        self.write_curves(step.batch.index.cpu().numpy(), column, numbers)

    def _write_end(
        self, step: Step, status: Tensor, ending: Tensor, values: dict[str, Tensor]
    ) -> None:
        index = step.batch.index[ending]
        numbers = {name: _numbers(finished(name, value[ending])) for name, value in values.items()}
        ends = status[ending].cpu().numpy()
        self.write_end(index.cpu().numpy(), ends, step.number, numbers)
        for name, value in step.batch.params.items():
            self.final.raw_params[name][index] = value[ending]

    def write_curves(self, places: Places, columns: Places | int, values: Numbers) -> None:
        """Write the values of metrics of the runs at these places into these columns of the curves."""
        for name, numbers in values.items():
            self.arrays[f"{name}_curve"][places, columns] = numbers

    def write_end(
        self, places: Places, status: np.ndarray, steps: Places | int, values: Numbers
    ) -> None:
        """Write how the runs at these places ended, after how many steps, and the values of their metrics."""
        self.arrays["status"][places] = status
        self.arrays["steps"][places] = steps
        for name, numbers in values.items():
            self.arrays[name][places] = numbers

    @torch.no_grad()
    def test(self) -> None:
        """Test the final weights of all runs that have not diverged."""
        finite = torch.as_tensor(self.arrays["status"] != Status.DIVERGED)
        if not finite.any():
            return
        final = self.final.select(finite.to(self.final.index.device))
        places = final.index.cpu().numpy()
        known = {
            each.name: torch.as_tensor(self.arrays[each.name][places], device=final.index.device)
            for each in metrics_for(final.setup)
        }
        values = measure(final, final.setup.final_attack, at_end=True, known=known)
        for name, value in values.items():
            self.arrays[name][places] = _numbers(value)

    def write_weights(self, config: CheckpointConfig, names: list[str]) -> None:
        """Write the final weights of every run into a file of its own."""
        assert config.weights is not None
        for place, name in enumerate(names):
            weights = {part: value[place] for part, value in self.final.raw_params.items()}
            Checkpoint(config.weights / f"{name}.safetensors", name, config).write(weights)


def finished(name: str, value: Tensor) -> Tensor:
    """Return the number that a metric ends with: the value itself, or what the last state of a running metric gives."""
    metric = METRICS[name]
    return metric.finish(value) if isinstance(metric, RunningMetric) else value


def _numbers(value: Tensor) -> np.ndarray:
    return value.double().cpu().numpy()


@contextmanager
def products(precision: str, device: str) -> Iterator[None]:
    """Compute matrix products and convolutions in this precision inside a block, whatever the process has set.

    On a CPU tf32 is plain float32, because a CPU would round to other lengths.
    """
    rounded = precision in ("tf32", "mixed") and device != "cpu"
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if rounded else "highest")
    torch.backends.cudnn.allow_tf32 = rounded
    kind = torch.device(device).type
    try:
        # Without its cache, which would miss that weights change in place.
        with torch.autocast(kind, torch.bfloat16, precision == "mixed", cache_enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread inside a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
