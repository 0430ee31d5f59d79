"""One self-contained page of runs: pictures, claims, conditions, and how to run it again."""

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
from benign.experiment import Folder as Place
from benign.plot.variables import value_range
from benign.report import claims
from benign.report.atlas import CHIEF, REST, Atlas, CurveGroup, Quantity, readable
from benign.report.cells import (
    BUDGET,
    Limits,
    PackedCurves,
    as_bytes,
    json_bytes,
    means,
    packed_curves,
    squeezed,
)
from benign.report.claims import Theorem, theorems
from benign.report.figures import LABELS, Figure, names_of
from benign.report.folder import ResultFolder, folders
from benign.sweep.records import replacing

LARGEST_PICTURE, MOST_PICTURES = 1_000_000, 3
"""bytes of a picture that is taken from a folder, and how many of them"""


def write_report(*runs: Place, output: Place | None = None, verdicts: Place | None = None) -> Path:
    """Write one self-contained HTML file about folders of results, and return its path.

    Without `output` it is `report.html` in the folder, or around the folders. `verdicts` is a file that
    `benign verify` has written; without it, the one that lies beside the runs is taken.

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
    around = Path(os.path.commonpath([Path(run).resolve() for run in runs]))
    path = Path(output) if output else around / "report.html"
    if output:
        _check_output(path)
    found = folders([Path(run) for run in runs])
    told = [Path(verdicts)] if verdicts else claims.verdict_files(found)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = page(found, told)
    with replacing(path) as file:
        file.write(text.encode())
    return path


def _check_output(path: Path) -> None:
    """Refuse what cannot be a page, before any work."""
    if path.is_dir():
        raise ValueError(
            f"`output` must be a file, got the folder {path}: add a name, {path}/report.html"
        )
    if path.suffix not in (".html", ".htm"):
        raise ValueError(f"`output` must end in .html, got {str(path)!r}: a browser is to open it")


@dataclass(frozen=True, eq=False)
class Shown:
    """A folder with all that the page tells about it."""

    number: int
    folder: ResultFolder
    share: int
    """how many folders the page shows"""
    group: Group
    """those that stand side by side with it"""

    @cached_property
    def _theorems(self) -> tuple[list[Theorem], str]:
        return theorems(self.folder.experiment, self.folder.recipe)

    @property
    def theorems(self) -> list[Theorem]:
        return self._theorems[0]

    @property
    def why(self) -> str:
        """Why there are none."""
        return self._theorems[1]

    @cached_property
    def summary(self) -> str:
        """What its recipe says of the result; an axis that was changed may make that impossible."""
        recipe = self.folder.recipe
        if recipe is None:
            return ""
        try:
            return recipe.summarise(self.folder.result)
        except Exception as error:
            return f"cannot be summed up: {error}"

    @cached_property
    def data(self) -> ForScript:
        return for_script(self.folder, self.theorems, self.share, self.group.spans)

    @cached_property
    def pictures(self) -> list[tuple[str, str]]:
        """Names and contents of the pictures that its recipe drew, where there are no maps of it on the page."""
        if self.folder.recipe is None or self.folder.recipe.panels is not None:
            return []
        files = sorted(self.folder.path.glob("*.png"))
        small = [file for file in files if file.stat().st_size <= LARGEST_PICTURE][:MOST_PICTURES]
        return [(file.stem, base64.b64encode(file.read_bytes()).decode()) for file in small]

    @property
    def later(self) -> str:
        return squeezed(json_bytes(self.data.later))

    @property
    def curves(self) -> str:
        return squeezed(self.data.curves)


def page(found: Sequence[ResultFolder], verdict_files: Sequence[Path] = ()) -> str:
    """The page as text."""
    side_by_side = grouped(found)
    beside = {folder.path: group for group in side_by_side for folder in group.folders}
    shown = [
        Shown(number, folder, len(found), beside[folder.path])
        for number, folder in enumerate(found)
    ]
    groups = [_section(number, group, shown) for number, group in enumerate(side_by_side)]
    rows = claims.rows(found, verdict_files)
    judged = [row for row in rows if row.verdict != claims.NOT_JUDGED]
    (drawing, packed), script = library(), _file("page.js")
    data = {"folders": [each.data.first for each in shown]}
    return _environment().from_string(_file("page.html")).render(
        title=_title([group["name"] for group in groups]),
        version=__version__,
        policy=_policy(drawing, script),
        style=Markup(_file("page.css")),
        script=Markup(script),
        plotly=packed,
        data=squeezed(json_bytes(data)),
        shown=shown,
        groups=groups,
        ran=_ran(found),
        notices=[
            (f"{each.group.name}, {each.folder.label}", notice)
            for each in shown
            for notice in each.folder.notices
        ],
        recipes=[folder.recipe.name for folder in found if folder.recipe],
        readings=list(dict.fromkeys(row.under for row in judged if row.under)),
        claims=rows,
        judged=judged,
        by_claim=_by_claim(judged),
        counts=dict(Counter(row.verdict for row in sorted(judged, key=lambda row: row.order))),
        words=list(dict.fromkeys(row.verdict for row in rows)),
        tones={row.verdict: row.tone for row in rows},
        papers=list(dict.fromkeys(row.paper for row in rows)),
        meanings=claims.MEANINGS,
    )  # fmt: skip


def _section(number: int, group: Group, shown: Sequence[Shown]) -> dict[str, Any]:
    """What the template tells about folders side by side."""
    first = group.folders[0]
    drawn = quantities(first.atlas, len(shown))
    by_group = itertools.groupby(drawn, key=lambda each: each.group)
    return {
        "title": group.title,
        "name": group.name,
        "paper": first.paper,
        "shows": first.recipe.shows if first.recipe else "",
        "questions": _questions(group),
        "settings": list(dict.fromkeys(folder.setting for folder in group.folders)),
        "seen": first.atlas.seen,
        "number": number,
        "drawable": first.atlas.x is not None and bool(drawn),
        "quantities": [(name, list(those)) for name, those in by_group],
        "sliders": [
            (dim, labels, LABELS not in first.atlas.result[dim].attrs)
            for dim, labels in first.atlas.sliders.items()
        ],
        "folders": [each for each in shown if each.folder in group.folders],
    }


def _questions(group: Group) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """What the paper leaves open; each answer that was given, what it means and, where there are several, by whom."""
    recipe = group.folders[0].recipe
    found = []
    for question in recipe.questions if recipe else ():
        given: dict[str, list[str]] = {}
        for folder in group.folders:
            given.setdefault(folder.reading[question.name], []).append(folder.label)
        answers = [
            (answer, question.answers.get(answer, ""), "; ".join(who) if len(given) > 1 else "")
            for answer, who in given.items()
        ]
        found.append((f"{question.name}: {question.asks}", answers))
    return found


def _title(titles: Sequence[str]) -> str:
    """The names of what was run, the first three."""
    first, others = titles[:3], titles[3:]
    return "; ".join(first) + (f" and {len(others)} more" if others else "")


def _by_claim(judged: Sequence[claims.Row]) -> list[list[claims.Row]]:
    """The verdicts on each claim, one for each reading; what holds comes first."""
    found: dict[str, list[claims.Row]] = {}
    for row in sorted(judged, key=lambda row: row.order):
        found.setdefault(row.id, []).append(row)
    return list(found.values())


def _ran(found: Sequence[ResultFolder]) -> str:
    """The runs of all folders in a sentence."""
    counts = sum((Counter(folder.counts) for folder in found), Counter())
    told = ", ".join(f"{number} {word}" for word, number in counts.items())
    of = f" in {len(found)} folders" if len(found) > 1 else ""
    return f"{counts.total()} training runs{of}: {told}."


@cache
def library() -> tuple[str, str]:
    """The code that draws figures in a browser, and the same squeezed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ValueError(
            "a report needs the package plotly: `pip install 'benign[report]'`"
        ) from None
    code = get_plotlyjs()
    return code, squeezed(code.encode())


def _policy(*scripts: str) -> str:
    """Only these scripts may run, and nothing may be loaded from anywhere."""
    digests = [hashlib.sha256(each.encode()).digest() for each in scripts]
    allowed = " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _environment() -> Environment:
    made = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["coded"] = _coded
    made.filters["unbroken"] = _unbroken
    return made


def _coded(text: str) -> Markup:
    """A text with what stands between backticks as code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


def _unbroken(command: str) -> Markup:
    """A command that is broken between its words only: a browser would break after the hyphens of an option."""
    word = Markup('<span class="word">{}</span>')
    return Markup(" ").join(word.format(each) for each in command.split(" "))


def _file(name: str) -> str:
    return (files("benign.report") / "files" / name).read_text(encoding="utf-8")


MOST_HOVERS = 150_000
"""texts of cells on a page; above, only the main quantities are drawn"""


@dataclass(frozen=True)
class Group:
    """Folders that stand side by side: one recipe at one scale under several readings, or one experiment."""

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
        """The range of every quantity over the folders: one colour means one number in all of them."""
        found: dict[str, Limits] = {}
        for atlas in (folder.atlas for folder in self.folders if folder.atlas.x):
            for name in (each.name for each in atlas.quantities):
                low, high = atlas.span(name)
                known = found.get(name, (low, high))
                found[name] = min(low, known[0]), max(high, known[1])
        return found


def grouped(folders: Sequence[ResultFolder]) -> list[Group]:
    """Folders of one recipe, scale and shape of figures together, in the order in which they came."""
    found: dict[Any, list[ResultFolder]] = {}
    for folder in folders:
        atlas = folder.atlas
        sliders = tuple((name, len(labels)) for name, labels in atlas.sliders.items())
        of = folder.recipe.name if folder.recipe else str(folder.path.resolve())
        found.setdefault((of, folder.scale, atlas.x, atlas.y, sliders), []).append(folder)
    return [Group(tuple(those)) for those in found.values()]


@dataclass(frozen=True)
class ForScript:
    """What the script of a page needs of a folder."""

    first: dict[str, Any]
    """at once: the first figure"""
    later: dict[str, Any]
    """when somebody asks: the other figures, and what there is to know of cells"""
    curves: bytes


def for_script(
    folder: ResultFolder, theorems: Sequence[Theorem], share: int, spans: Mapping[str, Limits]
) -> ForScript:
    """The data of a folder that is one of `share` on the page; colours of quantities reach over `spans`."""
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
        "places": [names_of(atlas.result[dim]) for dim in atlas.dims],
        "ended": atlas.endings.values.ravel().tolist(),
        "numbers": _main_numbers(atlas),
        "curves": _curves(atlas, groups, curves),
        "theorems": [
            {"title": each.title, "tables": _by_cell(folder, each.tables)} for each in theorems
        ],
    }
    return ForScript(first, later, as_bytes(curves.numbers))


def quantities(atlas: Atlas, share: int = 1) -> list[Quantity]:
    """What is drawn: all that was measured, or the main quantities of an experiment of very many cells."""
    cells = int(np.prod([atlas.result.sizes[dim] for dim in atlas.dims], dtype=int))
    all_of_them = atlas.quantities
    if cells * len(all_of_them) * share <= MOST_HOVERS:
        return all_of_them
    return [each for each in all_of_them if each.group != REST]


def _figures(atlas: Atlas, name: str, spans: Mapping[str, Limits]) -> dict[str, Figure]:
    """The figure at every setting of the sliders, by their places: `0`, `1,2`."""
    sizes = [range(len(labels)) for labels in atlas.sliders.values()]
    return {
        ",".join(map(str, at)): atlas.figure(
            name, dict(zip(atlas.sliders, at, strict=True)), spans.get(name)
        )
        for at in itertools.product(*sizes)
    }


def _main_numbers(atlas: Atlas) -> list[tuple[str, list[str]]]:
    """The main quantities of every cell in words."""
    chief = [each for each in atlas.quantities if each.group == CHIEF]
    cells = list(np.ndindex(*(atlas.result.sizes[dim] for dim in atlas.dims)))
    return [
        (each.title, [found.text(cell) for cell in cells])
        for each in chief
        for found in [means(atlas.result[each.name], *atlas.dims, within=value_range(each.title))]
    ]


def _curves(atlas: Atlas, groups: Sequence[CurveGroup], packed: PackedCurves) -> dict[str, Any]:
    """Figures of curves with references `{"curve": [name, kind]}` in place of numbers; the last group one by one."""
    steps = atlas.result["step"].isel(step=packed.points)

    def reference(name: str, kind: str) -> dict[str, list[int]]:
        return {"curve": [packed.names.index(name), packed.kinds.index(kind)]}

    def drawn(group: CurveGroup) -> Figure:
        return atlas.curve_figure(group, reference, steps.values.tolist())

    kept = [
        replace(group, names=names)
        for group in groups
        if (names := tuple(name for name in group.names if name in packed.names))
    ]
    together = [group for group in kept if not group.alone]
    alone = [
        CurveGroup(group.title, (name,)) for group in kept if group.alone for name in group.names
    ]
    return {
        "names": len(packed.names),
        "kinds": len(packed.kinds),
        "points": len(packed.points),
        "left": sum(len(group.names) for group in groups) - len(packed.names),
        "together": [{"title": group.title, "figure": drawn(group)} for group in together],
        "alone": [
            {
                "title": readable(group.names[0]),
                "meaning": str(atlas.result[group.names[0]].attrs.get("long_name", "")),
                "figure": drawn(group),
            }
            for group in alone
        ],
    }


def _by_cell(
    folder: ResultFolder, tables: dict[int, list[list[Any]]]
) -> dict[int, list[list[Any]]]:
    """Tables by the number of their cell on the page, where axes ascend, and not in the order of the specification."""
    return {folder.atlas.place(number): table for number, table in tables.items()}
