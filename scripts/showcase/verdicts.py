"""Verdicts of the gallery: `verdicts/PAPER.json`, written from the files of `benign verify`; pages show nothing else.

A claim has an entry for each reading: what `Verdict.as_dict` gives, the version of benign and the numerics. Entries of
benign 0.1.0 are marked `"machinery": "0.1.0"`: their words meant something else and attacks had no direction, so they
are shown apart and never counted. A new verdict replaces them if its runs are at least as large.
"""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from benign.claims.claim import Claim
from benign.claims.study import SCALES
from benign.papers.frozen import cannot
from benign.papers.registry import claims, papers, study_of
from benign.stats.intervals import interval_text, number

MISSING = "cannot run here"
LEFT_OUT = ("id", "statement", "source", "seconds", "runs seconds")
"""fields of `Verdict.as_dict` that are not kept: the registry has them, or they are about one machine"""
DIGITS = 6
Entry = dict[str, Any]
Verdicts = dict[str, list[Entry]]
"""by id of the claim: an entry for each reading, and two if an older one has larger runs"""


class Judged(NamedTuple):
    """A claim with its verdict under one reading."""

    claim: Claim
    reading: str
    """`default`, or the answers that differ from it"""
    verdict: Entry
    """empty if the claim was not judged"""


def read(gallery: Path) -> Verdicts:
    """Return the verdicts of all papers."""
    verdicts: Verdicts = {}
    for path in sorted((gallery / "verdicts").glob("*.json")):
        verdicts |= json.loads(path.read_text(encoding="utf-8"))
    return verdicts


def is_older(entry: Entry) -> bool:
    """Return whether an entry was judged by the rules and words of an earlier version."""
    return "machinery" in entry


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
        gallery, {name: _there(known[name], verdicts[name]) for name in verdicts if name in known}
    )
    return added, ignored


def _there(claim: Claim, entries: list[Entry]) -> list[Entry]:
    """Return the verdicts without those about a missing recipe, once the recipe exists."""
    if cannot(claim):
        return entries
    return [each for each in entries if not each["reason"].startswith(MISSING)]


def write(gallery: Path, verdicts: Verdicts) -> None:
    """Replace the files: one for each paper, one line for each claim."""
    (gallery / "verdicts").mkdir(exist_ok=True)
    for paper in papers():
        own = {name: each for name, each in verdicts.items() if name.startswith(f"{paper}/")}
        lines = [f"{json.dumps(n)}: {json.dumps(own[n], ensure_ascii=False)}" for n in sorted(own)]
        if lines:
            text = "{\n" + ",\n".join(lines) + "\n}\n"
            (gallery / "verdicts" / f"{paper}.json").write_text(text, encoding="utf-8")


def _add(verdicts: Verdicts, claim: Claim, new: Entry) -> bool:
    """Add a verdict and return True, unless a known one has a larger scale.

    An older one with a larger scale stays beside it: the numbers of its runs are shown on pages.
    """
    reading = _reading(claim, new["reading"])
    entry = {key: _rounded(new[key]) for key in new if key not in LEFT_OUT}
    entry = {"reading": reading, "answers": new["reading"]} | {
        key: value for key, value in entry.items() if key != "reading"
    }
    if "word" not in new:
        entry["machinery"] = new["benign"]
    size = SCALES.index(new["scale"])
    rest = []
    for old in verdicts.get(claim.id, []):
        if old["reading"] == reading:
            larger = SCALES.index(old["scale"]) > size
            if larger and is_older(old) == is_older(entry):
                return False
            if is_older(entry) and not is_older(old):
                return False
            if not larger:
                continue
        rest.append(old)
    verdicts[claim.id] = [*rest, entry]
    return True


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _reading(claim: Claim, reading: dict[str, str]) -> str:
    """Return the answers that differ from the current defaults."""
    studies = [study for need in claim.studies if (study := study_of(need))]
    default = {q: a for study in studies for q, a in study.reading().items()}
    return ",".join(f"{q}={a}" for q, a in reading.items() if default.get(q) != a) or "default"


def counted(verdicts: Verdicts, claim: str, reading: str = "default") -> Entry:
    """Return the verdict that counts: by the rules of today, else by older ones; empty if there is none."""
    own = [each for each in verdicts.get(claim, []) if each["reading"] == reading]
    return min(own, key=is_older, default={})


def largest(verdicts: Verdicts, claim: str, reading: str = "default") -> Entry:
    """Return the verdict of the largest runs, by whichever rules; empty if there is none."""
    own = [each for each in verdicts.get(claim, []) if each["reading"] == reading]
    return max(own, key=lambda e: (SCALES.index(e["scale"]), not is_older(e)), default={})


def of_recipe(verdicts: Verdicts, recipe: str) -> list[Judged]:
    """Return the claims that are judged on a recipe, also those without a verdict."""
    on_it = [claim for claim in claims().values() if recipe in map(_name, claim.studies)]
    return [each for claim in on_it for each in of_claim(verdicts, claim)]


def of_claim(verdicts: Verdicts, claim: Claim) -> list[Judged]:
    """Return all verdicts of a claim, older ones last; one without a verdict if there is none."""
    entries = sorted(verdicts.get(claim.id) or [{}], key=is_older)
    return [Judged(claim, each.get("reading", "default"), each) for each in entries]


def size(entry: Entry) -> str:
    """Return the scale of the runs, which is that of the paper only if nothing was made smaller."""
    if not entry:
        return ""
    smaller = entry["scale"] == "paper" and (
        entry["verdict"].endswith("at a smaller size")
        or entry.get("changes")
        or "=reduced" in entry["reading"]
    )
    return "smaller than in the paper" if smaller else entry["scale"]


def interval(part: Entry) -> str:
    """Return the number of a part with its interval, as text; empty if it has none."""
    if "value" not in part:
        return ""
    if "printed" in part:  # by an older version, with an interval below its digits
        return part["printed"]
    value, low, high = (float(part[key]) for key in ("value", "low", "high"))
    if low == high or math.isnan(low):
        return number(value)
    return f"{number(value)} {interval_text((low, high))}"


def statistic(part: Entry) -> str:
    """Return a statistic with its name, and what it rests on if attacks matter for it."""
    text = ": ".join(filter(None, [part["name"], interval(part)]))
    return f"{text} (by {part['rests on']})" if text and part.get("rests on") else text


def _name(need: Any) -> str:
    return need if isinstance(need, str) else need.name
