"""The ladder of seeds: an inconclusive claim gets more seeds, at an error rate that is fixed for all looks together.

Whoever adds seeds until a claim is decided, and takes an interval of 95 % at each look, decides wrongly more often than
in 5 %. Here the numbers of seeds are fixed in advance (they are part of the frozen rules), and the 5 % are spent over
the looks in equal parts: with four rungs each interval has a confidence of 98.75 %. By Bonferroni's inequality all
looks together then decide wrongly about a number in at most 5 %, however their data depend on each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benign.claims.claim import Claim, Kind
from benign.claims.frozen import ERROR_RATE, LADDER

Stop = Literal["decided", "more seeds can neither confirm nor refute it", "no rung is left"]


@dataclass(frozen=True)
class Rung:
    """Where on its ladder a claim was judged."""

    rungs: tuple[int, ...]
    """the seeds of each rung"""
    number: int
    """of the rung, from 1 on"""
    stop: Stop
    """why no further rung was tried"""
    least_p: float
    """the smallest p-value of failing on any rung so far"""

    @property
    def p_value(self) -> float:
        """Of failing, for all rungs together."""
        return min(1.0, len(self.rungs) * self.least_p)

    @property
    def spent(self) -> float:
        """The error rate of the rungs so far."""
        return ERROR_RATE * self.number / len(self.rungs)

    def text(self) -> str:
        """Return the rung, the confidence of its intervals and the error rate that is left."""
        count, confidence = len(self.rungs), 100 * confidence_of(self.rungs)
        return (
            f"ladder: rung {self.number} of {count} ({self.rungs[self.number - 1]} seeds, intervals of "
            f"{confidence:.4g} %), {self.stop}; {100 * self.spent:.3g} % of the error rate of "
            f"{100 * ERROR_RATE:g} % spent, {100 * (ERROR_RATE - self.spent):.3g} % left"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {
            "rungs": list(self.rungs),
            "rung": self.number,
            "stop": self.stop,
            "spent": round(self.spent, 6),
            "left": round(ERROR_RATE - self.spent, 6),
        }


def rungs_of(claim: Claim, seeds: Sequence[int]) -> tuple[int, ...]:
    """Return the rungs of a claim whose studies have these seeds; none if seeds do not decide about it.

    The first rung is the smallest number of seeds of its studies, 5 at least; a study with more keeps its own.
    """
    if not seeds or claim.kind in (Kind.IDENTITY, Kind.BY_CONSTRUCTION):
        return ()
    start = max(min(seeds), LADDER[0])
    return (start, *(rung for rung in LADDER if rung > start))


def confidence_of(rungs: Sequence[int]) -> float:
    """Return the confidence of the intervals at each rung."""
    return 1 - ERROR_RATE / len(rungs)
