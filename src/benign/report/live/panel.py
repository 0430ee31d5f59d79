"""Figures of a sweep, and the choices of what they show: a quantity, places of sliders, a cell."""

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from benign.report.atlas import PAPER, THEORY, Atlas, Quantity, said
from benign.report.figures import names_of
from benign.report.live.choice import Choice
from benign.report.live.frame import Scheme, told
from benign.report.live.sketch import sketched
from benign.report.over import Figure

CONFIG = {"displayModeBar": False}
PLACE = "(event) => emit(event.points[0].pointNumber)"
"""of a click no more is sent than where it was"""


class Panel:
    """Draws an atlas, and again when another is given or something else is chosen."""

    def __init__(self, scheme: Scheme, choice: Choice, chosen: Callable[[], Awaitable[None]]):
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
        sketch = await asyncio.to_thread(sketched, *wanted)
        if sketch.map:
            self._show_map(sketch.map)
            self.about.text = sketch.about
        self.training.set_visibility(bool(atlas.curve_groups))
        self._show_curves(sketch.curves)
        self.about_curves.text = sketch.told
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
            if titles := {each.name: _title(each) for each in atlas.quantities}:
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
                    {name: said(name) for name in alone},
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


def _title(quantity: Quantity) -> str:
    return (
        f"{quantity.title} (as the paper draws it)" if quantity.group == PAPER else quantity.title
    )
