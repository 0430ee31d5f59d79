"""Placeholders: every measured number of a page comes from a stored file. `gallery.py index` puts the numbers in.

    {{verdict ID}}               the number of a claim's only part, with its interval
    {{verdict ID PART}}          the number of one part, with its interval; `PART value` without it
    {{verdict ID word}}          the words of the verdict; `judged by older machinery` if it is from before 0.2.0
    {{made PICTURE FIELD}}       a field of its figure file: work_seconds, wall_seconds, ...; `runs` is their number,
                                 `runs converged` of those that ended so
    {{said PICTURE "TEXT"}}      the number after TEXT in what the command printed (its summary), with its
                                 interval; `value` without; several TEXTs are found one after the other; `nth=2`: not
                                 the first number after them
    {{data PICTURE NAME A=V}}    a mean over seeds in its figure file where the axis A has the value V (or V,W);
                                 `min`, `max`, `mean` or `range` over the axes that are left
    {{fact PICTURE NAME}}        a number of facts.json: of a run that left no file, with its origin
    {{file PATH A.B.C}}          an entry of a JSON file of the repository, such as benchmarks/results/h200.json
    {{count WHAT}}               statements, derived, claims (of zhang: statements:zhang); or verdicts, refuted:zhang
    {{refuted PAPER}}            the refuted statements of a paper, those derived in this project apart

Options: `reading=...` of a verdict; `unit=minutes` for seconds; `digits=2` in place of three.

Numbers that were not measured here are marked, so that nobody takes them for results. The mark is not on the page:

    {{printed 1000}}   a paper prints it         {{setting 0.05}}   chosen for the runs
    {{theory 4.26}}    follows from a formula    {{known 0.693}}    a constant, such as log 2
"""

import json
import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from benign.papers import published
from benign.papers.published import Made
from benign.papers.registry import claims
from benign.stats.intervals import number
from showcase import totals, verdicts

PLACEHOLDER = re.compile(r"\{\{(\w+) ([^{}]*)\}\}")
MARKS = ("printed", "setting", "theory", "known")
"""kinds of placeholders that only say where a typed number comes from"""
SAID = re.compile(r"(?<![\w.^])(-?\d(?:[\d.,]*\d)?(?:e[-+]?\d+)?)(?: \[[^\]]*\]| \+- [\d.]+)?")
"""a number with its interval or spread, as commands print it"""
UNKNOWN = "**?**"
"""what a page shows for a number that is not there"""
OPTIONS = ("reading", "unit", "digits", "nth")
UNITS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}


class Missing(LookupError):
    """A number that no file has."""


class Values:
    """The stored numbers of a gallery, and what is wrong with placeholders that ask for others."""

    def __init__(self, gallery: Path) -> None:
        self.gallery = gallery
        self.problems: list[str] = []
        """placeholders without a number, with their file"""

    @cached_property
    def verdicts(self) -> verdicts.Verdicts:
        return verdicts.read(self.gallery)

    @cached_property
    def pictures(self) -> dict[str, Made]:
        return published.figures()

    @cached_property
    def facts(self) -> dict[str, Any]:
        path = self.gallery / "facts.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def render(self, text: str, where: str, gallery: str = "") -> str:
        """Return a text with its placeholders filled in; `gallery` is the path from its page to the gallery."""

        def fill(match: re.Match[str]) -> str:
            kind, arguments = match[1], match[2].strip()
            if kind in MARKS:
                return arguments
            try:
                words, options = _arguments(kind, arguments)
                return str(getattr(self, f"_{kind}")(*words, **options, **_more(kind, gallery)))
            except (
                Exception
            ) as problem:  # whatever is wrong with it, all others are still filled in
                self.problems.append(f"{where}: {match[0]}: {type(problem).__name__}: {problem}")
                return UNKNOWN

        return PLACEHOLDER.sub(fill, text)

    def _verdict(self, claim: str, *names: str, reading: str = "default", take: str = "") -> str:
        if claim not in claims():
            raise Missing(f"there is no claim {claim}")
        if names == ("word",):
            entry = verdicts.counted(self.verdicts, claim, reading)
            return f"*{totals.word(entry)}*"
        entry = verdicts.largest(self.verdicts, claim, reading)
        parts = {part["name"]: part for part in entry.get("parts", [])}
        if not names and len(parts) != 1:
            raise Missing(f"name one of its parts: {', '.join(parts) or 'it has none'}")
        part = parts[names[0]] if names else next(iter(parts.values()))
        if "value" not in part:
            raise Missing("the part has no number")
        return number(float(part["value"])) if take == "value" else verdicts.interval(part)

    def _made(
        self, picture: str, field: str, ending: str = "", unit: str = "seconds", digits: str = "3"
    ) -> str:
        value = asdict(self.pictures[picture])[field]
        if value in (None, "", {}, []):
            raise Missing(f"{field} was not recorded")
        if field == "runs":
            return f"{value[ending] if ending else sum(value.values()):,}"
        return rounded(value / UNITS[unit], digits) if isinstance(value, float | int) else value

    def _said(self, picture: str, *texts: str, take: str = "", nth: str = "1") -> str:
        summary, place = "\n".join(self.pictures[picture].summary), 0
        for text in texts:
            place = summary.find(text, place)
            if place < 0:
                raise Missing(f"the command did not print {text!r}")
            place += len(text)
        found = [*islice(SAID.finditer(summary, place), int(nth))]
        if len(found) < int(nth) or (
            nth == "1" and summary[place : found[0].start()].strip(" (\n")
        ):
            raise Missing(f"no number follows {summary[max(0, place - 30) : place]!r}")
        return found[-1][1 if take == "value" else 0]

    def _data(
        self, picture: str, variable: str, reduce: str = "", digits: str = "3", **at: str
    ) -> str:
        mean, beside = self._means(picture, variable)
        across = str(mean.dims[0]) if mean.dims else ""
        lists = [axis for axis, values in at.items() if "," in values]
        for axis, values in at.items():
            wanted = [_value(each) for each in values.split(",")]
            along = axis if axis in mean.dims else across
            known = beside.get(axis) if axis not in mean.dims else mean[axis].values.tolist()
            if known is None:
                raise Missing(f"no axis {axis!r}: {', '.join(map(str, mean.dims))}")
            if axis in mean.dims:
                mean = mean.isel({axis: [_place(known, each) for each in wanted]})
            else:  # a coordinate of the first axis
                rows = [i for w in wanted for i, each in enumerate(known) if _same(each, w)]
                mean = mean.isel({along: rows})
                beside = {name: [each[i] for i in rows] for name, each in beside.items()}
        values = mean.values.ravel()
        values = values[np.isfinite(values)]
        if not values.size:
            raise Missing("no run has a value there")
        if reduce == "range":
            return f"{rounded(values.min(), digits)} to {rounded(values.max(), digits)}"
        if reduce:
            return rounded(float(getattr(np, reduce)(values)), digits)
        if values.size > 1 and not lists:
            raise Missing(f"{values.size} values: name axes, or min, max, mean, range")
        return ", ".join(rounded(each, digits) for each in values)

    def _means(self, picture: str, variable: str) -> tuple[xr.DataArray, dict[str, Any]]:
        values = published.numbers(picture)[variable]
        beside = {
            str(name): coordinate.values.tolist()
            for name, coordinate in values.coords.items()
            if name not in values.dims
        }
        means = values.mean("seed") if "seed" in values.dims else values
        return means, beside

    def _fact(self, group: str, name: str) -> str:
        return self.facts[group]["numbers"][name]

    def _file(self, path: str, keys: str, digits: str = "3", unit: str = "seconds") -> str:
        value = json.loads((self.gallery.parent / path).read_text(encoding="utf-8"))
        for key in keys.split("."):
            value = value[int(key) if isinstance(value, list) else key]
        return rounded(value / UNITS[unit], digits) if isinstance(value, float | int) else value

    def _count(self, what: str) -> str:
        what, _, paper = what.partition(":")
        groups = {"statements": (False,), "derived": (True,), "claims": (False, True)}
        if what in groups:
            return str(sum(len(totals.statements(paper, derived)) for derived in groups[what]))
        return str(totals.counts(self.verdicts, paper)[what])

    def _refuted(self, paper: str, gallery: str = "") -> str:
        return totals.refuted(self.verdicts, paper, gallery)


def rounded(value: float, digits: str = "3") -> str:
    """Return a number with so many significant digits; whole numbers are written out, with commas from 10,000 on."""
    value = float(value)
    if value.is_integer() and abs(value) < 1e7:
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}"
    if digits == "3":
        return number(value)
    power = int(digits) - 1 - (math.floor(math.log10(abs(value))) if value else 0)
    return f"{value:.{power}f}" if power > 0 else f"{round(value, power):.0f}"


def _arguments(kind: str, text: str) -> tuple[list[str], dict[str, str]]:
    """Return the words of a placeholder, and its options `name=value`; a part of a claim may be called `r=0.02`."""
    words, options = [], {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        option = name in OPTIONS or (kind == "data" and name.isidentifier())
        if equals and option:
            options[name] = value
        elif word in ("min", "max", "mean", "range"):
            options["reduce"] = word
        elif word == "value":
            options["take"] = word
        else:
            words.append(word)
    return words, options


def _more(kind: str, gallery: str) -> dict[str, str]:
    return {"gallery": gallery} if kind == "refuted" else {}


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _same(known: Any, wanted: float | str) -> bool:
    if isinstance(wanted, float) and isinstance(known, int | float):
        return math.isclose(known, wanted, rel_tol=5e-3, abs_tol=1e-12)
    return str(known) == str(wanted)


def _place(known: list[Any], wanted: float | str) -> int:
    """Return the place of a value, which may be rounded to three digits."""
    for place, each in enumerate(known):
        if _same(each, wanted):
            return place
    raise Missing(f"{wanted} is none of {', '.join(map(str, known))}")


def placeholders(text: str) -> Iterator[re.Match[str]]:
    """Return the placeholders of a text."""
    return PLACEHOLDER.finditer(text)
