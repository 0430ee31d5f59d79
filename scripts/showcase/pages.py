"""The pages of the gallery: README.md, and one page a figure. They are written by `index` and never by hand."""

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

ABREAST = 2
"""pictures beside each other"""
CANNOT = "cannot run here"
WRITTEN = (
    "<!-- Written by scripts/gallery.py index (make gallery): change gallery/texts/ instead. -->"
)


@dataclass(frozen=True)
class Figure:
    """A recipe with its pictures."""

    recipe: Recipe
    pictures: dict[str, Picture]
    """by name, that of the default reading first"""

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
"""operations a second of a product of 8192 x 8192 matrices, measured on the machine that made the pictures"""


def write(gallery: Path) -> None:
    """Write README.md, a page a figure and the badges; pages of figures that are no more are removed."""
    badges.write(gallery)
    wanted = texts(gallery)
    for old in set((gallery / "pages").glob("*.md")) - wanted.keys():
        old.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def texts(gallery: Path) -> dict[Path, str]:
    """What every page is to hold."""
    pictures, found = made.read(gallery), verdicts.read(gallery)
    shown = [
        Figure(recipe, {n: each for n, each in pictures.items() if each.target == recipe.name})
        for recipe in recipes().values()
    ]
    shown = [figure for figure in shown if figure.pictures]
    pages = {gallery / figure.page: _page(gallery, figure, found) for figure in shown}
    return {gallery / "README.md": _readme(gallery, shown, found), **pages}


def _readme(gallery: Path, shown: list[Figure], found: Verdicts) -> str:
    """The introduction, how many verdicts of each word, and the figures of each paper."""
    intro = _text(gallery, "index").replace("](../", "](")  # it stands one folder higher
    lines = [WRITTEN, "", "# Gallery", "", intro, "", *_counts(gallery, found)]
    for paper in papers():
        figures = [figure for figure in shown if figure.recipe.name.startswith(f"{paper}/")]
        if figures:
            lines += ["", f"## {paper.capitalize()}"]
        for start in range(0, len(figures), ABREAST):
            cells = [_cell(figure, found) for figure in figures[start : start + ABREAST]]
            heads, *rows = zip(*cells, strict=True)
            lines += ["", *_table(heads, rows)]
    return "\n".join(lines) + "\n"


def _cell(figure: Figure, found: Verdicts) -> tuple[str, str, str, str]:
    """A figure in the grid: its name, its first picture, what it is to show, its badges."""
    recipe, page = figure.recipe, figure.page
    others = len(figure.pictures) - 1
    more = f", {others} other reading{'s' if others > 1 else ''}" if others else ""
    told = [
        f"{badges.image(_word(each), '')} {_short(each)}"
        for each in verdicts.of_recipe(found, recipe.name)
        if each.reading == "default"
    ]
    return (
        f"[{recipe.name}]({page}){more}",
        f"[![{recipe.name}]({figure.first}.png)]({page})",
        recipe.shows,
        ", ".join(told) or "no claim is judged on it",
    )


def _counts(gallery: Path, found: Verdicts) -> list[str]:
    """A row a paper: how many of its claims got each word, under the default reading."""
    head = ["paper", "claims", *badges.COLOURS, CANNOT, "scale"]
    rows, known = [], list(claims())
    for paper in [*papers(), ""]:
        own = [name for name in known if name.startswith(f"{paper}/") or not paper]
        judged = [found.get(name, {}).get("default", {}) for name in own]
        words = Counter(each.get("verdict", NOT_JUDGED) for each in judged)
        cannot = sum(CANNOT in each.get("reason", "") for each in judged)
        scales = Counter(each["scale"] for each in judged if each)
        page = f"verdicts/{paper}.md"
        name = f"[{paper}]({page})" if (gallery / page).exists() else paper
        numbers = [len(own), *(words[word] for word in badges.COLOURS), cannot]
        told = ", ".join(f"{scale} {count}" for scale, count in sorted(scales.items()))
        rows.append([name if paper else "all", *map(str, numbers), told])
    return ["## Verdicts on every claim", "", *_table(head, rows)]


def _page(gallery: Path, figure: Figure, found: Verdicts) -> str:
    """A figure: picture, text, how each picture was made, claims."""
    recipe, first = figure.recipe, figure.first
    lines = [WRITTEN, "", f"# {recipe.name}", "", f"{recipe.title}.", "", _image(recipe, first)]
    lines += ["", _text(gallery, figure.name), "", "## How it was made"]
    for name, picture in figure.pictures.items():
        lines += ["", f"### Reading {made.label(picture)}, {picture.scale} scale"]
        if name != first:
            lines += ["", _image(recipe, name)]
        lines += ["", *_how(gallery, name, picture)]
    lines += ["", "## Claims judged on it", "", *_judged(verdicts.of_recipe(found, recipe.name))]
    return "\n".join([*lines, "", "[All figures](../README.md)"]) + "\n"


def _how(gallery: Path, name: str, picture: Picture) -> list[str]:
    """The command, what is known of its work, and what it said."""
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
    """The least time that the matrix products alone would take on a device whose peak is known."""
    if not picture.operations:
        return ""
    told = f"{picture.operations:.3g} operations in matrix products"
    for (device, precision), peak in PEAKS.items():
        if device in picture.device and precision == picture.precision:
            return f"{told}, {picture.operations / peak:.2g} s at the {peak:.3g} a second of a large product there"
    return told


def _judged(judged: Sequence[Judged]) -> list[str]:
    if not judged:
        return ["No claim is judged on this figure."]
    head = ["claim", "verdict", "what it says", "statistic", "rule", "scale", "reading"]
    rows = []
    for each in judged:
        parts = each.verdict.get("parts", [])
        told = "; ".join(filter(None, map(verdicts.statistic, parts)))
        rules = "; ".join(dict.fromkeys(part["rule"] for part in parts))
        reason = each.verdict.get("reason")
        badge = badges.image(_word(each), "../") + (f" {reason}" if reason else "")
        said = f"{each.claim.statement} ({each.claim.source})"
        scale = each.verdict.get("scale", "")
        rows.append([_short(each), badge, said, told, rules, scale, each.reading])
    return _table(head, rows)


def _text(gallery: Path, name: str) -> str:
    """What is written by hand; the test of the gallery asks for it."""
    path = gallery / "texts" / f"{name}.md"
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def _image(recipe: Recipe, name: str) -> str:
    return f"![{recipe.title}](../{name}.png)"


def _word(judged: Judged) -> str:
    return judged.verdict.get("verdict", NOT_JUDGED)


def _short(judged: Judged) -> str:
    """The name of a claim without its paper."""
    return judged.claim.id.partition("/")[2]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return [
        "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", c) for c in line) + " |" for line in lines
    ]
