"""One self-contained page of runs: pictures, claims, conditions, and how to run it again."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from benign import __version__
from benign.experiment import Folder as Place
from benign.report import claims
from benign.report.data import ForScript, Group, for_script, grouped, quantities
from benign.report.figures import LABELS
from benign.report.folder import Folder, folders
from benign.report.packed import json_bytes, squeezed
from benign.report.theorem import Theorem, theorems
from benign.sweep.records import replacing

LARGEST_PICTURE, MOST_PICTURES = 1_000_000, 3
"""bytes of a picture that is taken from a folder, and how many of them"""


def report(*runs: Place, output: Place | None = None, verdicts: Place | None = None) -> Path:
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
    ...     bo.report(folder).name
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
    folder: Folder
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


def page(found: Sequence[Folder], verdict_files: Sequence[Path] = ()) -> str:
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


def _ran(found: Sequence[Folder]) -> str:
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
