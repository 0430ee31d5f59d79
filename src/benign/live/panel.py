"""Figures of a sweep, and the choices of what they show: a quantity, places of sliders, a cell."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from benign.live.frame import Scheme, told
from benign.pages.atlas import PAPER, THEORY, Atlas, CurveGroup, Quantity, said
from benign.pages.figures import inked, names_of
from benign.pages.over import Figure
from benign.training.descent import Status

CONFIG = {"displayModeBar": False}
PLACE = "(event) => emit(event.points[0].pointNumber)"
"""of a click no more is sent than where it was"""


class Panel:
    """Draws an atlas, and again when another is given or something else is chosen."""

    def __init__(self, scheme: Scheme, chosen: Callable[[], Awaitable[None]]):
        self.scheme, self.chosen = scheme, chosen
        self.quantity = ""
        self.places: dict[str, int] = {}
        """where the sliders stand"""
        self.cell: dict[str, int] = {}
        """the chosen cell: places along the axes of the map"""
        self.axes: dict[str, list[str]] = {}
        """the axes of the map, rows before columns, with a label for each place"""
        self.coordinate = ""
        """the curve that is shown of those that have a figure each"""
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
        self._offered, self.axes = offered, axes
        names = [each.name for each in atlas.quantities]
        if self.quantity not in names:
            self.quantity = names[0] if names else ""
        self.places = dict.fromkeys(atlas.sliders, 0) | _still(self.places, atlas.sliders)
        self.cell = _still(self.cell, axes)
        if self.coordinate not in alone:
            self.coordinate = alone[0] if alone else ""
        self._make_inputs(atlas)
        self._make_selects(alone)
        self.maps.set_visibility(bool(axes))

    async def draw(self, atlas: Atlas) -> None:
        """Draw what is chosen, unless it is what stands there."""
        chosen = (self.quantity, dict(self.places), dict(self.cell), self.coordinate)
        wanted = (atlas, *chosen, self.scheme.colours)
        if wanted == self._shown:
            return
        self._shown = wanted
        map_figure, about, curves = await asyncio.to_thread(_figures, *wanted)
        if map_figure:
            self._show_map(map_figure)
            self.about.text = about
        self.training.set_visibility(bool(atlas.curve_groups))
        self._show_curves(curves)
        where = ", ".join(f"{dim} {self.axes[dim][place]}" for dim, place in self.cell.items())
        self.of_cell.text = f"Training{' at ' * bool(where)}{where}"

    def _make_inputs(self, atlas: Atlas) -> None:
        self.inputs.clear()
        with self.inputs:
            if titles := {each.name: _title(each) for each in atlas.quantities}:
                ui.select(
                    titles,
                    label="What the figure shows",
                    value=self.quantity,
                    on_change=lambda event: self._set(quantity=event.value),
                )
            for dim, labels in atlas.sliders.items():
                self._make_slider(dim, labels)

    def _make_slider(self, dim: str, labels: list[str]) -> None:
        with ui.element("div").classes("slide"):
            value = told(f"{dim} {labels[self.places[dim]]}")
            slider = ui.slider(min=0, max=len(labels) - 1, step=1, value=self.places[dim])
            slider.props["aria-label"] = dim

            async def slide(event: Any) -> None:
                value.text = f"{dim} {labels[int(event.value)]}"
                await self._set(places={**self.places, dim: int(event.value)})

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
                    value=self.cell.get(dim),
                    on_change=lambda event, dim=dim: self._set(
                        cell={**self.cell, dim: event.value}
                    ),
                )
                for dim, labels in self.axes.items()
            }
            if alone:
                ui.select(
                    {name: said(name) for name in alone},
                    label=THEORY,
                    value=self.coordinate,
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
            setattr(self, name, value)
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


def _still(places: dict[str, int], axes: dict[str, list[str]]) -> dict[str, int]:
    """The places that there are: an experiment may be another under the same name."""
    return {dim: place for dim, place in places.items() if place < len(axes.get(dim, ()))}


def _figures(
    atlas: Atlas,
    quantity: str,
    places: dict[str, int],
    cell: dict[str, int],
    coordinate: str,
    colours: tuple[str, str],
) -> tuple[Figure | None, str, dict[str, Figure]]:
    """The map, what one sees in it, and the curves of the cell; fits may take a while."""
    map_figure, about = None, ""
    if atlas.x:
        fallback = "robust_accuracy" if "robust_accuracy" in atlas.result else "test_accuracy"
        map_figure = inked(atlas.figure(quantity or fallback, places), *colours)
        about = f"{map_figure['about'] if quantity else ''} {_unfilled(atlas)}".strip()
    curves = {}
    if {dim for dim in (atlas.x, atlas.y) if dim} <= cell.keys():
        for group in atlas.curve_groups:
            if group.alone:
                group = CurveGroup(group.title, (coordinate,))
            curves[group.title] = inked(atlas.curves(group, **places, **cell), *colours)
    return map_figure, about, curves


def _unfilled(atlas: Atlas) -> str:
    missing = (atlas.result["status"] == Status.MISSING).any()
    return "Empty cells have not run yet; they fill by themselves." if missing else ""


def _plain(figure: Figure) -> Figure:
    """Without plotly's buttons."""
    return {**figure, "config": CONFIG}


def _title(quantity: Quantity) -> str:
    return (
        f"{quantity.title} (as the paper draws it)" if quantity.group == PAPER else quantity.title
    )
