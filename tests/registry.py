"""Definitions for one test only."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import gettempdir

from benign.papers import registry
from benign.spec import plugins
from benign.spec.registry import Component
from benign.training.metrics import METRICS


@contextmanager
def forgetting() -> Iterator[None]:
    """Components, metrics and files from outside that are registered within are forgotten at the end."""
    tables = [
        *Component.families.values(),
        Component.unfinished,
        METRICS,
        registry._papers,
        plugins._distributions,
        plugins._loaded,
    ]
    before, modules = [dict(table) for table in tables], set(sys.modules)
    try:
        yield
    finally:
        loaded = {module.__name__ for module in plugins._loaded.values()}
        for table, kept in zip(tables, before, strict=True):
            table.clear()
            table.update(kept)
        for name in sys.modules.keys() - modules:
            # A plugin that fails is dropped from the loaded ones; its modules stay in Python's table.
            file = getattr(sys.modules[name], "__file__", None) or ""
            if name.partition(".")[0] in loaded or file.startswith(gettempdir()):
                del sys.modules[name]
