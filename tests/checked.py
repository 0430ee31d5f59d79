"""Shapes and types of every call, checked at a quarter of jaxtyping's own price.

jaxtyping's import hook (`--jaxtyping-packages` in pyproject.toml) puts `jaxtyping.jaxtyped` around every function of
the package. That binds the arguments of each call by `inspect` and calls the checker twice, which was half of the
time of all tests. `jaxtyped` below takes its place: the same checker, called once, and for functions whose annotations
name axes a scope in which equal names mean equal sizes.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import jaxtyping
from jaxtyping import _import_hook

SCOPE = jaxtyping.jaxtyped("context")
"""in which a name of an axis has one size"""


def jaxtyped(function: Any = None, *, typechecker: Callable[[Any], Any]) -> Any:
    """Check each call; takes the place of jaxtyping's decorator of this name."""
    if function is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and "__init__" in vars(function):
            function.__init__ = jaxtyped(function.__init__, typechecker=typechecker)
        return function
    if function.__module__ == "benign.kernels":  # Triton compiles their source
        return function
    written = function.__annotations__
    function.__annotations__ = known = annotations(function)
    typed = typechecker(function)
    function.__annotations__ = typed.__annotations__ = written
    return in_a_scope(typed) if any("jaxtyping" in repr(each) for each in known.values()) else typed


def annotations(function: Any) -> dict[str, Any]:
    """Return the annotations of a function that can be resolved when it is defined."""
    resolved = {}
    for name, written in function.__annotations__.items():
        with suppress(NameError):  # imported for pyright alone, or defined below
            is_text = isinstance(written, str)
            resolved[name] = eval(written, function.__globals__) if is_text else written
    return resolved


def in_a_scope(function: Callable) -> Callable:
    @functools.wraps(function)
    def scoped(*given: Any, **named: Any) -> Any:
        with SCOPE:
            return function(*given, **named)

    return scoped


def exec_module(self: Any, module: ModuleType) -> None:
    """Compile and run a module of the package, without a cache.

    jaxtyping's loader redirects the cache of every module imported meanwhile, so that torch and scipy were compiled
    from source in each process of the tests.
    """
    exec(self.source_to_code(self.get_data(self.path), self.path), module.__dict__)


def lighten() -> None:
    """Make jaxtyping's import hook use the functions above; call it before the package is imported."""
    jaxtyping.jaxtyped = jaxtyped
    _import_hook._JaxtypingLoader.exec_module = exec_module
