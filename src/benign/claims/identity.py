"""Small runs for identities, which hold for any points and weights and so need no evidence.

A module of its own because tests/layout.py lets claims train and draw only through it and `replays`.
"""

from collections.abc import Iterator, Sequence

from benign.streams import RunId, Streams
from benign.sweep.plan import Run
from benign.training.descent import Batch, Step, descend
from benign.training.setup import Setup, stack


def own_streams(name: str, runs: int = 1) -> Streams:
    """Return random streams for a claim, by a name that no study uses."""
    return Streams(_ids(name, runs), "cpu")


def identity_batch(cells: Sequence[Setup], name: str | None = None) -> Batch:
    """Return the start of one run for each cell, run i with seed i. Its draws go by `name`, or by the cells."""
    runs = [Run(cell, seed, {}).id for seed, cell in enumerate(cells)]
    ids = runs if name is None else _ids(name, len(cells))
    return Batch.start(stack(list(cells), "cpu"), Streams(ids, "cpu"))


def identity_steps(batch: Batch) -> Iterator[Step]:
    """Yield every step of these runs before its update; weights change in place."""
    for step, _ in descend(batch):
        yield step


def _ids(name: str, runs: int) -> list[RunId]:
    return [RunId(0, index, name) for index in range(runs)]
