"""Lazy modules: their names are imported when first used. The two modules of public names need it."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(
    module: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a module that offers each name from its home, a module of `benign`.

    A name that is its own home is the module itself.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home = importlib.import_module(f"benign.{homes[name]}")
        return home if homes[name] == name else getattr(home, name)

    return find, lambda: sorted(homes)
