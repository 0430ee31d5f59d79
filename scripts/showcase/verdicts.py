"""Verdicts of the gallery: `verdicts/PAPER.json`, by claim and reading, from the files that `benign verify` writes."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from benign.claims.claim import Claim
from benign.claims.study import SCALES
from benign.papers.registry import claims, papers, study_of
from benign.papers.verify import cannot
from benign.stats.intervals import interval_text, number

MISSING = "cannot run here"
Verdicts = dict[str, dict[str, dict[str, Any]]]
"""by id of the claim, then by reading (`default`, or the answers that differ)"""


class Judged(NamedTuple):
    """A claim with its verdict."""

    claim: Claim
    reading: str
    verdict: dict[str, Any]
    """empty where there is none"""


def read(gallery: Path) -> Verdicts:
    """The verdicts of all papers."""
    found: Verdicts = {}
    for path in sorted((gallery / "verdicts").glob("*.json")):
        found |= json.loads(path.read_text(encoding="utf-8"))
    return found


def merge(gallery: Path, files: list[Path]) -> tuple[int, int]:
    """Take in new verdicts; of one claim and reading the larger scale stays, of equals the new one.

    Returns how many were taken and how many left aside: smaller ones, and claims that are no more.
    """
    known, found = claims(), read(gallery)
    taken = aside = 0
    for file in files:
        report = json.loads(file.read_text(encoding="utf-8"))
        for each in report["verdicts"]:
            claim = known.get(each["id"])
            if claim and _take(found, claim, {**each, "benign": report["benign"]}):
                taken += 1
            else:
                aside += 1
    write(
        gallery, {name: _judged(known[name], each) for name, each in found.items() if name in known}
    )
    return taken, aside


def _judged(claim: Claim, verdicts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without those that say that a recipe is missing, once it is there."""
    if cannot(claim):
        return verdicts
    return {name: each for name, each in verdicts.items() if not each["reason"].startswith(MISSING)}


def write(gallery: Path, found: Verdicts) -> None:
    """Replace the files, one a paper, one line a verdict."""
    (gallery / "verdicts").mkdir(exist_ok=True)
    for paper in papers():
        own = {name: each for name, each in found.items() if name.startswith(f"{paper}/")}
        lines = [f"{json.dumps(n)}: {json.dumps(own[n], ensure_ascii=False)}" for n in sorted(own)]
        if lines:
            text = "{\n" + ",\n".join(lines) + "\n}\n"
            (gallery / "verdicts" / f"{paper}.json").write_text(text, encoding="utf-8")


def of_recipe(found: Verdicts, recipe: str) -> list[Judged]:
    """The claims that are judged on a recipe, those without a verdict too."""
    on_it = [claim for claim in claims().values() if recipe in map(_name, claim.studies)]
    return [
        Judged(claim, reading, verdict)
        for claim in on_it
        for reading, verdict in (found.get(claim.id) or {"default": {}}).items()
    ]


def statistic(part: dict[str, Any]) -> str:
    """A number with its interval, under its name."""
    return ": ".join(filter(None, [part["name"], part["statistic"]]))


def _take(found: Verdicts, claim: Claim, new: dict[str, Any]) -> bool:
    readings = found.setdefault(claim.id, {})
    reading = _reading(claim, new["reading"])
    old = readings.get(reading)
    if old and SCALES.index(old["scale"]) > SCALES.index(new["scale"]):
        return False
    kept = {key: new[key] for key in ("verdict", "scale", "setting", "reason", "benign")}
    readings[reading] = kept | {"parts": [_part(part) for part in new["parts"]]}
    return True


def _reading(claim: Claim, reading: dict[str, str]) -> str:
    """The answers that differ from the default of today's questions."""
    studies = [study for need in claim.studies if (study := study_of(need))]
    default = {q: a for study in studies for q, a in study.reading().items()}
    return ",".join(f"{q}={a}" for q, a in reading.items() if default.get(q) != a) or "default"


def _part(part: dict[str, Any]) -> dict[str, str]:
    told = {key: part.get(key, "") for key in ("name", "rule", "outcome", "of")}
    if "value" not in part:
        return told | {"statistic": ""}
    value, low, high = (float(part[key]) for key in ("value", "low", "high"))
    interval = "" if low == high else f" {interval_text((low, high))}"
    return told | {"statistic": number(value) + interval}


def _name(need: Any) -> str:
    return need if isinstance(need, str) else need.name
