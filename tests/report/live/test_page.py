"""The live page in a browser: it fills by itself, survives what happens on the disk, and keeps to this machine."""

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benign.report.live.serve import free_port
from benign.sweep.folders import open_experiment
from benign.sweep.lease import acquire, write_note
from benign.sweep.plan import units_of
from benign.sweep.progress import UnitPosition
from benign.sweep.store import Store
from tests.browser import PATIENCE, SCREENSHOTS
from tests.tiny import tiny

MARKUP = '<img src=x onerror="window.bad=1">`${window.bad=1}`'
FILLED = (
    "(document.querySelector('.map')?.data?.[0]?.z ?? []).flat().filter((z) => z !== null).length"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Sweeps of all kinds: half done, finished with three axes, of a strange name, broken."""
    root = tmp_path_factory.mktemp("runs")
    tiny().run(root / "half")
    (root / "half" / "records" / f"{tiny().units()[0].key}.npz").unlink()
    tiny("training.rate=[0.5, 0.1]", "training.max_steps=5").run(root / "whole" / "three")
    tiny("training.rate=[0.5, 1e30]", "data.samples=4").run(root / "bad")
    shutil.copytree(root / "half", root / MARKUP)
    shutil.copytree(root / "half", root / "fleeting")
    shutil.copytree(root / "half", root / "broken")
    (root / "broken" / "experiment.json").write_text("{", encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def server(root) -> Iterator[tuple[subprocess.Popen, int]]:
    port = free_port("127.0.0.1", None)
    command = [sys.executable, "-m", "benign", "serve", str(root), "--port", str(port)]
    # nicegui would take a test for one of its own
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, cwd=root.parent, **pipes) as process:
        assert process.stdout
        assert f"http://127.0.0.1:{port}" in process.stdout.readline()
        yield process, port
        process.kill()


@pytest.fixture(scope="module")
def window(browser) -> Iterator[Any]:
    """One for all pages: it keeps the scripts."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


@pytest.fixture
def visit(window, server) -> Iterator[Any]:
    """Open a page of the server; an error on it, or a request to elsewhere, fails the test."""
    home, wrong, pages = f"http://127.0.0.1:{server[1]}", [], []

    def check_request(request: Any) -> None:
        if not request.url.startswith((f"{home}/", "data:", "blob:")):
            wrong.append(f"requested {request.url}")

    def visit(path: str, width: int = 1200, scheme: str = "light") -> Any:
        page = window.new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": 850})
        page.emulate_media(color_scheme=scheme)
        page.on(
            "console",
            lambda message: wrong.append(message.text) if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", check_request)
        page.goto(home + path)
        return page

    yield visit
    for page in pages:
        page.close()
    assert not wrong


def filled(page: Any, cells: int) -> None:
    page.wait_for_function(f"{FILLED} === {cells}")


def shot(page: Any, name: str) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"live_{name}.png", full_page=True)


def fits(page: Any) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def status(port: int, path: str, **headers: str) -> tuple[int, str]:
    """The answer to a request that no browser would put so."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_the_list_leads_to_a_map_that_fills_without_reload(visit, root):
    page = visit("/")
    page.get_by_text("4 of 8").first.wait_for()
    page.get_by_text("nobody").first.wait_for()
    page.get_by_text(re.compile(r"experiment\.json.*damaged")).first.wait_for()
    shot(page, "index")
    page.get_by_role("link", name="half", exact=True).click()
    filled(page, 2)
    page.get_by_text("benign resume").first.wait_for()
    page.evaluate("window.kept = 'here'")
    shot(page, "half")
    tiny().run(root / "half")  # the unit that is missing
    filled(page, 4)
    page.get_by_text(re.compile("8 of 8.*finished")).first.wait_for()
    page.get_by_text("benign export").wait_for()
    assert not page.get_by_text("Empty cells").is_visible()
    assert page.evaluate("window.kept") == "here"


def test_the_steps_of_a_running_unit_are_shown_on_both_pages(visit, root):
    folder = shutil.copytree(root / "whole" / "three", root / "going")
    store, unit = Store(folder), units_of([open_experiment(folder)])[0].key
    store.path(unit).unlink()
    assert acquire(store, unit) is None
    listed = visit("/")
    listed.get_by_role("link", name="going").wait_for()
    page = visit("/sweep/going")
    page.get_by_text("Empty cells").wait_for()
    for step in (3, 4):
        write_note(store, unit, UnitPosition(8, step, 5, 7, False, step / 5, step / 5, 6000.0, 0.0))
        for each in (page, listed):
            each.get_by_text(re.compile(rf"step {step}\b.*\b5\b.*\b7\b")).first.wait_for()
    listed.get_by_text("25 min").first.wait_for()
    shot(page, "going")
    shot(listed, "going_index")
    write_note(store, unit, UnitPosition(8, 5, 5, 8, True, 1.0, 1.0, 70.0, 0.0))
    page.get_by_text(re.compile("(?<!of )8 runs")).first.wait_for()
    shutil.rmtree(folder)


def test_a_diverged_cell_is_described_in_words(visit):
    page = visit("/sweep/bad")
    page.get_by_text("4 diverged", exact=False).first.wait_for()
    page.get_by_text(re.compile(r"4 runs diverged.*training\.rate")).first.wait_for()
    box = page.locator(".map .nsewdrag").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.25)
    page.get_by_text("2 seeds: diverged").first.wait_for()
    assert not page.locator(".curve").count()
    shot(page, "diverged")


def test_what_is_chosen_survives_a_reload(visit):
    page = visit("/sweep/whole/three")
    filled(page, 4)
    outlines = "document.querySelector('.map')?.layout?.shapes?.length ?? 0"
    assert page.evaluate(outlines) == 0
    page.get_by_label("What the figure shows").click()
    page.get_by_role("option", name="train loss", exact=True).click()
    page.locator(".slide [tabindex='0']").first.focus()
    page.keyboard.press("ArrowRight")
    box = page.locator(".map .nsewdrag").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.25)
    for _ in range(2):
        page.get_by_text("Training at snr 2, samples 2, rate 0.5").wait_for()
        page.get_by_text("means over 2 seeds").wait_for()
        page.wait_for_function(f"{outlines} === 1")
        assert page.get_by_label("What the figure shows").input_value() == "train loss"
        assert page.url.endswith(
            "?show=train_loss&curve=attention_entropy_curve&at.rate=0.5&at.snr=2&at.samples=2"
        )
        page.reload()
    visit("/sweep/whole/three?show=nothing&at.rate=7&at.snr=<b>").get_by_text("rate 0.1").wait_for()


def test_the_experiment_is_shown_on_request(visit):
    page = visit("/sweep/whole/three")
    specification = page.get_by_text("kind: signal_noise")
    page.get_by_text("About this experiment").wait_for()
    assert not specification.is_visible()
    page.get_by_text("About this experiment").click()
    specification.wait_for()
    page.get_by_text("d = 8, M = 3").wait_for()


def test_a_click_or_the_keyboard_chooses_a_cell(visit):
    page = visit("/sweep/whole/three")
    filled(page, 4)
    box = page.locator(".map .nsewdrag").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.25)
    page.get_by_text("Training at snr 2, samples 2").wait_for()
    page.wait_for_function("document.querySelectorAll('.curve')[0]?.data?.length > 0")
    page.get_by_label("snr").focus()
    for key in ("Enter", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    page.get_by_text("Training at snr 0.5, samples 2").wait_for()
    shot(page, "cell")


def test_a_slider_and_a_choice_change_the_map(visit):
    page = visit("/sweep/whole/three")
    filled(page, 4)
    first = page.evaluate("JSON.stringify(document.querySelector('.map').data[0].z)")
    page.get_by_label("What the figure shows").click()
    page.get_by_role("option", name="train loss", exact=True).click()
    changed = "JSON.stringify(document.querySelector('.map').data[0].z) !== {}"
    page.wait_for_function(changed.format(repr(first)))
    second = page.evaluate("JSON.stringify(document.querySelector('.map').data[0].z)")
    page.get_by_text("rate 0.1").wait_for()
    page.locator(".slide [tabindex='0']").first.focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text("rate 0.5").wait_for()
    page.wait_for_function(changed.format(repr(second)))


def test_a_sweep_that_is_deleted_leaves_its_last_picture(visit, root):
    page, listed = visit("/sweep/fleeting"), visit("/")
    filled(page, 2)
    listed.get_by_role("link", name="fleeting").wait_for()
    shutil.rmtree(root / "fleeting")
    page.get_by_text("This sweep is gone from the disk").wait_for()
    filled(page, 2)
    listed.get_by_role("link", name="fleeting").wait_for(state="detached")
    listed.get_by_role("link", name="half").wait_for()


def test_a_damaged_specification_is_a_line(visit):
    visit("/sweep/broken").get_by_text(re.compile(r"experiment\.json.*damaged")).first.wait_for()


def test_markup_is_shown_and_not_run(visit):
    page = visit("/")
    page.get_by_role("link", name=MARKUP).click()
    page.get_by_role("heading", name=MARKUP).wait_for()
    filled(page, 2)
    assert page.title().startswith(MARKUP)
    assert page.evaluate("window.bad") is None


def test_phones_and_dark_mode(visit):
    for path, name in [("/", "phone_index"), ("/sweep/whole/three", "phone")]:
        page = visit(path, width=390, scheme="dark")
        page.locator(".card:visible").first.wait_for()
        if path != "/":
            filled(page, 4)
            assert (
                page.locator(".map .xtitle").evaluate("it => it.style.fill") == "rgb(236, 236, 241)"
            )
        assert fits(page)
        assert page.evaluate("document.body.classList.contains('body--dark')")
        shot(page, name)
    page.get_by_role("button", name="light / dark").click()
    page.wait_for_function("document.body.classList.contains('body--light')")
    page.wait_for_function(
        "document.querySelector('.map .xtitle').style.fill === 'rgb(28, 28, 34)'"
    )
    page.get_by_role("link", name="all sweeps").click()
    page.wait_for_function("document.body.classList.contains('body--light')")
    page.evaluate("localStorage.clear()")


@pytest.mark.parametrize(
    "path", ["/sweep/../../etc/passwd", "/sweep/%2e%2e/%2e%2e/etc/passwd", "/sweep/none", "/none"]
)
def test_what_was_not_found_on_the_disk_is_not_found(server, path):
    code, text = status(server[1], path)
    assert code == 404
    assert "Not found" in text
    assert "root:" not in text


def test_strangers_are_refused(server):
    port = server[1]
    assert status(port, "/", Host=f"localhost:{port}")[0] == 200
    assert status(port, "/", Host=f"evil.example:{port}")[0] == 403
    assert status(port, "/", Origin="http://evil.example")[0] == 403
    socket = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    upgrade["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    assert status(port, socket, Origin="http://evil.example", **upgrade)[0] == 403


def test_ctrl_c_ends_it_in_one_line_and_nothing_was_written(window, server, root):
    process, port = server
    page = window.new_page()
    page.goto(f"http://127.0.0.1:{port}")
    page.get_by_role("link", name="half").wait_for()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    page.close()
    assert (process.returncode, out.count("\n"), err) == (0, 1, "")
    assert "sweeps" in out
    left = {path.name for path in root.iterdir()} - {"fleeting"}  # which another test deletes
    assert left == {"half", "whole", "broken", "bad", MARKUP}
    assert ".nicegui" not in os.listdir(root.parent)
