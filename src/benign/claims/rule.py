"""Rules: from an interval to holds, fails or undecided. Every claim is judged by one of these."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

from benign.stats.intervals import Estimate, interval_text, number


class Outcome(Enum):
    """Whether a statement holds on the runs it was judged on."""

    HOLDS = "holds"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"


class Rule(ABC):
    """What an interval must be like for a claim to hold, and to fail; everything else is inconclusive."""

    @abstractmethod
    def judge(self, found: Estimate) -> Outcome: ...

    @abstractmethod
    def __str__(self) -> str: ...

    def reason(self, found: Estimate) -> str:
        """Why neither can be said of an interval."""
        told = interval_text((found.low, found.high))
        return f"{told} lies partly inside and partly outside of what is asked ({self}): more seeds, or a larger scale"


@dataclass(frozen=True)
class Range(Rule):
    """Holds inside a range, fails beyond; between the two ranges, and across a bound, nothing is said."""

    low: float = -math.inf
    high: float = math.inf
    fails_below: float = -math.inf
    fails_above: float = math.inf

    def __post_init__(self) -> None:
        if not self.fails_below <= self.low <= self.high <= self.fails_above:
            raise ValueError(f"a rule must fail outside of where it holds, got {self!r}")

    def judge(self, found: Estimate) -> Outcome:
        if self.low <= found.low and found.high <= self.high:
            return Outcome.HOLDS
        if found.high < self.fails_below or found.low > self.fails_above:
            return Outcome.FAILS
        return Outcome.INCONCLUSIVE

    def __str__(self) -> str:
        if self.low == -math.inf:
            return f"<= {_told(self.high)}{_gap('>', self.fails_above, self.high)}"
        if self.high == math.inf:
            return f">= {_told(self.low)}{_gap('<', self.fails_below, self.low)}"
        return f"in [{_told(self.low)}, {_told(self.high)}]"


@dataclass(frozen=True)
class Contains(Rule):
    """Holds if the interval contains the value and none of the rivals, fails if it does not contain the value."""

    value: float
    rivals: tuple[float, ...] = ()

    def judge(self, found: Estimate) -> Outcome:
        if not found.low <= self.value <= found.high:
            return Outcome.FAILS
        mixed = any(found.low <= rival <= found.high for rival in self.rivals)
        return Outcome.INCONCLUSIVE if mixed else Outcome.HOLDS

    def reason(self, found: Estimate) -> str:
        rivals = ", ".join(_told(rival) for rival in self.rivals)
        told = interval_text((found.low, found.high))
        return f"{told} cannot tell {_told(self.value)} from {rivals}: more seeds, or a longer axis"

    def __str__(self) -> str:
        rivals = " or ".join(_told(rival) for rival in self.rivals)
        return f"{_told(self.value)}{f' and not {rivals}' if rivals else ''}"


def at_least(bound: float, fails_below: float | None = None) -> Rule:
    """Holds from the bound on; fails below it, or below a lower bound of its own."""
    return Range(low=bound, fails_below=bound if fails_below is None else fails_below)


def at_most(bound: float, fails_above: float | None = None) -> Rule:
    """Holds up to the bound; fails above it, or above a higher bound of its own."""
    return Range(high=bound, fails_above=bound if fails_above is None else fails_above)


def between(
    low: float, high: float, fails_below: float | None = None, fails_above: float | None = None
) -> Rule:
    """Holds in the range, fails outside of it, or outside of a wider one."""
    below = low if fails_below is None else fails_below
    return Range(low, high, below, high if fails_above is None else fails_above)


def contains(value: float, but_not: tuple[float, ...] = ()) -> Rule:
    """The interval must contain the value, and tell it from its rivals."""
    return Contains(value, but_not)


def _gap(sign: str, fails: float, holds: float) -> str:
    return "" if fails == holds else f" (fails if {sign} {_told(fails)})"


def _told(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e-2 or value == round(value, 6) else number(value)
