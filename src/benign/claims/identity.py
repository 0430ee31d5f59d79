"""Small runs of a claim's own, for identities: what must hold for any points and weights needs no evidence.

This is the one place where a claim may train what no study holds.
"""

from collections.abc import Iterator, Sequence

from benign.streams import RunId, Streams
from benign.sweep.plan import Run
from benign.training.descent import Batch, Step, descend
from benign.training.setup import Setup, stack


def own_streams(name: str, runs: int = 1) -> Streams:
    """Draws of a claim's own, by a name that no study has."""
    return Streams(_ids(name, runs), "cpu")


def identity_batch(cells: Sequence[Setup], name: str | None = None) -> Batch:
    """A run of each cell as it starts, number i with seed i; draws by a name, or those of the cells."""
    runs = [Run(cell, seed, {}).id for seed, cell in enumerate(cells)]
    ids = runs if name is None else _ids(name, len(cells))
    return Batch.start(stack(list(cells), "cpu"), Streams(ids, "cpu"))


def identity_steps(batch: Batch) -> Iterator[Step]:
    """Every step of such runs before its update; weights change in place."""
    for step, _ in descend(batch):
        yield step


def _ids(name: str, runs: int) -> list[RunId]:
    return [RunId(0, index, name) for index in range(runs)]
