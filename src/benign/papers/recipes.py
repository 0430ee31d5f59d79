"""Recipes: a figure of a paper as an experiment, at three scales, for each reading of what the paper leaves open.

FIG1 = Recipe(name="own/fig1", title=..., shows=..., questions=(...))

@FIG1.builds
def build(scale, reading): ...        # the experiment

@FIG1.draws
def draw(result, caption): ...        # a figure of its result

@FIG1.summarises
def summarise(result): ...            # what the result says, in a few lines

RECIPES = [FIG1]
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import xarray as xr

from benign.claims.conditions import Conditions
from benign.claims.study import Reading, Study, StudyError
from benign.claims.verdict import summarise_conditions
from benign.experiment import Experiment
from benign.plot.caption import describe
from benign.plot.maps import Panel
from benign.plot.style import Figure, save
from benign.training.setup import Setup

Build = Callable[[str, Reading], Experiment]
Draw = Callable[[xr.Dataset, str], Figure | Mapping[str, Figure]]
Summarise = Callable[[xr.Dataset], str]
Maps = Callable[[xr.Dataset], list[Panel]]
F = TypeVar("F", bound=Callable)


UNDEFINED: Any = None
"""a part of a recipe that a function below the recipe has yet to define"""
PARTS = {"build": "builds", "figure": "draws", "summarise": "summarises"}
"""what a recipe needs, with the decorator that defines it"""


@dataclass(kw_only=True, eq=False)
class Recipe(Study):
    """A figure of a paper: how to build its experiment, draw its result and summarise it."""

    title: str
    """what is drawn, over which axes"""
    shows: str
    """what the figure is to show, in a few words"""
    build: Build = UNDEFINED
    """makes the experiment of a scale and a reading"""
    figure: Draw = UNDEFINED
    """draws a result with a caption: one figure, or several by the names of their files"""
    summarise: Summarise = UNDEFINED
    """says in a few lines what a result shows"""
    panels: Maps | None = None
    """the maps of the figure, for pages that draw them in another way; None for figures without maps"""
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """short names for the values of an axis that counts networks or attacks"""
    conditions: Callable[[Setup], Conditions | None] | None = None
    """the conditions of the theorem behind the figure, at one cell; None at cells outside its subject"""

    def builds(self, function: F) -> F:
        """Make a function the one that builds the experiment."""
        self.build = function
        return function

    def draws(self, function: F) -> F:
        """Make a function the one that draws the figure."""
        self.figure = function
        return function

    def summarises(self, function: F) -> F:
        """Make a function the one that summarises the result."""
        self.summarise = function
        return function

    def maps(self, function: F) -> F:
        """Make a function the one that returns the maps of the figure."""
        self.panels = function
        return function

    def check(self) -> None:
        """Raise StudyError if the recipe has no function that builds, draws or summarises."""
        missing = [name for name in PARTS if getattr(self, name) is UNDEFINED]
        if missing:
            decorators = ", ".join(f"`@RECIPE.{PARTS[name]}`" for name in missing)
            raise StudyError(
                f"recipe {self.name!r} lacks {', '.join(f'`{name}`' for name in missing)}: "
                f"define it by a function under {decorators}"
            )

    def draw(self, result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
        """Draw the result into a folder and return the files; the figure is called as the recipe is."""
        drawn = self.figure(result, caption)
        figures = {self.name.rpartition("/")[2]: drawn} if isinstance(drawn, Figure) else drawn
        return [file for name, figure in figures.items() for file in save(figure, folder / name)]

    def caption(self, experiment: Experiment, scale: str, reading: Reading) -> str:
        """Return what stands under the figure: sizes, seeds, attacks, reading."""
        answers = ", ".join(f"{name}={answer}" for name, answer in reading.items())
        text = f"{self.name} at {scale} scale. {describe(experiment)}"
        return f"{text} Reading: {answers}." if answers else text

    def distance(self, experiment: Experiment) -> str:
        """Return how far the cells are from the conditions of the theorem, hidden constants being 1.

        Empty if the recipe has no conditions.
        """
        setting = summarise_conditions(self.conditions, [experiment])
        if not setting.cells:
            return ""
        text = f"conditions, constants 1: {setting.inside} of {setting.cells} cells inside"
        misses = ", ".join(setting.misses())
        return text + (f"; largest misses over the cells: {misses}" if misses else "")


def means_text(measures: Mapping[str, xr.DataArray], form: str = ".3g") -> str:
    """Return the mean of each measure after its name, for summaries."""
    return ", ".join(f"{name} {float(value.mean()):{form}}" for name, value in measures.items())
