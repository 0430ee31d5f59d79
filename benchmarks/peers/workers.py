"""Contestants in separate processes, so that they share no threads, allocators or caches."""

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.peers import by_benign, by_loop, by_vmap
from benchmarks.peers.memory import Meter
from benchmarks.peers.problems import Problem
from benign.networks.compiled import compiling


@dataclass(frozen=True)
class Contestant:
    name: str
    runner: str
    """`loop`, `vmap`, `jax` or `benign`"""
    coordinates: str = "ambient"
    processes: int = 1
    """processes that share the runs and the threads"""
    compiled: bool = False
    """whether to compile, as with `--compile`"""


def contestants(device: str, cores: int) -> list[Contestant]:
    """Return the contestants: benign on a CPU runs one process per core, each on one thread; the others use threads."""
    processes = cores if device == "cpu" else 1
    return [
        Contestant("loop", "loop"),
        Contestant("vmap", "vmap"),
        Contestant("jax", "jax"),
        Contestant("benign", "benign", processes=processes),
        Contestant("benign_exact", "benign", "projected", processes),
        Contestant("benign_compiled", "benign", processes=processes, compiled=True),
    ]


class Failed(Exception):
    """The error of a contestant."""


class Team:
    """The processes of one contestant."""

    def __init__(self, contestant: Contestant, device: str, cores: int):
        self.contestant = contestant
        context = multiprocessing.get_context("spawn")
        self.members = []
        for _ in range(contestant.processes):
            here, there = context.Pipe()
            asked = (there, contestant, device, cores // contestant.processes, cores)
            process = context.Process(target=serve, args=asked, daemon=True)
            process.start()
            self.members.append((process, here))

    def prepare(self, problem: Problem, runs: int) -> list[dict[str, Any]]:
        """Prepare some runs and take their first step."""
        shares = [runs // len(self.members)] * len(self.members)
        return self._all(
            [("prepare", problem, place * share, share) for place, share in enumerate(shares)]
        )

    def advance(self, steps: int) -> list[dict[str, Any]]:
        return self._all([("advance", steps)] * len(self.members))

    def close(self) -> None:
        for process, pipe in self.members:
            pipe.send(("end",))
            process.join()

    def _all(self, requests: list[tuple]) -> list[dict[str, Any]]:
        for (_, pipe), request in zip(self.members, requests, strict=True):
            pipe.send(request)
        answers = [pipe.recv() for _, pipe in self.members]
        for answer in answers:
            if "error" in answer:
                raise Failed(answer["error"])
        return answers


def serve(pipe: Any, contestant: Contestant, device: str, threads: int, cores: int) -> None:
    """Answer requests until the request to end."""
    if device == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    torch.set_num_threads(threads)
    worker = _Worker(contestant, device)
    with compiling(contestant.compiled):
        while (request := pipe.recv())[0] != "end":
            try:
                pipe.send(getattr(worker, request[0])(*request[1:]))
            except Exception:  # whatever it was, the others go on without this contestant
                pipe.send({"error": traceback.format_exc(limit=-2)})


class _Worker:
    def __init__(self, contestant: Contestant, device: str):
        self.contestant, self.device = contestant, device
        self.train: Callable[[int], Tensor] | None = None

    def prepare(self, problem: Problem, first: int, count: int) -> dict[str, Any]:
        self.train = None  # frees what the last problem left
        torch.compiler.reset()  # code for one size would be slower at another
        meter = Meter(self.device)
        begin = time.perf_counter()
        self.train = self._prepared(problem, first, count)
        meter.restart()
        prepared = time.perf_counter()
        self.train(1)
        self._wait()
        return {
            "start_seconds": prepared - begin,
            "first_step_seconds": time.perf_counter() - prepared,
            "memory": self._memory(meter),
            "operations": self._operations() / count,
        }

    def _operations(self) -> int:
        """Return the operations of the matrix products of the third step.

        benign updates the weights at the beginning of the next step, and one-time computations may wait until then.
        The counter cannot count inside JAX and fails inside torch.func; both do the operations of the loop.
        """
        assert self.train, "prepare first"
        counter = FlopCounterMode(display=False)
        with compiling(False):  # functions compiled under the counter would stay slow
            self.train(1)
            with counter if self.contestant.runner in ("loop", "benign") else nullcontext():
                self.train(1)
        return counter.get_total_flops()

    def advance(self, steps: int) -> dict[str, Any]:
        assert self.train, "prepare first"
        wall, own = time.perf_counter(), time.process_time()
        losses = self.train(steps)
        self._wait()
        wall, own = time.perf_counter() - wall, time.process_time() - own
        return {"seconds": wall, "own_seconds": own, "losses": losses.double().tolist()}

    def _prepared(self, problem: Problem, first: int, count: int) -> Callable[[int], Tensor]:
        runner, coordinates = self.contestant.runner, self.contestant.coordinates
        if runner == "benign":
            return by_benign.prepare(problem.batch(first, count, self.device, coordinates))
        if runner == "jax":
            from benchmarks.peers.by_jax import Prepared

            return Prepared(problem.task(count, self.device), self.device)
        return {"loop": by_loop, "vmap": by_vmap}[runner].prepare(problem.task(count, self.device))

    def _memory(self, meter: Meter) -> int | None:
        planned = getattr(self.train, "bytes", None)  # of JAX, whose allocations torch does not see
        return planned() if planned and self.device != "cpu" else meter.peak()

    def _wait(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()
