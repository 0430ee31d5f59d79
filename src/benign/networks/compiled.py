"""Compilation by torch: decorators of functions that may be compiled, and the switch, which sweep/ sets and records."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch

_on = _used = False

Given = ParamSpec("Given")
Result = TypeVar("Result")


@contextmanager
def compiling(on: bool) -> Iterator[Callable[[], bool]]:
    """Switch compilation on or off for a block; yield a function that returns whether compiled code has run in it.

    Off by default: every process compiles for 20 to 70 s first, and rounding differs.
    """
    global _on, _used
    before = _on, _used
    _on, _used = on, False
    try:
        yield lambda: _used
    finally:
        _on, _used = before


def is_on() -> bool:
    """Return whether compilation is on."""
    return _on


def compiled(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a function that is compiled if the switch is on and this machine can compile it."""

    @wraps(function)
    def chosen(*given: Given.args, **named: Given.kwargs) -> Result:
        return (_compiled(function) if _on else function)(*given, **named)

    return chosen


@cache
def _compiled(function: Callable[Given, Result]) -> Callable[Given, Result]:
    from torch._dynamo.exc import TorchDynamoException  # slow to import

    fast, works = torch.compile(function), True

    @wraps(function)
    def tried(*given: Given.args, **named: Given.kwargs) -> Result:
        global _used
        nonlocal works
        if works:
            try:
                result = fast(*given, **named)
                _used = True
                return result
            except TorchDynamoException as error:  # no C++ compiler, most likely
                works = False
                reason = str(error).strip().splitlines()[0]
                warnings.warn(
                    f"`{function.__name__}` runs uncompiled: it could not be compiled ({reason})",
                    stacklevel=2,
                )
        return function(*given, **named)

    return tried
