"""What a person has chosen to see of a sweep, and the address that shows it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

import numpy as np

from benign.experiment import Experiment
from benign.papers.registry import recipes
from benign.report.atlas import Atlas, CurveGroup
from benign.report.cells import ending_text
from benign.report.figures import Figure, inked, names_of
from benign.report.live.monitor import StoreReader
from benign.sweep.audits import flagged
from benign.sweep.dataset import assemble
from benign.sweep.plan import keys_of
from benign.sweep.results import runs_in
from benign.sweep.status_text import error_lines
from benign.sweep.store import Store, StoreError
from benign.sweep.validation import valid_records
from benign.training.descent import Status

Labels = Mapping[str, list[str]]
"""axes by name, with a label for each place"""
QUANTITY, CURVE, PLACE = "show", "curve", "at."
"""names in the query of an address; places are told by labels, since an axis may grow"""


@dataclass
class Selection:
    """A quantity, places of sliders, a cell, a curve."""

    asked: Mapping[str, str] = field(default_factory=dict)
    """the query of the address that was opened"""
    quantity: str = ""
    places: dict[str, int] = field(default_factory=dict)
    """where the sliders stand"""
    cell: dict[str, int] = field(default_factory=dict)
    """places along the axes of the map"""
    coordinate: str = ""
    """the curve that is shown of those that have a figure each"""

    def fit(
        self, quantities: Sequence[str], sliders: Labels, axes: Labels, curves: Sequence[str]
    ) -> None:
        """Keep what there is: an experiment may be another under the same name. Else take what the address asked for,
        or the first."""
        self.quantity = _one_of(quantities, self.quantity, self.asked.get(QUANTITY))
        self.coordinate = _one_of(curves, self.coordinate, self.asked.get(CURVE))
        zero = dict.fromkeys(sliders, 0)
        self.places = zero | self._asked(sliders) | _still(self.places, sliders)
        self.cell = self._asked(axes) | _still(self.cell, axes)
        if quantities:
            self.asked = {}

    def query(self, sliders: Labels, axes: Labels) -> str:
        """What stands behind the address of the page."""
        told = {QUANTITY: self.quantity, CURVE: self.coordinate}
        for chosen, labels in ((self.places, sliders), (self.cell, axes)):
            told |= {f"{PLACE}{dim}": labels[dim][place] for dim, place in chosen.items()}
        return "?" + urlencode({name: value for name, value in told.items() if value})

    def _asked(self, axes: Labels) -> dict[str, int]:
        wanted = {dim: self.asked.get(f"{PLACE}{dim}") for dim in axes}
        return {dim: axes[dim].index(label) for dim, label in wanted.items() if label in axes[dim]}


def _one_of(there: Sequence[str], *wanted: str | None) -> str:
    return next((each for each in wanted if each and each in there), there[0] if there else "")


def _still(places: dict[str, int], axes: Labels) -> dict[str, int]:
    return {dim: place for dim, place in places.items() if place < len(axes.get(dim, ()))}


OUTLINE = {"color": "#ff2d95", "width": 3}
"""of the chosen cell, as in a report"""


@dataclass(frozen=True)
class Drawing:
    """What is to be drawn."""

    map: Figure | None
    about: str
    """what one sees in the map"""
    curves: dict[str, Figure] = field(default_factory=dict)
    """by title"""
    told: str = ""
    """how the runs of the cell ended, and how to read its curves"""


def draw(atlas: Atlas, choice: Selection, empty: str, colours: tuple[str, str]) -> Drawing:
    """Figures of an atlas; fits may take a while. `empty` is said of cells that have not run."""
    whole = {dim for dim in (atlas.x, atlas.y) if dim} <= choice.cell.keys()
    map_figure, about = None, ""
    if atlas.x:
        fallback = "robust_accuracy" if "robust_accuracy" in atlas.result else "test_accuracy"
        map_figure = inked(atlas.figure(choice.quantity or fallback, choice.places), *colours)
        unfilled = empty if (atlas.result["status"] == Status.MISSING).any() else ""
        about = f"{map_figure['about'] if choice.quantity else ''} {unfilled}".strip()
        if whole:
            map_figure["layout"]["shapes"] = [_outline(atlas, map_figure, choice.cell)]
    if not whole:
        return Drawing(map_figure, about)
    curves = _curves(atlas, choice, colours)
    return Drawing(map_figure, about, curves, _cell_text(atlas, choice, bool(curves)))


def _outline(atlas: Atlas, figure: Figure, cell: dict[str, int]) -> Figure:
    """A frame around the chosen cell, or a line at it."""
    assert atlas.x is not None
    column = cell[atlas.x]
    if atlas.y is None:
        at = figure["data"][-1]["x"][column]
        ends = {"x0": at, "x1": at, "y0": 0, "y1": 1}
        return {"type": "line", "xref": "x", "yref": "paper", **ends, "line": OUTLINE}
    x, y, row = figure["data"][0]["x"], figure["data"][0]["y"], cell[atlas.y]
    ends = {"x0": x[column], "x1": x[column + 1], "y0": y[row], "y1": y[row + 1]}
    return {"type": "rect", "xref": "x", "yref": "y", **ends, "line": OUTLINE}


def _curves(atlas: Atlas, choice: Selection, colours: tuple[str, str]) -> dict[str, Figure]:
    """The curves of the cell, less those that have no line to show."""
    found = {}
    for group in atlas.curve_groups:
        if group.alone:
            group = CurveGroup(group.title, (choice.coordinate,))
        figure = atlas.curves(group, **choice.places, **choice.cell)
        if any(_has_line(trace["y"]) for trace in figure["data"]):
            found[group.title] = inked(figure, *colours)
    return found


def _has_line(numbers: list[float | None]) -> bool:
    """A run that diverged at once has its start alone."""
    return sum(number is not None for number in numbers) > 1


def _cell_text(atlas: Atlas, choice: Selection, drawn: bool) -> str:
    places = {dim: (choice.places | choice.cell).get(dim, 0) for dim in atlas.dims}
    ends = atlas.endings.isel(places).item()
    if not drawn:
        return f"{ends}; there is nothing to draw."
    last = "a run that has ended stays at its last value"
    seeds = atlas.result.sizes["seed"]
    if seeds == 1:
        return f"{ends}. Lines show this one seed; {last}."
    return f"{ends}. Lines: means over {seeds} seeds; {last}. Bands: from the lowest to the highest of them."


BAD = (Status.DIVERGED, Status.FAILED, Status.OUT_OF_MEMORY)
MOST_CELLS = 20
"""cells with bad ends that are listed"""


@dataclass(frozen=True)
class LoadedSweep:
    """A sweep as it can be drawn now."""

    experiment: Experiment
    atlas: Atlas
    doubts: str
    """how many runs have a doubtful robust accuracy, and why; empty where none has"""
    troubles: list[str]
    """what went wrong, in lines: why runs failed, which are doubtful, cells with bad ends"""


def load_sweep(reader: StoreReader) -> LoadedSweep:
    """Look at a store and draw what is there; StoreError or OSError where that cannot be read."""
    Store.open(reader.folder, writing=False)  # which refuses links and other things
    reader.refresh()
    history = reader.experiments()
    if not history:
        raise StoreError(f"{reader.folder} holds no experiment yet")
    result = assemble(history[-1], valid_records(reader))
    made = reader.about.made
    atlas = Atlas(result, recipes().get(made.get("target", "")), made.get("changes") or ())
    wanted = set(keys_of(history[-1]))
    held = runs_in(valid_records(reader))
    doubts = flagged(result)
    troubles = [
        *error_lines(at for key, at in held.items() if key in wanted),
        *([f"Doubtful robust accuracy: {doubts}"] if doubts else []),
        *bad_ends(atlas),
    ]
    return LoadedSweep(history[-1], atlas, doubts, troubles)


def bad_ends(atlas: Atlas) -> list[str]:
    """The cells where runs diverged or failed, with how their runs ended."""
    status = atlas.result["status"].transpose(*atlas.dims, "seed").values.astype(int)
    labels = {dim: names_of(atlas.result[dim]) for dim in atlas.dims}
    told = []
    for place in np.argwhere(np.isin(status, BAD).any(-1)).tolist():
        where = [f"{dim} {labels[dim][at]}" for dim, at in zip(atlas.dims, place, strict=True)]
        ends = ending_text(status[tuple(place)].tolist())
        told.append(f"{', '.join(where) or 'the only cell'}: {ends}")
    rest = len(told) - MOST_CELLS
    return told[:MOST_CELLS] + ([f"and {rest} more cells"] if rest > 0 else [])
