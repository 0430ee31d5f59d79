"""Networks trained beside runs, of which nothing is kept but their weights: the references of Li appendix A."""

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
    found_place,
    grouped,
    kept_place,
    named,
)
from benign.training.descent import Batch, Place, Status, descend
from benign.training.setup import Setup

Tell = Callable[[int, int], None]
"""called with the step, and 0: no run is being trained meanwhile"""

_keeping: ContextVar[CheckpointConfig] = ContextVar("keeping", default=CheckpointConfig())  # noqa: B039
_tell: ContextVar[Tell | None] = ContextVar("tell", default=None)


class Reference(NamedTuple):
    """A trained network of every run."""

    params: Params
    sound: Bool[Tensor, " runs"]
    """whether its training did not diverge"""


@contextmanager
def kept_in(keeping: CheckpointConfig, tell: Tell | None = None) -> Iterator[None]:
    """A folder in which long trainings of references leave what they need to go on, and who hears of their steps,
    for the length of a block."""
    folders, listener = _keeping.set(keeping), _tell.set(tell)
    try:
        yield
    finally:
        _keeping.reset(folders)
        _tell.reset(listener)


def trained(setup: Setup, streams: Streams) -> Reference:
    """Train networks by a setup, each from its own streams; one that was interrupted goes on where it was."""
    here = _Training(Batch.start(setup, streams))
    begin, tell = here.found(), _tell.get()
    if not here.done():
        for step, status in descend(here.start, begin, here.keep):
            if tell:
                tell(step.number, 0)
            here.record(step.batch, status)
        here.write(here.all_ended())
    return here.ended


def of_run(setup: Setup, place: int) -> Setup:
    """The specification of one run of a batch, in plain numbers."""
    numbers = {
        path: value[place].item()
        for path, _, value in axes.walk(setup)
        if isinstance(value, Tensor)
    }
    return axes.replace(setup, numbers)


class _Training:
    """A training on its way: the weights of those that have ended, and what is kept of the others."""

    def __init__(self, start: Batch):
        self.start = start
        room = {name: torch.zeros_like(value) for name, value in start.held.items()}
        self.ended = Reference(room, torch.ones_like(start.index, dtype=torch.bool))
        self._left = start.index
        words = start.streams("weights").words.tolist()
        runs = digest([words, [of_run(start.setup, run).identity() for run in range(len(start))]])
        keeping = _keeping.get()
        folder = keeping.checkpoints
        path = folder and folder / f"{REFERENCE}{runs}.safetensors"
        self._checkpoint = Checkpoint(path, runs, keeping)

    def record(self, batch: Batch, status: Tensor) -> None:
        ending = status != Status.MISSING
        self._left = batch.index[~ending]
        if ending.any():
            places = batch.index[ending]
            self.ended.sound[places] = status[ending] != Status.DIVERGED
            for name, value in batch.params.items():
                self.ended.params[name][places] = value[ending]

    def done(self) -> bool:
        return not len(self._left)

    def all_ended(self) -> NamedTensors:
        """The place of a training of which no run is left."""
        return named("place", {"number": 0, "index": self.start.index[:0]})

    def keep(self, here: Place) -> None:
        if here.batch.carried is None:  # a look would round what it carries
            self.write(kept_place(here))

    def write(self, place: NamedTensors) -> None:
        """A checkpoint, where one is due."""
        if self._checkpoint.due():
            self._checkpoint.write(place | self._kept())

    def found(self) -> Place | None:
        """Where a checkpoint says that the training was."""
        return self._checkpoint.resume(str(self.start.streams.device), self._resume)

    def _resume(self, kept: NamedTensors) -> Place | None:
        place, left = None, kept["place/index"]
        if len(left):
            place = found_place(self.start, kept, self._kept())
        else:
            check_like(kept, self.all_ended() | self._kept())
        self._left = left
        fill(self.ended.params, grouped(kept, "ended"))
        self.ended.sound.copy_(kept["sound"])
        return place

    def _kept(self) -> NamedTensors:
        """What is kept of the runs that have ended."""
        return named("ended", self.ended.params) | {"sound": self.ended.sound}
