"""Conditions of theorems as numbers: what is asked, what an experiment has, and how much room is left."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from benign.attacks.balls import Ball
from benign.spec.axes import dimensions
from benign.spec.base import Positive
from benign.stats.intervals import number
from benign.training.setup import Setup

Moderate = Annotated[Positive, Field(ge=1e-12, le=1e12)]
"""a number whose eighth power is still a float"""
SLACK = 1e-9
"""an experiment may sit on a bound exactly, and miss it by rounding"""


@dataclass(frozen=True)
class Condition:
    """One item of a theorem's conditions, with the numbers on both sides."""

    name: str
    """the paper's number of it"""
    statement: str
    """the inequality, without the constants that the paper hides"""
    ratio: float
    """how much room there is: at least 1 holds, 0.1 misses by a factor of 10"""
    value: float
    """left side: what the experiment has"""
    bound: float
    """right side, hidden constants included"""
    required: bool = True
    """False for what is told beside the theorem, as the constants that its proof really uses"""

    @staticmethod
    def at_least(name: str, statement: str, value: float, bound: float) -> "Condition":
        return Condition(name, statement, _ratio(value, bound), value, bound)

    @staticmethod
    def at_most(name: str, statement: str, value: float, bound: float) -> "Condition":
        return Condition(name, statement, _ratio(bound, value), value, bound)

    @staticmethod
    def equal(name: str, statement: str, value: float, bound: float) -> "Condition":
        ratio = min(_ratio(value, bound), _ratio(bound, value))
        return Condition(name, statement, ratio, value, bound)

    @staticmethod
    def any_constant(name: str, statement: str, value: float) -> "Condition":
        """Of order 1: one number is neither large nor small, so it holds and the number is told."""
        return Condition(name, statement, math.inf, value, math.nan)

    @staticmethod
    def setting(departures: Sequence[str]) -> "Condition":
        """Whether an experiment is of the kind that the theorem is about."""
        told = f"not the theorem's: {', '.join(departures)}" if departures else "as in the theorem"
        ratio = 0.0 if departures else math.inf
        return Condition("setting", told, ratio, math.nan, math.nan)

    @property
    def untested(self) -> bool:
        """Whether no number can fail it: what is of order 1."""
        return math.isnan(self.bound) and not math.isnan(self.value)

    @property
    def holds(self) -> bool:
        return self.ratio >= 1 - SLACK

    def informational(self) -> "Condition":
        """The same, told but not asked for."""
        return replace(self, required=False)

    def miss(self) -> str:
        """By how much it fails, in words."""
        if math.isnan(self.bound):
            return f"{self.name} {self.statement}"
        factor = number(1 / self.ratio) if self.ratio > 0 else "infinity"
        sides = f"{number(self.value)} against {number(self.bound)}"
        return f"{self.name} {self.statement}: {sides}, missed by a factor of {factor}"

    def row(self) -> list[str]:
        """The cells of a table."""
        verdict = "not tested" if self.untested else "holds" if self.holds else "fails"
        sides = ["" if math.isnan(side) else number(side) for side in (self.value, self.bound)]
        room = number(self.ratio) if math.isfinite(self.ratio) else "any"
        told = verdict if self.required else f"{verdict}, not asked"
        return [self.name, self.statement, *sides, room, told]


@dataclass(frozen=True)
class Conditions:
    """The conditions of one theorem at one experiment."""

    title: str
    """the theorem, and the hidden constants it is taken with"""
    rows: tuple[Condition, ...]
    left: tuple[str, ...] = ()
    """conditions of the theorem that are left out on purpose: told, not asked for"""

    def __iter__(self) -> Iterator[Condition]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Condition:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no condition {name!r}: {', '.join(row.name for row in self.rows)}")

    @property
    def failing(self) -> list[Condition]:
        """What is asked and does not hold, the largest miss first."""
        failing = [row for row in self.rows if row.required and not row.holds]
        return sorted(failing, key=lambda row: row.ratio)

    @property
    def hold(self) -> bool:
        """Whether everything asked for holds: the experiment is inside the theorem."""
        return not self.failing

    def without(self, *names: str) -> "Conditions":
        """The same without asking for some of them."""
        rows = tuple(row.informational() if row.name in names else row for row in self.rows)
        return replace(self, rows=rows, left=names)

    def require(self) -> None:
        """ValueError, in one line, where something asked for does not hold."""
        if self.failing:
            misses = "; ".join(row.miss() for row in self.failing)
            raise ValueError(f"outside {self.title}: {misses}; choose other numbers or constants")

    def text(self) -> str:
        """A table in words, and the verdict."""
        head = ["", "condition", "here", "bound", "room", ""]
        table = [head, *(row.row() for row in self.rows if row.name != "setting")]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(f"{word:{width}}" for word, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        # A list of departures would make the table too wide.
        lines += [f"setting: {row.statement}" for row in self.rows if row.name == "setting"]
        outside = ", ".join(row.name for row in self.failing)
        but = f", leaving out {', '.join(self.left)}" if self.left else ""
        verdict = f"outside: {outside}" if outside else f"inside{but}"
        return "\n".join([self.title, *(f"  {line}" for line in lines), verdict])

    __str__ = text


def smallest_whole(bound: float) -> int:
    """The smallest whole number that is at least the bound, up to rounding.

    >>> smallest_whole(4e6 + 1e-9), smallest_whole(2.5)
    (4000000, 3)
    """
    nearest = round(bound)
    return nearest if math.isclose(nearest, bound, rel_tol=1e-12) else math.ceil(bound)


def one_cell(setup: Setup) -> Setup:
    """The setup itself; ValueError if it has axes, since every cell has conditions of its own."""
    if grid := dimensions(setup):
        names = ", ".join(f"`{dim.name}`" for dim in grid)
        raise ValueError(f"the experiment has axes {names}: give one cell (benign.spec.axes.cells)")
    return setup


def radius_share(setup: Setup) -> float:
    """Radius of the training attack as a share of |mu|; 0 for clean training."""
    if setup.attack is None:
        return 0.0
    threat, norm = setup.attack.threat(), signal_norm(setup)
    if not isinstance(threat, Ball) or threat.p != 2 or threat.relative_to == "point":
        raise ValueError(
            f"`attack` ({setup.attack.kind}) must stay in one l2 ball whose radius is a length or a share of the "
            "signal: the theorems are about those"
        )
    return float(threat.size(setup.data) / norm)


def signal_norm(setup: Setup) -> float:
    """|mu|; ValueError where there is no signal, for which no theorem says anything."""
    norm = setup.data.signal_norm()
    if not norm:
        raise ValueError(f"`data.signal` must be more than 0 for a theorem to apply, got {norm}")
    return norm


def _ratio(large: float, small: float) -> float:
    """How many times the one holds the other; a bound of 0 is no bound."""
    return large / small if small else math.inf
