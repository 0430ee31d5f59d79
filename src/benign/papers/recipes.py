"""Recipes: a figure of a paper as an experiment, at three scales, for each reading of what the paper leaves open."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import xarray as xr

import benign.papers
from benign.claims.conditions import Conditions
from benign.claims.study import Reading, Study, StudyError
from benign.claims.verdict import summarise_conditions
from benign.experiment import Experiment
from benign.plot.caption import describe
from benign.plot.maps import Panel
from benign.spec import plugins as outside
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


def papers() -> dict[str, ModuleType]:
    """Every paper's room by name: those of the package, then those loaded from outside (`benign.spec.plugins`)."""
    own = [room.name for room in pkgutil.iter_modules(benign.papers.__path__) if room.ispkg]
    found = {name: importlib.import_module(f"benign.papers.{name}") for name in own}
    for name, room in outside.papers().items():
        if name in found:
            raise StudyError(f"{room.__file__}: rename it, there is a paper {name!r} already")
        found[name] = room
    return found


def recipes() -> dict[str, Recipe]:
    """Every recipe by name: each paper's room holds a module `figures` with a list `RECIPES`."""
    return {each.name: each for name, room in papers().items() for each in _recipes_of(name, room)}


def _recipes_of(name: str, room: ModuleType) -> list[Recipe]:
    figures = outside.figures(room) or importlib.import_module(f"{room.__name__}.figures")
    for each in figures.RECIPES:
        if each.name.partition("/")[0] != name:
            raise StudyError(f"recipe {each.name!r} must be called `{name}/...`, as its room is")
    return figures.RECIPES


def recipe(name: str) -> Recipe:
    """A recipe by its name, such as `jiang/fig1`.

    >>> import benign as bo
    >>> chosen = bo.recipe("jiang/fig1")
    >>> chosen.label(chosen.reading({"w_O": "divided"}))
    'w_O=divided'
    >>> chosen.experiment("smoke").network.hidden
    16
    """
    known = recipes()
    if name not in known:
        raise StudyError(f"no recipe {name!r}: choose one of {', '.join(sorted(known))}")
    return known[name]
