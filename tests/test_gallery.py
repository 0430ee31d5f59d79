"""The gallery says how its pictures were made, and its pages are what `make gallery` writes."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from PIL import Image
from showcase import badges, made, pages, totals, verdicts

import benign as bo
from benign.claims import at_least
from benign.claims.claim import Evidence
from benign.claims.family import InFamily
from benign.claims.frozen import Frozen
from benign.claims.verdict import judge
from benign.claims.verdict_text import TimedVerdict, write
from benign.claims.words import LIMITS, WORDS, label
from benign.papers import published
from benign.papers.published import Made
from benign.papers.registry import claims, recipe, recipes
from benign.papers.requests import RequestOptions, requests_of
from benign.sweep import figure_file
from benign.sweep.plan import NUMERICS

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "gallery"
MADE = published.figures()
LARGEST = 8_000_000
"""bytes of the whole folder"""
HEADINGS = ["What the paper shows", "What we find", "Readings", "Distance from the conditions"]


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of that with the figures of the package."""
    folder = tmp_path / "figures"
    folder.mkdir()
    monkeypatch.setattr(published, "FOLDER", folder)
    return folder


def stored(name: str, picture: Made) -> None:
    """Store how a figure was made, without numbers."""
    content = figure_file.encode(xr.Dataset(), picture.as_dict())
    figure_file.write(published.file_of(name), content)


def test_every_picture_has_an_entry_a_text_and_a_recipe():
    assert sorted(MADE) == sorted(path.stem for path in GALLERY.glob("*.png"))
    assert {each.target for each in MADE.values()} <= recipes().keys()
    assert all(1 <= each.numerics <= NUMERICS for each in MADE.values())
    figures = {each.target.replace("/", "-") for each in MADE.values()}
    written = {path.stem for path in (GALLERY / "texts").glob("*.md")}
    assert written == figures | {"index"}


@pytest.mark.parametrize("path", sorted((GALLERY / "texts").glob("*-*.md")), ids=lambda p: p.stem)
def test_every_text_says_the_four_things(path: Path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line[3:] for line in lines if line.startswith("## ")] == HEADINGS


def test_pages_are_what_index_writes():
    wanted, problems = pages.texts(GALLERY)
    assert not problems
    there = {*(GALLERY / "pages").glob("*.md"), *(GALLERY / "verdicts").glob("*.md")}
    assert {GALLERY / "README.md", ROOT / "README.md", *there} <= wanted.keys()
    assert there <= wanted.keys(), "run `make gallery`"
    for path, text in wanted.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make gallery`"


def test_the_folder_stays_small():
    assert sum(path.stat().st_size for path in GALLERY.rglob("*") if path.is_file()) < LARGEST


@pytest.mark.usefixtures("figures")
def test_older_pictures_are_marked(tmp_path: Path):
    """After NUMERICS rises, pictures that are not run again are marked without any edit."""
    for number in (pages.BANDS_SINCE - 1, NUMERICS - 1, NUMERICS):
        stored("li-fig3", replace(MADE["li-fig3"], numerics=number))
        page = pages.texts(tmp_path)[0][tmp_path / "pages" / "li-fig3.md"]
        older = bool(re.search(rf"\*\*Older\*\*.*\b{number}\b", page))
        assert older == (number < NUMERICS)
        bands = "bands in this picture are one standard error" in page
        assert bands == (number < pages.BANDS_SINCE)


def test_every_word_of_a_verdict_has_a_badge_with_the_word_in_it():
    words = {label(word, limit) for word in WORDS for limit in ("", *LIMITS)}
    assert badges.COLOURS.keys() == words | {badges.NOT_JUDGED, badges.OLDER}
    for word in badges.COLOURS:
        path = GALLERY / "badges" / f"{word.replace(' ', '-')}.svg"
        assert f">{word}</text>" in path.read_text(encoding="utf-8")


def contrast(first: str, second: str) -> float:
    """Of two colours, as WCAG 2 defines it."""
    lights = []
    for colour in (first, second):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)
    return max(lights) / min(lights)


def test_words_of_badges_can_be_read():
    assert all(contrast(*colours) >= 4.5 for colours in badges.COLOURS.values())


def test_verdicts_are_of_claims_there_are_and_derived_ones_are_counted_apart():
    found = verdicts.read(GALLERY)
    assert found.keys() <= claims().keys()
    derived = sum(claim.derived for claim in claims().values())
    table = (GALLERY / "README.md").read_text(encoding="utf-8")
    assert f"| **all** | {len(claims()) - derived} | " in table
    assert f"| **all**, derived by us | {derived} | " in table


BOUNDARY = "jiang/fig1.boundary_1000"


def judged(folder: Path, scale: str, word: str, **reading: str) -> Path:
    """A file as `benign verify` writes it, with one verdict."""
    part = {"name": "", "rule": "in [1, 2]", "outcome": "holds", "of": "N", "decides": True}
    verdict = {
        "id": BOUNDARY,
        "statement": "kept by the registry",
        "verdict": word,
        "word": word,
        "setting": "unconditional",
        "reason": "",
        "scale": scale,
        "reading": recipe("jiang/fig1").reading(reading),
        "parts": [{**part, "value": 3.14159265, "low": 2.5, "high": "inf"}],
        "numerics": NUMERICS,
        "seconds": 1.0,
    }
    path = folder / f"{scale}-{word}.json"
    path.write_text(json.dumps({"benign": "1.2.3", "verdicts": [verdict]}), encoding="utf-8")
    return path


def kept(folder: Path) -> dict[tuple[str, str], str]:
    """Words by reading and scale."""
    entries = verdicts.read(folder)[BOUNDARY]
    return {(each["reading"], each["scale"]): each["verdict"] for each in entries}


@pytest.mark.usefixtures("figures")
def test_a_larger_scale_replaces_a_smaller_one_of_the_same_reading(tmp_path: Path):
    quick = judged(tmp_path, "quick", "inconclusive")
    paper = judged(tmp_path, "paper", "confirmed")
    other = judged(tmp_path, "quick", "refuted", w_O="divided")
    assert verdicts.merge(tmp_path, [quick]) == (1, 0)
    assert verdicts.merge(tmp_path, [paper, other]) == (2, 0)
    assert verdicts.merge(tmp_path, [quick]) == (0, 1)
    assert kept(tmp_path) == {
        ("default", "paper"): "confirmed",
        ("w_O=divided", "quick"): "refuted",
    }
    entry = verdicts.counted(verdicts.read(tmp_path), BOUNDARY)
    assert verdicts.interval(entry["parts"][0]) == "3.14 [2.50, inf]"
    assert (entry["numerics"], entry["benign"]) == (NUMERICS, "1.2.3")
    assert not entry.keys() & {"statement", "seconds"}
    stored("jiang-fig1", MADE["jiang-fig1"])
    shown, _ = pages.texts(tmp_path)
    assert "![confirmed](badges/confirmed.svg) fig1.boundary_1000" in shown[tmp_path / "README.md"]
    assert "| paper | default |" in shown[tmp_path / "pages" / "jiang-fig1.md"]


def test_what_benign_verify_writes_is_merged_and_shown_in_full(tmp_path: Path):
    one = claims()["jiang/B2.gamma_monotone"]
    frozen = Frozen("0123456789abcdef", "2026-11-19", ("level: 0.2 is now 0.3",), late=True)
    failing = replace(one, rule=at_least(1))
    verdict = replace(judge(failing, Evidence("smoke")), frozen=frozen)
    among = InFamily("jiang", claims=30, judged=30, p_value=0.2)
    [path, _] = write([TimedVerdict(verdict, 1.0, among)], "smoke", tmp_path / "verify")
    assert verdicts.merge(tmp_path, [path]) == (1, 0)
    [entry] = verdicts.read(tmp_path)[one.id]
    for key in ("word", "limit", "kind", "derived", "misprint", "confidence", "attacks", "frozen"):
        assert entry[key] == json.loads(json.dumps(verdict.as_dict()))[key]
    assert entry["parts"][0].keys() >= {"name", "rule", "outcome", "value", "low", "high", "of"}
    shown = pages.texts(tmp_path)[0][tmp_path / "verdicts" / "jiang.md"]
    assert f"![{verdict.label}](../badges/" in shown
    assert "Rule `0123456789ab`, recorded 2026-11-19, after runs existed." in shown
    assert "level: 0.2 is now 0.3" in shown
    assert "among the 30 claims of jiang" in shown
    assert "Holm's p is 0.2, it does not hold up" in shown
    assert pages.plain(one.statement) in shown


def test_texts_of_claims_are_no_markdown():
    assert pages.plain("<q, k> at d* and r*") == "&lt;q, k> at d\\* and r\\*"


def test_verdicts_of_older_machinery_stay_apart_until_runs_as_large_are_judged(tmp_path: Path):
    old: verdicts.Entry = {
        "reading": "default",
        "machinery": "0.1.0",
        "verdict": "confirmed",
        "scale": "paper",
    }
    old |= {"setting": "", "reason": "", "benign": "0.1.0", "parts": [{"name": "", "value": 1.0}]}
    old["parts"][0] |= {"rule": "", "outcome": "holds", "of": "N", "low": 1.0, "high": 1.0}
    verdicts.write(tmp_path, {BOUNDARY: [old]})

    def number(word: str) -> int:
        return totals.counts(verdicts.read(tmp_path), "jiang")[word]

    assert (number("confirmed"), number(badges.OLDER)) == (0, 1)
    assert "(confirmed then)" in pages.texts(tmp_path)[0][tmp_path / "verdicts" / "jiang.md"]
    verdicts.merge(tmp_path, [judged(tmp_path, "quick", "refuted")])
    assert (number("refuted"), number(badges.OLDER)) == (1, 0)
    known = verdicts.read(tmp_path)
    assert verdicts.largest(known, BOUNDARY) == old, (
        "the numbers of the larger runs are still shown"
    )
    assert "of the paper: `fig1.boundary_1000`." in totals.refuted(known, "jiang", "")
    known[BOUNDARY][-1]["family"] = {"holds up": False}
    assert "`fig1.boundary_1000` (alone, not among all claims)." in totals.refuted(
        known, "jiang", ""
    )
    verdicts.merge(tmp_path, [judged(tmp_path, "paper", "calibrated")])
    assert kept(tmp_path) == {("default", "paper"): "calibrated"}


def test_a_verdict_that_missed_a_recipe_goes_when_the_recipe_is_there(tmp_path: Path):
    missed = {"reading": "default", "verdict": "inconclusive", "scale": "quick"}
    missed["reason"] = "cannot run here: there is no recipe jiang/fig1 yet"
    verdicts.write(tmp_path, {"jiang/fig1.monotone": [missed]})
    verdicts.merge(tmp_path, [judged(tmp_path, "quick", "confirmed")])
    assert kept(tmp_path) == {("default", "quick"): "confirmed"}
    assert verdicts.read(tmp_path)["jiang/fig1.monotone"] == []


def test_photographs_leave_the_colours_of_a_figure_alone():
    bar = np.linspace(0, 255, 128).astype(np.uint8)
    figure = np.stack([bar, 255 - bar, np.full(128, 90, np.uint8)], -1)[None].repeat(8, 0)
    noise = np.random.default_rng(0).integers(0, 256, (200, 128, 3)).astype(np.uint8)
    parts = [Image.fromarray(figure), Image.fromarray(noise)]
    palette = made.few_colours(parts)
    kept = np.asarray(parts[0].quantize(palette=palette, dither=Image.Dither.NONE).convert("RGB"))
    assert np.abs(kept.astype(int) - figure).max() <= 4


@pytest.mark.usefixtures("figures")
def test_a_folder_of_results_is_added(tmp_path: Path):
    folder, gallery = tmp_path / "run", tmp_path / "gallery"
    gallery.mkdir()
    choices = RequestOptions("smoke", ["w_O=divided"], seeds=2, out=folder)
    [request] = requests_of("jiang/fig1", choices)
    result = request.experiment.run(folder, made=request.made)
    before = sorted(folder.rglob("*"))
    name = made.add(gallery, folder, seconds=12.5, host="two cores")
    assert name == "jiang-fig1-w_O-divided-smoke"
    assert sorted(folder.rglob("*")) == before, "results may be read-only"
    assert (gallery / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    entry = published.figures()[name]
    assert entry.command == ("benign run jiang/fig1 --scale smoke --reading w_O=divided --seeds 2")
    assert entry.summary == request.summarise(result).splitlines()
    assert (entry.numerics, entry.wall_seconds, entry.recipe_changed) == (NUMERICS, 12.5, False)
    assert sum(entry.runs.values()) == result.status.size
    kept = bo.published("jiang/fig1", w_O="divided")
    assert abs(kept.test_loss / result.test_loss - 1).max() < 1e-3
    pages.write(gallery)
    page = (gallery / "pages" / "jiang-fig1.md").read_text(encoding="utf-8")
    assert f"`{entry.command}`" in page
    assert '`bo.published("jiang/fig1", w_O="divided")`' in page
    assert entry.summary[0] in page
