"""The page as people use it: in a browser, by mouse, finger and keyboard, light and dark, wide and narrow."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from benign.experiment import Experiment
from benign.papers.registry import recipe
from benign.report.page import write_report
from benign.sweep.folders import open_result
from tests.browser import Visit
from tests.report.made_up import claims_of, fill, judged_on
from tests.tiny import tiny

BAD = '<img src=x onerror="window.bad=1">'


def opened(browser: Browser, file: Path, **more) -> Visit:
    visit = Visit(browser, **more)
    visit.page.goto(file.as_uri())
    visit.page.wait_for_selector("body[data-ready]")
    visit.page.wait_for_selector("[data-shown]")
    return visit


@pytest.fixture(scope="module")
def own(browser: Browser, three: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    """An experiment with three axes, on a desk."""
    file = write_report(three, output=tmp_path_factory.mktemp("page") / "three.html")
    visit = opened(browser, file)
    yield visit
    visit.close()


@pytest.fixture(scope="module")
def paper(browser: Browser, jiang: Path) -> Iterator[Visit]:
    """A recipe under two readings, on a phone with a dark screen."""
    file = write_report(jiang / "jiang/fig1/smoke")
    options = {"color_scheme": "dark", "has_touch": True}
    visit = opened(browser, file, width=390, height=844, **options)
    yield visit
    visit.close()


def point_at(page: Page, across: float, up: float, which: int = 0) -> tuple[float, float]:
    """A place on a map, as shares of its width and height."""
    plot = page.locator(".map .nsewdrag").nth(which)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    return box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"]


def shown(section: Locator) -> str:
    return section.locator(".which").inner_text()


def background(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_hovering_a_cell_shows_its_numbers(own: Visit, three: Path):
    own.page.mouse.move(*point_at(own.page, 0.25, 0.5))
    text = own.page.locator(".hoverlayer .hovertext").text_content() or ""
    mean = open_result(three).test_accuracy.sel(samples=2, snr=2, radius=0.1).mean().item()
    assert "samples 2, snr 2" in text
    assert f"test accuracy {mean:.3f} [" in text
    assert "2 seeds: converged" in text
    own.keep("report-hover")


def test_clicking_a_cell_shows_how_it_trained(own: Visit):
    own.page.mouse.click(*point_at(own.page, 0.75, 0.2))
    own.page.wait_for_selector("[data-shown='6']")
    group = own.page.locator(".group")
    assert shown(group) == "samples 4, snr 0.5, radius 0.1\n2 seeds: converged"
    titles = group.locator(".curves h4").all_inner_texts()
    assert titles[:4] == ["Loss", "Accuracy", "Attention", "Coordinates of the theory"]
    assert group.locator(".curve .scatterlayer .js-line").count() >= 7
    assert "robust accuracy" in group.locator(".main").inner_text()
    group.locator(".curves select").select_option("value noise max")
    assert "largest |V_{n,i}|" in group.locator(".curves").inner_text()
    expect(group.locator(".curve").last).to_contain_text("value noise max")
    group.locator(".curves details summary").click()
    assert "d_h >= max(SNR^4, SNR^-4)" in group.locator(".curves .conditions").inner_text()
    own.keep("report-desk", whole=True)


def test_the_keyboard_reaches_every_cell(own: Visit):
    page, group = own.page, own.page.locator(".group")
    before, frames = shown(group), group.locator(".map .shapelayer path")
    group.locator(".map").focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowUp")
    said = group.locator(".cell-text")
    assert said.inner_text().startswith("samples 2, snr 8\ntest accuracy")
    page.keyboard.press("ArrowDown")
    assert said.inner_text().startswith("samples 2, snr 2\n")
    assert shown(group) == before  # until Enter
    expect(frames).to_have_count(2)  # of the cursor and of the selected cell
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-shown='2']")
    assert shown(group).startswith("samples 2, snr 2, radius 0.1")
    expect(frames).to_have_count(1)


def test_a_slider_moves_the_map(own: Visit, three: Path):
    page, group = own.page, own.page.locator(".group")
    slider = group.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert group.locator("output").first.inner_text() == "0.3"
    assert slider.get_attribute("aria-valuetext") == "0.3"
    group.locator(".quantity").select_option("robust_accuracy")
    assert "robust accuracy" in group.locator(".about").inner_text()
    page.mouse.move(*point_at(page, 0.75, 0.9))
    hover = page.locator(".hoverlayer .hovertext")
    expect(hover).to_contain_text("robust accuracy")
    text = hover.text_content() or ""
    mean = open_result(three).robust_accuracy.sel(samples=4, snr=8, radius=0.3).mean().item()
    assert f"robust accuracy {mean:.3f} [" in text or f"robust accuracy {mean:.2f} [" in text
    expect(group.locator(".which")).to_contain_text("radius 0.3")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert group.locator("output").first.inner_text() == "0.1"


def test_the_same_numbers_are_in_a_table(own: Visit, three: Path):
    details = own.page.locator(".numbers").first
    details.locator("summary").click()
    expect(details.locator("tr")).to_have_count(4)
    table = [row.split("\t") for row in details.locator("tr").all_inner_texts()]
    assert table[0] == ["snr \\ samples", "2", "4"]
    assert [row[0] for row in table[1:]] == ["8", "2", "0.5"]  # as on the map
    shows = own.page.locator(".quantity").input_value()
    numbers = open_result(three)[shows].sel(samples=2, snr=8, radius=0.1)
    assert float(table[1][1].split()[0]) == pytest.approx(numbers.mean().item(), abs=1e-2)
    details.locator("summary").click()


def test_no_figure_reaches_out_of_its_frame(own: Visit):
    """Whatever was shown before it: names of axes and legends are of different heights."""
    group = own.page.locator(".group")
    menu = group.locator(".quantity")
    before = menu.input_value()
    for name in menu.locator("option").evaluate_all("all => all.map((each) => each.value)"):
        menu.select_option(name)
        group.locator(f".map[data-drawn='{name}']").wait_for()
        lowest = group.locator(".map").evaluate(
            "map => Math.max(...[...map.querySelectorAll('.xtitle, .legend')]"
            ".map((each) => each.getBoundingClientRect().bottom)) - map.getBoundingClientRect().bottom"
        )
        assert lowest <= 1, name
    menu.select_option(before)


def test_a_button_changes_light_and_dark(own: Visit):
    light = background(own.page)
    own.page.locator("#theme").click()
    assert background(own.page) != light
    ink = own.page.locator(".map .xtitle").first.evaluate("each => getComputedStyle(each).fill")
    assert ink == "rgb(236, 236, 241)"
    own.keep("report-desk-dark", whole=True)
    own.page.locator("#theme").click()
    assert background(own.page) == light


def test_the_command_is_copied(own: Visit):
    button = own.page.locator(".minute .copy")
    button.click()
    expect(button).to_have_text("Copied")


def test_a_phone_shows_all_in_one_column(paper: Visit):
    assert paper.sideways() == 0
    assert background(paper.page) == "rgb(23, 23, 27)"  # dark, as the phone is
    first, second = (paper.page.locator(".map").nth(k).bounding_box() for k in (0, 1))
    assert first is not None
    assert second is not None
    assert first["x"] == second["x"]
    assert second["y"] > first["y"] + first["height"]
    assert first["width"] <= 390
    paper.keep("report-phone", whole=True)


def test_a_finger_chooses_a_cell_of_either_reading(paper: Visit):
    page = paper.page
    page.touchscreen.tap(*point_at(page, 0.5, 0.1, which=1))
    expect(page.locator(".which")).to_contain_text("reading w_O=divided: samples 8")
    expect(page.locator(".map .shapelayer path")).to_have_count(2)  # the same cell of both
    page.locator(".jump:visible").click()
    expect(page.locator(".detail")).to_be_in_viewport()
    assert paper.sideways() == 0


def test_claims_are_filtered(paper: Visit):
    page = paper.page
    rows = page.locator(".claims tbody tr:visible")
    judged = len(judged_on("jiang/fig1"))
    every = 2 * judged  # under two readings
    assert rows.count() == every
    form = page.locator(".filters")
    form.locator("[name=text]").fill("exponent slope")
    texts = rows.all_inner_texts()
    assert 0 < len(texts) < every
    assert all("exponent" in each and "slope" in each for each in texts)
    form.locator("[name=text]").fill("")
    form.locator("[name=verdict]").select_option("not judged")
    assert rows.count() > 40
    assert form.locator(".count").inner_text().startswith(f"{rows.count()} of ")
    form.locator("[name=verdict]").select_option("")
    everything = rows.count()
    form.locator("[name=paper]").select_option("jiang")
    assert rows.count() == everything
    form.locator("[name=text]").fill("nothing is called so")
    assert page.locator(".nothing").is_visible()
    page.locator(".nothing .all").click()
    assert rows.count() == everything
    form.locator("[name=text]").fill("SNR² = 1000")
    squares = rows.count()
    form.locator("[name=text]").fill("SNR^2 = 1000")
    assert rows.count() == squares > 0
    form.locator("[name=text]").fill("")
    form.locator("[name=verdict]").select_option("judged")
    counts = rf"\b{judged} of {len(claims_of('jiang'))}\b.*\b{every}\b"
    assert re.search(counts, form.locator(".count").inner_text())
    form.locator("[name=reading]").select_option("w_O=divided")
    assert rows.count() == judged
    assert all("w_O=divided" in each for each in rows.all_inner_texts())
    form.locator("[name=reading]").select_option("")
    page.locator("#claims").scroll_into_view_if_needed()
    paper.keep("report-phone-claims")
    assert paper.sideways() == 0


@pytest.mark.parametrize("which", ["own", "paper"])
def test_nothing_complained_and_nothing_was_fetched(which: str, request: pytest.FixtureRequest):
    """After all of the above."""
    visit: Visit = request.getfixturevalue(which)
    assert visit.complaints == []
    assert {url.partition(":")[0] for url in visit.requests} <= {"file", "blob", "data"}
    assert len([url for url in visit.requests if url.startswith("file:")]) == 1


def test_markup_in_names_is_shown_and_not_run(browser: Browser, tmp_path: Path):
    fields = tiny().as_dict()
    fields["data"] |= {
        "snr": {"zipped": BAD, "values": [0.5, 2.0]},
        "noise_std": {"zipped": BAD, "values": [0.2, 0.1]},
    }
    folder = fill(tmp_path / "<b>bold", Experiment.from_dict(fields), {"benign": BAD})
    visit = opened(browser, write_report(folder, output=tmp_path / "page.html"))
    visit.page.mouse.click(*point_at(visit.page, 0.5, 0.5))
    visit.page.locator(".numbers summary").click()
    expect(visit.page.locator(".numbers td").first).to_contain_text(BAD)
    assert visit.page.evaluate("window.bad") is None
    assert visit.page.locator("img").count() == 0
    assert "<b>bold" in visit.page.locator("h1").inner_text()
    assert BAD in visit.page.locator(".which").inner_text()
    assert BAD in visit.page.locator("#again").inner_text()
    visit.keep("report-markup")
    assert visit.complaints == []
    visit.close()


def test_one_axis_and_one_cell_have_their_pages(browser: Browser, tmp_path: Path):
    line = fill(tmp_path / "line", tiny("data.samples=4", "data.snr={logspace: [0.1, 10, 8]}"))
    cell = fill(tmp_path / "cell", tiny("data.samples=4", "data.snr=2.0"))
    visit = opened(browser, write_report(line, cell, output=tmp_path / "page.html"))
    page = visit.page
    expect(page.locator("[data-shown]")).to_have_count(2)
    first, second = page.locator(".group").nth(0), page.locator(".group").nth(1)
    first.locator(".map").focus()
    for _ in range(7):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(first.locator(".which")).to_contain_text("snr 0.1")
    assert second.locator(".map").count() == 0
    assert "cell" in shown(second)
    assert "test accuracy" in second.locator(".main").inner_text()
    visit.keep("report-line", whole=True)
    assert visit.complaints == []
    visit.close()


def test_a_cell_that_diverged_is_marked_and_has_no_empty_charts(browser: Browser, tmp_path: Path):
    tiny("training.rate=[0.5, 1e30]", "data.samples=4").run(tmp_path / "runs")
    visit = opened(browser, write_report(tmp_path / "runs"))
    page = visit.page
    expect(page.locator(".map .legend")).to_contain_text("no value")
    row = open_result(tmp_path / "runs").sizes["snr"]
    rate_is_x = "rate" in (page.locator(".map .xtitle").text_content() or "")
    page.mouse.click(*point_at(page, *((0.75, 0.5 / row) if rate_is_x else (0.5 / row, 0.75))))
    expect(page.locator(".which")).to_contain_text("diverged")
    page.wait_for_selector("[data-shown]")
    charts = page.locator(".curves .curve")
    assert all(charts.nth(k).locator("path.js-line").count() for k in range(charts.count()))
    assert "Loss" not in page.locator(".curves h4").all_inner_texts()  # of one point
    visit.keep("report-diverged")
    assert visit.complaints == []
    visit.close()


def test_what_has_no_order_has_a_menu_in_place_of_a_slider(browser: Browser, tmp_path: Path):
    init = "init: {kind: torch_default}"
    networks = f"[{{kind: attention, hidden: 4, {init}}}, {{kind: attention, hidden: 8, {init}}}]"
    folder = fill(tmp_path, tiny(f"network={networks}"))
    visit = opened(browser, write_report(folder))
    menu = visit.page.locator(".place")
    names = ["attention(hidden=4)", "attention(hidden=8)"]
    assert menu.locator("option").all_inner_texts() == names
    menu.select_option("1")
    expect(visit.page.locator(".which")).to_contain_text("attention(hidden=8)")
    assert visit.complaints == []
    visit.close()


def test_a_thousand_runs_are_a_small_file_that_answers_at_once(browser: Browser, tmp_path: Path):
    """A heat map of a thousand cells with all their curves."""
    big = recipe("zhang/fig1").experiment("paper").as_dict()
    big["data"] |= {"samples": list(range(2, 42, 2)), "snr": {"logspace": [0.1, 20, 50]}}
    fill(tmp_path, Experiment.from_dict({**big, "seeds": 1}), {"target": "zhang/fig1"})
    file = write_report(tmp_path)
    assert file.stat().st_size < 8_000_000
    visit = Visit(browser)
    session = visit.context.new_cdp_session(visit.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    began = time.perf_counter()
    visit.page.goto(file.as_uri(), wait_until="commit")
    visit.page.wait_for_selector("body[data-ready]")
    metrics = session.send("Performance.getMetrics")["metrics"]
    visit.page.mouse.move(*point_at(visit.page, 0.3, 0.3))
    visit.page.wait_for_selector(".hovertext")
    took = time.perf_counter() - began
    (spent,) = [each["value"] for each in metrics if each["name"] == "TaskDuration"]
    print(f"{file.stat().st_size / 1e6:.1f} MB, {took:.2f} s, {spent:.2f} s of work")
    visit.keep("report-thousand")
    # Two seconds of the browser's own time: wall-clock time depends on other processes.
    assert spent < 2
    assert took < 10
    visit.page.mouse.click(*point_at(visit.page, 0.3, 0.3))
    visit.page.wait_for_selector("[data-shown]")
    assert visit.complaints == []
    visit.close()
