"""One self-contained page about folders of results: pictures, claims, conditions, and how to run them again."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from benign import __version__
from benign.experiment import Folder as FolderPath
from benign.plot.variables import readable, value_range
from benign.report import claims
from benign.report.atlas import CHIEF, REST, Atlas, CurveGroup, Quantity
from benign.report.cells import (
    BUDGET,
    Limits,
    PackedCurves,
    compressed,
    json_bytes,
    means,
    packed_bytes,
    packed_curves,
)
from benign.report.claims import TheoremSummary, theorems
from benign.report.figures import LABELS, PlotlyFigure, labels_of
from benign.report.folder import ResultFolder, open_folders
from benign.sweep.records import replacing

LARGEST_PICTURE, MOST_PICTURES = 1_000_000, 3
"""bytes of a picture from a folder, and the number of pictures"""


def write_report(
    *runs: FolderPath, output: FolderPath | None = None, verdicts: FolderPath | None = None
) -> Path:
    """Write one self-contained HTML file about folders of results, and return its path.

    The default of `output` is `report.html` in the folder, or in the common parent of several. `verdicts` is a file
    that `benign verify` wrote; by default it is the one next to the runs, if there is one.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=[4, 8], dim=20, signal=[1.0, 4.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=20),
    ...     evaluation=bo.Evaluation(samples=20),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = sweep.run(folder)
    ...     bo.write_report(folder).name
    'report.html'
    """
    if not runs:
        raise ValueError("`runs` must name at least one folder of results")
    parent = Path(os.path.commonpath([Path(run).resolve() for run in runs]))
    path = Path(output) if output else parent / "report.html"
    if output:
        _check_output(path)
    folders = open_folders([Path(run) for run in runs])
    files = [Path(verdicts)] if verdicts else claims.verdict_files(folders)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = page(folders, files)
    with replacing(path) as file:
        file.write(text.encode())
    return path


def _check_output(path: Path) -> None:
    """Raise ValueError if the path cannot be a page."""
    if path.is_dir():
        raise ValueError(
            f"`output` must be a file, got the folder {path}: add a name, {path}/report.html"
        )
    if path.suffix not in (".html", ".htm"):
        raise ValueError(
            f"`output` must end in .html, got {str(path)!r}: it is opened in a browser"
        )


@dataclass(frozen=True, eq=False)
class FolderView:
    """A folder with everything that the page shows of it."""

    number: int
    folder: ResultFolder
    share: int
    """number of folders on the page"""
    group: FolderGroup
    """the folders that are shown side by side with it"""

    @cached_property
    def _theorems(self) -> tuple[list[TheoremSummary], str]:
        return theorems(self.folder.experiment, self.folder.recipe)

    @property
    def theorems(self) -> list[TheoremSummary]:
        return self._theorems[0]

    @property
    def why_no_theorem(self) -> str:
        """The reason if there are no theorems."""
        return self._theorems[1]

    @cached_property
    def summary(self) -> str:
        """The summary of its recipe, or why it cannot be written: an axis may have been changed."""
        recipe = self.folder.recipe
        if recipe is None:
            return ""
        try:
            return recipe.summarise(self.folder.result)
        except Exception as error:
            return f"cannot be summed up: {error}"

    @cached_property
    def data(self) -> ScriptData:
        return script_data(self.folder, self.theorems, self.share, self.group.spans)

    @cached_property
    def pictures(self) -> list[tuple[str, str]]:
        """Names and contents of the pictures that its recipe drew, if the page has no maps of it."""
        if self.folder.recipe is None or self.folder.recipe.panels is not None:
            return []
        files = sorted(self.folder.path.glob("*.png"))
        small = [file for file in files if file.stat().st_size <= LARGEST_PICTURE][:MOST_PICTURES]
        return [(file.stem, base64.b64encode(file.read_bytes()).decode()) for file in small]

    @property
    def later(self) -> str:
        return compressed(json_bytes(self.data.later))

    @property
    def curves(self) -> str:
        return compressed(self.data.curves)


def page(folders: Sequence[ResultFolder], verdict_files: Sequence[Path] = ()) -> str:
    """Return the text of the page."""
    folder_groups = grouped(folders)
    group_of = {folder.path: group for group in folder_groups for folder in group.folders}
    views = [
        FolderView(number, folder, len(folders), group_of[folder.path])
        for number, folder in enumerate(folders)
    ]
    groups = [_section(number, group, views) for number, group in enumerate(folder_groups)]
    rows = claims.rows(folders, verdict_files)
    judged = [row for row in rows if row.verdict != claims.NOT_JUDGED]
    (drawing, packed), script = library(), _file("page.js")
    data = {"folders": [view.data.first for view in views]}
    return _environment().from_string(_file("page.html")).render(
        title=_title([group["name"] for group in groups]),
        version=__version__,
        policy=_policy(drawing, script),
        style=Markup(_file("page.css")),
        script=Markup(script),
        plotly=packed,
        data=compressed(json_bytes(data)),
        views=views,
        groups=groups,
        runs=_runs_text(folders),
        notices=[
            (f"{view.group.name}, {view.folder.label}", notice)
            for view in views
            for notice in view.folder.notices
        ],
        recipes=[folder.recipe.name for folder in folders if folder.recipe],
        readings=list(dict.fromkeys(row.under for row in judged if row.under)),
        claims=rows,
        judged=judged,
        by_claim=_by_claim(judged),
        counts=dict(Counter(row.verdict for row in sorted(judged, key=lambda row: row.order))),
        words=list(dict.fromkeys(row.verdict for row in rows)),
        tones={row.verdict: row.tone for row in rows},
        papers=list(dict.fromkeys(row.paper for row in rows)),
        meanings={row.verdict: claims.meaning_of(row.verdict) for row in rows},
    )  # fmt: skip


def _section(number: int, group: FolderGroup, views: Sequence[FolderView]) -> dict[str, Any]:
    """Return the variables of the template for a group of folders."""
    first = group.folders[0]
    drawn = quantities(first.atlas, len(views))
    by_group = itertools.groupby(drawn, key=lambda each: each.group)
    return {
        "title": group.title,
        "name": group.name,
        "paper": first.paper,
        "shows": first.recipe.shows if first.recipe else "",
        "questions": _questions(group),
        "settings": list(dict.fromkeys(folder.setting for folder in group.folders)),
        "description": first.atlas.description,
        "number": number,
        "drawable": first.atlas.x is not None and bool(drawn),
        "quantities": [(name, list(members)) for name, members in by_group],
        "sliders": [
            (dim, labels, LABELS not in first.atlas.result[dim].attrs)
            for dim, labels in first.atlas.sliders.items()
        ],
        "folders": [view for view in views if view.folder in group.folders],
    }


def _questions(group: FolderGroup) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return the open questions of the paper with the answers: name, meaning and, if there are several, whose."""
    recipe = group.folders[0].recipe
    answered = []
    for question in recipe.questions if recipe else ():
        given: dict[str, list[str]] = {}
        for folder in group.folders:
            given.setdefault(folder.reading[question.name], []).append(folder.label)
        answers = [
            (answer, question.answers.get(answer, ""), "; ".join(labels) if len(given) > 1 else "")
            for answer, labels in given.items()
        ]
        answered.append((f"{question.name}: {question.asks}", answers))
    return answered


def _title(titles: Sequence[str]) -> str:
    """Return the names of the first three groups, and how many there are besides."""
    first, others = titles[:3], titles[3:]
    return "; ".join(first) + (f" and {len(others)} more" if others else "")


def _by_claim(judged: Sequence[claims.ClaimRow]) -> list[list[claims.ClaimRow]]:
    """Return the verdicts on each claim, one for each reading; claims that hold come first."""
    by_claim: dict[str, list[claims.ClaimRow]] = {}
    for row in sorted(judged, key=lambda row: row.order):
        by_claim.setdefault(row.id, []).append(row)
    return list(by_claim.values())


def _runs_text(folders: Sequence[ResultFolder]) -> str:
    """Return a sentence about the runs of all folders."""
    counts = sum((Counter(folder.counts) for folder in folders), Counter())
    endings = ", ".join(f"{number} {ending}" for ending, number in counts.items())
    where = f" in {len(folders)} folders" if len(folders) > 1 else ""
    return f"{counts.total()} training runs{where}: {endings}."


@cache
def library() -> tuple[str, str]:
    """Return the code of plotly, plain and compressed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ValueError(
            "a report needs the package plotly: `pip install 'benign[report]'`"
        ) from None
    code = get_plotlyjs()
    return code, compressed(code.encode())


def _policy(*scripts: str) -> str:
    """Return a security policy: only these scripts run, and nothing is loaded from elsewhere."""
    digests = [hashlib.sha256(each.encode()).digest() for each in scripts]
    allowed = " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _environment() -> Environment:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["coded"] = _coded
    environment.filters["unbroken"] = _unbroken
    return environment


def _coded(text: str) -> Markup:
    """Return a text in which the parts between backticks are code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(text.split("`"))
    )


def _unbroken(command: str) -> Markup:
    """Return a command that is broken only between words: a browser would also break after hyphens of options."""
    word = Markup('<span class="word">{}</span>')
    return Markup(" ").join(word.format(each) for each in command.split(" "))


def _file(name: str) -> str:
    return (files("benign.report") / "files" / name).read_text(encoding="utf-8")


MOST_HOVERS = 150_000
"""texts of cells on a page; if there were more, only the main quantities are drawn"""


@dataclass(frozen=True)
class FolderGroup:
    """Folders shown side by side: one recipe at one scale under several readings, or one experiment."""

    folders: tuple[ResultFolder, ...]

    @property
    def title(self) -> str:
        return self.folders[0].title

    @property
    def name(self) -> str:
        first = self.folders[0]
        if first.recipe is None:
            return first.label
        return f"{first.recipe.name}, {first.scale} scale" if first.scale else first.recipe.name

    @cached_property
    def spans(self) -> dict[str, Limits]:
        """The range of every quantity over the folders, so that a colour means the same number in all of them."""
        spans: dict[str, Limits] = {}
        for atlas in (folder.atlas for folder in self.folders if folder.atlas.x):
            for name in (each.name for each in atlas.quantities):
                low, high = atlas.span(name)
                others = spans.get(name, (low, high))
                spans[name] = min(low, others[0]), max(high, others[1])
        return spans


def grouped(folders: Sequence[ResultFolder]) -> list[FolderGroup]:
    """Return groups of folders with the same recipe, scale and shape of figures, in their order."""
    groups: dict[Any, list[ResultFolder]] = {}
    for folder in folders:
        atlas = folder.atlas
        sliders = tuple((name, len(labels)) for name, labels in atlas.sliders.items())
        source = folder.recipe.name if folder.recipe else str(folder.path.resolve())
        key = source, folder.scale, atlas.x, atlas.y, sliders
        groups.setdefault(key, []).append(folder)
    return [FolderGroup(tuple(members)) for members in groups.values()]


@dataclass(frozen=True)
class ScriptData:
    """The data of a folder for the script of the page."""

    first: dict[str, Any]
    """needed at once: the first figure"""
    later: dict[str, Any]
    """needed on demand: the other figures, and the data of cells"""
    curves: bytes


def script_data(
    folder: ResultFolder,
    theorems: Sequence[TheoremSummary],
    share: int,
    spans: Mapping[str, Limits],
) -> ScriptData:
    """Return the data of a folder that is one of `share` on the page; `spans` are ranges of colours by quantity."""
    atlas = folder.atlas
    drawn = [each.name for each in quantities(atlas, share)] if atlas.x else []
    groups = atlas.curve_groups
    names = [name for group in groups for name in group.names]
    curves = packed_curves(atlas.result, names, atlas.dims, BUDGET // share)
    first = {
        "label": folder.label,
        "x": atlas.x,
        "y": atlas.y,
        "figures": {name: _figures(atlas, name, spans) for name in drawn[:1]},
    }
    later = {
        "figures": {name: _figures(atlas, name, spans) for name in drawn[1:]},
        "dims": atlas.dims,
        "sizes": [atlas.result.sizes[dim] for dim in atlas.dims],
        "labels": [labels_of(atlas.result[dim]) for dim in atlas.dims],
        "ended": atlas.endings.values.ravel().tolist(),
        "numbers": _main_numbers(atlas),
        "curves": _curves(atlas, groups, curves),
        "theorems": [
            {"title": each.title, "tables": _by_cell(folder, each.tables)} for each in theorems
        ],
    }
    return ScriptData(first, later, packed_bytes(curves.numbers))


def quantities(atlas: Atlas, share: int = 1) -> list[Quantity]:
    """Return the quantities to draw: all that were measured, or the main ones if there are very many cells."""
    cells = int(np.prod([atlas.result.sizes[dim] for dim in atlas.dims], dtype=int))
    if cells * len(atlas.quantities) * share <= MOST_HOVERS:
        return atlas.quantities
    return [each for each in atlas.quantities if each.group != REST]


def _figures(atlas: Atlas, name: str, spans: Mapping[str, Limits]) -> dict[str, PlotlyFigure]:
    """Return the figures at all positions of the sliders, with keys such as `0` or `1,2`."""
    positions = [range(len(labels)) for labels in atlas.sliders.values()]
    return {
        ",".join(map(str, at)): atlas.figure(
            name, dict(zip(atlas.sliders, at, strict=True)), spans.get(name)
        )
        for at in itertools.product(*positions)
    }


def _main_numbers(atlas: Atlas) -> list[tuple[str, list[str]]]:
    """Return the main quantities of every cell as text."""
    main = [each for each in atlas.quantities if each.group == CHIEF]
    cells = list(np.ndindex(*(atlas.result.sizes[dim] for dim in atlas.dims)))
    return [
        (each.title, [averages.text(cell) for cell in cells])
        for each in main
        for averages in [
            means(atlas.result[each.name], *atlas.dims, within=value_range(each.title))
        ]
    ]


def _curves(atlas: Atlas, groups: Sequence[CurveGroup], packed: PackedCurves) -> dict[str, Any]:
    """Return figures of curves in which `{"curve": [name, kind]}` stands for numbers."""
    steps = atlas.result["step"].isel(step=packed.points)

    def reference(name: str, kind: str) -> dict[str, list[int]]:
        return {"curve": [packed.names.index(name), packed.kinds.index(kind)]}

    def figure(group: CurveGroup) -> PlotlyFigure:
        return atlas.curve_figure(group, reference, steps.values.tolist())

    included = [
        replace(group, names=names)
        for group in groups
        if (names := tuple(name for name in group.names if name in packed.names))
    ]
    together = [group for group in included if not group.alone]
    alone = [
        CurveGroup(group.title, (name,))
        for group in included
        if group.alone
        for name in group.names
    ]
    return {
        "names": len(packed.names),
        "kinds": len(packed.kinds),
        "points": len(packed.points),
        "left_out": sum(len(group.names) for group in groups) - len(packed.names),
        "together": [{"title": group.title, "figure": figure(group)} for group in together],
        "alone": [
            {
                "title": readable(group.names[0]),
                "meaning": str(atlas.result[group.names[0]].attrs.get("long_name", "")),
                "figure": figure(group),
            }
            for group in alone
        ],
    }


def _by_cell(
    folder: ResultFolder, tables: dict[int, list[list[Any]]]
) -> dict[int, list[list[Any]]]:
    """Return tables by the number of their cell on the page, where axes ascend, unlike in the specification."""
    return {folder.atlas.cell_number(number): table for number, table in tables.items()}
