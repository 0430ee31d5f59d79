"""The verdict on a claim: whether it holds on these runs, and whether the runs meet the theorem's conditions."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benign.claims.claim import Claim, Evidence
from benign.claims.conditions import ROUNDING, Conditions
from benign.claims.measure import Measured, Undecided
from benign.claims.rule import Outcome
from benign.experiment import Experiment
from benign.spec.axes import cells
from benign.stats.intervals import interval_text, number
from benign.training.metrics.audit import FLAGS
from benign.training.setup import Setup

MASKED = (
    "masked_on_test_points",
    "masked_on_training_points",
    "evaluation_attack_weaker_than_training_attack",
)
"""flags of the audit that cast doubt on robust numbers"""
MOST_MASKED = 0.05
"""largest share of runs with such a flag at which a robust claim is decided"""


@dataclass(frozen=True)
class PartVerdict:
    """The verdict on one number of a claim."""

    name: str
    """empty if the claim has one number"""
    measured: Measured | None
    rule: str
    outcome: Outcome
    reason: str = ""
    """why it is inconclusive"""

    def statistic(self) -> str:
        """Return the number with its interval, as text."""
        if self.measured is None:
            return ""
        value, low, high = self.measured.estimate
        return number(value) if low == high else f"{number(value)} {interval_text((low, high))}"


@dataclass(frozen=True)
class ConditionSummary:
    """Whether the runs meet the conditions of the theorem."""

    cells: int = 0
    """number of cells that the theorem covers; 0 for a claim without conditions"""
    inside: int = 0
    """number of cells in which every condition holds"""
    ratios: Mapping[str, float] | None = None
    """for each condition, the smallest slack over the cells: the condition holds from 1 on"""

    @property
    def label(self) -> str:
        if not self.cells:
            return "unconditional"
        if self.inside in (0, self.cells):
            return "inside" if self.inside else "outside"
        return f"inside in {self.inside} of {self.cells} cells"

    @property
    def outside(self) -> bool:
        return self.inside < self.cells

    def misses(self) -> list[str]:
        """Return the conditions that some cell misses, each with its factor, the largest miss first."""
        failing = sorted((r, name) for name, r in (self.ratios or {}).items() if r < 1 - ROUNDING)
        return [f"{name} by {number(1 / r)}" if r > 0 else name for r, name in failing]


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, with the evidence for it."""

    claim: Claim
    evidence: Evidence
    parts: tuple[PartVerdict, ...]
    conditions: ConditionSummary
    seconds: float
    """time that judging took, without the runs"""
    error: str = ""
    """why the statistic could not be computed: an error of the program, not of the paper"""

    @property
    def deciding(self) -> tuple[PartVerdict, ...]:
        """The parts that decide about the claim: all but the informational ones."""
        return tuple(part for part in self.parts if part.name not in self.claim.informational)

    @property
    def outcome(self) -> Outcome:
        """FAILS if a deciding part fails, HOLDS if all hold, else INCONCLUSIVE; also if no part decides."""
        outcomes = [part.outcome for part in self.deciding]
        if Outcome.FAILS in outcomes:
            return Outcome.FAILS
        decided = outcomes and Outcome.INCONCLUSIVE not in outcomes
        return Outcome.HOLDS if decided else Outcome.INCONCLUSIVE

    @property
    def label(self) -> str:
        """The outcome and the conditions in one phrase.

        Only runs inside its conditions refute a theorem; only runs of its size refute a figure.
        """
        if self.error:
            return "error"
        limits = " outside its conditions" if self.conditions.outside else ""
        if self.claim.of_a_figure and (self.evidence.scale != "paper" or self.evidence.changes):
            limits = " at a smaller size"
        if self.outcome is Outcome.HOLDS:
            return f"holds{limits}" if limits else "confirmed"
        if self.outcome is Outcome.FAILS:
            return f"fails{limits}" if limits else "refuted"
        return "inconclusive"

    @property
    def reason(self) -> str:
        """Why the verdict is inconclusive; empty if it is not."""
        if not (self.error or self.deciding):
            return "the statistic returned no number that decides about the claim"
        return self.error or "; ".join(
            dict.fromkeys(part.reason for part in self.deciding if part.reason)
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as a dictionary for JSON."""
        return {
            "id": self.claim.id,
            "statement": self.claim.statement,
            "source": self.claim.source,
            "verdict": self.label,
            "on these runs": self.outcome.value,
            "setting": self.conditions.label,
            "condition ratios": _finite(self.conditions.ratios or {}),
            "reason": self.reason,
            "parts": [_part(part) for part in self.parts],
            "scale": self.evidence.scale,
            "changes": list(self.evidence.changes),
            "reading": dict(self.evidence.reading),
            "needs": [need if isinstance(need, str) else need.name for need in self.claim.studies],
            "seeds": [each.seeds for each in self.evidence.experiments],
            "seconds": round(self.seconds, 3),
        }


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim: compute its statistic, apply its rule, check its conditions."""
    start = time.perf_counter()
    error, parts = "", ()
    conditions = ConditionSummary()
    try:
        conditions = summarise_conditions(claim.conditions, evidence.experiments)
        measured = claim.statistic(evidence)
        numbers = measured if isinstance(measured, Mapping) else {"": measured}
        parts = tuple(_judged(claim, name, each) for name, each in numbers.items())
        if claim.robust and (doubt := _masked(evidence)):
            parts = tuple(_doubted(part, doubt) for part in parts)
    except Undecided as reason:
        parts = (PartVerdict("", None, _rules(claim), Outcome.INCONCLUSIVE, str(reason)),)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
        parts = (PartVerdict("", None, _rules(claim), Outcome.INCONCLUSIVE, error),)
    return Verdict(claim, evidence, parts, conditions, time.perf_counter() - start, error)


def cannot_run(claim: Claim, scale: str, reason: str) -> Verdict:
    """Return the verdict on a claim whose runs cannot be made here."""
    part = PartVerdict("", None, _rules(claim), Outcome.INCONCLUSIVE, reason)
    return Verdict(claim, Evidence(scale), (part,), ConditionSummary(), 0.0)


def _judged(claim: Claim, name: str, measured: Measured) -> PartVerdict:
    rule = claim.rule_for(name)
    outcome = rule.judge(measured.estimate)
    reason = rule.reason(measured.estimate) if outcome is Outcome.INCONCLUSIVE else ""
    return PartVerdict(name, measured, str(rule), outcome, reason)


def _doubted(part: PartVerdict, doubt: str) -> PartVerdict:
    return PartVerdict(part.name, part.measured, part.rule, Outcome.INCONCLUSIVE, doubt)


def _masked(evidence: Evidence) -> str:
    """Return why robust numbers of these runs cannot be trusted, or an empty text if they can.

    Shares are shares of audited runs: a missing or diverged run has no audit (NaN) and is not counted.
    """
    for result in evidence.results:
        if "audit" not in result:
            continue
        audit = result["audit"].values
        codes = audit[np.isfinite(audit)].astype(int)
        for code, name in FLAGS.items():
            hits = int(((codes & code) > 0).sum())
            if name in MASKED and hits > MOST_MASKED * codes.size:
                share = f"{100 * hits / codes.size:.0f} % of the {codes.size} audited runs"
                return f"the audit flags {share} ({name.replace('_', ' ')})"
    return ""


def summarise_conditions(
    conditions_at: Callable[[Setup], Conditions | None] | None, experiments: Iterable[Experiment]
) -> ConditionSummary:
    """Return the conditions of a theorem, summarised over all cells of some experiments."""
    if conditions_at is None:
        return ConditionSummary()
    ratios: dict[str, float] = {}
    count = inside = 0
    for experiment in experiments:
        for _, cell in cells(experiment):
            conditions = conditions_at(cell)
            if conditions is None:
                continue
            count += 1
            inside += conditions.hold
            for row in conditions:
                if row.required:
                    ratios[row.name] = min(row.ratio, ratios.get(row.name, math.inf))
    return ConditionSummary(count, inside, ratios)


def _rules(claim: Claim) -> str:
    if isinstance(claim.rule, Mapping):
        return "; ".join(f"{name} {rule}" for name, rule in claim.rule.items())
    return str(claim.rule)


def _part(part: PartVerdict) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": part.name, "rule": part.rule, "outcome": part.outcome.value}
    if part.measured is not None:
        value, low, high = part.measured.estimate
        fields |= _finite({"value": value, "low": low, "high": high})
        fields |= {"of": part.measured.of, "basis": part.measured.basis, "note": part.measured.note}
    return fields | ({"reason": part.reason} if part.reason else {})


def _finite(numbers: Mapping[str, float]) -> dict[str, float | str]:
    """Return the numbers with infinities and NaN as text, which JSON cannot write as numbers."""
    return {name: n if math.isfinite(n) else str(n) for name, n in numbers.items()}
