"""benign itself, by what a sweep calls: `Batch.start` and `descend`."""

from collections.abc import Callable

from torch import Tensor

from benign.training.descent import Batch, descend


def prepare(batch: Batch) -> Callable[[int], Tensor]:
    """Train all runs together for some steps, and return their losses at the last step."""
    steps_of_batch = descend(batch)

    def advance(steps: int) -> Tensor:
        value = batch.sample.x.new_zeros(len(batch))
        for _ in range(steps):
            value = next(steps_of_batch)[0].loss
        return value

    return advance
