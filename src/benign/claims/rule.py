"""Rules: whether a claim holds, fails or stays inconclusive, given the interval of a number."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from benign.stats.intervals import Estimate, interval_text, number


class Outcome(Enum):
    """Whether a statement holds on the runs it was judged on."""

    HOLDS = "holds"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"


class Rule(ABC):
    """Decides from an interval whether a claim holds or fails; any other interval is inconclusive."""

    @abstractmethod
    def judge(self, estimate: Estimate) -> Outcome: ...

    @abstractmethod
    def __str__(self) -> str: ...

    def as_dict(self) -> dict[str, Any]:
        """Return the rule as data with all its digits: its kind, and the fields that differ from their defaults."""
        values = {
            each.name: getattr(self, each.name)
            for each in (fields(self) if is_dataclass(self) else ())
            if getattr(self, each.name) != each.default
        }
        kind = type(self).__name__.lower()
        own = {name: as_data(value) for name, value in values.items()}
        return {"kind": kind, **(own if is_dataclass(self) else {"text": str(self)})}

    def reason(self, estimate: Estimate) -> str:
        """Return why an interval is inconclusive, and the remedy."""
        interval = interval_text((estimate.low, estimate.high))
        return f"{interval} lies only partly in the range of the rule ({self}): use more seeds or a larger scale"


@dataclass(frozen=True)
class Range(Rule):
    """Holds if the interval lies in [low, high], fails if it lies outside [fails_below, fails_above]."""

    low: float = -math.inf
    high: float = math.inf
    fails_below: float = -math.inf
    fails_above: float = math.inf

    def __post_init__(self) -> None:
        if not self.fails_below <= self.low <= self.high <= self.fails_above:
            raise ValueError(f"a rule must fail only where it does not hold, got {self!r}")

    def judge(self, estimate: Estimate) -> Outcome:
        if self.low <= estimate.low and estimate.high <= self.high:
            return Outcome.HOLDS
        if estimate.high < self.fails_below or estimate.low > self.fails_above:
            return Outcome.FAILS
        return Outcome.INCONCLUSIVE

    def __str__(self) -> str:
        if self.low == -math.inf:
            return f"<= {_number(self.high)}{_gap('>', self.fails_above, self.high)}"
        if self.high == math.inf:
            return f">= {_number(self.low)}{_gap('<', self.fails_below, self.low)}"
        return f"in [{_number(self.low)}, {_number(self.high)}]"


@dataclass(frozen=True)
class Contains(Rule):
    """Holds if the interval contains the value and no rival value; fails if it does not contain the value."""

    value: float
    rivals: tuple[float, ...] = ()

    def judge(self, estimate: Estimate) -> Outcome:
        if not estimate.low <= self.value <= estimate.high:
            return Outcome.FAILS
        ambiguous = any(estimate.low <= rival <= estimate.high for rival in self.rivals)
        return Outcome.INCONCLUSIVE if ambiguous else Outcome.HOLDS

    def reason(self, estimate: Estimate) -> str:
        rivals = ", ".join(_number(rival) for rival in self.rivals)
        interval = interval_text((estimate.low, estimate.high))
        return f"{interval} does not separate {_number(self.value)} from {rivals}: use more seeds or a longer axis"

    def __str__(self) -> str:
        rivals = " or ".join(_number(rival) for rival in self.rivals)
        return f"{_number(self.value)}{f' and not {rivals}' if rivals else ''}"


def at_least(bound: float, fails_below: float | None = None) -> Rule:
    """Return the rule that holds from `bound` on and fails below it, or below `fails_below`."""
    return Range(low=bound, fails_below=bound if fails_below is None else fails_below)


def at_most(bound: float, fails_above: float | None = None) -> Rule:
    """Return the rule that holds up to `bound` and fails above it, or above `fails_above`."""
    return Range(high=bound, fails_above=bound if fails_above is None else fails_above)


def between(
    low: float, high: float, fails_below: float | None = None, fails_above: float | None = None
) -> Rule:
    """Return the rule that holds in [low, high] and fails outside it, or outside a wider range."""
    below = low if fails_below is None else fails_below
    return Range(low, high, below, high if fails_above is None else fails_above)


def contains(value: float, but_not: tuple[float, ...] = ()) -> Rule:
    """Return the rule that the interval must contain `value` and no value of `but_not`."""
    return Contains(value, but_not)


EXPONENT = 0.2
"""relative distance from a claimed exponent up to which a measured one agrees: it separates the rivals in the four
papers, 1/2 from 1/3 and 1/4, and 2 from 3 and 4"""


def exponent(value: float) -> Rule:
    """Return the one rule for exponents of power laws, printed or derived: within a fifth of the value; 0.2 about 0."""
    slack = EXPONENT * (abs(value) or 1.0)
    return between(value - slack, value + slack)


def _gap(sign: str, fails: float, holds: float) -> str:
    return "" if fails == holds else f" (fails if {sign} {_number(fails)})"


def as_data(value: Any) -> Any:
    """Return a field of a rule, or a level, as JSON can hold it: infinities as text, 1 and 1.0 as the same number."""
    if isinstance(value, tuple | list):
        return [as_data(each) for each in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if value is None or isinstance(value, bool | str) else str(value)
    return float(value) if math.isfinite(value) else str(value)


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e-2 or value == round(value, 6) else number(value)
