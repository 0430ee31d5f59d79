"""The switch for compiled code."""

import os
import warnings
from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch

SWITCH = "BENIGN_COMPILE"
COMPILES = os.environ.get(SWITCH, "") not in ("", "0")
"""whether what is written to be compiled is: each process compiles for some time first, so it is for long sweeps"""

Given = ParamSpec("Given")
Result = TypeVar("Result")


def switch_on() -> None:
    """Compile from here on, in this process and in those that it starts, unless the environment says yes or no."""
    global COMPILES
    if SWITCH not in os.environ:
        os.environ[SWITCH] = "1"
        COMPILES = True


def compiled(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A decorator: the function, compiled where the switch is on; as it is where this machine cannot compile it."""

    @wraps(function)
    def chosen(*given: Given.args, **named: Given.kwargs) -> Result:
        return (_compiled(function) if COMPILES else function)(*given, **named)

    return chosen


def compiled_on_gpu(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The same for what gains nothing on a CPU: compiled where it is given tensors on a GPU."""
    elsewhere = compiled(function)

    @wraps(function)
    def chosen(*given: Given.args, **named: Given.kwargs) -> Result:
        on_gpu = any(isinstance(part, torch.Tensor) and part.is_cuda for part in given)
        return (elsewhere if on_gpu else function)(*given, **named)

    return chosen


@cache
def _compiled(function: Callable[Given, Result]) -> Callable[Given, Result]:
    from torch._dynamo.exc import TorchDynamoException  # slow to import

    fast, works = torch.compile(function), True

    @wraps(function)
    def tried(*given: Given.args, **named: Given.kwargs) -> Result:
        nonlocal works
        if works:
            try:
                return fast(*given, **named)
            except TorchDynamoException as error:  # no C++ compiler, most likely
                works = False
                reason = str(error).strip().splitlines()[0]
                warnings.warn(
                    f"`{function.__name__}` runs as it is: it could not be compiled ({reason})",
                    stacklevel=2,
                )
        return function(*given, **named)

    return tried
