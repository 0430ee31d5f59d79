"""The verdict on a claim: holds or fails on these runs, and inside or outside the theorem's conditions."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benign.claims.claim import Claim, Evidence
from benign.claims.conditions import SLACK, Conditions
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
"""flags of the audit that make robust numbers doubtful"""
MOST_MASKED = 0.05
"""share of runs with such a flag above which a robust claim is not decided"""


@dataclass(frozen=True)
class PartVerdict:
    """One number of a claim, judged."""

    name: str
    """empty where the claim has one number"""
    measured: Measured | None
    rule: str
    outcome: Outcome
    reason: str = ""
    """why it is inconclusive"""

    def statistic(self) -> str:
        """The number with its interval, in words."""
        if self.measured is None:
            return ""
        value, low, high = self.measured.estimate
        return number(value) if low == high else f"{number(value)} {interval_text((low, high))}"


@dataclass(frozen=True)
class ConditionSummary:
    """Where the runs are beside the conditions of the theorem."""

    cells: int = 0
    """cells of the grid that the theorem speaks about; 0 for a claim without conditions"""
    inside: int = 0
    """those in which every condition holds"""
    ratios: Mapping[str, float] | None = None
    """the smallest room of every condition over the cells: at least 1 holds"""

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
        """The conditions that some cell misses, the largest miss first, each with its factor."""
        failing = sorted((r, name) for name, r in (self.ratios or {}).items() if r < 1 - SLACK)
        return [f"{name} by {number(1 / r)}" if r > 0 else name for r, name in failing]


@dataclass(frozen=True)
class Verdict:
    """What runs say about a claim."""

    claim: Claim
    evidence: Evidence
    parts: tuple[PartVerdict, ...]
    conditions: ConditionSummary
    seconds: float
    """that the judging took; runs not counted"""
    error: str = ""
    """a fault of ours, not of the paper: the statistic could not be computed"""

    @property
    def deciding(self) -> tuple[PartVerdict, ...]:
        """The parts that decide about the claim: all but its informational ones."""
        return tuple(part for part in self.parts if part.name not in self.claim.informational)

    @property
    def outcome(self) -> Outcome:
        """All deciding parts hold, or one fails; without a deciding part nothing is decided."""
        outcomes = [part.outcome for part in self.deciding]
        if Outcome.FAILS in outcomes:
            return Outcome.FAILS
        decided = outcomes and Outcome.INCONCLUSIVE not in outcomes
        return Outcome.HOLDS if decided else Outcome.INCONCLUSIVE

    @property
    def label(self) -> str:
        """Both parts of the verdict in one: a theorem is refuted only by runs inside its conditions, what a figure
        shows only by runs of its size."""
        if self.error:
            return "error"
        where = " outside its conditions" if self.conditions.outside else ""
        if self.claim.of_a_figure and (self.evidence.scale != "paper" or self.evidence.changes):
            where = " at a smaller size"
        if self.outcome is Outcome.HOLDS:
            return f"holds{where}" if where else "confirmed"
        if self.outcome is Outcome.FAILS:
            return f"fails{where}" if where else "refuted"
        return "inconclusive"

    @property
    def reason(self) -> str:
        """Why it is inconclusive."""
        if not (self.error or self.deciding):
            return "the statistic gave no number that decides about the claim"
        return self.error or "; ".join(
            dict.fromkeys(part.reason for part in self.deciding if part.reason)
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
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
    """Compute the statistic of a claim, compare it with the rule, and see where the runs are."""
    began = time.perf_counter()
    error, parts = "", ()
    conditions = ConditionSummary()
    try:
        conditions = summarise_conditions(claim.conditions, evidence.experiments)
        found = claim.statistic(evidence)
        named = found if isinstance(found, Mapping) else {"": found}
        parts = tuple(_judged(claim, name, each) for name, each in named.items())
        if claim.robust and (doubt := _masked(evidence)):
            parts = tuple(_doubted(part, doubt) for part in parts)
    except Undecided as reason:
        parts = (PartVerdict("", None, _rules(claim), Outcome.INCONCLUSIVE, str(reason)),)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
        parts = (PartVerdict("", None, _rules(claim), Outcome.INCONCLUSIVE, error),)
    return Verdict(claim, evidence, parts, conditions, time.perf_counter() - began, error)


def cannot_run(claim: Claim, scale: str, reason: str) -> Verdict:
    """The verdict on a claim whose runs cannot be had here."""
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
    """Why robust numbers of these runs cannot be trusted; empty where they can.

    Shares are of the audited runs: one that is missing or diverged has no audit (NaN) and vouches for nothing.
    """
    for result in evidence.results:
        if "audit" not in result:
            continue
        found = result["audit"].values
        codes = found[np.isfinite(found)].astype(int)
        for code, name in FLAGS.items():
            hits = int(((codes & code) > 0).sum())
            if name in MASKED and hits > MOST_MASKED * codes.size:
                share = f"{100 * hits / codes.size:.0f} % of the {codes.size} audited runs"
                return f"the audit flags {share}: {name.replace('_', ' ')}"
    return ""


def summarise_conditions(
    asked: Callable[[Setup], Conditions | None] | None, experiments: Iterable[Experiment]
) -> ConditionSummary:
    """The conditions of a theorem at all cells of experiments."""
    if asked is None:
        return ConditionSummary()
    ratios: dict[str, float] = {}
    count = inside = 0
    for experiment in experiments:
        for _, cell in cells(experiment):
            conditions = asked(cell)
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
    told: dict[str, Any] = {"name": part.name, "rule": part.rule, "outcome": part.outcome.value}
    if part.measured is not None:
        value, low, high = part.measured.estimate
        told |= _finite({"value": value, "low": low, "high": high})
        told |= {"of": part.measured.of, "basis": part.measured.basis, "note": part.measured.note}
    return told | ({"reason": part.reason} if part.reason else {})


def _finite(numbers: Mapping[str, float]) -> dict[str, float | str]:
    """JSON has no infinity: it is written as a word."""
    return {name: n if math.isfinite(n) else str(n) for name, n in numbers.items()}
