"""The gallery says how its pictures were made, and its pages are what `make gallery` writes."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from PIL import Image
from showcase import badges, made, pages, verdicts

from benign.claims import at_least, exact
from benign.claims.claim import Claim, Evidence
from benign.claims.measure import Measured
from benign.claims.rule import Outcome
from benign.claims.verdict import ConditionSummary, PartVerdict, Verdict
from benign.papers.registry import claims, recipe, recipes
from benign.papers.requests import RequestOptions, requests_of
from benign.sweep.plan import NUMERICS

GALLERY = Path(__file__).parents[1] / "gallery"
MADE = made.read(GALLERY)
LARGEST = 8_000_000
"""bytes of the whole folder"""
HEADINGS = ["What the paper shows", "What we find", "Readings", "Distance from the conditions"]


def test_every_picture_has_an_entry_a_text_and_a_recipe():
    assert sorted(MADE) == sorted(path.stem for path in GALLERY.glob("*.png"))
    assert {each.target for each in MADE.values()} <= recipes().keys()
    assert all(1 <= each.numerics <= NUMERICS for each in MADE.values())
    figures = {each.target.replace("/", "-") for each in MADE.values()}
    written = {path.stem for path in (GALLERY / "texts").glob("*.md")}
    assert written == figures | {"index"}
    assert {path.stem for path in (GALLERY / "data").glob("*.json")} <= MADE.keys()


@pytest.mark.parametrize("path", sorted((GALLERY / "texts").glob("*-*.md")), ids=lambda p: p.stem)
def test_every_text_says_the_four_things(path: Path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line[3:] for line in lines if line.startswith("## ")] == HEADINGS


def test_pages_are_what_index_writes():
    wanted = pages.texts(GALLERY)
    there = {GALLERY / "README.md", *(GALLERY / "pages").glob("*.md")}
    assert there == wanted.keys(), "run `make gallery`"
    for path, text in wanted.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make gallery`"


def test_the_folder_stays_small():
    assert sum(path.stat().st_size for path in GALLERY.rglob("*") if path.is_file()) < LARGEST


def test_older_pictures_are_marked(tmp_path: Path):
    """After NUMERICS rises, pictures that are not run again are marked without any edit."""
    [old, new] = [replace(MADE["li-fig3"], numerics=number) for number in (NUMERICS - 1, NUMERICS)]
    for picture, marked in ((old, True), (new, False)):
        made.write(tmp_path, {"li-fig3": picture})
        page = pages.texts(tmp_path)[tmp_path / "pages" / "li-fig3.md"]
        assert bool(re.search(rf"\*\*Older\*\*.*\b{NUMERICS - 1}\b", page)) == marked


def words() -> set[str]:
    """Every word that a verdict may have."""
    found = set()
    cases = itertools.product(("Theorem 1", "Figure 1"), Outcome, ("", "a fault"), (0, 1))
    for source, outcome, error, inside in cases:
        claim = Claim(
            id="paper/one", statement="", source=source, statistic=_one, rule=at_least(0.0)
        )
        parts = (PartVerdict("", None, "", outcome),)
        verdict = Verdict(claim, Evidence("quick"), parts, ConditionSummary(1, inside), 0.0, error)
        found.add(verdict.label)
    return found


def _one(_: Evidence) -> Measured:
    return exact("one", 1.0)


def test_every_word_of_a_verdict_has_a_badge_with_the_word_in_it():
    assert badges.COLOURS.keys() == words() | {badges.NOT_JUDGED}
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


def test_verdicts_are_of_claims_there_are_and_counted_in_the_readme():
    found = verdicts.read(GALLERY)
    assert found.keys() <= claims().keys()
    row = f"| all | {len(claims())} | "
    assert row in (GALLERY / "README.md").read_text(encoding="utf-8")


def judged(folder: Path, scale: str, word: str, **reading: str) -> Path:
    """A file as `benign verify` writes it, with one verdict."""
    part = {"name": "", "rule": "in [1, 2]", "outcome": "holds", "of": "N", "value": 3.0}
    verdict = {
        "id": "jiang/fig1.boundary_1000",
        "verdict": word,
        "setting": "unconditional",
        "reason": "",
        "scale": scale,
        "reading": recipe("jiang/fig1").reading(reading),
        "parts": [{**part, "low": 2.5, "high": "inf"}],
    }
    path = folder / f"{scale}-{word}.json"
    path.write_text(json.dumps({"benign": "1.2.3", "verdicts": [verdict]}), encoding="utf-8")
    return path


def test_a_larger_scale_replaces_a_smaller_one_of_the_same_reading(tmp_path: Path):
    quick = judged(tmp_path, "quick", "inconclusive")
    paper = judged(tmp_path, "paper", "confirmed")
    other = judged(tmp_path, "quick", "refuted", w_O="divided")
    assert verdicts.merge(tmp_path, [quick]) == (1, 0)
    assert verdicts.merge(tmp_path, [paper, other]) == (2, 0)
    assert verdicts.merge(tmp_path, [quick]) == (0, 1)
    kept = verdicts.read(tmp_path)["jiang/fig1.boundary_1000"]
    assert {name: each["verdict"] for name, each in kept.items()} == {
        "default": "confirmed",
        "w_O=divided": "refuted",
    }
    assert kept["default"]["parts"][0]["statistic"] == "3.00 [2.50, inf]"
    made.write(tmp_path, {"jiang-fig1": MADE["jiang-fig1"]})
    shown = pages.texts(tmp_path)
    assert "![confirmed](badges/confirmed.svg) fig1.boundary_1000" in shown[tmp_path / "README.md"]
    assert "| paper | default |" in shown[tmp_path / "pages" / "jiang-fig1.md"]


def test_a_verdict_that_missed_a_recipe_goes_when_the_recipe_is_there(tmp_path: Path):
    missed = {
        "verdict": "inconclusive",
        "reason": "cannot run here: there is no recipe jiang/fig1 yet",
    }
    verdicts.write(tmp_path, {"jiang/fig1.monotone": {"default": missed}})
    verdicts.merge(tmp_path, [judged(tmp_path, "quick", "confirmed")])
    kept = verdicts.read(tmp_path)
    assert kept["jiang/fig1.boundary_1000"]["default"]["verdict"] == "confirmed"
    assert kept["jiang/fig1.monotone"] == {}


def test_photographs_leave_the_colours_of_a_figure_alone():
    bar = np.linspace(0, 255, 128).astype(np.uint8)
    figure = np.stack([bar, 255 - bar, np.full(128, 90, np.uint8)], -1)[None].repeat(8, 0)
    noise = np.random.default_rng(0).integers(0, 256, (200, 128, 3)).astype(np.uint8)
    parts = [Image.fromarray(figure), Image.fromarray(noise)]
    palette = made.few_colours(parts)
    kept = np.asarray(parts[0].quantize(palette=palette, dither=Image.Dither.NONE).convert("RGB"))
    assert np.abs(kept.astype(int) - figure).max() <= 4


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
    entry = made.read(gallery)[name]
    assert entry.command == ("benign run jiang/fig1 --scale smoke --reading w_O=divided --seeds 2")
    assert entry.summary == request.summarise(result).splitlines()
    assert (entry.numerics, entry.wall_seconds, entry.recipe_changed) == (NUMERICS, 12.5, False)
    assert sum(entry.runs.values()) == result.status.size
    kept = json.loads((gallery / "data" / f"{name}.json").read_text(encoding="utf-8"))
    expected = result.test_loss.mean("seed")
    mean = xr.DataArray(kept["test_loss"]["mean"], dims=kept["test_loss"]["axes"])
    assert abs(mean - expected.transpose(*mean.dims).values).max() < 1e-3
    pages.write(gallery)
    page = (gallery / "pages" / "jiang-fig1.md").read_text(encoding="utf-8")
    assert f"`{entry.command}`" in page
    assert entry.summary[0] in page


def test_numbers_behind_a_picture_stay_small():
    steps, seeds = 2000, 3
    data = {
        f"variable_{n}": (("seed", "step"), [[1 / 3] * steps] * seeds, {"long_name": "a third"})
        for n in range(120)
    }
    status = ("seed", [2] * seeds)
    kept = made.numbers(xr.Dataset({"status": status, **data}, {"step": range(steps)}))
    found = json.loads(kept)
    assert len(kept) < made.LARGEST_DATA + 3000
    assert found["left_out"]
    assert len(found["variable_0"]["mean"]) == made.MOST_STEPS
    assert found["variable_0"]["mean"][-1] == 0.3333
    assert found["variable_0"]["steps"][-1] == steps - 1
