"""The switch for compiled code."""

import pytest
import torch

from benign import compiled as switch
from benign.compiled import compiled


class OnGPU(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = property(lambda self: True)  # pyright: ignore[reportAssignmentType]


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("gpu", [False, True])
def test_only_on_a_gpu_and_with_the_switch_on_is_a_function_compiled(on, gpu, monkeypatch):
    made = []

    def compile(function):
        made.append(function)
        return lambda x, by: function(x, by) + 100

    def twice(x: torch.Tensor, by: int) -> torch.Tensor:
        """Twice as many."""
        return 2 * x * by

    monkeypatch.setattr(switch, "COMPILES", on)
    monkeypatch.setattr(torch, "compile", compile)
    x = torch.ones(2).as_subclass(OnGPU) if gpu else torch.ones(2)
    chosen = compiled(twice)
    assert chosen.__doc__ == "Twice as many."
    for _ in range(2):
        assert chosen(x, 3).tolist() == ([106, 106] if on and gpu else [6, 6])
    assert made == ([twice] if on and gpu else [])
