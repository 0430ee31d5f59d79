"""Executor on a Dask cluster: one of this machine, one of SLURM jobs, or one that is running already.

The scheduler, its queues, retries and heartbeats belong to Dask. Workers send their results back and the driving
process records them, so no common file system is needed.
"""

from __future__ import annotations

import asyncio
import errno
import faulthandler
import inspect
import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
from dask import config as dask_config
from distributed.protocol import pickle  # what Dask sends every task by

from benign import __version__
from benign.spec import plugins
from benign.spec.yaml import read_yaml
from benign.sweep.compute import Computed, compute
from benign.sweep.executors.base import REMEDY, ExecutionConfig, Executor, ProcessEnded
from benign.sweep.executors.processes import interrupts_wait
from benign.sweep.plan import NUMERICS, Unit
from benign.training.engine import TESTING, Progress

PATIENCE = 10
"""seconds in which a scheduler answers, and has a worker"""
OURS = {
    # The driver tries a unit once more itself, and blames no unit that only waited for a worker.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-saturation": 1.0,
}
"""settings of a cluster that we start"""
GPU = {"GPU": 1}
"""the resource of Dask that a unit for a GPU requires and a worker with a GPU declares"""


Joined = tuple[distributed.Client, Callable[[], None]]
"""a cluster, and a function to call now and then that restores lost workers"""


@contextmanager
def cluster(config: ExecutionConfig) -> Iterator[Executor]:
    """Yield the workers that `config.executor` names. Workers started here end with the block, others stay."""
    config.check()
    executor = config.executor or ""
    for log in ("distributed", "distributed.client"):  # the sweep reports it itself
        logging.getLogger(log).setLevel(logging.CRITICAL)
    if executor == "dask":
        joined = _local(config)
    elif executor.startswith("slurm"):
        joined = _slurm(config, Path(config.cluster_file or ""))
    else:
        joined = _joined(config, executor)
    with joined as (client, keep_up):
        yield Workers(client, config, keep_up)


class Workers(Executor):
    """The workers of a Dask cluster, which may come and go."""

    def __init__(
        self, client: distributed.Client, config: ExecutionConfig, keep_up: Callable[[], None]
    ):
        self._client, self._config, self._keep_up = client, config, keep_up
        self._topic = f"benign-{client.id}"
        self._progress: dict[str, tuple[int, int]] = {}
        """step and training runs of each unit under way"""
        self._begun: dict[str, float] = {}
        """when each unit was handed out last"""
        client.subscribe_topic(self._topic, self._hear)
        self.check_timeouts()

    def submit(self, unit: Unit) -> Future[Computed]:
        # Packed, since neither the scheduler nor a new worker knows a person's own classes yet.
        config = self._config
        task = pickle.dumps(unit), config.device, config.compile, config.unit_timeout
        needs = None if config.device == "cpu" else GPU
        same = (__version__, NUMERICS), plugins.loaded(), self._topic
        theirs = self._client.submit(_work, *task, *same, pure=False, resources=needs)
        future: Future[Computed] = Future()
        self._progress[unit.key] = 0, 0
        self._begun[unit.key] = time.monotonic()
        theirs.add_done_callback(lambda theirs: self._pass_on(unit, theirs, future))
        return future

    def _pass_on(self, unit: Unit, theirs: distributed.Future, future: Future[Computed]) -> None:
        try:
            future.set_result(theirs.result())
        except distributed.KilledWorker:
            future.set_exception(ProcessEnded("the cluster lost its worker"))
        except (CancelledError, OSError):
            future.set_exception(self._cut_off())
        except Exception as error:
            problem = f"the cluster cannot begin a unit: {error}"
            future.set_exception(ValueError(problem).with_traceback(error.__traceback__))
        self._progress.pop(unit.key, None)

    def _cut_off(self) -> ConnectionError:
        what = "the scheduler is gone; what was recorded is kept, the same command goes on"
        return ConnectionError(errno.ECONNRESET, what, self._config.executor)

    def _hear(self, event: tuple[float, tuple[str, int, int]]) -> None:
        key, step, training = event[1]
        if key in self._progress:  # else it came late
            self._progress[key] = step, training

    def progress(self) -> dict[str, tuple[int, int]]:
        return dict(self._progress)

    def overdue(self, unit: Unit) -> bool:
        limit = self._config.unit_timeout
        return limit is not None and time.monotonic() - self._begun[unit.key] > limit

    def check_timeouts(self) -> None:
        try:
            workers = _workers(self._client, self._config.device)
        except (OSError, RuntimeError):
            raise self._cut_off() from None
        # A second unit a worker waits at the scheduler, so that nobody waits for the driver. None may wait where time
        # counts from handing out, nor for a GPU: Dask has those wait at the worker, and blames them when it is lost.
        ahead = 1 if self._config.unit_timeout or self._config.device != "cpu" else 2
        self.size = max(1, ahead * workers)
        self._keep_up()


def _workers(client: distributed.Client, device: str) -> int:
    """Return the number of workers for this device."""
    if device == "cpu":
        threads: Any = client.nthreads()
        return len(threads)
    return sum("GPU" in each["resources"] for each in client.scheduler_info()["workers"].values())


@contextmanager
def _local(config: ExecutionConfig) -> Iterator[Joined]:
    options: dict[str, Any] = {"n_workers": config.workers or 1, "threads_per_worker": 1}
    options |= {"dashboard_address": None, "memory_limit": 0}
    if config.device != "cpu":
        options["resources"] = GPU
    with dask_config.set(OURS):
        with interrupts_wait():
            ours = distributed.LocalCluster(silence_logs=logging.CRITICAL, **options)
        with ours, distributed.Client(ours) as client:
            try:
                yield client, _now_and_then(lambda: ours.scale(config.workers or 1))
            finally:
                ours.sync(_ended_soon, ours)


async def _ended_soon(ours: distributed.LocalCluster) -> None:
    """Stop the workers: closing a cluster would wait for the units that they compute."""
    nannies = [nanny.close(timeout=1) for nanny in ours.workers.values()]
    await asyncio.gather(*nannies, return_exceptions=True)


@contextmanager
def _joined(config: ExecutionConfig, where: str) -> Iterator[Joined]:
    if where.endswith(".json"):
        with open(where, "rb"):  # raises at once if there is no such file
            given: dict[str, Any] = {"scheduler_file": where}
    else:
        given = {"address": where}
    try:
        client = distributed.Client(**given, timeout=PATIENCE, set_as_default=False)
    except (OSError, TimeoutError):
        what = f"no scheduler of Dask answers there within {PATIENCE} s: is it running?"
        raise ConnectionError(errno.ECONNREFUSED, what, where) from None
    except Exception as error:
        raise ValueError(f"`executor` {where!r} names no scheduler of Dask: {error}") from None
    with client:
        _check_workers(client, config, where)
        yield client, lambda: None


def _check_workers(client: distributed.Client, config: ExecutionConfig, where: str) -> None:
    """Raise if the cluster has no workers for these units."""
    start = f"start some: dask worker {where} --nworkers N --nthreads 1"
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        raise ValueError(f"{where} has no workers: {start}") from None
    threads: Any = client.nthreads()
    if any(count > 1 for count in threads.values()):
        raise ValueError(f"{where} has workers of several threads, a unit takes one: {start}")
    if not _workers(client, config.device):
        raise ValueError(f"{where} has no workers with a GPU: {start} --resources GPU=1")


@contextmanager
def _slurm(config: ExecutionConfig, path: Path) -> Iterator[Joined]:
    jobqueue = _jobqueue()
    jobs, options = _slurm_options(path, jobqueue)
    if not shutil.which("sbatch"):
        raise ValueError("`executor` slurm needs sbatch: run this where jobs are sent from")
    if config.device != "cpu":
        more = ["--resources", "GPU=1"]
        options["worker_extra_args"] = [*options.get("worker_extra_args", []), *more]
    with dask_config.set(OURS):
        try:
            ours = jobqueue.SLURMCluster(**options)
        except Exception as error:
            raise ValueError(f"{path}: {error}") from None
        with ours:
            ours.scale(jobs=jobs)
            try:
                ours.sync(_sent, ours)
            except RuntimeError as error:
                raise ValueError(f"{path}: SLURM refuses the job: {error}") from None
            with distributed.Client(ours) as client:
                yield client, _now_and_then(lambda: ours.scale(jobs=jobs))


def _jobqueue() -> Any:
    """Import the package that submits jobs, and restore our handler of ctrl-c, which it replaces."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        from dask_jobqueue import slurm
    except ImportError:
        raise ValueError("`executor` slurm needs dask-jobqueue: " + REMEDY) from None
    signal.signal(signal.SIGINT, handler)
    return slurm


def _slurm_options(path: Path, jobqueue: Any) -> tuple[int, dict[str, Any]]:
    """Return the number of jobs and the arguments of SLURMCluster: one thread a worker, one worker a core."""
    options = read_yaml(path)
    known = {
        name
        for of in (jobqueue.JobQueueCluster, jobqueue.SLURMJob, jobqueue.Job)
        for name, parameter in inspect.signature(of.__init__).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }
    known -= {"self", "n_workers", "loop", "asynchronous", "scheduler", "scheduler_cls", "job_cls"}
    if unknown := [name for name in options if name not in known | {"jobs"}]:
        options_text = ", ".join(sorted(known | {"jobs"}))
        raise ValueError(f"{path}: no option {', '.join(unknown)}; there are {options_text}")
    jobs, cores = options.pop("jobs", 1), options.get("cores", 1)
    for name, number in (("jobs", jobs), ("cores", cores)):
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"{path}: `{name}` must be a whole number above 0, got {number!r}")
    quiet = {"dashboard_address": ":0"}
    return jobs, {"cores": 1, "processes": cores, "scheduler_options": quiet, **options}


async def _sent(ours: Any) -> None:
    """Wait until sbatch has accepted the jobs."""
    await ours


def _now_and_then(act: Callable[[], Any]) -> Callable[[], None]:
    """Return a function that calls `act` every five seconds at most. Scaling a cluster again restores lost workers."""
    last = time.monotonic()

    def maybe() -> None:
        nonlocal last
        if time.monotonic() - last > 5:
            last = time.monotonic()
            act()

    return maybe


_alone = threading.Lock()
"""one unit at a time: a worker that joined later may have several threads, torch and the watchdog are per process"""


def _work(
    packed: bytes,
    device: str,
    compile: bool,
    timeout: float | None,
    same: tuple[str, int],
    sources: list[Path | str],
    topic: str,
) -> Computed:
    """In a worker: compute a unit and report its progress."""
    if same != (__version__, NUMERICS):
        mine = f"benign {__version__}, numerics {NUMERICS}"
        raise ValueError(f"it has {mine}, not {same[0]}, numerics {same[1]}: install the same")
    plugins.load_all(sources)
    unit: Unit = pickle.loads(packed)
    with _alone, _ended_after(timeout):
        return compute(unit, device, _reporter(unit.key, topic), compile=compile)


def _reporter(key: str, topic: str) -> Progress:
    worker = distributed.get_worker()
    last = 0.0

    def report(step: int, training: int) -> None:
        nonlocal last
        if step == TESTING or time.monotonic() - last >= 1:
            last = time.monotonic()
            worker.log_event(topic, (key, step, training))

    return report


@contextmanager
def _ended_after(timeout: float | None) -> Iterator[None]:
    """End this process when the time is over, even if it hangs; its nanny starts another."""
    if timeout is None:
        yield
        return
    faulthandler.dump_traceback_later(timeout, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
