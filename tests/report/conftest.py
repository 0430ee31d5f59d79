"""Folders that pages are made of, once for all tests of a module."""

from pathlib import Path

import pytest

from benign.papers.registry import recipe
from tests.browser import browser
from tests.report.made_up import fill
from tests.tiny import tiny

__all__ = ["browser"]


@pytest.fixture(scope="module")
def jiang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`jiang/fig1` at smoke scale under two readings, where the command line puts them."""
    root = tmp_path_factory.mktemp("runs")
    chosen = recipe("jiang/fig1")
    for reading in ({}, {"w_O": "divided"}):
        answers = chosen.reading(reading)
        made = {"target": "jiang/fig1", "scale": "smoke", "reading": answers, "changes": []}
        folder = root / "jiang" / "fig1" / "smoke" / chosen.label(answers)
        fill(folder, chosen.experiment("smoke", answers), made)
    return root


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of one's own with three axes, one of them in descending order, under attack."""
    attack = "attack={kind: pgd, ball: {radius: [0.3, 0.1]}, steps: 2}"
    return fill(tmp_path_factory.mktemp("three"), tiny(attack, "data.snr=[8.0, 2.0, 0.5]"))
