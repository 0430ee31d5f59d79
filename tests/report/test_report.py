"""The page without a browser: its texts, its errors, and that no name on it is ever run as code."""

import base64
import gzip
import hashlib
import json
import re
import shlex
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import benign as bo
from benign.claims.claim import Evidence
from benign.claims.verdict import judge
from benign.claims.words import LIMITS, WORDS, label
from benign.experiment import Experiment
from benign.papers.registry import claims as all_claims
from benign.papers.registry import recipe
from benign.papers.requests import RequestOptions, requests_of
from benign.report import claims
from benign.report.claims import factor, theorems
from benign.report.folder import ResultFolder, open_folders
from benign.report.page import library, page, write_report
from benign.spec.yaml import read_yaml
from benign.sweep.folders import open_experiment, open_result
from benign.sweep.runner import Runner
from benign.sweep.store import About, Store
from benign.training.descent import Status
from tests.report.made_up import claims_of, fill, judged_on
from tests.says import holds, says
from tests.tiny import tiny

MARKUP = '<img src=x onerror="window.bad=1"></script><script>window.bad=1</script>'


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag == "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = False


@pytest.fixture(scope="module")
def written(jiang: Path) -> str:
    return write_report(jiang / "jiang/fig1/smoke").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def default(jiang: Path) -> ResultFolder:
    return ResultFolder.open(jiang / "jiang/fig1/smoke/default")


def unpacked(text: str, name: str) -> bytes:
    (content,) = re.findall(rf'<script type="text/plain" id="{name}">([^<]*)</script>', text)
    return gzip.decompress(base64.b64decode(content))


def test_the_page_needs_nothing_from_elsewhere(written: str):
    tags = Tags(written).found
    assert not [tag for tag, _ in tags if tag in ("link", "iframe", "object", "embed", "base")]
    sources = [attrs[name] for _, attrs in tags for name in ("src", "srcset") if name in attrs]
    links = [attrs["href"] for tag, attrs in tags if tag == "a"]
    assert sources == []
    assert all(link and link.startswith("#") for link in links)


def test_only_the_two_scripts_of_the_page_may_run(written: str):
    (policy,) = [
        str(attrs["content"])
        for tag, attrs in Tags(written).found
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    own = Tags(written).scripts[-1]
    digests = [
        hashlib.sha256(each).digest() for each in (own.encode(), unpacked(written, "plotly"))
    ]
    for digest in digests:
        assert f"'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy.partition("style-src")[0]
    assert not re.search(r"https?:", policy)
    assert not [attrs for _, attrs in Tags(written).found if any(n.startswith("on") for n in attrs)]


def test_readings_stand_side_by_side_and_figures_are_those_of_python(
    written: str, default: ResultFolder
):
    assert written.count('<section class="group"') == 1
    assert written.count('<div class="map"') == 2
    first, second = json.loads(unpacked(written, "data"))["folders"]
    later = json.loads(unpacked(written, "later1"))
    assert (first["label"], second["label"]) == ("reading default", "reading w_O=divided")
    assert first["figures"]["paper 0"][""] == json.loads(
        json.dumps(default.atlas.figure("paper 0"))
    )
    curves = unpacked(written, "curves1")
    packed = later["curves"]
    cells = int(np.prod(later["sizes"]))
    assert len(curves) == 3 * cells * packed["names"] * packed["kinds"] * packed["points"]


def test_the_page_says_what_was_run_what_holds_and_how_to_run_it_again(written: str):
    minute = written[written.index('id="minute"') : written.index("</section>")]
    assert holds(minute, "24 training runs", "2 folders", "24 converged")
    assert holds(minute, "test loss", "number of training points N", "signal-to-noise ratio")
    judged, every = len(judged_on("jiang/fig1")), len(claims_of("jiang"))
    assert holds(minute, f"{judged} of the {every} claims", "reading")
    assert "Jiang, Huang, Zhang, Suzuki, Nie: Unveil Benign Overfitting" in written
    assert "the fixed output vector w_O" in written
    assert "<b>divided</b>: yes" in written
    commands = re.findall(
        r"<code>(.*?)</code>", re.sub(r'<span class="word">|</span>', "", written)
    )
    assert commands.count("benign run jiang/fig1 --scale smoke") == 2  # on top, and with its facts
    assert "benign run jiang/fig1 --scale smoke --reading w_O=divided" in commands


def test_the_command_makes_the_very_same_experiment(tmp_path: Path):
    chosen = recipe("zhang/fig1")
    answers = chosen.reading({"noise": "std", "labels": "fair"})
    options = RequestOptions("smoke", ["noise=std", "labels=fair"], None, ["training.rate=0.2"], 3)
    (request,) = requests_of("zhang/fig1", options)
    fill(tmp_path, request.experiment, request.made)
    folder = ResultFolder.open(tmp_path)
    assert folder.command == (
        "benign run zhang/fig1 --scale smoke --reading noise=std --reading labels=fair "
        "--set training.rate=0.2 --seeds 3"
    )
    assert folder.reading == answers
    assert not folder.from_file


@pytest.mark.parametrize("target", ["jiang/fig1", "mine.yaml", None])
def test_what_no_command_makes_is_made_from_its_specification(target: str | None, tmp_path: Path):
    """Also a folder of a recipe whose experiment differs: another version of the recipe, or an extended folder."""
    folder = tmp_path / "mine"
    fill(folder, tiny(), {"target": target, "scale": "smoke"} if target else {})
    found = ResultFolder.open(folder)
    name = "fig1.yaml" if target == "jiang/fig1" else "mine.yaml"
    assert shlex.split(found.command) == ["benign", "run", name]
    assert found.from_file
    (tmp_path / name).write_text(found.yaml, encoding="utf-8")
    assert Experiment.from_dict(read_yaml(tmp_path / name)) == tiny()
    text = page([found])
    assert re.search(rf"saved[^<]* (<code>)?{re.escape(name)}", text)
    assert found.experiment.as_dict() == open_experiment(folder).as_dict()


def test_verdicts_equal_those_of_judge(default: ResultFolder):
    rows = {row.id: row for row in claims.rows([default])}
    evidence = Evidence("smoke", default.reading, (default.result,), (default.experiment,))
    judged = [row for row in rows.values() if row.verdict != claims.NOT_JUDGED]
    assert {row.id for row in judged} == judged_on("jiang/fig1")
    for row in judged:
        verdict = judge(all_claims()[row.id], evidence)
        assert row.verdict == verdict.label
        assert [number for _, number, _, _ in row.numbers] == [
            part.statistic() for part in verdict.parts if part.measured
        ]
        assert row.reason == verdict.reason
    assert {row.paper for row in rows.values()} == {"jiang"}
    assert rows.keys() == claims_of("jiang")


def test_verdict_files_next_to_the_runs_fill_the_table(
    jiang: Path, default: ResultFolder, run: Any
):
    found = run("verify", "jiang/B1.gradients", "--scale", "smoke", "--out", jiang)
    assert found[0] == 0
    (file,) = claims.verdict_files([default])
    verdict = json.loads(file.read_text())["verdicts"][0]
    (row,) = [row for row in claims.rows([default], [file]) if row.id == "jiang/B1.gradients"]
    file.unlink()
    assert row.verdict == verdict["verdict"] == "identity"
    assert holds(row.how, "benign verify", "smoke")
    assert row.numbers[0][2] == verdict["parts"][0]["rule"]


@pytest.mark.parametrize("content", ["{}", "[]", "[" * 4000], ids=["{}", "[]", "brackets"])
def test_a_file_that_holds_no_verdicts_is_refused(content, default: ResultFolder, tmp_path: Path):
    (tmp_path / "no.json").write_text(content)
    with pytest.raises(ValueError, match=says("no.json", "`benign verify`")):
        claims.rows([default], [tmp_path / "no.json"])


def test_every_verdict_has_a_meaning():
    words = {label(word, limit) for word in WORDS for limit in ("", *LIMITS)}
    assert {"fails outside its conditions", "unbroken at a smaller size"} <= words
    meanings = [claims.meaning_of(word) for word in (*words, claims.NOT_JUDGED)]
    assert all(meanings)
    assert len(set(meanings)) == len(meanings)


def test_conditions_give_the_distance_of_cells_from_the_theorem(default: ResultFolder):
    (theorem,), _ = theorems(default.experiment, default.recipe)
    assert (theorem.cells, theorem.inside) == (12, 0)
    lines = {line.name: line for line in theorem.conditions}
    assert re.fullmatch(r"\D*\bcell\b\D*", lines["(3)"].text)
    assert re.search(r"\d\S* to \d\S*$", lines["(1)"].text)
    assert theorem.tables.keys() == set(range(12))
    assert default.recipe is not None
    distance = default.recipe.distance(default.experiment)
    assert f"(1) by {factor(lines['(1)'].least)}" in distance


def test_own_networks_have_the_conditions_of_theorems_or_a_reason(three: Path):
    found, _ = theorems(open_experiment(three), None)
    assert found[0].title.startswith("Zhang Theorem 2")
    linear = tiny("network={kind: linear}")
    none, why = theorems(linear, None)
    assert none == []
    assert holds(why, "theorems", "Attention")


def test_missing_and_failed_runs_have_a_notice(tmp_path: Path):
    fill(tmp_path, tiny())
    first = min(Store.open(tmp_path).keys())
    Store.open(tmp_path).path(first).unlink()
    found = ResultFolder.open(tmp_path)
    assert holds(found.notices[0], "4 of 8 runs", "`benign resume")
    text = page([found])
    assert '<aside class="notice"' in text
    assert "4 of 8 runs" in text[text.index('<aside class="notice"') :].partition("</aside>")[0]


def test_a_sweep_without_runs_is_reported_as_it_is(tmp_path: Path):
    Runner(tiny(), tmp_path)
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "8 of 8 runs" in text[text.index('<aside class="notice"') :].partition("</aside>")[0]


def test_names_with_markup_are_text(tmp_path: Path):
    folder = tmp_path / "<img src=x onerror=bad>"
    fill(folder, strange(), {"target": MARKUP, "changes": [MARKUP], "benign": MARKUP})
    text = page(open_folders([folder]))
    tags = Tags(text).found
    assert not [tag for tag, _ in tags if tag == "img"]
    assert len([tag for tag, attrs in tags if tag == "script" and "type" not in attrs]) == 1
    assert "&lt;img src=x onerror=" in text
    figure = json.loads(unpacked(text, "data"))["folders"][0]["figures"]["test_accuracy"][""]
    assert "<img" not in json.dumps(figure)


def strange() -> Experiment:
    """Two fields that move together under a name that is markup."""
    fields = tiny().as_dict()
    fields["data"] |= {
        "snr": {"zipped": MARKUP, "values": [0.5, 2.0]},
        "noise_std": {"zipped": MARKUP, "values": [0.2, 0.1]},
    }
    return Experiment.from_dict(fields)


def test_the_command_writes_the_page_and_says_where(three: Path, run: Any, tmp_path: Path):
    code, out, _ = run("report", three, "--output", tmp_path / "deep" / "page.html")
    assert code == 0
    assert out == f"report: {tmp_path / 'deep' / 'page.html'}\n"
    once = (tmp_path / "deep" / "page.html").read_bytes()
    assert run("report", three)[0] == 0
    assert (three / "report.html").read_bytes() == once  # the same runs give the same bytes


@pytest.mark.parametrize("what", ["nothing", "other"])
def test_a_folder_that_is_no_run_gives_one_clear_line(what: str, run: Any, tmp_path: Path):
    place = tmp_path / what
    if what == "other":
        place.mkdir()
        (place / "notes.txt").write_text("mine")
    code, out, err = run("report", place)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    message = err.replace(str(place), "FOLDER")
    assert "FOLDER" in message
    assert "experiment.json" in message or "path" in message


def test_without_the_package_for_figures_a_line_says_what_to_install(three: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    library.cache_clear()
    with pytest.raises(ValueError, match=r"pip install 'benign\[report\]'"):
        bo.write_report(three)


def test_no_folder_at_all_is_refused():
    with pytest.raises(ValueError, match=says("`runs`", "folder")):
        bo.write_report()


def test_what_lies_in_a_folder_of_results_belongs_to_it(three: Path, tmp_path: Path):
    fill(tmp_path / "outer", tiny())
    fill(tmp_path / "outer" / "audit" / "rate_1", tiny())
    fill(tmp_path / "other", tiny())
    found = [folder.path.name for folder in open_folders([tmp_path, tmp_path / "outer"])]
    assert found == ["other", "outer"]
    assert open_result(tmp_path / "outer").attrs["runs_missing"] == 0


def test_a_few_verdicts_are_listed_claim_by_claim_at_the_top(default: ResultFolder):
    written = page([default])
    minute = written[written.index('id="minute"') : written.index("</section>")]
    linked = re.findall(
        r'class="verdict (\w+)"[^>]*>([^<]+)</span> <a href="#(jiang/[^"]+)">', minute
    )
    assert len(linked) == len(judged_on("jiang/fig1"))
    for _, verdict, claim in linked:
        assert f'<tr id="{claim}" data-paper="jiang" data-verdict="{verdict}">' in written


def planned(folder: Path, target: str, *answers: str) -> ResultFolder:
    """A folder in which nothing has been computed yet."""
    (request,) = requests_of(target, RequestOptions("smoke", answers))
    Store.open(folder, create=True).set_about(About([request.experiment.as_dict()], request.made))
    return ResultFolder.open(folder)


def test_a_claim_about_several_figures_takes_them_under_one_reading(tmp_path: Path):
    mnist = planned(tmp_path / "fig4", "zhang/fig4")  # which knows no images=reduced
    cifar = planned(tmp_path / "fig5", "zhang/fig5", "images=reduced")
    tiny_images = planned(tmp_path / "fig6", "zhang/fig6", "images=reduced", "radius=weaker")
    other = planned(tmp_path / "other", "zhang/fig6", "images=reduced", "optimiser=sgd")

    def judged(*found: ResultFolder) -> bool:
        (row,) = [row for row in claims.rows(found) if row.id == "zhang/fig4-6.monotone"]
        return row.verdict != claims.NOT_JUDGED

    assert judged(mnist, cifar, tiny_images)
    assert not judged(mnist, cifar, other)
    assert not judged(mnist, cifar)


@pytest.mark.parametrize(
    ("output", "parts"),
    [(".", ["`output`", "folder", "report.html"]), ("page.pdf", ["`output`", ".html", "page.pdf"])],
)
def test_what_cannot_be_a_page_is_refused_first(
    three: Path, tmp_path: Path, output: str, parts: list[str]
):
    with pytest.raises(ValueError, match=says(*parts)):
        write_report(three, output=tmp_path / output)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_no_folder_of_results_is_refused_with_a_suggestion(
    three: Path, jiang: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "my.yaml").write_text("seeds: 2")
    with pytest.raises(ValueError, match=says("my.yaml", "folder", "`benign run`")):
        write_report(tmp_path / "my.yaml")
    with pytest.raises(ValueError, match=says(str(three / "records"), f"{three}:")):
        write_report(three / "records")
    (tmp_path / "runs").symlink_to(jiang)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=says("runs/jiang/fig1")):
        write_report("jiang/fig1")


def test_a_recipe_without_maps_shows_the_pictures_it_drew(tmp_path: Path):
    chosen = recipe("zhang/fig3")
    made = {"target": "zhang/fig3", "scale": "smoke", "reading": chosen.reading(), "changes": []}
    fill(tmp_path, chosen.experiment("smoke"), made)
    assert "<img" not in page(open_folders([tmp_path]))
    (tmp_path / "fig3.png").write_bytes(b"a picture")
    written = page(open_folders([tmp_path]))
    assert 'src="data:image/png;base64,YSBwaWN0dXJl"' in written


def test_a_comparison_of_networks_has_names_that_people_read(tmp_path: Path):
    chosen = recipe("compare/architectures")
    made = {"target": chosen.name, "scale": "smoke", "reading": chosen.reading(), "changes": []}
    (folder,) = open_folders([fill(tmp_path / "as it is", chosen.experiment("smoke"), made)])
    assert folder.atlas.sliders["model"][:2] == ["attention, clean", "linear mode, clean"]
    made["changes"] = ["training.rate=[1, 2, 3, 4, 5, 6, 7, 8]"]
    (folder,) = open_folders([fill(tmp_path / "changed", chosen.experiment("smoke"), made)])
    assert folder.atlas.sliders["model"][0].startswith("network attention(")
    assert re.search("claim[^<]* compare/architectures", page([folder]))


def test_a_verdict_gives_the_number_of_runs_that_did_not_converge(
    tmp_path: Path, default: ResultFolder
):
    result = default.result.assign(status=xr.full_like(default.result["status"], Status.STEP_CAP))
    (row, *_) = claims.rows([replace(default, result=result)])
    assert holds(row.caution, "12 of 12 runs", "step cap")


def test_what_was_changed_sets_verdicts_apart_and_settings_stand_above_their_maps(
    jiang: Path, default: ResultFolder, tmp_path: Path
):
    (request,) = requests_of(
        "jiang/fig1", RequestOptions("smoke", ["w_O=divided"], None, ["training.max_steps=7"])
    )
    fill(tmp_path, request.experiment, request.made)
    found = [default, ResultFolder.open(tmp_path)]
    under = {row.under for row in claims.rows(found) if row.verdict != claims.NOT_JUDGED}
    assert under == {"w_O=undivided", "w_O=divided, jiang/fig1: training.max_steps=7"}
    written = page(found)
    assert "settings differ" in written
    assert f"or step {default.experiment.training.most_steps()}" in written
    assert "or step 7," in written


def test_a_quantity_computed_from_a_variable_does_not_get_its_definition(default: ResultFolder):
    meanings = {each.title: each.meaning for each in default.atlas.quantities}
    assert "loss" in meanings["test loss"]
    assert meanings["test error"] == ""
