"""The pages: the list of sweeps, one page a sweep, and what is said where there is none."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nicegui import Client, app, ui

from benign.report.live.choice import Choice
from benign.report.live.frame import framed, heading, told
from benign.report.live.sweep_page import SweepPage
from benign.report.live.watch import Sweep, Watch, shown
from benign.report.live.words import (
    clock,
    ended_text,
    left_text,
    made_text,
    progress_text,
    share_done,
    steps_text,
    trouble_text,
)

TICK = 0.5
"""seconds between questions of a page whether anything has changed; nothing is sent where nothing has"""


def lay_out(watch: Watch) -> None:
    """Make the pages of what is watched."""
    style = Path(__file__).with_name("live.css").read_text(encoding="utf-8")
    ui.add_css(style, shared=True)

    @ui.page("/")
    async def index() -> None:
        await framed("Sweeps")
        rows = _Rows(watch)
        ui.timer(TICK, rows.refresh)

    @ui.page("/sweep/{name:path}")
    async def sweep(name: str) -> None:
        if name not in watch.sweeps:  # looked up, never made a path of
            _not_found(f"There is no sweep {name} in {shown(str(watch.folder))}.")
            return
        ui.page_title(f"{name} · benign")
        choice = Choice(dict(ui.context.client.request.query_params))
        page = SweepPage(watch, name, await framed(name, home=True), choice)
        ui.timer(TICK, page.refresh)

    @app.exception_handler(404)
    async def nothing(request: Any, _: Exception) -> Any:
        with Client(ui.page(""), request=request) as client:
            _not_found("There is no such page.")
        return client.build_response(request, 404)


def _not_found(text: str) -> None:
    ui.context.client.status_code = 404
    heading("Not found", home=True)
    told(text)


class _Rows:
    """The list of sweeps; a row is made once and then changed in place."""

    def __init__(self, watch: Watch):
        self.watch, self.version = watch, -1
        told(
            "Each row is a sweep: a grid of training runs. Open one to see its heat maps fill. "
            "This page follows the disk by itself and changes nothing.",
            "soft",
        )
        self.none = ui.element("div").classes("card")
        self.list = ui.element("div").classes("rows").props("role=list")
        self.rows: dict[str, _Row] = {}

    def refresh(self) -> None:
        if self.watch.version != self.version:
            self.version, sweeps = self.watch.version, self.watch.sweeps
            if list(sweeps) != list(self.rows):
                self._make(sweeps)
            self._say_none()
            for name, sweep in sweeps.items():
                self.rows[name].show(sweep)
        for row in self.rows.values():
            row.tick()

    def _make(self, names: Iterable[str]) -> None:
        self.list.clear()
        with self.list:
            self.rows = {name: _Row(name) for name in names}

    def _say_none(self) -> None:
        self.none.clear()
        self.none.set_visibility(not self.rows)
        folder = shown(str(self.watch.folder))
        with self.none:
            if not self.version:
                told(f"Looking into {folder} ...")
                return
            told(self.watch.problem, "bad")
            told(f"There is no sweep in {folder} yet; one appears here as it begins:")
            told("benign run jiang/fig1", "command")


class _Row:
    """A sweep in the list."""

    def __init__(self, name: str):
        with ui.element("div").classes("card row-of").props("role=listitem"):
            with ui.element("div"):
                ui.link(name, f"/sweep/{quote(name)}").classes("name")
                self.made = told("", "soft")
            with ui.element("div"):
                self.bar = ui.linear_progress(0, show_value=False, size="10px")
                self.bar.props('rounded aria-label="share of runs done"')
                self.progress = told("")
                self.steps = told("")
                self.ended = told("", "soft")
                self.trouble = told("", "bad")
            with ui.element("div"):
                self.left = told("")
                self.changed = told("", "soft")
        self.sweep: Sweep | None = None

    def show(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.made.text = made_text(sweep)
        self.bar.value = share_done(sweep)
        self.bar.set_visibility(sweep.standing is not None)
        self.progress.text = progress_text(sweep)
        self.steps.text = steps_text(sweep)
        self.ended.text = ended_text(sweep)
        self.trouble.text = trouble_text(sweep)

    def tick(self) -> None:
        if self.sweep:
            now = time.time()
            self.left.text = left_text(self.sweep, now)
            self.changed.text = f"last change {clock(self.sweep.changed, now)}"
