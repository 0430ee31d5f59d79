"""The pages of `benign serve`: the list of sweeps, and the page of each sweep.

Texts are sent to the browser as text, never as markup: no page uses `ui.html` or `ui.markdown`.
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
from benign.plot.variables import readable
from benign.report.atlas import PAPER, THEORY, Atlas, Quantity
from benign.report.figures import PlotlyFigure, labels_of
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
    sendable,
    share_done,
    steps_text,
    trouble_text,
)
from benign.sweep.status_text import next_steps
from benign.sweep.text import shown as path_text

WAIT = 10.0
"""seconds for a browser to connect; programs that only fetch the page never do"""
IS_DARK = """
(localStorage.getItem("benign-dark") ?? String(matchMedia("(prefers-color-scheme: dark)").matches)) === "true"
"""


class Scheme:
    """Light or dark mode: as the browser prefers, or as the reader chose on any of these pages."""

    LIGHT, DARK = ("#1c1c22", "#ffffff"), ("#ececf1", "#212127")

    def __init__(self) -> None:
        self.mode = ui.dark_mode(None)

    @property
    def colours(self) -> tuple[str, str]:
        """The colours of text and background."""
        return self.DARK if self.mode.value else self.LIGHT

    def switch(self) -> None:
        self.mode.value = not self.mode.value
        choice = "true" if self.mode.value else "false"
        ui.run_javascript(f'localStorage.setItem("benign-dark", "{choice}")')


async def start_page(title: str, home: bool = False) -> Scheme:
    """Start a page: make its header, then set the mode that the browser reports."""
    scheme = Scheme()
    heading(title, home, scheme)
    await ui.context.client.connected(timeout=WAIT)
    scheme.mode.value = bool(await ui.run_javascript(IS_DARK, timeout=WAIT))
    return scheme


def heading(title: str, home: bool = False, scheme: Scheme | None = None) -> None:
    """Make the header of a page."""
    with ui.element("header").classes("top"):
        if home:
            ui.link("← all sweeps", "/")
        with ui.element("h1"):
            ui.label(title)
        if scheme:
            ui.button("light / dark", on_click=scheme.switch, color=None).props(
                "flat dense no-caps"
            )


def line(text: str, classes: str = "") -> ui.label:
    """Make a line of text."""
    return ui.label(text).classes(classes)


CONFIG = {"displayModeBar": False}
POINT = "(event) => emit(event.points[0].pointNumber)"
"""a click sends nothing but the number of its point"""


class FigureView:
    """The figures of a sweep with their menus; drawn again if the sweep or the selection changes."""

    def __init__(
        self, scheme: Scheme, selection: Selection, on_change: Callable[[], Awaitable[None]]
    ):
        self.scheme, self.selection, self.on_change = scheme, selection, on_change
        self.axes: dict[str, list[str]] = {}
        """the axes of the map, rows before columns, with a label for each value"""
        self.sliders: dict[str, list[str]] = {}
        self._options: Any = None
        self._drawn: Any = None
        with ui.element("section").classes("card") as self.maps:
            self.inputs = ui.element("div").classes("inputs")
            self.map_slot = ui.element("div")
            self.about = line("", "soft")
        with ui.element("section").classes("card") as self.training:
            with ui.element("h2"):
                self.of_cell = line("")
            self.selects = ui.element("div").classes("inputs")
            self.about_curves = line("", "soft")
            self.curves = ui.element("div").classes("curves")
        self.map: ui.plotly | None = None
        self.plots: dict[str, ui.plotly] = {}
        self.maps.set_visibility(False)
        self.training.set_visibility(False)

    def set_options(self, atlas: Atlas) -> None:
        """Offer the quantities, cells and curves of an atlas; menus are made again only if these have changed."""
        axes = {dim: labels_of(atlas.result[dim]) for dim in (atlas.y, atlas.x) if dim}
        single = [name for group in atlas.curve_groups if group.alone for name in group.names]
        options = (atlas.quantities, atlas.sliders, axes, single)
        if options == self._options:
            return
        self._options, self.axes, self.sliders = options, axes, atlas.sliders
        self.selection.fit([each.name for each in atlas.quantities], atlas.sliders, axes, single)
        self._make_inputs(atlas)
        self._make_selects(single)
        self.maps.set_visibility(bool(axes))

    async def draw(self, atlas: Atlas, empty: str) -> None:
        """Draw the selected figures unless nothing changed; `empty` is a sentence about cells that have not run."""
        wanted = (atlas, deepcopy(self.selection), empty, self.scheme.colours)
        if wanted == self._drawn:
            return
        self._drawn = wanted
        drawing = await asyncio.to_thread(draw, *wanted)
        if drawing.map:
            self._show_map(drawing.map)
            self.about.text = drawing.about
        self.training.set_visibility(bool(atlas.curve_groups))
        self._show_curves(drawing.curves)
        self.about_curves.text = drawing.about_curves
        self.of_cell.text = f"Training{self._cell_text()}"

    def _cell_text(self) -> str:
        """Return the values of the selected cell on all axes, also those of sliders."""
        if not self.selection.cell:
            return ""
        indices = self.selection.cell | self.selection.sliders
        labels = self.axes | self.sliders
        return " at " + ", ".join(f"{dim} {labels[dim][index]}" for dim, index in indices.items())

    def _make_inputs(self, atlas: Atlas) -> None:
        self.inputs.clear()
        with self.inputs:
            if titles := {each.name: _quantity_title(each) for each in atlas.quantities}:
                ui.select(
                    titles,
                    label="What the figure shows",
                    value=self.selection.quantity,
                    on_change=lambda event: self._set(quantity=event.value),
                )
            for dim, labels in atlas.sliders.items():
                self._make_slider(dim, labels)

    def _make_slider(self, dim: str, labels: list[str]) -> None:
        with ui.element("div").classes("slide"):
            index = self.selection.sliders[dim]
            value = line(f"{dim} {labels[index]}")
            slider = ui.slider(min=0, max=len(labels) - 1, step=1, value=index)
            slider.props["aria-label"] = dim

            async def slide(event: Any) -> None:
                value.text = f"{dim} {labels[int(event.value)]}"
                await self._set(sliders={**self.selection.sliders, dim: int(event.value)})

            slider.on_value_change(slide)

    def _make_selects(self, single: list[str]) -> None:
        """Make menus for the cell, for keyboards and small screens, and for curves with a figure each."""
        self.selects.clear()
        with self.selects:
            if self.axes:
                line("Choose a cell on the figure, or here:", "soft")
            self.cell_menus = {
                dim: ui.select(
                    dict(enumerate(labels)),
                    label=dim,
                    value=self.selection.cell.get(dim),
                    on_change=lambda event, dim=dim: self._set(
                        cell={**self.selection.cell, dim: event.value}
                    ),
                )
                for dim, labels in self.axes.items()
            }
            if single:
                ui.select(
                    {name: readable(name) for name in single},
                    label=THEORY,
                    value=self.selection.coordinate,
                    on_change=lambda event: self._set(coordinate=event.value),
                )

    async def _click(self, event: GenericEventArguments) -> None:
        indices = event.args if isinstance(event.args, list) else [event.args]
        if len(indices) == len(self.axes):
            cell = dict(zip(self.axes, map(int, indices), strict=True))
            await self._set(cell=cell)
            for dim, index in cell.items():
                self.cell_menus[dim].value = index

    async def _set(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self.selection, name, value)
        # The address contains the selection: it survives a reload, and can be saved and sent.
        ui.navigate.history.replace(self.selection.address(self.sliders, self.axes))
        await self.on_change()

    def _show_map(self, figure: PlotlyFigure) -> None:
        """Show the map; its plot is made with the first map, because a hidden plot has no width."""
        if self.map:
            self.map.update_figure(_without_buttons(figure))
            return
        with self.map_slot:
            self.map = ui.plotly(_without_buttons(figure)).classes("map")
        self.map.on("plotly_click", self._click, js_handler=POINT)

    def _show_curves(self, curves: dict[str, PlotlyFigure]) -> None:
        if curves.keys() == self.plots.keys():
            for title, figure in curves.items():
                self.plots[title].update_figure(_without_buttons(figure))
            return
        self.curves.clear()
        self.plots = {}
        with self.curves:
            for title, figure in curves.items():
                with ui.element("div"):
                    line(title)
                    self.plots[title] = ui.plotly(_without_buttons(figure)).classes("curve")


def _without_buttons(figure: PlotlyFigure) -> PlotlyFigure:
    """Return the figure without plotly's buttons."""
    return {**figure, "config": CONFIG}


def _quantity_title(quantity: Quantity) -> str:
    return (
        f"{quantity.title} (as the paper draws it)" if quantity.group == PAPER else quantity.title
    )


GONE = "This sweep is gone from the disk. Its last state is shown below."


class SweepPage:
    """The page of one sweep; `refresh` is called again and again and updates what has changed."""

    def __init__(self, monitor: SweepMonitor, name: str, scheme: Scheme, selection: Selection):
        self.monitor, self.name = monitor, name
        self.reader = StoreReader(monitor.sweeps[name].folder)
        self.sweep: SweepState | None = None
        self.loaded: LoadedSweep | None = None
        self.empty = ""
        """a sentence about cells that have not run"""
        self.busy = asyncio.Lock()
        self.problem = line("", "bad card")
        with ui.element("section").classes("card"):
            self.made = line("", "soft")
            self.bar = ui.linear_progress(0, show_value=False, size="12px")
            self.bar.props('rounded aria-label="share of runs done"')
            self.progress = line("", "progress")
            self.steps = line("")
            self.ended = line("")
            self.trouble = line("", "bad")
        self.specification = _Specification()
        self.figures = FigureView(scheme, selection, self.refresh)
        self.troubles = _Lines("Problems and notes", "bad")
        self.next = _Lines("Next steps", "soft")
        self._show_problem("")

    async def refresh(self) -> None:
        """Show what has changed since the last time."""
        if self.busy.locked():
            return  # the next tick refreshes again
        async with self.busy:
            sweep = self.monitor.sweeps.get(self.name)
            before, self.sweep = self.sweep, sweep
            if sweep is None:
                self._show_problem(GONE)
            # Steps of units change more often than records, and only records change figures.
            elif not before or sweep.status is not before.status:
                self._show_problem(await self._load(sweep))
            if sweep and sweep.status:
                self._tick(sweep)
            if self.loaded:
                await self._draw(self.loaded)

    async def _draw(self, loaded: LoadedSweep) -> None:
        try:
            await self.figures.draw(loaded.atlas, self.empty)
        except Exception as error:  # as in `_load`
            self._show_problem(f"The figure cannot be drawn: {_first_line(error)}")

    def _tick(self, sweep: SweepState) -> None:
        now = time.time()
        progress = f"{progress_text(sweep)}; {left_text(sweep, now)}"
        self.progress.text = f"{progress}; last change {clock(sweep.changed, now)}"
        self.steps.text = steps_text(sweep)

    async def _load(self, sweep: SweepState) -> str:
        """Read a sweep and show it; return the problem if that fails."""
        self.made.text = made_text(sweep)
        self.bar.value = share_done(sweep)
        status = sweep.status
        if status is None:
            return sweep.problem
        self.ended.text = ended_text(sweep)
        self.trouble.text = trouble_text(sweep)
        folder = Path(path_text(sweep.folder))
        self.empty = sendable(empty_text(sweep, str(folder)))
        try:
            self.loaded = await asyncio.to_thread(load_sweep, self.reader)
        # The folder may vanish, and a foreign file may be wrong in any way: the page shows why and goes on.
        except Exception as error:
            return _first_line(error)
        atlas = self.loaded.atlas
        notes = [*status.notes, *filter(None, [atlas.note])]
        self.troubles.show([*self.loaded.troubles, *status.damaged.values(), *notes])
        self.next.show(next_steps(folder, status, bool(self.loaded.doubts)))
        self.specification.show(self.loaded)
        self.figures.set_options(atlas)
        return ""

    def _show_problem(self, problem: str) -> None:
        self.problem.text = problem
        self.problem.set_visibility(bool(problem))


def _first_line(error: Exception) -> str:
    return sendable((str(error).splitlines() or [type(error).__name__])[0])


class _Specification:
    """The experiment in a sentence and as YAML; closed at first."""

    def __init__(self) -> None:
        with ui.expansion("About this experiment").classes("card spec") as self.card:
            self.described = line("")
            self.yaml = line("", "command")
        self.card.set_visibility(False)

    def show(self, loaded: LoadedSweep) -> None:
        self.card.set_visibility(True)
        self.described.text = sendable(describe(loaded.experiment))
        self.yaml.text = sendable(loaded.experiment.to_yaml())


class _Lines:
    """A card with a list of lines, hidden while it is empty."""

    def __init__(self, title: str, classes: str):
        self.classes = classes
        with ui.element("section").classes("card") as self.card:
            with ui.element("h2"):
                line(title)
            self.list = ui.element("div")
        self.lines: list[str] = []
        self.card.set_visibility(False)

    def show(self, lines: list[str]) -> None:
        if lines != self.lines:
            self.lines = lines
            self.card.set_visibility(bool(lines))
            self.list.clear()
            with self.list:
                for text in lines:
                    line(sendable(text), self.classes)


TICK = 0.5
"""seconds between refreshes of a page; nothing is sent unless something has changed"""


def lay_out(monitor: SweepMonitor) -> None:
    """Make the pages of the sweeps of a monitor."""
    style = Path(__file__).with_name("live.css").read_text(encoding="utf-8")
    ui.add_css(style, shared=True)

    @ui.page("/")
    async def index() -> None:
        await start_page("Sweeps")
        rows = _Rows(monitor)
        ui.timer(TICK, rows.refresh)

    @ui.page("/sweep/{name:path}")
    async def sweep(name: str) -> None:
        if name not in monitor.sweeps:  # names are looked up, never used as paths
            _not_found(f"There is no sweep {name} in {sendable(str(monitor.folder))}.")
            return
        ui.page_title(f"{name} · benign")
        selection = Selection(dict(ui.context.client.request.query_params))
        page = SweepPage(monitor, name, await start_page(name, home=True), selection)
        ui.timer(TICK, page.refresh)

    @app.exception_handler(404)
    async def nothing(request: Any, _: Exception) -> Any:
        with Client(ui.page(""), request=request) as client:
            _not_found("There is no such page.")
        return client.build_response(request, 404)


def _not_found(text: str) -> None:
    ui.context.client.status_code = 404
    heading("Not found", home=True)
    line(text)


class _Rows:
    """The list of sweeps; a row is made once and then updated in place."""

    def __init__(self, monitor: SweepMonitor):
        self.monitor, self.version = monitor, -1
        line(
            "Each row is a sweep: a grid of training runs. Open one to see its heat maps fill. "
            "This page updates itself and changes nothing on the disk.",
            "soft",
        )
        self.empty = ui.element("div").classes("card")
        self.list = ui.element("div").classes("rows").props("role=list")
        self.rows: dict[str, _Row] = {}

    def refresh(self) -> None:
        if self.monitor.version != self.version:
            self.version, sweeps = self.monitor.version, self.monitor.sweeps
            if list(sweeps) != list(self.rows):
                self._make(sweeps)
            self._show_empty()
            for name, sweep in sweeps.items():
                self.rows[name].show(sweep)
        for row in self.rows.values():
            row.tick()

    def _make(self, names: Iterable[str]) -> None:
        self.list.clear()
        with self.list:
            self.rows = {name: _Row(name) for name in names}

    def _show_empty(self) -> None:
        self.empty.clear()
        self.empty.set_visibility(not self.rows)
        folder = sendable(str(self.monitor.folder))
        with self.empty:
            if not self.version:
                line(f"Reading {folder} ...")
                return
            line(self.monitor.problem, "bad")
            line(
                f"There is no sweep in {folder} yet. A sweep appears here as soon as it begins, for example with:"
            )
            line("benign run jiang/fig1", "command")


class _Row:
    """A sweep in the list."""

    def __init__(self, name: str):
        with ui.element("div").classes("card row-of").props("role=listitem"):
            with ui.element("div"):
                ui.link(name, f"/sweep/{quote(name)}").classes("name")
                self.made = line("", "soft")
            with ui.element("div"):
                self.bar = ui.linear_progress(0, show_value=False, size="10px")
                self.bar.props('rounded aria-label="share of runs done"')
                self.progress = line("")
                self.steps = line("")
                self.ended = line("", "soft")
                self.trouble = line("", "bad")
            with ui.element("div"):
                self.left = line("")
                self.changed = line("", "soft")
        self.sweep: SweepState | None = None

    def show(self, sweep: SweepState) -> None:
        self.sweep = sweep
        self.made.text = made_text(sweep)
        self.bar.value = share_done(sweep)
        self.bar.set_visibility(sweep.status is not None)
        self.progress.text = progress_text(sweep)
        self.steps.text = steps_text(sweep)
        self.ended.text = ended_text(sweep)
        self.trouble.text = trouble_text(sweep)

    def tick(self) -> None:
        if self.sweep:
            now = time.time()
            self.left.text = left_text(self.sweep, now)
            self.changed.text = f"last change {clock(self.sweep.changed, now)}"
