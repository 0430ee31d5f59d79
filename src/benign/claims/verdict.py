"""The verdict on a claim: whether it holds on these runs, by which end, and whether they meet the conditions."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from benign.claims.claim import Claim, Direction, Evidence, Kind
from benign.claims.conditions import ROUNDING, Conditions
from benign.claims.ends import at_end, attacks_of, masked_text
from benign.claims.frozen import Frozen
from benign.claims.ladder import Rung, confidence_of
from benign.claims.measure import CONFIDENCE, Measured, Undecided
from benign.claims.rule import Outcome, Rule
from benign.claims.words import label
from benign.experiment import Experiment
from benign.spec.axes import cells
from benign.stats.intervals import Estimate, interval_text, number
from benign.sweep.ends import End
from benign.sweep.plan import NUMERICS
from benign.training.setup import Setup

RestsOn = Literal["", "attack", "certificate", "attacks tried"]
"""what decides a number: no attack; an attack, which proves it; a certificate; or that no attack tried broke it"""
LEAST_P = 1e-12
"""the smallest p-value that is reported"""
BISECTIONS = 24
"""of the logarithm of a p-value, which is then exact to two parts in a million"""


@dataclass(frozen=True)
class Ends:
    """One number of a claim, by the attacks and by the certificates."""

    attacked: Measured
    direction: Direction | None = None
    """None if it does not rest on attacks"""
    certified: Measured | None = None
    """None if nothing is proven on that side"""
    masked: Measured | None = None
    """with the certificates' end in the runs whose attack is masked; None if that cannot be computed"""

    def judge(self, rule: Rule, confidence: float) -> tuple[Outcome, RestsOn]:
        """Return the outcome and what it rests on.

        What an attack or a certificate proves decides first. Otherwise the attacked number stands for the true one,
        unless masked runs could change the outcome; then it can hold, but in the direction in which attacks prove
        nothing it cannot fail.
        """
        attacked = self.attacked.at(confidence)
        if self.direction is None:
            return rule.judge(attacked), ""
        if self.direction is Direction.MIXED:
            outcome = rule.judge(attacked)
            same = self.masked is not None and rule.judge(self.masked.at(confidence)) is outcome
            return (outcome if same else Outcome.INCONCLUSIVE), "attacks tried"
        outcome = rule.judge(self._between(attacked, None, confidence))
        if outcome is not Outcome.INCONCLUSIVE:
            return outcome, "attack"
        outcome = rule.judge(self._between(attacked, self.certified, confidence))
        if outcome is not Outcome.INCONCLUSIVE:
            return outcome, "certificate"
        stands = self._between(attacked, self.masked, confidence)
        holds = rule.judge(stands) is Outcome.HOLDS
        return (Outcome.HOLDS if holds else Outcome.INCONCLUSIVE), "attacks tried"

    def _between(self, attacked: Estimate, other: Measured | None, confidence: float) -> Estimate:
        """Return the number with the interval from one end to the other."""
        if self.direction is Direction.RISES:
            low = other.at(confidence).low if other else -math.inf
            return Estimate(attacked.value, min(low, attacked.high), attacked.high)
        high = other.at(confidence).high if other else math.inf
        return Estimate(attacked.value, attacked.low, max(high, attacked.low))

    def reason(self, rule: Rule, confidence: float, masked: str) -> str:
        """Return why the outcome is inconclusive."""
        attacked = self.attacked.at(confidence)
        alone = rule.judge(attacked)
        if self.direction is None or alone is Outcome.INCONCLUSIVE:
            return rule.reason(attacked)
        if alone is Outcome.FAILS and self.direction is not Direction.MIXED:
            return "only a certificate could refute it: attacks bound this number on the other side"
        return f"the attack is masked in {masked}, which could change the answer"

    def p_value(self, rule: Rule) -> float:
        """Return the smallest alpha at whose confidence, 1 - alpha, the number fails; 1 if it does not fail."""

        def fails(alpha: float) -> bool:
            return self.judge(rule, 1 - alpha)[0] is Outcome.FAILS

        if fails(LEAST_P):
            return 0.0 if self.attacked.interval is None else LEAST_P
        low, high = math.log(LEAST_P), math.log(0.999)
        if not fails(math.exp(high)):
            return 1.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if fails(math.exp(middle)) else (middle, high)
        return math.exp(high)


@dataclass(frozen=True)
class PartVerdict:
    """The verdict on one number of a claim."""

    name: str
    """empty if the claim has one number"""
    measured: Measured | None
    """by the attacks, if it rests on any"""
    rule: str
    outcome: Outcome
    reason: str = ""
    """why it is inconclusive"""
    rests_on: RestsOn = ""
    direction: Direction | None = None
    certified: Measured | None = None
    """by the certificates"""
    p_value: float = 1.0
    """of its failing"""
    more_seeds_help: bool = False
    """whether it is inconclusive because its interval is too wide"""

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
    confidence: float = CONFIDENCE
    """of the intervals that decided"""
    frozen: Frozen | None = None
    """what is known of the rules that judged; None outside a folder of runs"""
    rung: Rung | None = None
    """where on a ladder of seeds; None without a ladder"""

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
    def word(self) -> str:
        """The word of `benign.claims.words` for the outcome, whatever the conditions."""
        if self.error:
            return "error"
        if self.outcome is not Outcome.HOLDS:
            return "refuted" if self.outcome is Outcome.FAILS else "inconclusive"
        if self.claim.kind is not Kind.MEASURED:
            return self.claim.kind.value
        rests_on = {part.rests_on for part in self.deciding}
        if "attacks tried" in rests_on:
            return "unbroken"
        return "certified" if "certificate" in rests_on else "confirmed"

    @property
    def limit(self) -> str:
        """What keeps the runs from confirming or refuting: a smaller size than the figure's, or unmet conditions."""
        if self.claim.of_a_figure and (self.evidence.scale != "paper" or self.evidence.changes):
            return "at a smaller size"
        return "outside its conditions" if self.conditions.outside else ""

    @property
    def label(self) -> str:
        """The word and its limit in one phrase.

        Only runs inside its conditions refute a theorem; only runs of its size refute a figure.
        """
        return label(self.word, self.limit)

    @property
    def p_value(self) -> float:
        """Of the refutation: the smallest p-value of the parts that decide, times their number (Bonferroni).

        On a ladder of seeds it counts for all rungs.
        """
        if self.rung:
            return self.rung.p_value
        deciding = self.deciding
        smallest = min((part.p_value for part in deciding), default=1.0)
        return min(1.0, len(deciding) * smallest)

    @property
    def more_seeds_help(self) -> bool:
        """Whether more seeds could decide: a part has too wide an interval, and the runs meet the conditions."""
        open_ = self.outcome is Outcome.INCONCLUSIVE and not self.error
        return (
            open_
            and not self.conditions.outside
            and any(part.more_seeds_help for part in self.deciding)
        )

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attacks that its robust numbers rest on."""
        return attacks_of(self.evidence.experiments) if self.claim.robust else ()

    @property
    def reason(self) -> str:
        """Why the verdict is inconclusive; empty if it is not."""
        if not (self.error or self.deciding):
            return "the statistic returned no number that decides about the claim"
        if not self.error and self.outcome is not Outcome.INCONCLUSIVE:
            return ""
        return self.error or "; ".join(
            dict.fromkeys(part.reason for part in self.deciding if part.reason)
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as a dictionary for JSON."""
        claim = self.claim
        return {
            "id": claim.id,
            "statement": claim.statement,
            "source": claim.source,
            "derived": claim.derived,
            "kind": claim.kind.value,
            "misprint": claim.misprint,
            "verdict": self.label,
            "word": self.word,
            "limit": self.limit,
            "on these runs": self.outcome.value,
            "setting": self.conditions.label,
            "condition ratios": _finite(self.conditions.ratios or {}),
            "reason": self.reason,
            "confidence": self.confidence,
            "p-value of failing": self.p_value,
            "parts": [_part(part, part.name not in claim.informational) for part in self.parts],
            "attacks": list(self.attacks),
            "masked": masked_text(self.evidence.results) if claim.robust else "",
            "scale": self.evidence.scale,
            "changes": list(self.evidence.changes),
            "reading": dict(self.evidence.reading),
            "needs": [need if isinstance(need, str) else need.name for need in claim.studies],
            "seeds": [each.seeds for each in self.evidence.experiments],
            "frozen": self.frozen.as_dict() if self.frozen else None,
            "ladder": self.rung.as_dict() if self.rung else None,
            "numerics": NUMERICS,
            "seconds": round(self.seconds, 3),
        }


def judge(claim: Claim, evidence: Evidence, confidence: float = CONFIDENCE) -> Verdict:
    """Return the verdict on a claim: compute its statistic, apply its rule, check its conditions."""
    start = time.perf_counter()
    error, parts = "", ()
    conditions = ConditionSummary()
    evidence = replace(evidence, levels=claim.levels)
    try:
        conditions = summarise_conditions(claim.conditions, evidence.experiments)
        attacked = _numbers(claim, evidence)
        certified, masked = _other_ends(claim, evidence, attacked)
        doubt = masked_text(evidence.results) if claim.robust else ""
        parts = tuple(
            _judged(
                claim,
                name,
                Ends(measured, claim.direction(name), certified.get(name), masked.get(name)),
                confidence,
                doubt,
            )
            for name, measured in attacked.items()
        )
    except Undecided as reason:
        parts = (PartVerdict("", None, _rules(claim), Outcome.INCONCLUSIVE, str(reason)),)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
        parts = (PartVerdict("", None, _rules(claim), Outcome.INCONCLUSIVE, error),)
    seconds = time.perf_counter() - start
    return Verdict(claim, evidence, parts, conditions, seconds, error, confidence)


def judge_on(rungs: Sequence[int], judge_at: Callable[[int, float], Verdict]) -> Verdict:
    """Return the verdict of the first rung of a ladder that decides, or of the last one that could help.

    `judge_at(seeds, confidence)` makes the runs and judges.
    """
    least_p = 1.0
    for number_, seeds in enumerate(rungs, 1):
        verdict = judge_at(seeds, confidence_of(rungs))
        least_p = min(least_p, verdict.p_value)
        if verdict.outcome is not Outcome.INCONCLUSIVE:
            stop = "decided"
        elif not verdict.more_seeds_help:
            stop = "more seeds can neither confirm nor refute it"
        elif number_ == len(rungs):
            stop = "no rung is left"
        else:
            continue
        return replace(verdict, rung=Rung(tuple(rungs), number_, stop, least_p))
    raise ValueError("a ladder needs a rung")


def cannot_run(claim: Claim, scale: str, reason: str) -> Verdict:
    """Return the verdict on a claim whose runs cannot be made here."""
    part = PartVerdict("", None, _rules(claim), Outcome.INCONCLUSIVE, reason)
    return Verdict(claim, Evidence(scale), (part,), ConditionSummary(), 0.0)


Numbers = Mapping[str, Measured]


def _numbers(claim: Claim, evidence: Evidence) -> Numbers:
    measured = claim.statistic(evidence)
    return measured if isinstance(measured, Mapping) else {"": measured}


def _other_ends(claim: Claim, evidence: Evidence, attacked: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers by the certificates, and those with the certificates' end where the attack is masked.

    A number that stays the same if nothing is certified is not made of robust variables, and one that is then what the
    certificates say is made of variables without certificates: neither has a certified end.
    """
    if not claim.robust:
        return {}, {}
    certified = _at_end(claim, evidence, "certified")
    unproven = _at_end(claim, evidence, "unproven")
    proven = {
        name: measured
        for name, measured in certified.items()
        if claim.direction(name) in (Direction.RISES, Direction.FALLS)
        and (
            name not in unproven
            or unproven[name].estimate not in (attacked[name].estimate, measured.estimate)
        )
    }
    doubtful = masked_text(evidence.results)
    return proven, _at_end(claim, evidence, "masked runs certified") if doubtful else attacked


def _at_end(claim: Claim, evidence: Evidence, end: End) -> Numbers:
    """Return the numbers at another end; none if they cannot be computed there, such as the place of a crossing."""
    try:
        with np.errstate(all="ignore"):
            return _numbers(claim, at_end(evidence, end))
    except (Undecided, ValueError, ArithmeticError, np.linalg.LinAlgError):
        return {}


def _judged(claim: Claim, name: str, ends: Ends, confidence: float, doubt: str) -> PartVerdict:
    rule = claim.rule_for(name)
    outcome, rests_on = ends.judge(rule, confidence)
    open_ = outcome is Outcome.INCONCLUSIVE
    attacked = _shown(ends.attacked, confidence)
    too_wide = rule.judge(attacked.estimate) is Outcome.INCONCLUSIVE
    return PartVerdict(
        name,
        attacked,
        str(rule),
        outcome,
        ends.reason(rule, confidence, doubt) if open_ else "",
        rests_on,
        ends.direction,
        ends.certified and _shown(ends.certified, confidence),
        ends.p_value(rule),
        bool(open_ and too_wide and attacked.estimate.low < attacked.estimate.high),
    )


def _shown(measured: Measured, confidence: float) -> Measured:
    """Return a number whose interval that is shown is the one that decides."""
    if confidence == CONFIDENCE:
        return measured
    return replace(measured, estimate=measured.at(confidence))


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


def _part(part: PartVerdict, decides: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": part.name,
        "rule": part.rule,
        "outcome": part.outcome.value,
        "decides": decides,
    }
    if part.direction:
        fields |= {"direction": part.direction.value, "rests on": part.rests_on}
    if part.certified:
        fields |= {"certified": _finite(part.certified.estimate._asdict())}
    if part.measured is not None:
        value, low, high = part.measured.estimate
        fields |= _finite({"value": value, "low": low, "high": high})
        fields |= {"of": part.measured.of, "basis": part.measured.basis, "note": part.measured.note}
    return fields | ({"reason": part.reason} if part.reason else {})


def _finite(numbers: Mapping[str, float]) -> dict[str, float | str]:
    """Return the numbers with infinities and NaN as text, which JSON cannot write as numbers."""
    return {name: n if math.isfinite(n) else str(n) for name, n in numbers.items()}
