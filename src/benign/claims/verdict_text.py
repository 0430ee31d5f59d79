"""Verdicts as text: a few lines in a terminal, a page of Markdown, a file of JSON."""

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benign import __version__
from benign.claims.claim import Claim
from benign.claims.conditions import ROUNDING
from benign.claims.family import InFamily
from benign.claims.rule import Outcome
from benign.claims.study import Study
from benign.claims.verdict import PartVerdict, Verdict
from benign.sweep.records import replacing

WIDTH = 100


@dataclass(frozen=True)
class TimedVerdict:
    """A verdict, and the seconds that the runs of its studies took; runs that claims share count for each."""

    verdict: Verdict
    runs_seconds: float
    family: InFamily | None = None
    """among the claims of its paper; None if it belongs to no family, or before all of them are judged"""

    def __str__(self) -> str:
        return verdict_text(self)


def as_json(
    judged: Sequence[TimedVerdict], scale: str, earlier: Iterable[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return all verdicts as a dictionary for JSON; `earlier` ones of other claims, scales and readings stay."""
    new = [
        each.verdict.as_dict()
        | {
            "family": each.family.as_dict() if each.family else None,
            "runs seconds": round(each.runs_seconds, 1),
        }
        for each in judged
    ]
    keys = [_key(each) for each in new]
    return {
        "benign": __version__,
        "scale": scale,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdicts": [*new, *(each for each in earlier if _key(each) not in keys)],
    }


def write(judged: Sequence[TimedVerdict], scale: str, folder: Path) -> list[Path]:
    """Write verdicts.json, which keeps earlier verdicts of other claims, and verdicts.md; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    content = as_json(judged, scale, _earlier(folder / "verdicts.json"))
    kept = len(content["verdicts"]) - len(judged)
    texts = {
        "verdicts.json": json.dumps(content, indent=1, ensure_ascii=False),
        "verdicts.md": markdown(judged, scale, kept),
    }
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
    return [folder / name for name in texts]


def _earlier(path: Path) -> list[dict[str, Any]]:
    """Return the verdicts in a file of this version of benign; none of a file that is damaged, or of another one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        verdicts = content["verdicts"] if content["benign"] == __version__ else []
        _ = [_key(each) for each in verdicts]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    return verdicts


def _key(verdict: dict[str, Any]) -> tuple[str, str, str]:
    """Return claim, scale and reading of a verdict in a file."""
    return str(verdict["id"]), str(verdict["scale"]), json.dumps(verdict["reading"], sort_keys=True)


HEAD = ("claim", "verdict", "statistic", "rule", "conditions", "time")


def rows(each: TimedVerdict) -> list[tuple[str, ...]]:
    """Return the rows of a claim in a table: one for the claim, and one for each number if there are several."""
    verdict = each.verdict
    claim, conditions = verdict.claim, conditions_text(verdict)
    seconds = f"{each.runs_seconds + verdict.seconds:.1f} s"
    names = [claim.id + (f".{part.name}" if part.name else "") for part in verdict.parts]
    if len(verdict.parts) == 1:
        [part] = verdict.parts
        return [(names[0], verdict.label, part.statistic(), part.rule, conditions, seconds)]
    numbers = [
        (name, part.outcome.value, part.statistic(), part.rule, "", "")
        for name, part in zip(names, verdict.parts, strict=True)
    ]
    return [(claim.id, verdict.label, "", "", conditions, seconds), *numbers] if numbers else []


def conditions_text(verdict: Verdict) -> str:
    """Return whether the runs meet the conditions, and the condition with the largest miss."""
    conditions = verdict.conditions
    missed = {n: r for n, r in (conditions.ratios or {}).items() if r < 1 - ROUNDING}
    if not missed:
        return conditions.label
    name = min(missed, key=lambda each: missed[each])
    return f"{conditions.label}: {name} at {missed[name]:.2g} of the slack that it needs"


def counts_text(judged: Iterable[TimedVerdict]) -> str:
    """Return the number of verdicts with each label, those of derived statements apart.

    Beside refutations stands how many of them hold up among all claims of their papers, if all were judged.
    """
    judged = list(judged)
    texts = []
    for derived in (False, True):
        own = [each for each in judged if each.verdict.claim.derived is derived]
        labels = Counter(each.verdict.label for each in own)
        texts.append(", ".join(f"{n} {label}{_held(label, own)}" for label, n in labels.items()))
    printed, ours = texts
    return "; ".join(filter(None, [printed, f"derived by us: {ours}" if ours else ""]))


def _held(label: str, judged: Iterable[TimedVerdict]) -> str:
    """Return how many refutations of a label hold up in their family; empty for other labels and parts of families."""
    families = [
        each.family
        for each in judged
        if each.family and each.verdict.label == label and each.verdict.outcome is Outcome.FAILS
    ]
    corrected = [each for each in families if each.holds_up is not None]
    held = sum(each.holds_up is True for each in corrected)
    return f" ({held} of {len(corrected)} among all claims of a paper)" if corrected else ""


def part_text(part: PartVerdict) -> str:
    """Return a number with its name, its interval, its certified end, its basis and its note."""
    if part.measured is None:
        return ""
    name = f"{part.name}: " if part.name else ""
    proven = f", certified {part.certified.estimate}" if part.certified else ""
    note = f"; {part.measured.note}" if part.measured.note else ""
    return f"{name}{part.measured.of} = {part.statistic()}{proven} ({part.measured.basis}{note})"


def outcome_text(part: PartVerdict) -> str:
    """Return whether a number is as the rule says, and what that rests on."""
    reasons = {
        "attack": " (an attack proves it)",
        "certificate": " (by certificates)",
        "attacks tried": " (under the attacks tried)",
    }
    decided = part.outcome is not Outcome.INCONCLUSIVE
    return part.outcome.value + (reasons.get(part.rests_on, "") if decided else "")


def markdown(judged: Sequence[TimedVerdict], scale: str, kept: int = 0) -> str:
    """Return a page of verdicts: their counts, a table, then each claim with its statement and reasons.

    kept: the number of earlier verdicts that the file of JSON holds besides.
    """
    totals = counts_text(judged)
    lines = [f"# Verdicts at {scale} scale", "", f"benign {__version__}: {totals}.", ""]
    if kept:
        lines[-1:] = ["", f"verdicts.json holds {kept} earlier verdicts besides.", ""]
    lines += [_line(HEAD), _line(["---"] * len(HEAD))]
    lines += [_line(row) for each in judged for row in rows(each)]
    for each in judged:
        lines += ["", f"## {each.verdict.claim.id}", "", *_details(each)]
    return "\n".join(lines) + "\n"


def _details(each: TimedVerdict) -> list[str]:
    verdict, claim, reading = each.verdict, each.verdict.claim, each.verdict.evidence.reading
    label = f"**{verdict.label}**"
    if each.family and verdict.outcome is Outcome.FAILS:
        label = each.family.text(label)
    lines = [f"{claim.statement} ({claim.source})", "", label]
    if verdict.reason:
        lines[-1] += f": {verdict.reason}"
    for part in verdict.parts:
        if part.measured is not None:
            apart = ", does not decide" if part.name in claim.informational else ""
            outcome = f"rule {part.rule}: {outcome_text(part)}{apart}"
            lines += ["", f"- {part_text(part)}; {outcome}"]
    if claim.misprint:
        lines += ["", f"Misprint: {claim.misprint}"]
    if verdict.attacks:
        lines += ["", f"Attacks: {'; '.join(verdict.attacks)}"]
    if reading:
        lines += ["", "Reading: " + ", ".join(f"{q}={a}" for q, a in reading.items())]
    if verdict.rung:
        text = verdict.rung.text()
        lines += ["", f"{text[0].upper()}{text[1:]}"]
    if verdict.frozen:
        remark = verdict.frozen.text()
        text = f"Rule: {verdict.frozen.hash[:12]}, recorded {verdict.frozen.first_seen}"
        lines += ["", text + (f"; {remark}" if remark else "")]
    if verdict.conditions.ratios:
        ratios = ", ".join(
            f"{name} {ratio:.3g}" for name, ratio in verdict.conditions.ratios.items()
        )
        lines += ["", f"Conditions ({verdict.conditions.label}), smallest slack: {ratios}"]
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def claim_text(claim: Claim, cannot: str = "") -> str:
    """Return the statement, source and studies of a claim; `cannot` is why it cannot be judged here."""
    studies = ", ".join(need.name if isinstance(need, Study) else need for need in claim.studies)
    text = f"{claim.statement} ({claim.source}; judged on {studies or 'its own draws'})"
    text += f"; {cannot}" if cannot else ""
    return f"{claim.id}\n{textwrap.fill(text, WIDTH, initial_indent='  ', subsequent_indent='  ')}"


def verdict_text(each: TimedVerdict) -> str:
    """Return a verdict as a few lines for a terminal."""
    verdict = each.verdict
    seconds = each.runs_seconds + verdict.seconds
    lines = [f"{verdict.label:12}  {verdict.claim.id}  ({seconds:.1f} s)"]
    for part in verdict.parts:
        if part.measured is not None:
            apart = ", does not decide" if part.name in verdict.claim.informational else ""
            outcome = f": {outcome_text(part)}{apart}" if len(verdict.parts) > 1 or apart else ""
            lines.append(f"{part_text(part)}; rule {part.rule}{outcome}")
    if verdict.word == "unbroken":
        lines.append(f"attacks tried: {'; '.join(verdict.attacks)}")
    if verdict.conditions.cells:
        lines.append(f"conditions: {conditions_text(verdict)}")
    if verdict.reason:
        lines.append(verdict.reason)
    if verdict.rung:
        lines.append(verdict.rung.text())
    if verdict.frozen and (remark := verdict.frozen.text()):
        lines.append(remark)
    first, *rest = lines
    wrapped = [
        textwrap.fill(line, WIDTH, initial_indent=" " * 14, subsequent_indent=" " * 16)
        for line in rest
    ]
    return "\n".join([first, *wrapped])
