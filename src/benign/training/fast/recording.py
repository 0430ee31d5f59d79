"""CUDA graphs of the attack of a training step and of its forward pass."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from benign.attacks.attack import Attack, Points, Target
from benign.networks.module import ModulePass
from benign.networks.network import Network, Params, Pass
from benign.spec.registry import has_guarantee

WARM_UP = 3
"""steps of a batch before it is recorded: compilers and libraries set up first, and a batch that a run soon leaves is
not worth recording"""

BY_AUTOGRAD = (Pass, ModulePass)
"""passes whose gradients need the graph of autograd"""

Made = TypeVar("Made")


class Recording:
    """Attacks the training points of a batch and runs the network on them.

    The first steps launch kernel by kernel, later ones a CUDA graph. The ascent of an attack is some hundred kernels:
    on an H200 launching them took 10 ms a step for any number of runs, most of the time of a sweep. The weights change
    in place, so the recorded kernels use those of the step. The next step overwrites points and pass.
    """

    def __init__(self):
        self._steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def training_pass(self, attack: Attack | None, target: Target) -> tuple[Points, Pass]:
        """Return the points trained on and the pass on them; always for the same attack and batch."""
        self._steps += 1
        if self._steps <= WARM_UP or not can_record(attack, target.network, target.x):
            return training_pass(attack, target)
        if self._graph is None:
            self._graph, (points, output) = recorded(lambda: training_pass(attack, target))
            self._result = points, _Replayed(output) if type(output) in BY_AUTOGRAD else output
        else:
            self._graph.replay()
        return self._result


class _Replayed(Pass):
    """A recorded pass whose gradient in the parameters is recorded too.

    Autograd would refuse to differentiate a pass after its weights have changed.
    """

    def __init__(self, first: Pass):
        self.outputs, self._first = first.outputs, first
        self._weights = torch.zeros_like(first.outputs)
        self._graph, self._gradient = recorded(lambda: first.params_gradient(self._weights))

    def params_gradient(self, c: Tensor) -> Params:
        self._weights.copy_(c)
        self._graph.replay()
        return self._gradient

    def inputs_gradient(self, c: Tensor) -> Tensor:
        raise RuntimeError("the pass of a recorded training step has no gradient in its inputs")


def training_pass(attack: Attack | None, target: Target) -> tuple[Points, Pass]:
    """Return the points trained on and the pass on them."""
    return (
        (target.x, target.training_pass(target.x))
        if attack is None
        else attack.training_pass(target)
    )


def recorded(make: Callable[[], Made], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Made]:
    """Return a graph that computes `make()` again in the same memory, and its first result.

    pool: memory for a graph that may run at the same time as others, or that lives as long as they do.
    """
    # Not by `torch.cuda.graph`, which empties the allocator's cache first: batches change often.
    here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    aside.wait_stream(here)
    with torch.cuda.stream(aside), _without_collection(before=pool is None):
        pool = pool or _memory_pool(torch.cuda.current_device()).pool()
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        made = make()
        graph.capture_end()
    here.wait_stream(aside)
    graph.replay()
    return graph, made


@cache
def _memory_pool(device: int) -> torch.cuda.CUDAGraph:
    """Return a recording of nothing, whose memory pool all recordings of a device share for the life of the process.

    A new recording then reuses the memory of deleted ones. Recordings that exist at the same time never overlap.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        torch.zeros(1, device=device)
        graph.capture_end()
    return graph


@contextmanager
def _without_collection(before: bool) -> Iterator[None]:
    """Delete no unreachable recordings inside the block, where another graph is recorded; `before`: delete them now."""
    if before:
        gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def quick_collections(device: str) -> Iterator[None]:
    """Leave the objects that exist now out of collections in a block, in which steps of a GPU are recorded.

    Every recording begins with a collection, which took 0.15 of its 0.2 s (H200): 330,000 objects of imported modules.
    """
    if device == "cpu" or gc.get_freeze_count():  # or in such a block already
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def can_record(attack: Attack | None, network: Network, x: Points) -> bool:
    """Return whether every step launches the same kernels."""
    same_kernels = has_guarantee(network, "recordable")
    return x.is_cuda and same_kernels and (attack is None or attack.recordable())
