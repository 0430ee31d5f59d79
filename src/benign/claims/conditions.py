"""Conditions of theorems as numbers: an experiment's value, the theorem's bound, and the slack between them."""

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
ROUNDING = 1e-9
"""tolerance of a ratio: an experiment may sit on a bound exactly and miss it by rounding"""


@dataclass(frozen=True)
class Condition:
    """One condition of a theorem, with the numbers on both sides of its inequality."""

    name: str
    """its number in the paper"""
    statement: str
    """the inequality, without the constants that the paper hides"""
    ratio: float
    """the slack as a factor: the condition holds from 1 on, and at 0.1 it is missed by a factor of 10"""
    value: float
    """left side: what the experiment has"""
    bound: float
    """right side, hidden constants included"""
    required: bool = True
    """False for a row that is shown for information, such as a constant that only the proof needs"""

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
        """Return the condition that a number is of order 1. A single number cannot fail it; it is only shown."""
        return Condition(name, statement, math.inf, value, math.nan)

    @staticmethod
    def setting(departures: Sequence[str]) -> "Condition":
        """Return the condition that an experiment is of the kind that the theorem is about."""
        statement = (
            f"not the theorem's: {', '.join(departures)}" if departures else "as in the theorem"
        )
        ratio = 0.0 if departures else math.inf
        return Condition("setting", statement, ratio, math.nan, math.nan)

    @property
    def untested(self) -> bool:
        """Whether it is a condition of order 1, which no single number can fail."""
        return math.isnan(self.bound) and not math.isnan(self.value)

    @property
    def holds(self) -> bool:
        return self.ratio >= 1 - ROUNDING

    def informational(self) -> "Condition":
        """Return the same condition, shown but not required."""
        return replace(self, required=False)

    def miss(self) -> str:
        """Return the condition and the factor by which it is missed, as text."""
        if math.isnan(self.bound):
            return f"{self.name} {self.statement}"
        factor = number(1 / self.ratio) if self.ratio > 0 else "infinity"
        sides = f"{number(self.value)} against {number(self.bound)}"
        return f"{self.name} {self.statement}: {sides}, missed by a factor of {factor}"

    def row(self) -> list[str]:
        """Return the cells of its row in a table."""
        verdict = "not tested" if self.untested else "holds" if self.holds else "fails"
        sides = ["" if math.isnan(side) else number(side) for side in (self.value, self.bound)]
        slack = number(self.ratio) if math.isfinite(self.ratio) else "any"
        verdict = verdict if self.required else f"{verdict}, not required"
        return [self.name, self.statement, *sides, slack, verdict]


@dataclass(frozen=True)
class Conditions:
    """The conditions of one theorem at one experiment."""

    title: str
    """the theorem, and the values given to its hidden constants"""
    rows: tuple[Condition, ...]
    left_out: tuple[str, ...] = ()
    """names of the conditions that are left out on purpose: shown, not required"""

    def __iter__(self) -> Iterator[Condition]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Condition:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no condition {name!r}: {', '.join(row.name for row in self.rows)}")

    @property
    def failing(self) -> list[Condition]:
        """The required conditions that do not hold, the largest miss first."""
        failing = [row for row in self.rows if row.required and not row.holds]
        return sorted(failing, key=lambda row: row.ratio)

    @property
    def hold(self) -> bool:
        """Whether every required condition holds: the experiment is inside the theorem."""
        return not self.failing

    def without(self, *names: str) -> "Conditions":
        """Return the same conditions, some of them no longer required."""
        rows = tuple(row.informational() if row.name in names else row for row in self.rows)
        return replace(self, rows=rows, left_out=names)

    def require(self) -> None:
        """Raise ValueError, with a message of one line, if a required condition does not hold."""
        if self.failing:
            misses = "; ".join(row.miss() for row in self.failing)
            raise ValueError(f"outside {self.title}: {misses}; choose other numbers or constants")

    def text(self) -> str:
        """Return the conditions as a table, and whether the experiment is inside."""
        head = ["", "condition", "value", "bound", "slack", ""]
        table = [head, *(row.row() for row in self.rows if row.name != "setting")]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        # A list of departures would make the table too wide.
        lines += [f"setting: {row.statement}" for row in self.rows if row.name == "setting"]
        outside = ", ".join(row.name for row in self.failing)
        without = f", without {', '.join(self.left_out)}" if self.left_out else ""
        verdict = f"outside: {outside}" if outside else f"inside{without}"
        return "\n".join([self.title, *(f"  {line}" for line in lines), verdict])

    __str__ = text


def smallest_whole(bound: float) -> int:
    """Return the smallest whole number that is at least the bound, up to rounding.

    >>> smallest_whole(4e6 + 1e-9), smallest_whole(2.5)
    (4000000, 3)
    """
    nearest = round(bound)
    return nearest if math.isclose(nearest, bound, rel_tol=1e-12) else math.ceil(bound)


def one_cell(setup: Setup) -> Setup:
    """Return the setup. Raise ValueError if it has axes: each cell has its own conditions."""
    if grid := dimensions(setup):
        names = ", ".join(f"`{dim.name}`" for dim in grid)
        raise ValueError(f"the experiment has axes {names}: give one cell (benign.spec.axes.cells)")
    return setup


def radius_share(setup: Setup) -> float:
    """Return the radius of the training attack divided by |mu|; 0 for clean training."""
    if setup.attack is None:
        return 0.0
    threat, norm = setup.attack.threat(), signal_norm(setup)
    if not isinstance(threat, Ball) or not threat.is_round or threat.relative_to == "point":
        raise ValueError(
            f"`attack` ({setup.attack.kind}) must stay in one l2 ball without a box, whose radius is a length or a "
            "share of the signal: the theorems assume such a ball"
        )
    return float(threat.size(setup.data) / norm)


def signal_norm(setup: Setup) -> float:
    """Return |mu|. Raise ValueError if it is 0: no theorem covers data without a signal."""
    norm = setup.data.signal_norm()
    if not norm:
        raise ValueError(f"`data.signal` must be more than 0 for a theorem to apply, got {norm}")
    return norm


def _ratio(large: float, small: float) -> float:
    """Return large / small; infinity if `small` is 0, as a bound of 0 is no bound."""
    return large / small if small else math.inf
