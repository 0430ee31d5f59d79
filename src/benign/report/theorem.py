"""How far every cell of an experiment is from the conditions of its theorem."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benign.claims.conditions import Condition, Conditions
from benign.experiment import Experiment
from benign.papers.advice import advise
from benign.papers.recipes import Recipe
from benign.spec.axes import cells
from benign.stats.intervals import number
from benign.sweep.text import value_text
from benign.training.setup import Setup


@dataclass(frozen=True)
class Line:
    """One condition over all cells."""

    name: str
    statement: str
    asked: bool
    cells: int
    holds: int
    """cells in which it holds"""
    least: float
    most: float
    """the smallest and the largest room: at least 1 holds, 0.1 misses by a factor of 10"""
    untested: bool = False
    """whether no number can fail it"""

    @property
    def far(self) -> str:
        """How far cells are from it, in words."""
        if self.untested:
            return "of any size here, since it is asked to be of order 1: not tested"
        if self.holds == self.cells:
            return "every cell"
        if self.name == "setting":
            return "no cell" if not self.holds else f"{self.holds} of {self.cells} cells"
        missed = f"missed by a factor of {factor(self.most)} to {factor(self.least)}"
        if self.holds:
            missed = f"missed by a factor of up to {factor(self.least)} elsewhere"
            return f"{self.holds} of {self.cells} cells; {missed}"
        return f"no cell; {missed}"


@dataclass(frozen=True)
class Theorem:
    """The conditions of a theorem at the cells it speaks about."""

    title: str
    lines: tuple[Line, ...]
    cells: int
    inside: int
    """cells in which all that is asked holds"""
    nearest: str
    """the cell whose largest miss is the smallest, and that miss"""
    tables: dict[int, list[list[Any]]]
    """of every cell, by its number: condition, statement, here, bound, room, whether it holds"""


def theorems(experiment: Experiment, recipe: Recipe | None) -> tuple[list[Theorem], str]:
    """The theorems behind an experiment; and, where there are none, why."""
    asked, why = _asked(recipe)
    found: dict[str, dict[int, Conditions]] = {}
    places = []
    for place, (where, cell) in enumerate(cells(experiment)):
        places.append(", ".join(f"{name} {value_text(value)}" for name, value in where.items()))
        try:
            for conditions in asked(cell):
                found.setdefault(conditions.title, {})[place] = conditions
        except ValueError as error:
            why = why or str(error)
    return [_theorem(title, those, places) for title, those in found.items()], why


def _asked(recipe: Recipe | None) -> tuple[Callable[[Setup], Sequence[Conditions]], str]:
    """What tells the conditions of a cell: the recipe's theorem, or those for the kind of network."""
    if recipe is None:
        return lambda cell: advise(cell).theorems, ""
    of_recipe = recipe.conditions
    if of_recipe is None:
        return lambda cell: (), f"No theorem stands behind {recipe.name}."
    return lambda cell: tuple(filter(None, [of_recipe(cell)])), ""


def _theorem(title: str, found: dict[int, Conditions], places: Sequence[str]) -> Theorem:
    names = dict.fromkeys(row.name for conditions in found.values() for row in conditions)
    best = max(found, key=lambda place: _room(found[place]))
    return Theorem(
        title=title,
        lines=tuple(_line(name, list(found.values())) for name in names),
        cells=len(found),
        inside=sum(conditions.hold for conditions in found.values()),
        nearest=_told(places[best] or "the only cell", found[best]),
        tables={
            place: [_written(row) for row in conditions] for place, conditions in found.items()
        },
    )


def _room(conditions: Conditions) -> float:
    """The smallest room of what has numbers: a setting that is not the theorem's is so in every cell alike."""
    return min(
        (row.ratio for row in conditions if row.asked and row.name != "setting"), default=math.inf
    )


def _told(place: str, conditions: Conditions) -> str:
    failing = [row for row in conditions.failing if row.name != "setting"]
    if not failing:
        return f"{place}: every number is inside"
    return f"{place}: {failing[0].name} is missed by a factor of {factor(failing[0].ratio)}"


def _line(name: str, found: Sequence[Conditions]) -> Line:
    rows = [row for conditions in found for row in conditions if row.name == name]
    return Line(
        name=name,
        statement=next((row.statement for row in rows if not row.holds), rows[0].statement),
        asked=any(row.asked for row in rows),
        cells=len(rows),
        holds=sum(row.holds for row in rows),
        least=min(row.ratio for row in rows),
        most=max(row.ratio for row in rows),
        untested=all(row.untested for row in rows),
    )


def _written(row: Condition) -> list[Any]:
    name, statement, here, bound, room, verdict = row.row()
    return [name, statement, here, bound, room, verdict]


def factor(ratio: float) -> str:
    """By how much a condition with this room is missed."""
    return number(1 / ratio) if ratio > 0 else "infinity"
