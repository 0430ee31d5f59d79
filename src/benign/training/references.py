"""Reference networks (Li appendix A), trained for the metrics of runs; only their weights are used."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from benign.networks.network import Params
from benign.spec import axes
from benign.spec.base import digest
from benign.streams import Streams
from benign.training.checkpoint import (
    REFERENCE,
    Checkpoint,
    CheckpointConfig,
    NamedTensors,
    check_like,
    fill,
    grouped,
    named,
    position_tensors,
    restored_position,
)
from benign.training.descent import Batch, Position, Status, descend
from benign.training.setup import Setup

Progress = Callable[[int, int], None]
"""called with the step, and 0: no run is being trained meanwhile"""

_config: ContextVar[CheckpointConfig] = ContextVar("config", default=CheckpointConfig())  # noqa: B039
_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


class Reference(NamedTuple):
    """A trained network of every run."""

    params: Params
    finite: Bool[Tensor, " runs"]
    """False if its training diverged"""


@contextmanager
def checkpointing(config: CheckpointConfig, progress: Progress | None = None) -> Iterator[None]:
    """Write checkpoints of references and report their steps inside a block."""
    configs, reports = _config.set(config), _progress.set(progress)
    try:
        yield
    finally:
        _config.reset(configs)
        _progress.reset(reports)


def trained(setup: Setup, streams: Streams) -> Reference:
    """Train a network of every run from its own streams, or go on with an interrupted training."""
    training = _ReferenceTraining(Batch.start(setup, streams))
    begin, progress = training.resumed(), _progress.get()
    if not training.done():
        for step, status in descend(training.start, begin, training.write_checkpoint):
            if progress:
                progress(step.number, 0)
            training.record(step.batch, status)
        training.write(training.all_ended())
    return training.ended


def of_run(setup: Setup, place: int) -> Setup:
    """Return the specification of one run of a batch, in plain numbers."""
    numbers = {
        path: value[place].item()
        for path, _, value in axes.walk(setup)
        if isinstance(value, Tensor)
    }
    return axes.replace(setup, numbers)


class _ReferenceTraining:
    """A training of references: the final weights of those that have ended, and a checkpoint."""

    def __init__(self, start: Batch):
        self.start = start
        zeros = {name: torch.zeros_like(value) for name, value in start.raw_params.items()}
        self.ended = Reference(zeros, torch.ones_like(start.index, dtype=torch.bool))
        self._left = start.index
        keys = start.streams("weights").keys.tolist()
        runs = digest([keys, [of_run(start.setup, run).identity() for run in range(len(start))]])
        config = _config.get()
        path = config.checkpoints and config.checkpoints / f"{REFERENCE}{runs}.safetensors"
        self._checkpoint = Checkpoint(path, runs, config)

    def record(self, batch: Batch, status: Tensor) -> None:
        ending = status != Status.MISSING
        self._left = batch.index[~ending]
        if ending.any():
            places = batch.index[ending]
            self.ended.finite[places] = status[ending] != Status.DIVERGED
            for name, value in batch.params.items():
                self.ended.params[name][places] = value[ending]

    def done(self) -> bool:
        return not len(self._left)

    def all_ended(self) -> NamedTensors:
        """Return the tensors of the position at which no run is left."""
        return named("place", {"number": 0, "index": self.start.index[:0]})

    def write_checkpoint(self, position: Position) -> None:
        if position.batch.gram_state is None:  # reading the weights would round it
            self.write(position_tensors(position))

    def write(self, position: NamedTensors) -> None:
        """Write a checkpoint if one is due."""
        if self._checkpoint.due():
            self._checkpoint.write(position | self._ended_tensors())

    def resumed(self) -> Position | None:
        """Return the position in the checkpoint, or None if there is no usable one or no run is left."""
        return self._checkpoint.resume(str(self.start.streams.device), self._resume)

    def _resume(self, tensors: NamedTensors) -> Position | None:
        position, left = None, tensors["place/index"]
        if len(left):
            position = restored_position(self.start, tensors, self._ended_tensors())
        else:
            check_like(tensors, self.all_ended() | self._ended_tensors())
        self._left = left
        fill(self.ended.params, grouped(tensors, "ended"))
        self.ended.finite.copy_(tensors["sound"])
        return position

    def _ended_tensors(self) -> NamedTensors:
        return named("ended", self.ended.params) | {"sound": self.ended.finite}
