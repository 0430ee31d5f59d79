"""The claims of the papers that a page is about: judged on its runs, taken from `benign verify`, or not judged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import xarray as xr

from benign.claims.claim import Claim, Evidence
from benign.claims.conditions import Condition, Conditions
from benign.claims.study import Study
from benign.claims.verdict import judge
from benign.experiment import Experiment
from benign.papers.advice import advise
from benign.papers.recipes import Recipe
from benign.papers.registry import claims, study_of
from benign.papers.verify import answered, changes_of
from benign.report.folder import ResultFolder
from benign.spec.axes import cells
from benign.stats.intervals import interval_text, number
from benign.sweep.text import value_text
from benign.training.descent import Status
from benign.training.setup import Setup

NOT_JUDGED = "not judged"
MEANINGS = {
    "confirmed": "the runs agree with the statement, where it is meant to hold",
    "refuted": "the runs contradict the statement where it is meant to hold",
    "holds at a smaller size": "these runs agree, but they are smaller than the paper's figure",
    "fails at a smaller size": "these runs contradict it, but they are smaller than the paper's figure",
    "holds outside its conditions": "these runs agree, though the theorem does not promise it for them",
    "fails outside its conditions": "these runs contradict it, but the theorem promises nothing for them",
    "inconclusive": "the interval is too wide to decide, or the runs say nothing about it",
    "error": "the statistic could not be computed: a fault of this program, not of the paper",
    NOT_JUDGED: "it needs runs that are not on this page",
}
"""what every verdict means"""


@dataclass(frozen=True)
class Row:
    """A claim as a table shows it."""

    id: str
    paper: str
    statement: str
    source: str
    verdict: str
    numbers: tuple[tuple[str, str, str, str], ...] = ()
    """of every statistic: what it is of, the number with its interval, what is asked of it, whether it holds"""
    conditions: str = ""
    """where the runs are beside the theorem's conditions"""
    reason: str = ""
    how: str = ""
    """on which runs it was judged, or how to have it judged"""
    caution: str = ""
    """what speaks against trusting the runs"""
    changes: tuple[str, ...] = ()
    """of the experiments of its recipes"""
    reading: Mapping[str, str] = field(default_factory=dict)
    under: str = ""
    """the answers and changes that set it apart from other verdicts on the same claim"""

    @property
    def order(self) -> int:
        """What holds comes first."""
        return ("good", "open", "bad", "none").index(self.tone)

    @property
    def tone(self) -> str:
        """Good, bad or neither: for colours."""
        first = self.verdict.split()[0]
        tones = {
            "confirmed": "good",
            "holds": "good",
            "refuted": "bad",
            "fails": "bad",
            "not": "none",
        }
        return tones.get(first, "open")


def rows(folders: Sequence[ResultFolder], files: Iterable[Path] = ()) -> list[Row]:
    """Every claim of the papers whose recipes the folders hold: judged here, else in `files`, else not at all."""
    papers = {folder.recipe.name.partition("/")[0] for folder in folders if folder.recipe}
    known = [claim for claim in claims().values() if claim.id.partition("/")[0] in papers]
    told = [verdict for file in files for verdict in _read(file)]
    found = []
    for claim in known:
        here = list(_judged(claim, folders))
        here += [_row(each) for each in told if each["id"] == claim.id] if not here else []
        found += _set_apart(here) or [_unjudged(claim)]
    return sorted(found, key=lambda row: row.verdict == NOT_JUDGED)


def _set_apart(alike: list[Row]) -> list[Row]:
    """Verdicts on one claim, each with the answers and changes in which it differs from the others."""
    asked = dict.fromkeys(question for row in alike for question in row.reading)
    differing = [q for q in asked if len({row.reading.get(q) for row in alike}) > 1]
    shared = set.intersection(*(set(row.changes) for row in alike)) if alike else set()

    def told(row: Row) -> str:
        answers = [f"{q}={row.reading[q]}" for q in differing if q in row.reading]
        return ", ".join([*answers, *(each for each in row.changes if each not in shared)])

    return [replace(row, under=told(row)) for row in alike]


def verdict_files(folders: Iterable[ResultFolder]) -> list[Path]:
    """What `benign verify` has written beside the folders: they lie in ROOT/paper/name/scale/reading."""
    roots = [folder.path.resolve().parents[3:4] for folder in folders if folder.recipe]
    files = [root / "verdicts" / "verdicts.json" for found in roots for root in found]
    return [file for file in dict.fromkeys(files) if file.is_file()]


def _judged(claim: Claim, folders: Sequence[ResultFolder]) -> Iterator[Row]:
    """The claim judged on the folders that are its studies, for every reading there is."""
    studies = [study for need in claim.studies if (study := study_of(need))]
    if not studies or len(studies) < len(claim.studies):
        return
    for first in (folder for folder in folders if folder.recipe is studies[0]):
        chosen = [first, *(_beside(first, study, folders) for study in studies[1:])]
        runs = [folder for folder in chosen if folder is not None]
        if len(runs) == len(studies):
            evidence = Evidence(
                first.scale or "quick",
                {q: a for folder in runs for q, a in folder.reading.items()},
                tuple(folder.result for folder in runs),
                tuple(folder.experiment for folder in runs),
                tuple(
                    word
                    for folder, study in zip(runs, studies, strict=True)
                    for word in changes_of(study, folder.made, folder.result)
                ),
            )
            row = _row(judge(claim, evidence).as_dict() | {"here": True})
            yield replace(row, caution=_caution(evidence.results))


def _caution(results: Sequence[xr.Dataset]) -> str:
    """How many of the runs stopped at the step cap; empty where none did."""
    statuses = [result["status"] for result in results]
    capped = sum(int((each == Status.STEP_CAP).sum()) for each in statuses)
    of = sum(each.size for each in statuses)
    return f"{capped} of {of} runs stopped at the step cap" if capped else ""


def _beside(
    first: ResultFolder, study: Study, folders: Sequence[ResultFolder]
) -> ResultFolder | None:
    """The folder of another study at the same scale under the same reading, as far as each study knows its answers."""
    alike = (each for each in folders if each.recipe is study and each.scale == first.scale)
    return next((other for other in alike if _agree(first, other)), None)


def _agree(*both: ResultFolder) -> bool:
    """Whether one reading, asked of both, gives the answers of each: as `benign verify` asks it."""
    one, other = (folder.reading for folder in both)
    return any(
        all(folder.recipe and answered(folder.recipe, asked) == folder.reading for folder in both)
        for asked in (one | other, other | one)
    )


def _read(file: Path) -> list[dict[str, Any]]:
    """The verdicts that `benign verify` has written."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["verdicts"]
        _ = [(each["id"], each["verdict"], each["parts"]) for each in found]
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file} is no file of verdicts ({error}): `benign verify` writes one"
        ) from error
    return found


def _row(told: Mapping[str, Any]) -> Row:
    """A verdict as it is written."""
    where = f"{', '.join(told['needs']) or 'draws of its own'} at {told['scale']} scale"
    where = f"{'on this page: ' if told.get('here') else 'by benign verify: '}{where}"
    seeds = ", ".join(map(str, told.get("seeds") or ()))
    answers = ", ".join(f"{q}={a}" for q, a in told["reading"].items())
    told_of = [where, f"seeds {seeds}" if seeds else "", f"reading {answers}" if answers else ""]
    return Row(
        id=told["id"],
        paper=told["id"].partition("/")[0],
        statement=told["statement"],
        source=told["source"],
        verdict=told["verdict"],
        numbers=tuple(_number(part) for part in told["parts"] if "value" in part),
        conditions=told["setting"],
        reason=told["reason"],
        how="; ".join(filter(None, [*told_of, *told.get("changes", ())])),
        changes=tuple(told.get("changes", ())),
        reading=told["reading"],
    )


def _number(part: Mapping[str, Any]) -> tuple[str, str, str, str]:
    value, low, high = (float(part[end]) for end in ("value", "low", "high"))
    found = number(value) if low == high else f"{number(value)} {interval_text((low, high))}"
    of = f"{part['name']}: {part['of']}" if part["name"] else part["of"]
    basis = f"{of} ({part['basis']})" if part.get("basis") else of
    return basis, found, part["rule"], part["outcome"]


def _unjudged(claim: Claim) -> Row:
    return Row(
        id=claim.id,
        paper=claim.id.partition("/")[0],
        statement=claim.statement,
        source=claim.source,
        verdict=NOT_JUDGED,
        how=f"`benign verify {claim.id}` judges it",
    )


@dataclass(frozen=True)
class Line:
    """One condition over all cells."""

    name: str
    statement: str
    asked: bool
    cells: int
    holds: int
    """cells in which it holds"""
    least: float
    most: float
    """the smallest and the largest room: at least 1 holds, 0.1 misses by a factor of 10"""
    untested: bool = False
    """whether no number can fail it"""

    @property
    def far(self) -> str:
        """How far cells are from it, in words."""
        if self.untested:
            return "of any size here, since it is asked to be of order 1: not tested"
        if self.holds == self.cells:
            return "every cell"
        if self.name == "setting":
            return "no cell" if not self.holds else f"{self.holds} of {self.cells} cells"
        missed = f"missed by a factor of {factor(self.most)} to {factor(self.least)}"
        if self.holds:
            missed = f"missed by a factor of up to {factor(self.least)} elsewhere"
            return f"{self.holds} of {self.cells} cells; {missed}"
        return f"no cell; {missed}"


@dataclass(frozen=True)
class Theorem:
    """The conditions of a theorem at the cells it speaks about."""

    title: str
    lines: tuple[Line, ...]
    cells: int
    inside: int
    """cells in which all that is asked holds"""
    nearest: str
    """the cell whose largest miss is the smallest, and that miss"""
    tables: dict[int, list[list[Any]]]
    """of every cell, by its number: condition, statement, here, bound, room, whether it holds"""


def theorems(experiment: Experiment, recipe: Recipe | None) -> tuple[list[Theorem], str]:
    """The theorems behind an experiment; and, where there are none, why."""
    asked, why = _asked(recipe)
    found: dict[str, dict[int, Conditions]] = {}
    places = []
    for place, (where, cell) in enumerate(cells(experiment)):
        places.append(", ".join(f"{name} {value_text(value)}" for name, value in where.items()))
        try:
            for conditions in asked(cell):
                found.setdefault(conditions.title, {})[place] = conditions
        except ValueError as error:
            why = why or str(error)
    return [_theorem(title, those, places) for title, those in found.items()], why


def _asked(recipe: Recipe | None) -> tuple[Callable[[Setup], Sequence[Conditions]], str]:
    """What tells the conditions of a cell: the recipe's theorem, or those for the kind of network."""
    if recipe is None:
        return lambda cell: advise(cell).theorems, ""
    of_recipe = recipe.conditions
    if of_recipe is None:
        return lambda cell: (), f"No theorem stands behind {recipe.name}."
    return lambda cell: tuple(filter(None, [of_recipe(cell)])), ""


def _theorem(title: str, found: dict[int, Conditions], places: Sequence[str]) -> Theorem:
    names = dict.fromkeys(row.name for conditions in found.values() for row in conditions)
    best = max(found, key=lambda place: _room(found[place]))
    return Theorem(
        title=title,
        lines=tuple(_line(name, list(found.values())) for name in names),
        cells=len(found),
        inside=sum(conditions.hold for conditions in found.values()),
        nearest=_nearest(places[best] or "the only cell", found[best]),
        tables={
            place: [_written(row) for row in conditions] for place, conditions in found.items()
        },
    )


def _room(conditions: Conditions) -> float:
    """The smallest room of what has numbers: a setting that is not the theorem's is so in every cell alike."""
    return min(
        (row.ratio for row in conditions if row.required and row.name != "setting"),
        default=math.inf,
    )


def _nearest(place: str, conditions: Conditions) -> str:
    failing = [row for row in conditions.failing if row.name != "setting"]
    if not failing:
        return f"{place}: every number is inside"
    return f"{place}: {failing[0].name} is missed by a factor of {factor(failing[0].ratio)}"


def _line(name: str, found: Sequence[Conditions]) -> Line:
    rows = [row for conditions in found for row in conditions if row.name == name]
    return Line(
        name=name,
        statement=next((row.statement for row in rows if not row.holds), rows[0].statement),
        asked=any(row.required for row in rows),
        cells=len(rows),
        holds=sum(row.holds for row in rows),
        least=min(row.ratio for row in rows),
        most=max(row.ratio for row in rows),
        untested=all(row.untested for row in rows),
    )


def _written(row: Condition) -> list[Any]:
    name, statement, here, bound, room, verdict = row.row()
    return [name, statement, here, bound, room, verdict]


def factor(ratio: float) -> str:
    """By how much a condition with this room is missed."""
    return number(1 / ratio) if ratio > 0 else "infinity"
