"""Verdicts of the gallery: `verdicts/PAPER.json`, by claim and reading, from the files that `benign verify` writes."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from benign.claims.claim import Claim
from benign.claims.study import SCALES
from benign.papers.frozen import cannot
from benign.papers.registry import claims, papers, study_of
from benign.stats.intervals import interval_text, number

MISSING = "cannot run here"
Verdicts = dict[str, dict[str, dict[str, Any]]]
"""by id of the claim, then by reading (`default`, or the answers that differ from it)"""


class Judged(NamedTuple):
    """A claim with its verdict under one reading."""

    claim: Claim
    reading: str
    verdict: dict[str, Any]
    """empty if the claim was not judged"""


def read(gallery: Path) -> Verdicts:
    """Return the verdicts of all papers."""
    verdicts: Verdicts = {}
    for path in sorted((gallery / "verdicts").glob("*.json")):
        verdicts |= json.loads(path.read_text(encoding="utf-8"))
    return verdicts


def merge(gallery: Path, files: list[Path]) -> tuple[int, int]:
    """Add new verdicts; for a claim and reading the one of the larger scale is kept, and of equal scales the new one.

    Return how many were added and how many ignored: those of smaller scale, and of claims that no longer exist.
    """
    known, verdicts = claims(), read(gallery)
    added = ignored = 0
    for file in files:
        report = json.loads(file.read_text(encoding="utf-8"))
        for each in report["verdicts"]:
            claim = known.get(each["id"])
            if claim and _add(verdicts, claim, {**each, "benign": report["benign"]}):
                added += 1
            else:
                ignored += 1
    write(
        gallery,
        {name: _judged(known[name], each) for name, each in verdicts.items() if name in known},
    )
    return added, ignored


def _judged(claim: Claim, verdicts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the verdicts without those about a missing recipe, once the recipe exists."""
    if cannot(claim):
        return verdicts
    return {name: each for name, each in verdicts.items() if not each["reason"].startswith(MISSING)}


def write(gallery: Path, verdicts: Verdicts) -> None:
    """Replace the files: one for each paper, one line for each verdict."""
    (gallery / "verdicts").mkdir(exist_ok=True)
    for paper in papers():
        own = {name: each for name, each in verdicts.items() if name.startswith(f"{paper}/")}
        lines = [f"{json.dumps(n)}: {json.dumps(own[n], ensure_ascii=False)}" for n in sorted(own)]
        if lines:
            text = "{\n" + ",\n".join(lines) + "\n}\n"
            (gallery / "verdicts" / f"{paper}.json").write_text(text, encoding="utf-8")


def of_recipe(verdicts: Verdicts, recipe: str) -> list[Judged]:
    """Return the claims that are judged on a recipe, also those without a verdict."""
    on_it = [claim for claim in claims().values() if recipe in map(_name, claim.studies)]
    return [
        Judged(claim, reading, verdict)
        for claim in on_it
        for reading, verdict in (verdicts.get(claim.id) or {"default": {}}).items()
    ]


def statistic(part: dict[str, Any]) -> str:
    """Return a statistic with its name."""
    return ": ".join(filter(None, [part["name"], part["statistic"]]))


def _add(verdicts: Verdicts, claim: Claim, new: dict[str, Any]) -> bool:
    """Add a verdict and return True, unless the known one has a larger scale."""
    readings = verdicts.setdefault(claim.id, {})
    reading = _reading(claim, new["reading"])
    old = readings.get(reading)
    if old and SCALES.index(old["scale"]) > SCALES.index(new["scale"]):
        return False
    entry = {key: new[key] for key in ("verdict", "scale", "setting", "reason", "benign")}
    readings[reading] = entry | {"parts": [_part(part) for part in new["parts"]]}
    return True


def _reading(claim: Claim, reading: dict[str, str]) -> str:
    """Return the answers that differ from the current defaults."""
    studies = [study for need in claim.studies if (study := study_of(need))]
    default = {q: a for study in studies for q, a in study.reading().items()}
    return ",".join(f"{q}={a}" for q, a in reading.items() if default.get(q) != a) or "default"


def _part(part: dict[str, Any]) -> dict[str, str]:
    entry = {key: part.get(key, "") for key in ("name", "rule", "outcome", "of")}
    if "value" not in part:
        return entry | {"statistic": ""}
    value, low, high = (float(part[key]) for key in ("value", "low", "high"))
    interval = "" if low == high else f" {interval_text((low, high))}"
    return entry | {"statistic": number(value) + interval}


def _name(need: Any) -> str:
    return need if isinstance(need, str) else need.name
