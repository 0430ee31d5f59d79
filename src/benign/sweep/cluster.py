"""Units computed by a cluster of Dask."""

from collections.abc import Iterator
from contextlib import contextmanager

from benign.sweep.crew import Crew, Manner


@contextmanager
def cluster(manner: Manner) -> Iterator[Crew]:
    """To be written."""
    raise NotImplementedError
    yield
