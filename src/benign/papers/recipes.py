"""Recipes: a figure of a paper as an experiment, at three scales, for each reading of what the paper leaves open."""

import importlib
import itertools
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

import benign.papers
from benign.attacks.attack import Attack
from benign.attacks.balls import Ball
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.attacks.strong import Strong
from benign.axes import Axis
from benign.data.model import DataModel
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.network import Network

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
        data = experiment.data
        sizes = f"{describe_data(data)}, {describe_network(experiment.network)}"
        answers = ", ".join(f"{name}={answer}" for name, answer in reading.items())
        return (
            f"{self.name} at {scale} scale. {sizes}, {plural(experiment.seeds, 'seed')}, "
            f"{plural(experiment.evaluation.samples, 'test point')} a run. "
            f"Training attack: {describe_attack(experiment.attack)}. "
            f"Test attack: {describe_attack(experiment.final_attack)}. Reading: {answers}."
        )

    def experiment(self, scale: str, reading: Reading | None = None) -> Experiment:
        if scale not in SCALES:
            raise RecipeError(f"`scale` must be one of {', '.join(SCALES)}, got {scale!r}")
        return self.build(scale, reading or self.reading())


def recipes() -> dict[str, Recipe]:
    """Every recipe by name: each paper's room holds a module `figures` with a list `RECIPES`."""
    found: dict[str, Recipe] = {}
    for room in pkgutil.iter_modules(benign.papers.__path__):
        if room.ispkg:
            figures = importlib.import_module(f"benign.papers.{room.name}.figures")
            found |= {each.name: each for each in figures.RECIPES}
    return found


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


def describe_data(data: DataModel | Axis) -> str:
    """The sizes of a data model, as the papers write them."""
    if isinstance(data, Axis):
        return "several data models"
    return f"d = {_told(data.dim)}, M = {_told(data.tokens)}"


def describe_network(network: Network | Axis) -> str:
    """The width of a network, as the papers write it."""
    if isinstance(network, Axis):
        return "several networks"
    if not isinstance(network, Attention):
        return network.label()
    return f"d_h = {_told(network.hidden)}"


def describe_attack(attack: Attack | Axis | None) -> str:
    """An attack in a few words."""
    if isinstance(attack, Axis):
        return "several"
    if isinstance(attack, OneStep):
        return f"one step of rate {_told(attack.rate)} clipped to {_told(attack.clip)}, loss {attack.loss}"
    if isinstance(attack, PGD):
        return f"{attack.steps}-step PGD, {_describe_ball(attack.ball)}, {attack.keep} iterate"
    if isinstance(attack, Strong) and isinstance(attack.ball, Ball):
        return f"the worst of PGD and APGD, {attack.steps} steps, {_describe_ball(attack.ball)}"
    return "none" if attack is None else attack.label()


def _describe_ball(ball: Ball) -> str:
    unit = {"signal": " |mu|", "point": " |x|"}.get(ball.relative_to or "", "")
    return f"l{ball.p} radius {_told(ball.radius)}{unit} per {ball.per}"


def _told(value: Any) -> str:
    """A number, or the range of an axis."""
    if isinstance(value, Axis):
        return f"{_told(min(value.values))} to {_told(max(value.values))}"
    return f"{value:.2g}" if isinstance(value, int) and value > 10**6 else str(value)


def plural(count: int, word: str) -> str:
    return f"{count} {word}" + ("s" if count != 1 else "")
