"""The family of a paper: its claims that runs could contradict, and how its refutations hold up against their number.

A paper with many true claims is refuted somewhere by chance. So the word of each verdict stays what its own interval
says, and beside it stands Holm's p-value: whether the claim would still be refuted with 5 % for all claims together.
The family is frozen with the rules, before any run: identities, what holds by construction, calibrated numbers and
statements of ours are left out; a claim without a verdict stays in, with the p-value 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benign.claims.claim import Claim, Kind
from benign.claims.frozen import ERROR_RATE
from benign.claims.rule import Outcome
from benign.claims.verdict import Verdict
from benign.stats.intervals import number


@dataclass(frozen=True)
class InFamily:
    """A claim among those of its family."""

    paper: str
    claims: int
    """of the family"""
    judged: int
    """of the family, by the same command"""
    p_value: float | None = None
    """Holm's; None unless the whole family was asked for"""

    @property
    def holds_up(self) -> bool | None:
        """Whether the claim is refuted among all claims of the family; None if that was not computed."""
        return None if self.p_value is None else self.p_value <= ERROR_RATE

    def text(self, label: str) -> str:
        """Return how a refutation, of this label, holds up."""
        if self.p_value is None:
            return f"{label}; {self.partial_text()}"
        p_value = f"Holm p = {number(self.p_value)}"
        if self.holds_up:
            return f"{label}; holds up against {self.claims} claims ({p_value})"
        return f"{label} alone, not among {self.claims} claims ({p_value})"

    def partial_text(self) -> str:
        """Return why there is no p-value."""
        count = f"{self.judged} of {self.claims} claims of {self.paper}"
        return f"no correction for the number of claims was made: {count} judged"

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {
            "paper": self.paper,
            "claims": self.claims,
            "judged": self.judged,
            "Holm p-value": self.p_value,
            "holds up": self.holds_up,
        }


def belongs(claim: Claim) -> bool:
    """Whether a claim is in the family of its paper: the paper states it, and runs could contradict it."""
    return claim.kind is Kind.MEASURED and not claim.derived


def holm(p_values: Sequence[float], size: int | None = None) -> list[float]:
    """Return Holm's p-values (1979), in the order of the given ones.

    To refute where one is at most alpha refutes any true claim with a probability of at most alpha, however the claims
    depend on each other. size: the number of claims, if it is more than that of the p-values; the others count as 1.
    """
    values = np.asarray(p_values, dtype=float)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"p-values must lie in [0, 1], got {values}")
    count = values.size if size is None else size
    if count < values.size:
        raise ValueError(f"`size` must be at least {values.size}, got {count}")
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * (count - np.arange(values.size)))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted.tolist()


def families(
    verdicts: Iterable[Verdict], sizes: Mapping[str, int], whole: Iterable[str]
) -> list[InFamily | None]:
    """Return what each verdict is in the family of its paper; None if it belongs to none.

    sizes: the number of claims of each paper's family, each reading for itself; whole: papers of which all were asked
    for.
    """
    verdicts = list(verdicts)
    found: list[InFamily | None] = [None] * len(verdicts)
    whole = set(whole)
    for paper, size in sizes.items():
        members = [
            n
            for n, each in enumerate(verdicts)
            if belongs(each.claim) and each.claim.id.partition("/")[0] == paper
        ]
        p_values: Sequence[float | None] = [None] * len(members)
        if paper in whole:
            p_values = holm([verdicts[n].p_value for n in members], size)
        for n, p_value in zip(members, p_values, strict=True):
            found[n] = InFamily(paper, size, len(members), p_value)
    return found


def family_text(judged: Iterable[tuple[Verdict, InFamily | None]]) -> list[str]:
    """Return a line for each claim that failed in a family that was judged; for other families that none was."""
    members = [(verdict, family) for verdict, family in judged if family]
    lines = [
        f"{verdict.claim.id}: {family.text(verdict.label)}"
        for verdict, family in members
        if family.p_value is not None and verdict.outcome is Outcome.FAILS
    ]
    partial = {family.paper: family for _, family in members if family.p_value is None}
    return lines + [each.partial_text() for each in partial.values()]
