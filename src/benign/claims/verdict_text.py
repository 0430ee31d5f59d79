"""Verdicts as people read them: rows of a table, a page in Markdown, a file in JSON."""

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benign import __version__
from benign.claims.claim import Claim
from benign.claims.study import Study
from benign.claims.verdict import Verdict
from benign.sweep.records import replacing

WIDTH = 100


@dataclass(frozen=True)
class TimedVerdict:
    """A verdict, and the seconds that the runs of its studies took in this call; shared runs count for each."""

    verdict: Verdict
    runs_seconds: float

    def __str__(self) -> str:
        return verdict_text(self)


def report(judged: Sequence[TimedVerdict], scale: str) -> dict[str, Any]:
    """All verdicts, ready for JSON."""
    return {
        "benign": __version__,
        "scale": scale,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdicts": [
            each.verdict.as_dict() | {"runs seconds": round(each.runs_seconds, 1)}
            for each in judged
        ],
    }


def write(judged: Sequence[TimedVerdict], scale: str, folder: Path) -> list[Path]:
    """The verdicts as JSON and as a table in Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "verdicts.json": json.dumps(report(judged, scale), indent=1, ensure_ascii=False),
        "verdicts.md": markdown(judged, scale),
    }
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
    return [folder / name for name in texts]


HEAD = ("claim", "verdict", "statistic", "rule", "conditions", "time")


def rows(each: TimedVerdict) -> list[tuple[str, ...]]:
    """A claim in a table: one row for each of its numbers."""
    verdict = each.verdict
    spent = f"{each.runs_seconds + verdict.seconds:.1f} s"
    found = []
    for place, part in enumerate(verdict.parts):
        name = verdict.claim.id + (f".{part.name}" if part.name else "")
        several = len(verdict.parts) > 1
        word = part.outcome.value if several else verdict.label
        conditions = conditions_text(verdict) if not place else ""
        found.append((name, word, part.statistic(), part.rule, conditions, "" if place else spent))
    if len(found) > 1:
        whole = (verdict.claim.id, verdict.label, "", "", found[0][4], spent)
        found = [whole, *((*row[:4], "", "") for row in found)]
    return found


def conditions_text(verdict: Verdict) -> str:
    """Where the runs are, and the condition that is missed by most."""
    setting = verdict.conditions
    missed: Mapping[str, float] = {n: r for n, r in (setting.ratios or {}).items() if r < 1 - 1e-9}
    if not missed:
        return setting.label
    name = min(missed, key=lambda each: missed[each])
    return f"{setting.label}: {name} at {missed[name]:.2g}"


def counts(judged: Iterable[TimedVerdict]) -> dict[str, int]:
    """How many verdicts of each word."""
    found: dict[str, int] = {}
    for each in judged:
        found[each.verdict.label] = found.get(each.verdict.label, 0) + 1
    return found


def markdown(judged: Sequence[TimedVerdict], scale: str) -> str:
    """Verdicts as a page: the counts, a table, then every claim with its statement and reasons."""
    told = ", ".join(f"{number} {word}" for word, number in counts(judged).items())
    lines = [f"# Verdicts at {scale} scale", "", f"benign {__version__}: {told}.", ""]
    lines += [_line(HEAD), _line(["---"] * len(HEAD))]
    lines += [_line(row) for each in judged for row in rows(each)]
    for each in judged:
        lines += ["", f"## {each.verdict.claim.id}", "", *_details(each.verdict)]
    return "\n".join(lines) + "\n"


def _details(verdict: Verdict) -> list[str]:
    claim, reading = verdict.claim, verdict.evidence.reading
    told = [f"{claim.statement} ({claim.source})", "", f"**{verdict.label}**"]
    if verdict.reason:
        told[-1] += f": {verdict.reason}"
    for part in verdict.parts:
        if part.measured is not None:
            note_of = ", told beside" if part.name in claim.informational else ""
            note = f" ({part.measured.note})" if part.measured.note else ""
            told += [
                "",
                f"- {part.name + ': ' if part.name else ''}{part.measured.of} = {part.statistic()}, "
                f"{part.measured.basis}{note}; rule {part.rule}: {part.outcome.value}{note_of}",
            ]
    if reading:
        told += ["", "Reading: " + ", ".join(f"{q}={a}" for q, a in reading.items())]
    if verdict.conditions.ratios:
        ratios = ", ".join(
            f"{name} {ratio:.3g}" for name, ratio in verdict.conditions.ratios.items()
        )
        told += ["", f"Conditions ({verdict.conditions.label}), smallest room: {ratios}"]
    return told


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def claim_text(claim: Claim, cannot: str = "") -> str:
    """What a claim says and how it is judged, without judging it; `cannot` is why it cannot be."""
    studies = ", ".join(need.name if isinstance(need, Study) else need for need in claim.studies)
    told = f"{claim.statement} ({claim.source}; on {studies or 'draws of its own'})" + (
        f"; {cannot}" if cannot else ""
    )
    return f"{claim.id}\n{textwrap.fill(told, WIDTH, initial_indent='  ', subsequent_indent='  ')}"


def verdict_text(each: TimedVerdict) -> str:
    """A verdict as a few lines of a terminal."""
    verdict = each.verdict
    seconds = each.runs_seconds + verdict.seconds
    lines = [f"{verdict.label:12}  {verdict.claim.id}  ({seconds:.1f} s)"]
    for part in verdict.parts:
        if part.measured is not None:
            name = f"{part.name}: " if part.name else ""
            word = f", {part.outcome.value}" if len(verdict.parts) > 1 else ""
            found = f"{name}{part.measured.of} = {part.statistic()} ({part.measured.basis}), asked: {part.rule}{word}"
            lines.append(found)
    if verdict.conditions.cells:
        lines.append(f"conditions: {conditions_text(verdict)}")
    if verdict.reason:
        lines.append(verdict.reason)
    first, *rest = lines
    wrapped = [
        textwrap.fill(line, WIDTH, initial_indent=" " * 14, subsequent_indent=" " * 16)
        for line in rest
    ]
    return "\n".join([first, *wrapped])
