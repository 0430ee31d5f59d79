"""The switch for compiled code on a GPU."""

import os
from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch

COMPILES = os.environ.get("BENIGN_COMPILE", "") not in ("", "0")
"""whether what is written to be compiled is, on a GPU: each process compiles for some time first, so it is for long
sweeps"""

Given = ParamSpec("Given")
Result = TypeVar("Result")


def compiled(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A decorator: the function, compiled where the switch is on and it is given tensors on a GPU."""

    @wraps(function)
    def chosen(*given: Given.args, **named: Given.kwargs) -> Result:
        on_gpu = any(isinstance(part, torch.Tensor) and part.is_cuda for part in given)
        return (_compiled(function) if COMPILES and on_gpu else function)(*given, **named)

    return chosen


@cache
def _compiled(function: Callable[Given, Result]) -> Callable[Given, Result]:
    return torch.compile(function)
