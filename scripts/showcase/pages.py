"""The pages of the gallery: README.md and a page for each figure, all written by `gallery.py index`."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benign.papers.recipes import Recipe
from benign.papers.registry import claims, papers, recipes
from benign.sweep.plan import NUMERICS
from benign.sweep.terminal import statuses
from benign.training.descent import Status
from showcase import badges, made, verdicts
from showcase.badges import NOT_JUDGED
from showcase.made import Picture
from showcase.verdicts import Judged, Verdicts

COLUMNS = 2
"""pictures in a row"""
CANNOT = "cannot run here"
WRITTEN = (
    "<!-- Written by scripts/gallery.py index (make gallery): change gallery/texts/ instead. -->"
)


@dataclass(frozen=True)
class Figure:
    """A recipe with its pictures."""

    recipe: Recipe
    pictures: dict[str, Picture]
    """by name; the default reading comes first"""

    @property
    def name(self) -> str:
        return self.recipe.name.replace("/", "-")

    @property
    def page(self) -> str:
        return f"pages/{self.name}.md"

    @property
    def first(self) -> str:
        return next(iter(self.pictures))


PEAKS = {("NVIDIA H200", "float32"): 51.0e12, ("NVIDIA H200", "tf32"): 413e12}
"""operations per second of a product of 8192 x 8192 matrices, measured on the machine that made the pictures"""


def write(gallery: Path) -> None:
    """Write README.md, the pages of figures and the badges; remove pages of figures that no longer exist."""
    badges.write(gallery)
    wanted = texts(gallery)
    for old in set((gallery / "pages").glob("*.md")) - wanted.keys():
        old.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def texts(gallery: Path) -> dict[Path, str]:
    """Return the text of every page by its path."""
    pictures, known = made.read(gallery), verdicts.read(gallery)
    figures = [
        Figure(recipe, {n: each for n, each in pictures.items() if each.target == recipe.name})
        for recipe in recipes().values()
    ]
    figures = [figure for figure in figures if figure.pictures]
    pages = {gallery / figure.page: _page(gallery, figure, known) for figure in figures}
    return {gallery / "README.md": _readme(gallery, figures, known), **pages}


def _readme(gallery: Path, figures: list[Figure], known: Verdicts) -> str:
    """Return the introduction, the numbers of verdicts, and the figures of each paper."""
    intro = _text(gallery, "index").replace("](../", "](")  # the page is one folder higher
    lines = [WRITTEN, "", "# Gallery", "", intro, "", *_counts(gallery, known)]
    for paper in papers():
        own = [figure for figure in figures if figure.recipe.name.startswith(f"{paper}/")]
        if own:
            lines += ["", f"## {paper.capitalize()}"]
        for start in range(0, len(own), COLUMNS):
            cells = [_cell(figure, known) for figure in own[start : start + COLUMNS]]
            heads, *rows = zip(*cells, strict=True)
            lines += ["", *_table(heads, rows)]
    return "\n".join(lines) + "\n"


def _cell(figure: Figure, known: Verdicts) -> tuple[str, str, str, str]:
    """Return a cell of the grid: name, first picture, what the figure should show, badges."""
    recipe, page = figure.recipe, figure.page
    others = len(figure.pictures) - 1
    more = f", {others} other reading{'s' if others > 1 else ''}" if others else ""
    verdict_badges = [
        f"{badges.image(_word(each), '')} {_short(each)}"
        for each in verdicts.of_recipe(known, recipe.name)
        if each.reading == "default"
    ]
    return (
        f"[{recipe.name}]({page}){more}",
        f"[![{recipe.name}]({figure.first}.png)]({page})",
        recipe.shows,
        ", ".join(verdict_badges) or "no claim is judged on it",
    )


def _counts(gallery: Path, known: Verdicts) -> list[str]:
    """Return a table with the number of claims of each paper by verdict, under the default reading."""
    head = ["paper", "claims", *badges.COLOURS, CANNOT, "scale"]
    rows, ids = [], list(claims())
    for paper in [*papers(), ""]:
        own = [name for name in ids if name.startswith(f"{paper}/") or not paper]
        judged = [known.get(name, {}).get("default", {}) for name in own]
        words = Counter(each.get("verdict", NOT_JUDGED) for each in judged)
        cannot = sum(CANNOT in each.get("reason", "") for each in judged)
        scales = Counter(each["scale"] for each in judged if each)
        page = f"verdicts/{paper}.md"
        name = f"[{paper}]({page})" if (gallery / page).exists() else paper
        numbers = [len(own), *(words[word] for word in badges.COLOURS), cannot]
        scale_counts = ", ".join(f"{scale} {count}" for scale, count in sorted(scales.items()))
        rows.append([name if paper else "all", *map(str, numbers), scale_counts])
    return ["## Verdicts on every claim", "", *_table(head, rows)]


def _page(gallery: Path, figure: Figure, known: Verdicts) -> str:
    """Return the page of a figure: picture, text, how each picture was made, claims."""
    recipe, first = figure.recipe, figure.first
    lines = [WRITTEN, "", f"# {recipe.name}", "", f"{recipe.title}.", "", _image(recipe, first)]
    lines += ["", _text(gallery, figure.name), "", "## How it was made"]
    for name, picture in figure.pictures.items():
        lines += ["", f"### Reading {made.label(picture)}, {picture.scale} scale"]
        if name != first:
            lines += ["", _image(recipe, name)]
        lines += ["", *_how(gallery, name, picture)]
    lines += ["", "## Claims judged on it", "", *_judged(verdicts.of_recipe(known, recipe.name))]
    return "\n".join([*lines, "", "[All figures](../README.md)"]) + "\n"


def _how(gallery: Path, name: str, picture: Picture) -> list[str]:
    """Return the command, the record of its run, and its output."""
    facts = [
        f"runs: {statuses({Status[w.upper()]: n for w, n in picture.runs.items()})}"
        if picture.runs
        else "",
        f"{picture.wall_seconds:g} s for the whole command" if picture.wall_seconds else "",
        f"{picture.work_seconds:g} s of work in all runs" if picture.work_seconds else "",
        _floor(picture),
        picture.device,
        picture.host,
        f"torch {picture.torch}" if picture.torch else "",
        f"benign {picture.benign}" if picture.benign else "",
        f"numerics {picture.numerics}",
    ]
    lines = [f"`{picture.command}`", "", "; ".join(filter(None, facts)) + "."]
    if picture.numerics < NUMERICS:
        lines += ["", f"**Older**: made with numerics {picture.numerics}, today's are {NUMERICS}."]
    if picture.recipe_changed:
        lines += ["", "**Older**: the recipe has changed since; the command makes a newer one."]
    if picture.summary:
        lines += ["", "What the command said:", "", "```text", *picture.summary, "```"]
    if (gallery / "data" / f"{name}.json").exists():
        lines += ["", f"[Means over seeds and standard errors](../data/{name}.json)"]
    return lines


def _floor(picture: Picture) -> str:
    """Return the operations in matrix products and, if the peak of the device is known, their least time."""
    if not picture.operations:
        return ""
    text = f"{picture.operations:.3g} operations in matrix products"
    for (device, precision), peak in PEAKS.items():
        if device in picture.device and precision == picture.precision:
            return f"{text}, {picture.operations / peak:.2g} s at the {peak:.3g} a second of a large product there"
    return text


def _judged(judged: Sequence[Judged]) -> list[str]:
    if not judged:
        return ["No claim is judged on this figure."]
    head = ["claim", "verdict", "what it says", "statistic", "rule", "scale", "reading"]
    rows = []
    for each in judged:
        parts = each.verdict.get("parts", [])
        statistics = "; ".join(filter(None, map(verdicts.statistic, parts)))
        rules = "; ".join(dict.fromkeys(part["rule"] for part in parts))
        reason = each.verdict.get("reason")
        badge = badges.image(_word(each), "../") + (f" {reason}" if reason else "")
        statement = f"{each.claim.statement} ({each.claim.source})"
        scale = each.verdict.get("scale", "")
        rows.append([_short(each), badge, statement, statistics, rules, scale, each.reading])
    return _table(head, rows)


def _text(gallery: Path, name: str) -> str:
    """Return the text written by hand; the test of the gallery requires it."""
    path = gallery / "texts" / f"{name}.md"
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def _image(recipe: Recipe, name: str) -> str:
    return f"![{recipe.title}](../{name}.png)"


def _word(judged: Judged) -> str:
    return judged.verdict.get("verdict", NOT_JUDGED)


def _short(judged: Judged) -> str:
    """Return the name of a claim without its paper."""
    return judged.claim.id.partition("/")[2]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return [
        "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", c) for c in line) + " |" for line in lines
    ]
