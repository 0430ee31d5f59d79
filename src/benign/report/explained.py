"""What one sees in a figure, in sentences for somebody who has never seen it: only what is drawn is told."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benign.plot.maps import Panel
from benign.stats.boundary import Boundary

PARTLY = "with the paper's exponent, and a constant fitted here"


def of_map(panel: Panel, title: str, meaning: str) -> str:
    """A map and what lies over it."""
    return " ".join(_of_map(panel, title, meaning))


def of_lines(title: str, meaning: str, seeds: int) -> str:
    """Points along one axis."""
    told = [f"Each point is one setting of the experiment: {_what(title, meaning, seeds)}."]
    if seeds > 1:
        told.append("The band, and brackets: the 95 % interval of that mean (Student's t).")
    return " ".join([*told, "Choose one to see how it trained."])


def _of_map(panel: Panel, title: str, meaning: str) -> Iterator[str]:
    seeds = panel.values.sizes.get("seed", 1)
    if not np.isfinite(panel.values).any():
        yield f"There is no {title} here: it was not measured at this setting, or nothing has been computed yet."
        return
    sides = "dark is low, bright is high"
    if panel.cut is not None:
        sides = f"dark is below {panel.cut:g}, bright is above"
    yield f"Each cell is one setting of the experiment. Its colour is {_what(title, meaning, seeds)}: {sides}."
    shown = panel.values.mean("seed") if "seed" in panel.values.dims else panel.values
    if not np.isfinite(shown).all():
        yield "Grey cells have no value."
    if seeds > 1:
        yield "Brackets: the 95 % interval of that mean (Student's t), as far as such numbers can lie."
    if panel.printed is not None:
        yield f"The orange line is the law {'that the paper prints' if panel.printed_by == 'paper' else PARTLY}."
    if panel.boundary is not None:
        yield from _of_boundary(panel.boundary)
        if panel.predicted is not None:
            yield "The dotted blue line is what theory predicts without training anything."
    if panel.moved is not None:
        yield "Crosses mark cells that change when the step size is divided by four."
    yield "Choose a cell to see how it trained."


def _what(title: str, meaning: str, seeds: int) -> str:
    of = f"mean over {seeds} seeds" if seeds > 1 else "one run"
    same = meaning.lower() in ("", title.lower())
    return f"{title} ({of})" if same else f"{title} ({meaning}; {of})"


def _of_boundary(edge: Boundary) -> Iterator[str]:
    if not edge.critical.notnull().any():
        yield f"The map crosses {edge.level:g} nowhere."
        return
    yield f"White dots mark where the map crosses {edge.level:g}."
    if edge.fit is None:
        yield f"No law is fitted to them: {edge.reason}."
    elif not edge.fit.bounded:
        yield "No law is drawn through them: its slope may be 0."
    else:
        percent = f"{100 * edge.confidence:g} %"
        yield f"The dashed line is the power law fitted to them, the pale band its {percent} interval."
