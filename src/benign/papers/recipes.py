"""Recipes: a figure of a paper as an experiment, at three scales, for each reading of what the paper leaves open."""

import importlib
import itertools
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import xarray as xr

import benign.papers
from benign import outside
from benign.experiment import Experiment
from benign.plot.caption import describe

SCALES = ("smoke", "quick", "paper")
"""seconds; about a minute on two cores; the size of the paper"""

Reading = dict[str, str]
"""an answer for every question of a recipe"""


class RecipeError(ValueError):
    """A recipe, scale or reading that is not there; the message lists what is."""


@dataclass(frozen=True)
class Question:
    """Something a paper leaves open, with its possible answers."""

    name: str
    asks: str
    answers: dict[str, str]
    """what each answer means; the first one is the default"""
    reason: str
    """why the first one is the default"""

    @property
    def default(self) -> str:
        return next(iter(self.answers))


@dataclass(frozen=True)
class Recipe:
    """A figure of a paper: how to build its experiment and how to draw its result."""

    name: str
    title: str
    shows: str
    build: Callable[[str, Reading], Experiment]
    draw: Callable[[xr.Dataset, Path, str], list[Path]]
    """draws the result into a folder under a caption; returns the files"""
    summarise: Callable[[xr.Dataset], str]
    """what the result says, in a few lines computed from it"""
    questions: tuple[Question, ...] = field(default=())

    def reading(self, answers: Mapping[str, str] | None = None) -> Reading:
        """The default reading with some answers replaced."""
        chosen = {question.name: question.default for question in self.questions}
        for name, answer in (answers or {}).items():
            question = next((each for each in self.questions if each.name == name), None)
            if question is None:
                raise RecipeError(f"reading `{name}`: {self.name} asks {', '.join(chosen)}")
            if answer not in question.answers:
                known = ", ".join(question.answers)
                raise RecipeError(f"reading `{name}` must be one of {known}, got {answer!r}")
            chosen[name] = answer
        return chosen

    def readings(self, which: str) -> list[Reading]:
        """`default`, `all` (the default, then each other answer alone) or `product` (every combination)."""
        alone = [
            {q.name: answer} for q in self.questions for answer in q.answers if answer != q.default
        ]
        if which == "default":
            return [self.reading()]
        if which == "all":
            return [self.reading(answers) for answers in [{}, *alone]]
        if which == "product":
            names = [q.name for q in self.questions]
            return [
                dict(zip(names, mix, strict=True))
                for mix in itertools.product(*(q.answers for q in self.questions))
            ]
        raise RecipeError(f"`readings` must be one of default, all, product, got {which!r}")

    def label(self, reading: Reading) -> str:
        """The answers that differ from the default, as a folder name: `default`, `w_O=divided`, ..."""
        told = [
            f"{q.name}={reading[q.name]}" for q in self.questions if reading[q.name] != q.default
        ]
        return ",".join(told) or "default"

    def caption(self, experiment: Experiment, scale: str, reading: Reading) -> str:
        """What a figure must say beside its picture: sizes, seeds, attacks, reading."""
        answers = ", ".join(f"{name}={answer}" for name, answer in reading.items())
        told = f"{self.name} at {scale} scale. {describe(experiment)}"
        return f"{told} Reading: {answers}." if answers else told

    def experiment(self, scale: str, reading: Reading | None = None) -> Experiment:
        if scale not in SCALES:
            raise RecipeError(f"`scale` must be one of {', '.join(SCALES)}, got {scale!r}")
        return self.build(scale, reading or self.reading())


def rooms() -> dict[str, ModuleType]:
    """Every paper's room by name: those of the package, then those loaded from outside (`benign.outside`)."""
    own = [room.name for room in pkgutil.iter_modules(benign.papers.__path__) if room.ispkg]
    found = {name: importlib.import_module(f"benign.papers.{name}") for name in own}
    for name, room in outside.rooms().items():
        if name in found:
            raise RecipeError(f"{room.__file__}: rename it, there is a paper {name!r} already")
        found[name] = room
    return found


def recipes() -> dict[str, Recipe]:
    """Every recipe by name: each paper's room holds a module `figures` with a list `RECIPES`."""
    return {each.name: each for name, room in rooms().items() for each in _recipes_of(name, room)}


def _recipes_of(name: str, room: ModuleType) -> list[Recipe]:
    figures = outside.figures(room) or importlib.import_module(f"{room.__name__}.figures")
    for each in figures.RECIPES:
        if each.name.partition("/")[0] != name:
            raise RecipeError(f"recipe {each.name!r} must be called `{name}/...`, as its room is")
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
        raise RecipeError(f"no recipe {name!r}: choose one of {', '.join(sorted(known))}")
    return known[name]
