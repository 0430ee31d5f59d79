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
    found_place,
    grouped,
    kept_place,
    named,
)
from benign.training.descent import (
    MEASURED_POINTS,
    Batch,
    Place,
    Status,
    Step,
    descend,
    subset_step,
)
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
"""called at every step with the step's number and the number of runs still training; with `TESTING` and the number of
runs before these are tested"""
TESTING = -1


def train_runs(
    cells: Sequence[Setup],
    ids: Sequence[RunId],
    device: str = "cpu",
    progress: Progress | None = None,
    keeping: CheckpointConfig = CheckpointConfig(),  # noqa: B008
) -> dict[str, np.ndarray]:
    """Train runs of one shape and give every variable as an array with a leading runs axis.

    Out of memory halves the batch; a run that does not fit alone ends with status OUT_OF_MEMORY.
    """
    size = batch_size(cells[0], device)
    parts: list[dict[str, np.ndarray]] = []
    kept = references.kept_in(keeping, progress)
    with products(cells[0].precision, device), kept:
        for begin in range(0, len(cells), size):
            batch = slice(begin, begin + size)
            parts += _train_or_halve(cells[batch], ids[batch], device, progress, keeping)
    return _joined(parts)


def _train_or_halve(
    cells: Sequence[Setup],
    ids: Sequence[RunId],
    device: str,
    progress: Progress | None,
    keeping: CheckpointConfig,
) -> list[dict[str, np.ndarray]]:
    try:
        return [_train_batch(cells, ids, device, progress, keeping)]
    except (RuntimeError, MemoryError) as error:
        if not _lacks_memory(error):
            raise
    # Only here, outside the handler, is the failed batch's memory free: the error held on to it.
    if device != "cpu":
        torch.cuda.empty_cache()
    if len(cells) == 1:
        return [_Results(stack(list(cells), "cpu"), 1).ended(Status.OUT_OF_MEMORY)]
    half = len(cells) // 2
    first = _train_or_halve(cells[:half], ids[:half], device, progress, keeping)
    return first + _train_or_halve(cells[half:], ids[half:], device, progress, keeping)


def _lacks_memory(error: Exception) -> bool:
    """Torch tells of it on a CPU by a plain RuntimeError."""
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or "can't allocate memory" in str(error)


def _joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """One array a variable; a part without a variable (no label flipped in it) has NaN there."""
    shapes = {name: array.shape[1:] for part in parts for name, array in part.items()}
    return {
        name: np.concatenate(
            [part.get(name, np.full((len(part["status"]), *shape), np.nan)) for part in parts]
        )
        for name, shape in shapes.items()
    }


def run_bytes(setup: Setup) -> int:
    """Estimated memory of one run: its weights, and its training points or a block of test points in a pass.

    In small coordinates also what leads to them: the rows and the basis, and with a projection a block in R^d.
    """
    small = setup.reduced()
    cost = small.network.cost(small.data)
    tested = min(BLOCK, setup.evaluation.samples)
    batches_per_epoch = small.training.batches_per_epoch(small.data.samples)
    watched = min(MEASURED_POINTS, small.data.samples) if batches_per_epoch > 1 else 0
    trained = max(-(-small.data.samples // batches_per_epoch), watched)
    points = max(trained, tested)
    inputs = small.data.tokens * small.data.dim
    # Drawing points takes four times their size; a pass holds them beside its own. Final weights, and the points they
    # were trained on, wait for the test of all runs; those that are watched are copied.
    numbers = 2 * cost.weights + (small.data.samples + watched) * inputs
    numbers += points * max(4 * inputs, cost.point + inputs)
    numbers += max(
        _attack_numbers(small, setup.attack, trained),
        _attack_numbers(small, setup.final_attack, tested),
    )
    numbers += setup.space.cost(setup.data, setup.network, points, cost.weights)
    return numbers * setup.dtype.itemsize


def _attack_numbers(setup: Setup, attack: Attack | None, points: int) -> int:
    """What an attack holds: points of R^d, or coefficients of the weights' columns and products with them."""
    if attack is None:
        return 0
    columns, data = setup.network.cost(setup.data).columns, setup.data
    return (
        points * data.tokens * attack.stored_perturbations() * max(data.dim, 2 * columns)
        + columns**2
    )


def batch_size(setup: Setup, device: str) -> int:
    """How many runs are trained together, from the memory budget of the kind of device, not from what is free now."""
    budget = CPU_BUDGET
    if device != "cpu":
        budget = int(GPU_SHARE * torch.cuda.get_device_properties(device).total_memory)
    return max(1, budget // run_bytes(setup))


def _train_batch(
    cells: Sequence[Setup],
    ids: Sequence[RunId],
    device: str,
    progress: Progress | None,
    keeping: CheckpointConfig,
) -> dict[str, np.ndarray]:
    setup = stack(list(cells), device)
    batch = Batch.start(setup, Streams(ids, device))
    training = _Training(batch, _Results(setup, len(cells)), _checkpoint(cells, ids, keeping))
    results = training.results
    results.expect(batch)
    for step, status in descend(batch, training.found(device), training.keep):
        if progress:
            progress(step.number, len(step.batch))
        training.record(step, status)
    if progress:
        progress(TESTING, len(cells))
    results.test()
    if keeping.weights:
        results.keep_weights(keeping, [weights_name(*run) for run in zip(cells, ids, strict=True)])
    return results.arrays


def _checkpoint(
    cells: Sequence[Setup], ids: Sequence[RunId], keeping: CheckpointConfig
) -> Checkpoint:
    runs = digest([weights_name(*run) for run in zip(cells, ids, strict=True)])
    path = keeping.checkpoints and keeping.checkpoints / f"{runs}.safetensors"
    return Checkpoint(path, runs, keeping)


def weights_name(cell: Setup, id: RunId) -> str:
    """Tells a run from all others, for files of its own."""
    return digest([cell.fingerprint, id.seed, id.index, id.cell])


class _Training:
    """A batch on its way: what is tallied and recorded at every step, and what is kept of it."""

    def __init__(self, batch: Batch, results: "_Results", checkpoint: Checkpoint):
        self.results, self.checkpoint = results, checkpoint
        self._start = batch
        self._watched = {tally.name: tally for tally in running_metrics_for(batch.setup)}
        self._tallies: dict[str, Tensor | None] = dict.fromkeys(self._watched)

    def record(self, step: Step, status: Tensor) -> None:
        states = {
            name: running.function(self._tallies[name], step)
            for name, running in self._watched.items()
        }
        ending = status != Status.MISSING
        self.results.record(step, status, ending, states)
        self._tallies = {name: state[~ending] for name, state in states.items()}

    def keep(self, here: Place) -> None:
        """Write a checkpoint where one is due; not where products are carried, which a look would round."""
        if not self.checkpoint.due() or here.batch.carried is not None:
            return
        tallies = {name: state for name, state in self._tallies.items() if state is not None}
        self.checkpoint.write(kept_place(here) | named("tallies", tallies) | self._measured())

    def found(self, device: str) -> Place | None:
        """Where a checkpoint says that the batch was."""
        return self.checkpoint.resume(device, self._resume)

    def _resume(self, kept: NamedTensors) -> Place:
        tallies = grouped(kept, "tallies")
        runs = len(kept["place/index"])
        if any(len(state) != runs for state in tallies.values()):
            raise ValueError("its tallies are of other runs")
        if tallies.keys() != (self._watched.keys() if int(kept["place/number"]) else set()):
            raise ValueError("it has other tallies than the batch")
        # Everything is compared before the first number is copied: the batch starts again with what it had.
        place = found_place(self._start, kept, named("tallies", tallies) | self._measured())
        fill(self.results.final.held, grouped(kept, "final"))
        for name, values in grouped(kept, "arrays").items():
            self.results.arrays[name][...] = values.cpu().numpy()
        self._tallies |= tallies
        return place

    def _measured(self) -> NamedTensors:
        """What is kept of the results."""
        return named("final", self.results.final.held) | named("arrays", self.results.arrays)


class _Results:
    """The arrays of a batch, filled as its runs reach snapshots and end; what was not measured stays NaN."""

    def __init__(self, setup: Setup, runs: int):
        self.snapshot_steps = setup.snapshot_steps()
        self.arrays: dict[str, np.ndarray] = {}
        for name, variable in variables(setup).items():
            self.arrays[name] = variable.blank(runs, self.snapshot_steps)
        self.arrays["status"] = np.full(runs, Status.MISSING, np.int8)
        self.arrays["steps"] = np.full(runs, -1, np.int64)

    def expect(self, batch: Batch) -> None:
        """Make room for the final weights of all runs: they are tested together, since a test takes hundreds of calls
        however few runs it is of, and runs end at different steps (12 runs of the README: 5 times faster)."""
        room = {name: torch.zeros_like(value) for name, value in batch.held.items()}
        self.final = replace(batch, held=room)

    def ended(self, status: Status) -> dict[str, np.ndarray]:
        self.arrays["status"][:] = status
        return self.arrays

    def record(
        self, step: Step, status: Tensor, ending: Tensor, tallies: dict[str, Tensor]
    ) -> None:
        at_snapshot = step.number in self.snapshot_steps
        if not (at_snapshot or ending.any()):
            return
        setup = step.batch.setup
        watched = subset_step(step)
        values = {each.name: each.function(watched) for each in metrics_for(setup)}
        if at_snapshot:
            along = setup.evaluation.at == "snapshots"
            fresh = measure(step.batch, setup.attack, known=values) if along else {}
            self._write_curves(step, values | fresh)
        if ending.any():
            self._write_end(step, status, ending, values | tallies)

    def _write_curves(self, step: Step, values: dict[str, Tensor]) -> None:
        places = step.batch.index.cpu().numpy()
        column = self.snapshot_steps.index(step.number)
        for name, value in values.items():
            self.arrays[f"{name}_curve"][places, column] = _numbers(value)

    def _write_end(
        self, step: Step, status: Tensor, ending: Tensor, values: dict[str, Tensor]
    ) -> None:
        places = step.batch.index[ending].cpu().numpy()
        self.arrays["status"][places] = status[ending].cpu().numpy()
        self.arrays["steps"][places] = step.number
        for name, value in values.items():
            metric, number = METRICS[name], value[ending]
            if isinstance(metric, RunningMetric):
                number = metric.finish(number)
            self.arrays[name][places] = _numbers(number)
        for name, value in step.batch.params.items():
            self.final.held[name][step.batch.index[ending]] = value[ending]

    @torch.no_grad()
    def test(self) -> None:
        """Test the final weights of all runs that have any worth testing."""
        sound = torch.as_tensor(self.arrays["status"] != Status.DIVERGED)
        if not sound.any():
            return
        final = self.final.select(sound.to(self.final.index.device))
        places = final.index.cpu().numpy()
        known = {
            each.name: torch.as_tensor(self.arrays[each.name][places], device=final.index.device)
            for each in metrics_for(final.setup)
        }
        values = measure(final, final.setup.final_attack, at_end=True, known=known)
        for name, value in values.items():
            self.arrays[name][places] = _numbers(value)

    def keep_weights(self, keeping: CheckpointConfig, names: list[str]) -> None:
        """Write the final weights of every run, each into a file of its own."""
        assert keeping.weights is not None
        for place, name in enumerate(names):
            weights = {part: value[place] for part, value in self.final.held.items()}
            Checkpoint(keeping.weights / f"{name}.safetensors", name, keeping).write(weights)


def _numbers(value: Tensor) -> np.ndarray:
    return value.double().cpu().numpy()


@contextmanager
def products(precision: str, device: str) -> Iterator[None]:
    """Matrix products and convolutions as a precision has them, whatever the process has set.

    A CPU would round float32 to other lengths than tf32, so that there it is plain float32.
    """
    rounded = precision in ("tf32", "mixed") and device != "cpu"
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if rounded else "highest")
    torch.backends.cudnn.allow_tf32 = rounded
    kind = torch.device(device).type
    try:
        # Without its cache, which does not see that weights change in place.
        with torch.autocast(kind, torch.bfloat16, precision == "mixed", cache_enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread for the length of a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
