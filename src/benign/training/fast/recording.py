"""The attack of a training step and its pass as recordings, where a GPU trains."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from benign.attacks.attack import Attack, Points, Target
from benign.networks.module import ModulePass
from benign.networks.network import Network, Params, Pass
from benign.spec.registry import has_guarantee

WARM_UP = 3
"""steps of a batch before it is recorded: compilers and libraries set up what they need, and a batch that a run soon
leaves is not worth it"""

BY_AUTOGRAD = (Pass, ModulePass)
"""passes whose gradients go back through what autograd has kept"""

Made = TypeVar("Made")


class Recording:
    """Attacks the training points of a batch and runs the network on them: the first steps kernel by kernel, later
    ones as a CUDA graph.

    A climb is some hundred kernels. On an H200 launching them took 10 ms a step however few runs were left, most of
    the time of a sweep. The weights change in place, so the recorded kernels find those of the step. Points and pass
    are written over by the next step.
    """

    def __init__(self):
        self._steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def training_pass(self, attack: Attack | None, target: Target) -> tuple[Points, Pass]:
        """The points trained on and the pass on them; always of the same attack and batch."""
        self._steps += 1
        if self._steps <= WARM_UP or not can_record(attack, target.network, target.x):
            return _training_pass(attack, target)
        if self._graph is None:
            self._graph, (points, seen) = _recorded(lambda: _training_pass(attack, target))
            self._found = points, _Replayed(seen) if type(seen) in BY_AUTOGRAD else seen
        else:
            self._graph.replay()
        return self._found


class _Replayed(Pass):
    """A recorded pass whose gradient in the parameters is recorded as well: autograd would refuse to go back through a
    pass once its weights have changed."""

    def __init__(self, seen: Pass):
        self.outputs, self._seen = seen.outputs, seen
        self._weights = torch.zeros_like(seen.outputs)
        self._graph, self._found = _recorded(lambda: seen.params_gradient(self._weights))

    def params_gradient(self, c: Tensor) -> Params:
        self._weights.copy_(c)
        self._graph.replay()
        return self._found

    def inputs_gradient(self, c: Tensor) -> Tensor:
        raise RuntimeError("the pass of a recorded training step has no gradient in its inputs")


def _training_pass(attack: Attack | None, target: Target) -> tuple[Points, Pass]:
    return (
        (target.x, target.training_pass(target.x))
        if attack is None
        else attack.training_pass(target)
    )


def _recorded(make: Callable[[], Made]) -> tuple[torch.cuda.CUDAGraph, Made]:
    """What was made, as a graph that makes it again in the same memory; made once already."""
    # Not by `torch.cuda.graph`, which empties the allocator's cache first: batches change often.
    here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    aside.wait_stream(here)
    with torch.cuda.stream(aside), _without_collection():
        graph.capture_begin(
            pool=_first(torch.cuda.current_device()).pool(), capture_error_mode="thread_local"
        )
        made = make()
        graph.capture_end()
    here.wait_stream(aside)
    graph.replay()
    return graph, made


@cache
def _first(device: int) -> torch.cuda.CUDAGraph:
    """A recording of nothing, for ever: its memory is where all others of a device take theirs, so that a new one finds
    that of those gone, which otherwise nobody could use. What two of them hold at a time is never the same."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        torch.zeros(1, device=device)
        graph.capture_end()
    return graph


@contextmanager
def _without_collection() -> Iterator[None]:
    """Drop recordings that nobody can reach any more now, and none for the length of the block: a graph cannot go
    while another is recorded."""
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def can_record(attack: Attack | None, network: Network, x: Points) -> bool:
    """Return whether every step launches the same kernels."""
    same_kernels = has_guarantee(network, "recordable")
    return x.is_cuda and same_kernels and (attack is None or attack.recordable())
