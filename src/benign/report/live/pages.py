"""What all pages share: the line at the top, light and dark, texts.

Texts reach the browser as text, never as markup: no page uses `ui.html` or `ui.markdown`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nicegui import Client, app, ui
from nicegui.events import GenericEventArguments

from benign.plot.caption import describe
from benign.report.atlas import PAPER, THEORY, Atlas, Quantity, readable
from benign.report.figures import Figure, names_of
from benign.report.live.drawing import LoadedSweep, Selection, draw, load_sweep
from benign.report.live.monitor import (
    StoreReader,
    SweepMonitor,
    SweepState,
    clock,
    empty_text,
    ended_text,
    left_text,
    made_text,
    progress_text,
    share_done,
    shown,
    steps_text,
    trouble_text,
)
from benign.sweep.status_text import next_steps
from benign.sweep.text import shown as shown_path

WAIT = 10.0
"""seconds for a browser to connect; a program that only fetches the page never does"""
IS_DARK = """
(localStorage.getItem("benign-dark") ?? String(matchMedia("(prefers-color-scheme: dark)").matches)) === "true"
"""


class Scheme:
    """Light or dark: as the browser prefers, or as somebody chose on any of these pages."""

    LIGHT, DARK = ("#1c1c22", "#ffffff"), ("#ececf1", "#212127")

    def __init__(self) -> None:
        self.mode = ui.dark_mode(None)

    @property
    def colours(self) -> tuple[str, str]:
        """Those of text and of the ground."""
        return self.DARK if self.mode.value else self.LIGHT

    def switch(self) -> None:
        self.mode.value = not self.mode.value
        choice = "true" if self.mode.value else "false"
        ui.run_javascript(f'localStorage.setItem("benign-dark", "{choice}")')


async def framed(title: str, home: bool = False) -> Scheme:
    """Begin a page: its top, and its colours once the browser has told them."""
    scheme = Scheme()
    heading(title, home, scheme)
    await ui.context.client.connected(timeout=WAIT)
    scheme.mode.value = bool(await ui.run_javascript(IS_DARK, timeout=WAIT))
    return scheme


def heading(title: str, home: bool = False, scheme: Scheme | None = None) -> None:
    """The line at the top of a page."""
    with ui.element("header").classes("top"):
        if home:
            ui.link("← all sweeps", "/")
        with ui.element("h1"):
            ui.label(title)
        if scheme:
            ui.button("light / dark", on_click=scheme.switch, color=None).props(
                "flat dense no-caps"
            )


def told(text: str, classes: str = "") -> ui.label:
    """A line of text."""
    return ui.label(text).classes(classes)


CONFIG = {"displayModeBar": False}
PLACE = "(event) => emit(event.points[0].pointNumber)"
"""of a click no more is sent than where it was"""


class Panel:
    """Draws an atlas, and again when another is given or something else is chosen."""

    def __init__(self, scheme: Scheme, choice: Selection, chosen: Callable[[], Awaitable[None]]):
        self.scheme, self.choice, self.chosen = scheme, choice, chosen
        self.axes: dict[str, list[str]] = {}
        """the axes of the map, rows before columns, with a label for each place"""
        self.sliders: dict[str, list[str]] = {}
        self._offered: Any = None
        self._shown: Any = None
        with ui.element("section").classes("card") as self.maps:
            self.inputs = ui.element("div").classes("inputs")
            self.place = ui.element("div")
            self.about = told("", "soft")
        with ui.element("section").classes("card") as self.training:
            with ui.element("h2"):
                self.of_cell = told("")
            self.selects = ui.element("div").classes("inputs")
            self.about_curves = told("", "soft")
            self.curves = ui.element("div").classes("curves")
        self.map: ui.plotly | None = None
        self.plots: dict[str, ui.plotly] = {}
        self.maps.set_visibility(False)
        self.training.set_visibility(False)

    def offer(self, atlas: Atlas) -> None:
        """Let people choose from what there is; made anew only where that has changed."""
        axes = {dim: names_of(atlas.result[dim]) for dim in (atlas.y, atlas.x) if dim}
        alone = [name for group in atlas.curve_groups if group.alone for name in group.names]
        offered = (atlas.quantities, atlas.sliders, axes, alone)
        if offered == self._offered:
            return
        self._offered, self.axes, self.sliders = offered, axes, atlas.sliders
        self.choice.fit([each.name for each in atlas.quantities], atlas.sliders, axes, alone)
        self._make_inputs(atlas)
        self._make_selects(alone)
        self.maps.set_visibility(bool(axes))

    async def draw(self, atlas: Atlas, empty: str) -> None:
        """Draw what is chosen, unless it is what stands there; `empty` is said of cells that have not run."""
        wanted = (atlas, deepcopy(self.choice), empty, self.scheme.colours)
        if wanted == self._shown:
            return
        self._shown = wanted
        drawing = await asyncio.to_thread(draw, *wanted)
        if drawing.map:
            self._show_map(drawing.map)
            self.about.text = drawing.about
        self.training.set_visibility(bool(atlas.curve_groups))
        self._show_curves(drawing.curves)
        self.about_curves.text = drawing.told
        self.of_cell.text = f"Training{self._where()}"

    def _where(self) -> str:
        """The chosen cell with all its places, also those of sliders."""
        if not self.choice.cell:
            return ""
        places = self.choice.cell | self.choice.places
        labels = self.axes | self.sliders
        return " at " + ", ".join(f"{dim} {labels[dim][place]}" for dim, place in places.items())

    def _make_inputs(self, atlas: Atlas) -> None:
        self.inputs.clear()
        with self.inputs:
            if titles := {each.name: _quantity_title(each) for each in atlas.quantities}:
                ui.select(
                    titles,
                    label="What the figure shows",
                    value=self.choice.quantity,
                    on_change=lambda event: self._set(quantity=event.value),
                )
            for dim, labels in atlas.sliders.items():
                self._make_slider(dim, labels)

    def _make_slider(self, dim: str, labels: list[str]) -> None:
        with ui.element("div").classes("slide"):
            place = self.choice.places[dim]
            value = told(f"{dim} {labels[place]}")
            slider = ui.slider(min=0, max=len(labels) - 1, step=1, value=place)
            slider.props["aria-label"] = dim

            async def slide(event: Any) -> None:
                value.text = f"{dim} {labels[int(event.value)]}"
                await self._set(places={**self.choice.places, dim: int(event.value)})

            slider.on_value_change(slide)

    def _make_selects(self, alone: list[str]) -> None:
        """Cells for the keyboard, and where one is too small for a finger; curves that have a figure each."""
        self.selects.clear()
        with self.selects:
            if self.axes:
                told("Choose a cell on the figure, or here:", "soft")
            self.choosers = {
                dim: ui.select(
                    dict(enumerate(labels)),
                    label=dim,
                    value=self.choice.cell.get(dim),
                    on_change=lambda event, dim=dim: self._set(
                        cell={**self.choice.cell, dim: event.value}
                    ),
                )
                for dim, labels in self.axes.items()
            }
            if alone:
                ui.select(
                    {name: readable(name) for name in alone},
                    label=THEORY,
                    value=self.choice.coordinate,
                    on_change=lambda event: self._set(coordinate=event.value),
                )

    async def _click(self, event: GenericEventArguments) -> None:
        place = event.args if isinstance(event.args, list) else [event.args]
        if len(place) == len(self.axes):
            cell = dict(zip(self.axes, map(int, place), strict=True))
            await self._set(cell=cell)
            for dim, number in cell.items():
                self.choosers[dim].value = number

    async def _set(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self.choice, name, value)
        # So that it survives a reload, and can be kept and sent.
        ui.navigate.history.replace(self.choice.query(self.sliders, self.axes))
        await self.chosen()

    def _show_map(self, figure: Figure) -> None:
        """Made when there is something to show: a hidden plot has no width to fill."""
        if self.map:
            self.map.update_figure(_plain(figure))
            return
        with self.place:
            self.map = ui.plotly(_plain(figure)).classes("map")
        self.map.on("plotly_click", self._click, js_handler=PLACE)

    def _show_curves(self, curves: dict[str, Figure]) -> None:
        if curves.keys() == self.plots.keys():
            for title, figure in curves.items():
                self.plots[title].update_figure(_plain(figure))
            return
        self.curves.clear()
        self.plots = {}
        with self.curves:
            for title, figure in curves.items():
                with ui.element("div"):
                    told(title)
                    self.plots[title] = ui.plotly(_plain(figure)).classes("curve")


def _plain(figure: Figure) -> Figure:
    """Without plotly's buttons."""
    return {**figure, "config": CONFIG}


def _quantity_title(quantity: Quantity) -> str:
    return (
        f"{quantity.title} (as the paper draws it)" if quantity.group == PAPER else quantity.title
    )


GONE = "This sweep is gone from the disk. Below is what was there last."


class SweepPage:
    """Elements of the page; `refresh` is called again and again and changes what has to change."""

    def __init__(self, monitor: SweepMonitor, name: str, scheme: Scheme, choice: Selection):
        self.monitor, self.name = monitor, name
        self.reader = StoreReader(monitor.sweeps[name].folder)
        self.sweep: SweepState | None = None
        self.drawn: LoadedSweep | None = None
        self.empty = ""
        """what is said of cells that have not run"""
        self.busy = asyncio.Lock()
        self.problem = told("", "bad card")
        with ui.element("section").classes("card"):
            self.made = told("", "soft")
            self.bar = ui.linear_progress(0, show_value=False, size="12px")
            self.bar.props('rounded aria-label="share of runs done"')
            self.progress = told("", "progress")
            self.steps = told("")
            self.ended = told("")
            self.trouble = told("", "bad")
        self.specification = _Specification()
        self.panel = Panel(scheme, choice, self.refresh)
        self.troubles = _Lines("What went wrong, and what to know", "bad")
        self.next = _Lines("What you can do next", "soft")
        self._say_problem("")

    async def refresh(self) -> None:
        """Show what has changed since the last time."""
        if self.busy.locked():
            return  # what is asked for now is seen at the next tick
        async with self.busy:
            sweep = self.monitor.sweeps.get(self.name)
            before, self.sweep = self.sweep, sweep
            if sweep is None:
                self._say_problem(GONE)
            # Steps of units change more often than records, of which alone figures are made.
            elif not before or sweep.standing is not before.standing:
                self._say_problem(await self._take(sweep))
            if sweep and sweep.standing:
                self._tick(sweep)
            if self.drawn:
                await self._draw(self.drawn)

    async def _draw(self, found: LoadedSweep) -> None:
        try:
            await self.panel.draw(found.atlas, self.empty)
        except Exception as error:  # as in `_take`
            self._say_problem(f"The figure cannot be drawn: {_why(error)}")

    def _tick(self, sweep: SweepState) -> None:
        now = time.time()
        so_far = f"{progress_text(sweep)}; {left_text(sweep, now)}"
        self.progress.text = f"{so_far}; last change {clock(sweep.changed, now)}"
        self.steps.text = steps_text(sweep)

    async def _take(self, sweep: SweepState) -> str:
        """Read and show what a sweep has now; what is wrong with it comes back."""
        self.made.text = made_text(sweep)
        self.bar.value = share_done(sweep)
        standing = sweep.standing
        if standing is None:
            return sweep.problem
        self.ended.text = ended_text(sweep)
        self.trouble.text = trouble_text(sweep)
        folder = Path(shown_path(sweep.folder))
        self.empty = shown(empty_text(sweep, str(folder)))
        try:
            self.drawn = await asyncio.to_thread(load_sweep, self.reader)
        # It vanishes, or a stranger's file is wrong in some way: that is told, and the page goes on.
        except Exception as error:
            return _why(error)
        atlas = self.drawn.atlas
        notes = [*standing.notes, *filter(None, [atlas.note])]
        self.troubles.show([*self.drawn.troubles, *standing.damaged.values(), *notes])
        self.next.show(next_steps(folder, standing, bool(self.drawn.doubts)))
        self.specification.show(self.drawn)
        self.panel.offer(atlas)
        return ""

    def _say_problem(self, problem: str) -> None:
        self.problem.text = problem
        self.problem.set_visibility(bool(problem))


def _why(error: Exception) -> str:
    return shown((str(error).splitlines() or [type(error).__name__])[0])


class _Specification:
    """What the experiment is; closed until somebody opens it."""

    def __init__(self) -> None:
        with ui.expansion("What this experiment is").classes("card spec") as self.card:
            self.described = told("")
            self.yaml = told("", "command")
        self.card.set_visibility(False)

    def show(self, found: LoadedSweep) -> None:
        self.card.set_visibility(True)
        self.described.text = shown(describe(found.experiment))
        self.yaml.text = shown(found.experiment.to_yaml())


class _Lines:
    """A card with a list of lines; not there while there are none."""

    def __init__(self, title: str, classes: str):
        self.classes = classes
        with ui.element("section").classes("card") as self.card:
            with ui.element("h2"):
                told(title)
            self.list = ui.element("div")
        self.lines: list[str] = []
        self.card.set_visibility(False)

    def show(self, lines: list[str]) -> None:
        if lines != self.lines:
            self.lines = lines
            self.card.set_visibility(bool(lines))
            self.list.clear()
            with self.list:
                for line in lines:
                    told(shown(line), self.classes)


TICK = 0.5
"""seconds between questions of a page whether anything has changed; nothing is sent where nothing has"""


def lay_out(monitor: SweepMonitor) -> None:
    """Make the pages of the sweeps of a monitor."""
    style = Path(__file__).with_name("live.css").read_text(encoding="utf-8")
    ui.add_css(style, shared=True)

    @ui.page("/")
    async def index() -> None:
        await framed("Sweeps")
        rows = _Rows(monitor)
        ui.timer(TICK, rows.refresh)

    @ui.page("/sweep/{name:path}")
    async def sweep(name: str) -> None:
        if name not in monitor.sweeps:  # looked up, never made a path of
            _not_found(f"There is no sweep {name} in {shown(str(monitor.folder))}.")
            return
        ui.page_title(f"{name} · benign")
        choice = Selection(dict(ui.context.client.request.query_params))
        page = SweepPage(monitor, name, await framed(name, home=True), choice)
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

    def __init__(self, monitor: SweepMonitor):
        self.monitor, self.version = monitor, -1
        told(
            "Each row is a sweep: a grid of training runs. Open one to see its heat maps fill. "
            "This page follows the disk by itself and changes nothing.",
            "soft",
        )
        self.none = ui.element("div").classes("card")
        self.list = ui.element("div").classes("rows").props("role=list")
        self.rows: dict[str, _Row] = {}

    def refresh(self) -> None:
        if self.monitor.version != self.version:
            self.version, sweeps = self.monitor.version, self.monitor.sweeps
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
        folder = shown(str(self.monitor.folder))
        with self.none:
            if not self.version:
                told(f"Looking into {folder} ...")
                return
            told(self.monitor.problem, "bad")
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
        self.sweep: SweepState | None = None

    def show(self, sweep: SweepState) -> None:
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
