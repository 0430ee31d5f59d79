"""Definitions for one test only."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
        ours = {module.__name__ for module in plugins._loaded.values()}
        ours -= {module.__name__ for module in before[-1].values()}
        ours |= plugins._distributions.keys() - before[-2].keys()  # those left out as broken, too
        for table, kept in zip(tables, before, strict=True):
            table.clear()
            table.update(kept)
        for name in [each for each in sys.modules if each.partition(".")[0] in ours - modules]:
            del sys.modules[name]
