"""Recipes: a figure of a paper as an experiment, at three scales, for each reading of what the paper leaves open."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import xarray as xr

from benign.claims.conditions import Conditions
from benign.claims.study import Reading, Study
from benign.claims.verdict import summarise_conditions
from benign.experiment import Experiment
from benign.plot.caption import describe
from benign.plot.maps import Panel
from benign.training.setup import Setup


@dataclass(frozen=True, kw_only=True)
class Recipe(Study):
    """A figure of a paper: how to build its experiment and how to draw its result."""

    title: str
    """what is drawn, over which axes"""
    shows: str
    """what the figure is to show, in a few words"""
    draw: Callable[[xr.Dataset, Path, str], list[Path]]
    """draws the result into a folder under a caption; returns the files"""
    summarise: Callable[[xr.Dataset], str]
    """what the result says, in a few lines computed from it"""
    panels: Callable[[xr.Dataset], list[Panel]] | None = None
    """the maps that it draws, for pages that draw them in another way; None for figures without maps"""
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """of an axis that counts networks or attacks: a short name for each of its places"""
    conditions: Callable[[Setup], Conditions | None] | None = None
    """of the theorem behind the figure, at one cell; None at cells it says nothing about"""

    def caption(self, experiment: Experiment, scale: str, reading: Reading) -> str:
        """What a figure must say beside its picture: sizes, seeds, attacks, reading."""
        answers = ", ".join(f"{name}={answer}" for name, answer in reading.items())
        told = f"{self.name} at {scale} scale. {describe(experiment)}"
        return f"{told} Reading: {answers}." if answers else told

    def distance(self, experiment: Experiment) -> str:
        """How far its cells are from the conditions of the theorem, hidden constants being 1; empty without any."""
        setting = summarise_conditions(self.conditions, [experiment])
        if not setting.cells:
            return ""
        told = f"conditions, constants 1: {setting.inside} of {setting.cells} cells inside"
        missed = ", ".join(setting.misses())
        return told + (f"; largest misses over the cells: {missed}" if missed else "")
