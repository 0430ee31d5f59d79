"""The claims of the papers on a page: judged on its runs, read from a file of `benign verify`, or not judged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from benign.claims.claim import Claim, Evidence
from benign.claims.conditions import Conditions
from benign.claims.study import Study
from benign.claims.verdict import judge
from benign.claims.words import meaning
from benign.experiment import Experiment
from benign.papers.advice import advise
from benign.papers.frozen import answered
from benign.papers.recipes import Recipe
from benign.papers.registry import claims, study_of
from benign.papers.verify import changes_of
from benign.report.folder import ResultFolder
from benign.spec.axes import cells
from benign.stats.intervals import interval_text, number
from benign.sweep.text import value_text
from benign.training.descent import Status
from benign.training.setup import Setup

NOT_JUDGED = "not judged"


def tone(verdict: str) -> Literal["good", "open", "bad", "none"]:
    """Return whether a verdict speaks for the statement or against it; none if it is no evidence."""
    word = verdict.split(" ")[0]
    if word in ("confirmed", "certified", "unbroken", "holds"):
        return "good"
    if word in ("refuted", "fails"):
        return "bad"
    return "open" if word in ("inconclusive", "error") else "none"


def meaning_of(verdict: str) -> str:
    """Return what a verdict means, or why there is none."""
    return "it needs runs that are not on this page" if verdict == NOT_JUDGED else meaning(verdict)


@dataclass(frozen=True)
class ClaimRow:
    """A row of the table of claims: a claim with one verdict."""

    id: str
    paper: str
    statement: str
    source: str
    verdict: str
    numbers: tuple[tuple[str, str, str, str], ...] = ()
    """for each statistic: its name, the number with its interval, the rule, the outcome"""
    conditions: str = ""
    """whether the runs are inside the conditions of the theorem"""
    reason: str = ""
    how: str = ""
    """the runs on which it was judged, or the command that judges it"""
    caution: str = ""
    """a reason not to trust the runs"""
    changes: tuple[str, ...] = ()
    """fields of the recipes that were changed"""
    reading: Mapping[str, str] = field(default_factory=dict)
    under: str = ""
    """the answers and changes in which it differs from other verdicts on the same claim"""

    @property
    def order(self) -> int:
        """Position by verdict: claims that hold come first."""
        return ("good", "open", "bad", "none").index(self.tone)

    @property
    def tone(self) -> str:
        """Good, bad, open or none: decides the colour."""
        return tone(self.verdict)


def rows(folders: Sequence[ResultFolder], files: Iterable[Path] = ()) -> list[ClaimRow]:
    """Return every claim of the papers of these folders: judged here, otherwise in `files`, otherwise not judged."""
    papers = {folder.recipe.name.partition("/")[0] for folder in folders if folder.recipe}
    known = [claim for claim in claims().values() if claim.id.partition("/")[0] in papers]
    in_files = [verdict for file in files for verdict in _read(file)]
    table = []
    for claim in known:
        verdicts = list(_judged(claim, folders)) or [
            _row(each) for each in in_files if each["id"] == claim.id
        ]
        table += _with_differences(verdicts) or [_unjudged(claim)]
    return sorted(table, key=lambda row: row.verdict == NOT_JUDGED)


def _with_differences(verdicts: list[ClaimRow]) -> list[ClaimRow]:
    """Return verdicts on one claim, each with the answers and changes in which it differs from the others."""
    questions = dict.fromkeys(question for row in verdicts for question in row.reading)
    differing = [q for q in questions if len({row.reading.get(q) for row in verdicts}) > 1]
    shared = set.intersection(*(set(row.changes) for row in verdicts)) if verdicts else set()

    def difference(row: ClaimRow) -> str:
        answers = [f"{q}={row.reading[q]}" for q in differing if q in row.reading]
        return ", ".join([*answers, *(each for each in row.changes if each not in shared)])

    return [replace(row, under=difference(row)) for row in verdicts]


def verdict_files(folders: Iterable[ResultFolder]) -> list[Path]:
    """Return the files that `benign verify` wrote at the root of the folders, ROOT/paper/name/scale/reading."""
    roots = [folder.path.resolve().parents[3:4] for folder in folders if folder.recipe]
    files = [parent / "verdicts" / "verdicts.json" for root in roots for parent in root]
    return [file for file in dict.fromkeys(files) if file.is_file()]


def _judged(claim: Claim, folders: Sequence[ResultFolder]) -> Iterator[ClaimRow]:
    """Yield the claim judged on the folders that are its studies, once for each reading."""
    studies = [study for need in claim.studies if (study := study_of(need))]
    if not studies or len(studies) < len(claim.studies):
        return
    for first in (folder for folder in folders if folder.recipe is studies[0]):
        chosen = [first, *(_matching(first, study, folders) for study in studies[1:])]
        runs = [folder for folder in chosen if folder is not None]
        if len(runs) == len(studies):
            evidence = Evidence(
                first.scale or "quick",
                {q: a for folder in runs for q, a in folder.reading.items()},
                tuple(folder.result for folder in runs),
                tuple(folder.experiment for folder in runs),
                tuple(
                    change
                    for folder, study in zip(runs, studies, strict=True)
                    for change in changes_of(study, folder.made, folder.result)
                ),
            )
            row = _row(judge(claim, evidence).as_dict() | {"here": True})
            yield replace(row, caution=_caution(evidence.results))


def _caution(results: Sequence[xr.Dataset]) -> str:
    """Return how many of the runs stopped at the step cap; empty if none did."""
    statuses = [result["status"] for result in results]
    capped = sum(int((each == Status.STEP_CAP).sum()) for each in statuses)
    runs = sum(each.size for each in statuses)
    return f"{capped} of {runs} runs stopped at the step cap" if capped else ""


def _matching(
    first: ResultFolder, study: Study, folders: Sequence[ResultFolder]
) -> ResultFolder | None:
    """Return the folder of another study at the same scale whose reading agrees with that of the first; or None."""
    candidates = (each for each in folders if each.recipe is study and each.scale == first.scale)
    return next((other for other in candidates if _agree(first, other)), None)


def _agree(*both: ResultFolder) -> bool:
    """Return whether one reading gives the answers of both folders, as `benign verify` would apply it."""
    one, other = (folder.reading for folder in both)
    return any(
        all(folder.recipe and answered(folder.recipe, reading) == folder.reading for folder in both)
        for reading in (one | other, other | one)
    )


def _read(file: Path) -> list[dict[str, Any]]:
    """Read the verdicts of a file that `benign verify` wrote."""
    try:
        verdicts = json.loads(file.read_text(encoding="utf-8"))["verdicts"]
        _ = [(each["id"], each["verdict"], each["parts"]) for each in verdicts]
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file} is no file of verdicts ({error}): `benign verify` writes one"
        ) from error
    return verdicts


def _row(verdict: Mapping[str, Any]) -> ClaimRow:
    """Return the row of a verdict in the form of a file."""
    source = "on this page" if verdict.get("here") else "by benign verify"
    studies = ", ".join(verdict["needs"]) or "draws of its own"
    seeds = ", ".join(map(str, verdict.get("seeds") or ()))
    answers = ", ".join(f"{q}={a}" for q, a in verdict["reading"].items())
    basis = [
        f"{source}: {studies} at {verdict['scale']} scale",
        f"seeds {seeds}" if seeds else "",
        f"reading {answers}" if answers else "",
    ]
    return ClaimRow(
        id=verdict["id"],
        paper=verdict["id"].partition("/")[0],
        statement=verdict["statement"],
        source=verdict["source"],
        verdict=verdict["verdict"],
        numbers=tuple(_number(part) for part in verdict["parts"] if "value" in part),
        conditions=verdict["setting"],
        reason=verdict["reason"],
        how="; ".join(filter(None, [*basis, *verdict.get("changes", ())])),
        changes=tuple(verdict.get("changes", ())),
        reading=verdict["reading"],
    )


def _number(part: Mapping[str, Any]) -> tuple[str, str, str, str]:
    value, low, high = (float(part[end]) for end in ("value", "low", "high"))
    text = number(value) if low == high else f"{number(value)} {interval_text((low, high))}"
    of = f"{part['name']}: {part['of']}" if part["name"] else part["of"]
    basis = f"{of} ({part['basis']})" if part.get("basis") else of
    return basis, text, part["rule"], part["outcome"]


def _unjudged(claim: Claim) -> ClaimRow:
    return ClaimRow(
        id=claim.id,
        paper=claim.id.partition("/")[0],
        statement=claim.statement,
        source=claim.source,
        verdict=NOT_JUDGED,
        how=f"`benign verify {claim.id}` judges it",
    )


@dataclass(frozen=True)
class ConditionSummary:
    """One condition over all cells."""

    name: str
    statement: str
    required: bool
    cells: int
    holds: int
    """cells in which it holds"""
    least: float
    most: float
    """the smallest and the largest slack: at least 1 holds, 0.1 misses by a factor of 10"""
    untested: bool = False
    """whether every number satisfies it"""

    @property
    def text(self) -> str:
        """In which cells it holds, and by how much the others miss it."""
        if self.untested:
            return "not tested: it only requires a number of order 1"
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
class TheoremSummary:
    """The conditions of a theorem at the cells to which it applies."""

    title: str
    conditions: tuple[ConditionSummary, ...]
    cells: int
    inside: int
    """cells in which all required conditions hold"""
    nearest: str
    """the cell with the smallest miss, and that miss"""
    tables: dict[int, list[list[Any]]]
    """of every cell, by its number: condition, statement, here, bound, slack, whether it holds"""


def theorems(experiment: Experiment, recipe: Recipe | None) -> tuple[list[TheoremSummary], str]:
    """Return the theorems about an experiment; or none, and the reason."""
    conditions_of, reason = _conditions_function(recipe)
    by_title: dict[str, dict[int, Conditions]] = {}
    names = []
    for index, (values, cell) in enumerate(cells(experiment)):
        names.append(", ".join(f"{name} {value_text(value)}" for name, value in values.items()))
        try:
            for conditions in conditions_of(cell):
                by_title.setdefault(conditions.title, {})[index] = conditions
        except ValueError as error:
            reason = reason or str(error)
    return [_summary(title, by_cell, names) for title, by_cell in by_title.items()], reason


def _conditions_function(
    recipe: Recipe | None,
) -> tuple[Callable[[Setup], Sequence[Conditions]], str]:
    """Return a function that gives the conditions of a cell (of the recipe's theorem, or of all for this kind of
    network), and why there are none."""
    if recipe is None:
        return lambda cell: advise(cell).theorems, ""
    of_recipe = recipe.conditions
    if of_recipe is None:
        return lambda cell: (), f"{recipe.name} does not rest on a theorem."
    return lambda cell: tuple(filter(None, [of_recipe(cell)])), ""


def _summary(
    title: str, by_cell: dict[int, Conditions], cell_names: Sequence[str]
) -> TheoremSummary:
    names = dict.fromkeys(row.name for conditions in by_cell.values() for row in conditions)
    nearest = max(by_cell, key=lambda cell: _smallest_slack(by_cell[cell]))
    return TheoremSummary(
        title=title,
        conditions=tuple(_condition_summary(name, list(by_cell.values())) for name in names),
        cells=len(by_cell),
        inside=sum(conditions.hold for conditions in by_cell.values()),
        nearest=_nearest_text(cell_names[nearest] or "the only cell", by_cell[nearest]),
        tables={
            cell: [list(row.row()) for row in conditions] for cell, conditions in by_cell.items()
        },
    )


def _smallest_slack(conditions: Conditions) -> float:
    """Return the smallest slack of a condition with numbers; a wrong setting is wrong in every cell."""
    return min(
        (row.ratio for row in conditions if row.required and row.name != "setting"),
        default=math.inf,
    )


def _nearest_text(cell: str, conditions: Conditions) -> str:
    failing = [row for row in conditions.failing if row.name != "setting"]
    if not failing:
        return f"{cell}: every number is inside"
    return f"{cell}: {failing[0].name} is missed by a factor of {factor(failing[0].ratio)}"


def _condition_summary(name: str, of_cells: Sequence[Conditions]) -> ConditionSummary:
    rows = [row for conditions in of_cells for row in conditions if row.name == name]
    return ConditionSummary(
        name=name,
        statement=next((row.statement for row in rows if not row.holds), rows[0].statement),
        required=any(row.required for row in rows),
        cells=len(rows),
        holds=sum(row.holds for row in rows),
        least=min(row.ratio for row in rows),
        most=max(row.ratio for row in rows),
        untested=all(row.untested for row in rows),
    )


def factor(ratio: float) -> str:
    """Return the factor by which a condition with this slack is missed."""
    return number(1 / ratio) if ratio > 0 else "infinity"
