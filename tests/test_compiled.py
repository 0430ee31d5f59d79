"""The switch for compiled code."""

import os

import pytest
import torch
from torch._dynamo.exc import TorchDynamoException

from benign import compiled as switch
from benign.compiled import compiled, compiled_on_gpu


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
    chosen = compiled_on_gpu(twice)
    assert chosen.__doc__ == "Twice as many."
    for _ in range(2):
        assert chosen(x, 3).tolist() == ([106, 106] if on and gpu else [6, 6])
    assert made == ([twice] if on and gpu else [])


def test_what_cannot_be_compiled_runs_as_it_is_and_says_so_once(monkeypatch):
    def fail(function):
        def failing(x: torch.Tensor) -> torch.Tensor:
            raise TorchDynamoException("no compiler here\nmore")

        return failing

    def thrice(x: torch.Tensor) -> torch.Tensor:
        return 3 * x

    monkeypatch.setattr(switch, "COMPILES", True)
    monkeypatch.setattr(torch, "compile", fail)
    chosen = compiled(thrice)
    with pytest.warns(UserWarning, match="`thrice` runs as it is: .*no compiler here"):
        assert chosen(torch.ones(1)).tolist() == [3]
    assert chosen(torch.ones(1)).tolist() == [3]  # warnings are errors here: it is silent now


def test_errors_of_the_function_itself_are_not_taken_for_the_compilers(monkeypatch):
    def full(x: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(switch, "COMPILES", True)
    monkeypatch.setattr(torch, "compile", lambda function: function)
    with pytest.raises(torch.OutOfMemoryError):
        compiled(full)(torch.ones(1))


def test_it_is_switched_on_for_this_process_and_its_children_unless_the_user_has_spoken(
    monkeypatch,
):
    monkeypatch.setattr(switch, "COMPILES", False)
    monkeypatch.setenv(switch.SWITCH, "0")
    switch.switch_on()
    assert not switch.COMPILES
    monkeypatch.delenv(switch.SWITCH)
    switch.switch_on()
    assert switch.COMPILES
    assert os.environ[switch.SWITCH] == "1"
