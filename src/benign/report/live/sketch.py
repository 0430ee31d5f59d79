"""The figures of a sweep for what is chosen, and what is said beside them."""

from dataclasses import dataclass, field

from benign.report.atlas import Atlas, CurveGroup
from benign.report.figures import inked
from benign.report.live.choice import Choice
from benign.report.over import Figure
from benign.training.descent import Status

OUTLINE = {"color": "#ff2d95", "width": 3}
"""of the chosen cell, as in a report"""


@dataclass(frozen=True)
class Sketch:
    """What is to be drawn."""

    map: Figure | None
    about: str
    """what one sees in the map"""
    curves: dict[str, Figure] = field(default_factory=dict)
    """by title"""
    told: str = ""
    """how the runs of the cell ended, and how to read its curves"""


def sketched(atlas: Atlas, choice: Choice, empty: str, colours: tuple[str, str]) -> Sketch:
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
        return Sketch(map_figure, about)
    curves = _curves(atlas, choice, colours)
    return Sketch(map_figure, about, curves, _told(atlas, choice, bool(curves)))


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


def _curves(atlas: Atlas, choice: Choice, colours: tuple[str, str]) -> dict[str, Figure]:
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


def _told(atlas: Atlas, choice: Choice, drawn: bool) -> str:
    places = {dim: (choice.places | choice.cell).get(dim, 0) for dim in atlas.dims}
    ends = atlas.endings.isel(places).item()
    if not drawn:
        return f"{ends}; there is nothing to draw."
    last = "a run that has ended stays at its last value"
    seeds = atlas.result.sizes["seed"]
    if seeds == 1:
        return f"{ends}. Lines show this one seed; {last}."
    return f"{ends}. Lines: means over {seeds} seeds; {last}. Bands: from the lowest to the highest of them."
