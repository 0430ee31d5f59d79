"""Executors on this machine: this process, or several processes."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from benign.spec import plugins
from benign.spec.registry import Component
from benign.sweep.compute import Computed, compute
from benign.sweep.estimate import operations
from benign.sweep.executors import processes
from benign.sweep.executors.base import ExecutionConfig, Executor, ProcessEnded
from benign.sweep.plan import Unit
from benign.training.checkpoint import CheckpointConfig
from benign.training.descent import Status
from benign.training.engine import batch_size
from benign.training.machine import memory_kills
from benign.training.metrics import functions_for

TRIES = 3
"""how often a process is started in one place before that place is given up"""
PATIENCE = 10.0
"""seconds that a process has to end after its pipe is closed"""
UNGUARDED = 86
"""exit code of a process that would run, as it starts, the sweep that started it"""

Task = tuple[Unit, str, CheckpointConfig, bool]
"""what `_work` takes"""
CheckpointOf = Callable[[Unit], CheckpointConfig]
"""returns where a unit keeps its checkpoint and weights"""
Report = Callable[[str, int, int], None]
"""called with the key of a unit, its step and its training runs"""


STEPS = 100
"""steps of a run by which units are compared, as its number of steps is not known before"""


class SerialExecutor(Executor):
    """This process, one unit after another."""

    def __init__(self, config: ExecutionConfig, report: Report, checkpoint: CheckpointOf):
        self._config, self._report, self._checkpoint = config, report, checkpoint

    def submit(self, unit: Unit) -> Future[Computed]:
        future: Future[Computed] = Future()
        report = partial(self._report, unit.key)
        how = self._checkpoint(unit), self._config.compile
        future.set_result(compute(unit, self._config.device, report, *how))
        return future

    def progress(self) -> dict[str, tuple[int, int]]:
        return {}  # `submit` reports every step before it returns


class ProcessExecutor(Executor):
    """Several processes, each for one unit at a time: one that is killed takes no other unit with it."""

    def __init__(self, config: ExecutionConfig, size: int, checkpoint: CheckpointOf):
        self.size, self._config, self._checkpoint = size, config, checkpoint
        self._places = [_Place() for _ in range(size)]
        self._overdue: set[str] = set()

    def ordered(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Return the units with most work first, so that at the end no process waits long for the others."""
        return sorted(units, key=_operations_of, reverse=True)

    def submit(self, unit: Unit) -> Future[Computed]:
        left = [place for place in self._places if place.tries]
        if not left:
            raise ChildProcessError(errno.ECHILD, self._why_none(), "workers")
        place = next(place for place in left if place.is_free())
        with processes.interrupts_wait():  # so that a new process never sees one
            return place.submit(unit, self._config, self._checkpoint(unit))

    def _why_none(self) -> str:
        ends = "; ".join(dict.fromkeys(place.end for place in self._places))
        return (
            f"no process could be started, {TRIES} tries for each of {len(self._places)} ({ends}): `--workers 1` "
            "without `--unit-timeout` starts none. What was recorded is kept; what a process printed stands above"
        )

    def progress(self) -> dict[str, tuple[int, int]]:
        at_work = (place for place in self._places if place.at_work())
        return {place.unit_key: (place.numbers[0], place.numbers[1]) for place in at_work}

    def check_timeouts(self) -> None:
        limit = self._config.unit_timeout
        for place in self._places:
            if limit is not None and place.seconds() > limit:
                self._overdue.add(place.unit_key)
                place.kill()
            if place.clear():
                self._go_on_without(place)

    def _go_on_without(self, place: "_Place") -> None:
        left = sum(bool(each.tries) for each in self._places)
        self.size = max(left, 1)  # the next unit is submitted all the same, and refused
        if left:
            note = f"a process could not be started in {TRIES} tries ({place.end}): "
            note += f"{left} of {len(self._places)} go on"
            warnings.warn(note, RuntimeWarning, stacklevel=2)

    def overdue(self, unit: Unit) -> bool:
        return unit.key in self._overdue

    def close(self) -> None:
        """End all processes, also those that are at work."""
        for place in self._places:
            place.close()


def _operations_of(unit: Unit) -> float:
    """Return the operations of a unit if no run takes more than `STEPS` steps."""
    cell = unit.runs[0].cell
    try:
        return len(unit.runs) * operations(cell, min(STEPS, cell.training.most_steps()))
    except Exception:  # of somebody's component: its runs fail when they are computed
        return 0.0


class _Place:
    """A slot for one process, and for another one if that is killed."""

    def __init__(self) -> None:
        self._context: Any = processes.context()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._future: Future[Computed] | None = None
        self.unit_key = ""
        self._begun: float | None = None
        self.numbers: Any = None
        """its step, its training runs and whether it has started; it writes them itself"""
        self.tries = TRIES
        """times that a process may still be started"""
        self.end = ""
        """how the last process that could not start ended"""

    def submit(
        self, unit: Unit, config: ExecutionConfig, checkpoint: CheckpointConfig
    ) -> Future[Computed]:
        self.unit_key, self._begun, self._future = unit.key, None, Future()
        try:
            if self._process is None or not self._process.is_alive():
                self._start()
        except OSError as error:  # no memory, too many processes or files
            self._future.set_exception(ProcessEnded(str(error), started=False))
            return self._future
        # A thread each, since a unit may be larger than what a pipe takes before its reader is there.
        task = unit, config.device, checkpoint, config.compile
        given = self._future, task, self._process, self._connection, self.numbers
        threading.Thread(target=_wait_for, args=given, daemon=True).start()
        return self._future

    def _start(self) -> None:
        self._disconnect()
        # Without a lock, which a killed process would keep.
        self.numbers = self._context.RawArray("q", 3)
        self._connection, theirs = self._context.Pipe()
        with theirs:  # then only the process has it, and its end is the end of the pipe
            given = theirs, self.numbers, plugins.loaded(), dict(os.environ)
            process = self._context.Process(target=_work_through, args=given)
            process.start()
        self._process = process

    def is_free(self) -> bool:
        """Return whether it can take a unit: only after `clear` has counted the end of the last one."""
        return self._future is None

    def clear(self) -> bool:
        """Count a process that could not start. Return whether no further try is left."""
        if self._future is None or not self._future.done():
            return False
        error, self._future = self._future.exception(), None
        if not isinstance(error, ProcessEnded):
            return False
        self._process = None
        if error.started:
            self.tries = TRIES
            return False
        self.tries, self.end = self.tries - 1, error.how
        return not self.tries

    def seconds(self) -> float:
        """Return the seconds since its first step in training: a process takes seconds to start."""
        if not self.at_work() or not self.numbers[1]:
            return 0.0
        self._begun = self._begun or time.monotonic()
        return time.monotonic() - self._begun

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def at_work(self) -> bool:
        return self._future is not None and not self._future.done()

    def close(self) -> None:
        if self._future is not None and not self._future.done():
            self.kill()
            wait([self._future])
        self._disconnect()
        if self._process is not None:
            _exit_code(self._process)

    def _disconnect(self) -> None:
        """Close the pipe: a process that waits for a unit ends."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def check_importable(units: list[Unit]) -> None:
    """Raise if other processes cannot import the user's code: from a prompt, a notebook or a script on stdin.

    A worker process starts no processes itself, neither when it imports the script nor when it computes a unit.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as Python asks
        # Not sys.exit, of which a forked process makes 1. The sweep that started it says why.
        os._exit(UNGUARDED)
    if _is_worker:
        raise ValueError(
            "`workers` must be 1 here: this is computed by a worker, which starts none"
        )
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file and Path(file).exists():
        return
    cells = [unit.runs[0].cell for unit in units]
    parts = [type(part) for cell in cells for _, part in cell if isinstance(part, Component)]
    probes = [probe for cell in cells for probe in functions_for(cell)]
    for own in (*parts, *probes):
        if own.__module__ == "__main__":
            raise ValueError(
                f"`workers` must be 1 here: `{own.__name__}` is defined at a prompt or in a notebook, "
                "which other processes cannot import; put it into a file"
            )
    if file:  # "<stdin>": a new process looks for a file of that name before anything else
        raise ValueError(
            f"`workers` must be 1 here: the script is no file ({file}), save it as one"
        )


def _wait_for(
    future: Future[Computed],
    task: Task,
    process: BaseProcess,
    connection: Connection,
    numbers: Any,
) -> None:
    """In a thread: send a unit to a process, and wait for its outcome or for the end of the process."""
    before = memory_kills()
    try:
        connection.send(task)
        computed = connection.recv()
    except (EOFError, OSError):
        end = _end_of(_exit_code(process), bool(numbers[2]), memory_kills() > before)
        future.set_exception(end)
    except Exception as error:  # it cannot be pickled
        future.set_exception(error)
    else:
        future.set_result(computed)


def _exit_code(process: BaseProcess) -> int:
    """Return the exit code of a process that is about to end, or minus the signal that killed it."""
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        process.join()
    return process.exitcode or 0


def _end_of(code: int, started: bool, memory: bool) -> Exception:
    """Return how a process ended. `memory`: the system killed a process for lack of memory meanwhile."""
    if code == UNGUARDED and not started:
        return ValueError(
            "`workers` above 1 needs a script that other processes can import: put what runs the experiment under "
            '`if __name__ == "__main__":`'
        )
    if code >= 0:
        return ProcessEnded(f"exit code {code}", started=started)
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = "no name"
    how = f"killed by signal {-code} ({name})"
    if -code != getattr(signal, "SIGKILL", None):
        return ProcessEnded(how, started=started)
    if memory:
        how += ": the system had no memory left, fewer workers need less"
        return ProcessEnded(how, Status.OUT_OF_MEMORY, started)
    how += ": lack of memory is the usual cause, fewer workers need less"
    return ProcessEnded(how, started=started)


# In a worker


_report: Callable[[int, int], None] = lambda step, training: None  # noqa: E731
"""reports its step and its training runs"""
_is_worker = False


def _work_through(
    connection: Connection, numbers: Any, sources: list[Path | str], environment: dict[str, str]
) -> None:
    """Compute units until the pipe is closed."""
    processes.set_environment(environment)
    _begin(numbers, sources)
    while True:
        try:
            task: Task = connection.recv()
        except EOFError:
            return
        connection.send(_work(*task))


def _begin(numbers: Any, sources: list[Path | str]) -> None:
    global _report, _is_worker

    def report(step: int, training: int) -> None:
        numbers[0:2] = [step, training]

    _report, _is_worker = report, True
    # One line of a warning, as the command line has it; the place in the code says nothing to a user.
    warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
    threading.Thread(target=_follow_parent, daemon=True).start()
    plugins.load_all(sources)
    numbers[2] = True


def _follow_parent() -> None:
    """End with the parent, however it ended: otherwise a worker of a killed parent would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _first_batch(unit: Unit, device: str) -> int:
    """Return the number of its runs in the first batch."""
    with suppress(Exception):  # of somebody's component: a failure of the runs, as `compute` has it
        return min(len(unit.runs), batch_size(unit.runs[0].cell, device))
    return len(unit.runs)


def _work(unit: Unit, device: str, checkpoint: CheckpointConfig, compile: bool) -> Computed:
    _report(0, _first_batch(unit, device))
    try:
        return compute(unit, device, _report, checkpoint, compile)
    finally:
        _report(0, 0)
