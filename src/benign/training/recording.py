"""The attack of a training step as one recording, where a GPU trains."""

import torch

from benign.attacks.attack import Attack, Points, Target
from benign.networks.network import Network, Pass

WARM_UP = 3
"""steps of a batch before it is recorded: compilers and libraries set up what they need, and a batch that a run soon
leaves is not worth it"""


class Recording:
    """Attacks the training points of a batch: the first steps kernel by kernel, later ones as a CUDA graph.

    A climb is some hundred kernels. On an H200 launching them took 10 ms a step however few runs were left, most of
    the time of a sweep. The weights change in place, so the recorded kernels find those of the step. Points and pass
    are written over by the next step.
    """

    def __init__(self, attack: Attack):
        self._attack, self._steps = attack, 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def training_pass(self, target: Target) -> tuple[Points, Pass]:
        """As `Attack.training_pass`; always for the same batch."""
        self._steps += 1
        if self._steps <= WARM_UP or not can_record(self._attack, target.network, target.x):
            return self._attack.training_pass(target)
        if self._graph is None:
            self._record(target)
        assert self._graph is not None
        self._graph.replay()
        return self._found

    def _record(self, target: Target) -> None:
        # Not by `torch.cuda.graph`, which empties the allocator's cache first: batches change often.
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            graph.capture_begin(capture_error_mode="thread_local")
            self._found = self._attack.training_pass(target)
            graph.capture_end()
        here.wait_stream(aside)
        self._graph = graph


def can_record(attack: Attack, network: Network, x: Points) -> bool:
    """Whether every step launches the same kernels. A class answers for itself: a subclass may do anything."""
    known = vars(type(network)).get("recordable", False)
    return x.is_cuda and known and attack.recordable()
