"""The figures of a sweep on its page: the selection and its address; reading a store and drawing it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

import numpy as np

from benign.experiment import Experiment
from benign.papers.registry import recipes
from benign.report.atlas import Atlas, CurveGroup
from benign.report.cells import ending_text
from benign.report.figures import PlotlyFigure, coloured, labels_of
from benign.report.live.monitor import StoreReader
from benign.sweep.dataset import assemble
from benign.sweep.ends import doubts
from benign.sweep.plan import keys_of
from benign.sweep.results import runs_in
from benign.sweep.status_text import error_lines
from benign.sweep.store import Store, StoreError
from benign.sweep.validation import valid_records
from benign.training.descent import Status

Labels = Mapping[str, list[str]]
"""axes by name, with a label for each value"""
QUANTITY, CURVE, VALUE = "show", "curve", "at."
"""names in the query of an address; values of axes are given by their labels, since an axis may grow"""


@dataclass
class Selection:
    """What a reader has selected: a quantity, positions of sliders, a cell, a curve."""

    query: Mapping[str, str] = field(default_factory=dict)
    """the query of the address that was opened"""
    quantity: str = ""
    sliders: dict[str, int] = field(default_factory=dict)
    """positions of the sliders, by axis"""
    cell: dict[str, int] = field(default_factory=dict)
    """indices along the axes of the map"""
    coordinate: str = ""
    """the curve that is shown among those with a figure each"""

    def fit(
        self, quantities: Sequence[str], sliders: Labels, axes: Labels, curves: Sequence[str]
    ) -> None:
        """Drop what does not exist (the experiment may have been replaced); use the query, or the first option."""
        self.quantity = _one_of(quantities, self.quantity, self.query.get(QUANTITY))
        self.coordinate = _one_of(curves, self.coordinate, self.query.get(CURVE))
        zero = dict.fromkeys(sliders, 0)
        self.sliders = zero | self._from_query(sliders) | _existing(self.sliders, sliders)
        self.cell = self._from_query(axes) | _existing(self.cell, axes)
        if quantities:
            self.query = {}

    def address(self, sliders: Labels, axes: Labels) -> str:
        """Return the query for the address of the page."""
        values = {QUANTITY: self.quantity, CURVE: self.coordinate}
        for selected, labels in ((self.sliders, sliders), (self.cell, axes)):
            values |= {f"{VALUE}{dim}": labels[dim][index] for dim, index in selected.items()}
        return "?" + urlencode({name: value for name, value in values.items() if value})

    def _from_query(self, axes: Labels) -> dict[str, int]:
        wanted = {dim: self.query.get(f"{VALUE}{dim}") for dim in axes}
        return {dim: axes[dim].index(label) for dim, label in wanted.items() if label in axes[dim]}


def _one_of(options: Sequence[str], *wanted: str | None) -> str:
    """Return the first wanted option that exists, or the first option."""
    return next(
        (each for each in wanted if each and each in options), options[0] if options else ""
    )


def _existing(indices: dict[str, int], axes: Labels) -> dict[str, int]:
    return {dim: index for dim, index in indices.items() if index < len(axes.get(dim, ()))}


OUTLINE = {"color": "#ff2d95", "width": 3}
"""of the selected cell, as in a report"""


@dataclass(frozen=True)
class Drawing:
    """The figures of a sweep, and texts about them."""

    map: PlotlyFigure | None
    about: str
    """explanation of the map"""
    curves: dict[str, PlotlyFigure] = field(default_factory=dict)
    """by title"""
    about_curves: str = ""
    """how the runs of the cell ended, and how to read its curves"""


def draw(atlas: Atlas, selection: Selection, empty: str, colours: tuple[str, str]) -> Drawing:
    """Draw an atlas, which may take a while because of fits. `empty` is a sentence about cells that have not run."""
    cell_selected = {dim for dim in (atlas.x, atlas.y) if dim} <= selection.cell.keys()
    map_figure, about = None, ""
    if atlas.x:
        fallback = "robust_accuracy" if "robust_accuracy" in atlas.result else "test_accuracy"
        map_figure = coloured(
            atlas.figure(selection.quantity or fallback, selection.sliders), *colours
        )
        missing = empty if (atlas.result["status"] == Status.MISSING).any() else ""
        about = f"{map_figure['about'] if selection.quantity else ''} {missing}".strip()
        if cell_selected:
            map_figure["layout"]["shapes"] = [_outline(atlas, map_figure, selection.cell)]
    if not cell_selected:
        return Drawing(map_figure, about)
    curves = _curves(atlas, selection, colours)
    return Drawing(map_figure, about, curves, _cell_text(atlas, selection, bool(curves)))


def _outline(atlas: Atlas, figure: PlotlyFigure, cell: dict[str, int]) -> PlotlyFigure:
    """Return a frame around the selected cell, or a line at it."""
    assert atlas.x is not None
    column = cell[atlas.x]
    if atlas.y is None:
        x = figure["data"][-1]["x"][column]
        ends = {"x0": x, "x1": x, "y0": 0, "y1": 1}
        return {"type": "line", "xref": "x", "yref": "paper", **ends, "line": OUTLINE}
    x, y, row = figure["data"][0]["x"], figure["data"][0]["y"], cell[atlas.y]
    ends = {"x0": x[column], "x1": x[column + 1], "y0": y[row], "y1": y[row + 1]}
    return {"type": "rect", "xref": "x", "yref": "y", **ends, "line": OUTLINE}


def _curves(
    atlas: Atlas, selection: Selection, colours: tuple[str, str]
) -> dict[str, PlotlyFigure]:
    """Return the curves of the selected cell, without those that have no line."""
    figures = {}
    for group in atlas.curve_groups:
        if group.alone:
            group = CurveGroup(group.title, (selection.coordinate,))
        figure = atlas.curves(group, **selection.sliders, **selection.cell)
        if any(_has_line(trace["y"]) for trace in figure["data"]):
            figures[group.title] = coloured(figure, *colours)
    return figures


def _has_line(numbers: list[float | None]) -> bool:
    """Return whether there are two points; a run that diverged at once has only one."""
    return sum(number is not None for number in numbers) > 1


def _cell_text(atlas: Atlas, selection: Selection, with_curves: bool) -> str:
    """Return how the runs of the selected cell ended, and how to read its curves."""
    cell = {dim: (selection.sliders | selection.cell).get(dim, 0) for dim in atlas.dims}
    ends = atlas.endings.isel(cell).item()
    if not with_curves:
        return f"{ends}; there are no curves to draw."
    last = "a run that has ended stays at its last value"
    seeds = atlas.result.sizes["seed"]
    if seeds == 1:
        return f"{ends}. Lines show this one seed; {last}."
    return f"{ends}. Lines: means over {seeds} seeds; {last}. Bands: from the lowest to the highest seed."


BAD = (Status.DIVERGED, Status.FAILED, Status.OUT_OF_MEMORY)
MOST_CELLS = 20
"""cells with bad ends that are listed"""


@dataclass(frozen=True)
class LoadedSweep:
    """A sweep as it can be drawn now."""

    experiment: Experiment
    atlas: Atlas
    doubts: str
    """how many runs are masked or flagged by the audit, and why; empty if none is"""
    troubles: list[str]
    """lines about what went wrong: why runs failed, which are doubtful, cells with bad ends"""


def load_sweep(reader: StoreReader) -> LoadedSweep:
    """Read the sweep in a store; raise StoreError or OSError if it cannot be read."""
    Store.open(reader.folder, writing=False)  # raises for links and other files
    reader.refresh()
    history = reader.experiments()
    if not history:
        raise StoreError(f"{reader.folder} holds no experiment yet")
    result = assemble(history[-1], valid_records(reader))
    made = reader.about.made
    atlas = Atlas(result, recipes().get(made.get("target", "")), made.get("changes") or ())
    wanted = set(keys_of(history[-1]))
    runs = runs_in(valid_records(reader))
    found = " ".join(doubts(result))
    troubles = [
        *error_lines(run for key, run in runs.items() if key in wanted),
        *([f"Doubtful robust numbers: {found}"] if found else []),
        *bad_ends(atlas),
    ]
    return LoadedSweep(history[-1], atlas, found, troubles)


def bad_ends(atlas: Atlas) -> list[str]:
    """Return lines about the cells in which runs diverged or failed."""
    status = atlas.result["status"].transpose(*atlas.dims, "seed").values.astype(int)
    labels = {dim: labels_of(atlas.result[dim]) for dim in atlas.dims}
    lines = []
    for cell in np.argwhere(np.isin(status, BAD).any(-1)).tolist():
        values = [
            f"{dim} {labels[dim][index]}" for dim, index in zip(atlas.dims, cell, strict=True)
        ]
        ends = ending_text(status[tuple(cell)].tolist())
        lines.append(f"{', '.join(values) or 'the only cell'}: {ends}")
    rest = len(lines) - MOST_CELLS
    return lines[:MOST_CELLS] + ([f"and {rest} more cells"] if rest > 0 else [])
