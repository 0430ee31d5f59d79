"""The pages with numbers: gallery/README.md, a page for each figure and each paper, and the pages of docs/templates/.

All are written by `gallery.py index`, which fills their placeholders (`values`).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benign.claims.words import meaning
from benign.papers.published import Made, call_of, numbers
from benign.papers.recipes import Recipe
from benign.papers.registry import papers, recipes
from benign.sweep.plan import NUMERICS
from benign.sweep.terminal import statuses
from benign.training.descent import Status
from showcase import badges, made, totals, verdicts
from showcase.values import Values
from showcase.verdicts import Judged, Verdicts

COLUMNS = 2
"""pictures in a row"""
WRITTEN = (
    "<!-- Written by scripts/gallery.py index (make gallery): change gallery/texts/ instead. -->"
)
FROM_TEMPLATE = (
    "<!-- Written by scripts/gallery.py index (make gallery): change docs/templates/{} instead. -->"
)
BANDS_SINCE = 6
"""pictures of older numerics have bands of one standard error and whiskers of one standard deviation"""
BANDED = {
    *("jiang/fig3", "jiang/fig4", "jiang/inside"),
    *("li/fig3", "li/alpha", "li/table1_mnist", "li/table1_cifar", "li/table1_svhn", "li/table2"),
    *("wang/fig2", "wang/fig6", "wang/undertraining"),
    *("zhang/fig2", "zhang/fig3", "zhang/inside", "zhang/output", "zhang/radius", "zhang/heads"),
    *("zhang/norms", "zhang/augment"),
}
"""recipes whose pictures have bands or whiskers"""
SIZES = ("data.", "network.", "training.", "attack.", "evaluation.", "seeds")
"""changed fields that make a run another size than the paper's; precision does not"""


@dataclass(frozen=True)
class Figure:
    """A recipe with its pictures."""

    recipe: Recipe
    pictures: dict[str, Made]
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


def write(gallery: Path) -> list[str]:
    """Write the pages and the badges, remove pages of figures that no longer exist; return what is wrong."""
    badges.write(gallery)
    wanted, problems = texts(gallery)
    for old in set((gallery / "pages").glob("*.md")) - wanted.keys():
        old.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return problems


def texts(gallery: Path) -> tuple[dict[Path, str], list[str]]:
    """Return the text of every page by its path, and the placeholders that have no number."""
    values = Values(gallery)
    figures = [
        Figure(recipe, {n: p for n, p in values.pictures.items() if p.target == recipe.name})
        for recipe in recipes().values()
    ]
    figures = [figure for figure in figures if figure.pictures]
    pages = {gallery / figure.page: _page(values, figure) for figure in figures}
    pages[gallery / "README.md"] = _readme(values, figures)
    for paper in papers():
        if any(name.startswith(f"{paper}/") for name in values.verdicts):
            pages[gallery / "verdicts" / f"{paper}.md"] = _verdicts(values.verdicts, paper)
    for template in templates(gallery):
        pages[target(template)] = _from_template(values, template)
    return pages, values.problems


def templates(gallery: Path) -> list[Path]:
    """Return the templates of README.md and of pages of docs/."""
    return sorted((gallery.parent / "docs" / "templates").glob("*.md"))


def target(template: Path) -> Path:
    """Return the page of a template: README.md of the repository, or the page of docs/ of the same name."""
    docs = template.parents[1]
    return (docs.parent if template.name == "README.md" else docs) / template.name


def _from_template(values: Values, template: Path) -> str:
    page = target(template)
    depth = len(page.relative_to(values.gallery.parent).parts) - 1
    text = template.read_text(encoding="utf-8")
    body = values.render(text, template.name, "../" * depth + "gallery/")
    return f"{FROM_TEMPLATE.format(template.name)}\n\n{body}"


def _readme(values: Values, figures: list[Figure]) -> str:
    """Return the introduction, the numbers of verdicts, and the figures of each paper."""
    intro = _text(values, "index").replace("](../", "](")  # the page is one folder higher
    head, rows = totals.rows(values.verdicts)
    counts = ["## Verdicts on every claim", "", *_table(head, rows)]
    lines = [WRITTEN, "", "# Gallery", "", intro, "", *counts]
    for paper in papers():
        own = [figure for figure in figures if figure.recipe.name.startswith(f"{paper}/")]
        if own:
            lines += ["", f"## {paper.capitalize()}"]
        for start in range(0, len(own), COLUMNS):
            cells = [_cell(figure, values.verdicts) for figure in own[start : start + COLUMNS]]
            heads, *rows = zip(*cells, strict=True)
            lines += ["", *_table(heads, rows)]
    return "\n".join(lines) + "\n"


def _cell(figure: Figure, known: Verdicts) -> tuple[str, str, str, str]:
    """Return a cell of the grid: name, first picture, what the figure should show, badges."""
    recipe, page = figure.recipe, figure.page
    others = len(figure.pictures) - 1
    more = f", {others} other reading{'s' if others > 1 else ''}" if others else ""
    ids = dict.fromkeys(each.claim.id for each in verdicts.of_recipe(known, recipe.name))
    by_word: dict[str, list[str]] = {}
    for name in ids:
        word = totals.word(verdicts.counted(known, name))
        by_word.setdefault(word, []).append(name.partition("/")[2])
    verdict_badges = [
        f"{badges.image(word, '')} {', '.join(names)}" for word, names in by_word.items()
    ]
    return (
        f"[{recipe.name}]({page}){more}",
        f"[![{recipe.name}]({figure.first}.png)]({page})",
        recipe.shows,
        "; ".join(verdict_badges) or "no claim is judged on it",
    )


def _page(values: Values, figure: Figure) -> str:
    """Return the page of a figure: picture, text, how each picture was made, claims."""
    recipe, first = figure.recipe, figure.first
    lines = [WRITTEN, "", f"# {recipe.name}", "", f"{recipe.title}.", "", _image(recipe, first)]
    lines += ["", _text(values, figure.name), "", "## How it was made"]
    for name, picture in figure.pictures.items():
        lines += ["", f"### Reading {made.label(picture)}, {_size(picture)}"]
        if name != first:
            lines += ["", _image(recipe, name)]
        lines += ["", *_how(name, picture)]
    judged = verdicts.of_recipe(values.verdicts, recipe.name)
    lines += ["", "## Claims judged on it", "", *_judged(judged)]
    return "\n".join([*lines, "", "[All figures](../README.md)"]) + "\n"


def _size(picture: Made) -> str:
    """Return the scale; that of the paper only if no size was changed."""
    changed = any(change.startswith(SIZES) for change in picture.changes)
    if changed or "reduced" in picture.reading.values():
        return "smaller than in the paper"
    return f"{picture.scale} scale"


def _verdicts(known: Verdicts, paper: str) -> str:
    """Return the page of a paper's verdicts: first its own statements, then those derived in this project."""
    lines = [WRITTEN, "", f"# Verdicts on the statements of {paper.capitalize()}"]
    for derived, title in ((False, "Statements of the paper"), (True, "Derived in this project")):
        own = totals.statements(paper, derived)
        number = totals.counts(known, paper, derived)
        count = ", ".join(f"{number[word]} {word}" for word in badges.COLOURS if number[word])
        if own:
            lines += ["", f"## {title}", "", f"{len(own)} statements: {count}."]
        for claim in own:
            lines += ["", f"### {claim.id}", "", plain(f"{claim.statement} ({claim.source})")]
            for each in verdicts.of_claim(known, claim):
                lines += ["", *_verdict(each)]
    return "\n".join([*lines, "", "[Gallery](../README.md)"]) + "\n"


def _verdict(judged: Judged) -> list[str]:
    """Return a verdict in full: words and their meaning, size and reading, every number, conditions, attacks."""
    entry = judged.verdict
    word = totals.word(entry)
    lines = [f"{badges.image(word, '../')} {_then(entry)}".strip()]
    if not entry:
        return lines
    if not verdicts.is_older(entry):
        lines[0] += f" {meaning(word)}."
    facts = [
        f"runs of {_scale(verdicts.size(entry))}",
        f"reading {judged.reading}",
        entry["setting"],
    ]
    facts += [
        f"numerics {entry['numerics']}" if "numerics" in entry else "",
        f"benign {entry['benign']}",
    ]
    lines += ["", "; ".join(filter(None, facts)) + "."]
    if entry["reason"]:
        lines[-1] += f" {plain(entry['reason'])}."
    for part in entry.get("parts", []):
        text = verdicts.statistic(part)
        if text:
            apart = "" if part.get("decides", True) else ", does not decide"
            proven = part.get("certified")
            certified = f"; certified {verdicts.interval(proven)}" if proven else ""
            rule = f"rule {part['rule']}: {part['outcome']}{apart}"
            lines += ["", plain(f"- {text}{certified} ({part['of']}); {rule}")]
    for name in ("misprint", "masked"):
        if entry.get(name):
            lines += ["", plain(f"{name.capitalize()}: {entry[name]}.")]
    family = entry.get("family")
    if family and family["Holm p-value"] is not None and entry.get("on these runs") == "fails":
        among = (
            f"among the {family['claims']} claims of {family['paper']} that could fail by chance"
        )
        up = "it holds up" if family["holds up"] else "it does not hold up"
        lines += ["", f"The refutation {among}: Holm's p is {family['Holm p-value']:.2g}, {up}."]
    if frozen := entry.get("frozen"):
        late = "after runs existed" if frozen["runs existed before"] else "before the runs"
        changed = plain("; ".join(frozen["changed"]))
        lines += ["", f"Rule `{frozen['hash'][:12]}`, recorded {frozen['first seen']}, {late}."]
        lines[-1] += f" Changed after runs existed: {changed}." if changed else ""
    if entry.get("attacks"):
        lines += ["", f"Attacks: {'; '.join(entry['attacks'])}."]
    return lines


def _scale(size: str) -> str:
    """Return the size of runs in words."""
    return f"a size {size}" if size.startswith("smaller") else f"{size} scale"


def _then(entry: verdicts.Entry) -> str:
    """Return the word of an older verdict."""
    return f"({entry['verdict']} then)" if entry and verdicts.is_older(entry) else ""


def _how(name: str, picture: Made) -> list[str]:
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
    if picture.numerics < BANDS_SINCE and picture.target in BANDED:
        lines += [
            "",
            "**Older**: bands in this picture are one standard error on either side of the mean, whiskers one standard "
            "deviation; the command draws 95 % intervals.",
        ]
    if picture.summary:
        lines += ["", "What the command said:", "", "```text", *picture.summary, "```"]
    if len(numbers(name)):
        lines += ["", f"The numbers: `{call_of(name, picture)}`"]
    return lines


def _floor(picture: Made) -> str:
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
        entry = each.verdict
        parts = entry.get("parts", [])
        statistics = "; ".join(filter(None, map(verdicts.statistic, parts)))
        rules = "; ".join(dict.fromkeys(part["rule"] for part in parts))
        reason = plain(entry.get("reason", ""))
        badge = [badges.image(totals.word(entry), "../"), _then(entry), reason]
        statement = plain(f"{each.claim.statement} ({each.claim.source})")
        scale = verdicts.size(entry)
        rows.append(
            [
                _short(each),
                " ".join(filter(None, badge)),
                statement,
                plain(statistics),
                plain(rules),
                scale,
                each.reading,
            ]
        )
    return _table(head, rows)


def _text(values: Values, name: str) -> str:
    """Return a text of gallery/texts/ with its numbers; the test of the gallery requires one for each figure."""
    path = values.gallery / "texts" / f"{name}.md"
    text = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    return values.render(text, f"texts/{name}.md", "" if name == "index" else "../")


def _image(recipe: Recipe, name: str) -> str:
    return f"![{recipe.title}](../{name}.png)"


def plain(text: str) -> str:
    """Return a text as it is, not as Markdown: `<q, k>` would be HTML, and `d* ... r*` emphasis."""
    return text.replace("<", "&lt;").replace("*", "\\*")


def _short(judged: Judged) -> str:
    """Return the name of a claim without its paper."""
    return judged.claim.id.partition("/")[2]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return [
        "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", c) for c in line) + " |" for line in lines
    ]
