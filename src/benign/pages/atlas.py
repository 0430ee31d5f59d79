"""What can be drawn of a result: its axes, its quantities as maps or lines, and the training of every cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr

from benign.pages import figures
from benign.pages.axes import ascending, axes_of, chosen, home, numbered, ranks
from benign.pages.cells import endings, rounded
from benign.pages.figures import LABELS
from benign.pages.over import Figure
from benign.papers.recipes import Recipe
from benign.plot.chosen import plain as said
from benign.plot.chosen import possible
from benign.plot.maps import Panel
from benign.theory.boundary import Boundary, boundary

MAIN = (
    "test_accuracy",
    "robust_accuracy",
    "robust_accuracy_certified",
    "train_loss",
    "test_loss",
    "robust_loss",
    "train_accuracy",
    "train_robust_accuracy",
    "steps",
)
"""what is drawn first, as far as it is measured"""
NO_QUANTITY = {"status", "audit"}
"""codes: cells tell them in words"""
LEVEL = 0.75
"""accuracy whose boundary is fitted where no recipe says otherwise"""
FITTED = ("test_accuracy", "robust_accuracy")

PAPER, CHIEF, REST = "As the paper draws it", "Main quantities", "Everything else measured"
THEORY = "Coordinates of the theory"
PARTLY = "with the paper's exponent, and a constant fitted here"


@dataclass(frozen=True)
class Quantity:
    """Something that a figure shows over the axes of an experiment."""

    name: str
    """by which `Atlas.figure` knows it"""
    title: str
    group: str
    """what it belongs to in a list"""
    meaning: str
    """its definition, in a sentence"""


@dataclass(frozen=True)
class CurveGroup:
    """Curves that are drawn together along training."""

    title: str
    names: tuple[str, ...]
    """variables of the result; their names end in `_curve`"""
    log: bool = False
    alone: bool = False
    """whether they have so little in common that each has a figure of its own"""


class Atlas:
    """Figures of a result, whole or still being computed; a recipe adds the maps of its paper.

    `x` and `y` are the axes of the maps; without `y` figures show lines along `x`, and without `x` the experiment
    has one cell and no figure. `sliders` are the other axes with several values, by name, with a label for each.
    """

    def __init__(self, result: xr.Dataset, recipe: Recipe | None = None) -> None:
        self._raw = ascending(result)
        self.result = numbered(self._raw)
        self._ranks = {dim: ranks(result[dim]) for dim in axes_of(result)}
        self.note = ""
        """why the maps of the paper cannot be drawn; empty where they can or there are none"""
        self._panels = self._of_paper(recipe)
        several = [dim for dim in axes_of(result) if result.sizes[dim] > 1]
        drawn = self._homes(self._panels[0]) if self._panels else chosen(self.result, several)
        self.x, self.y = (*drawn, None, None)[:2]
        self.sliders = {
            dim: figures.names_of(self.result[dim]) for dim in several if dim not in drawn
        }

    @cached_property
    def quantities(self) -> list[Quantity]:
        """What can be shown, the most telling first."""
        found = [
            Quantity(f"paper {number}", _title(panel), PAPER, _meaning(panel.values))
            for number, panel in enumerate(self._panels)
        ]
        own = {*axes_of(self.result), "seed"}
        names = [
            str(name)
            for name, values in self.result.data_vars.items()
            if set(values.dims) == own and name not in NO_QUANTITY and values.notnull().any()
        ]
        names.sort(key=lambda name: MAIN.index(name) if name in MAIN else len(MAIN))
        return found + [
            Quantity(name, said(name), CHIEF if name in MAIN else REST, _meaning(self.result[name]))
            for name in names
        ]

    def figure(self, name: str, **at: int) -> Figure:
        """The figure of a quantity, at places of the sliders (0 where none is given)."""
        if name.startswith("paper "):
            panel = self._panels[int(name.removeprefix("paper "))]
            return figures.heat_map(panel, self._ended(*self._homes(panel)[::-1], at=at))
        values = self._slice(self.result[name], at)
        if self.x is None:
            raise ValueError("the experiment has one cell: there are no axes to draw over")
        if self.y is None:
            ended = self._ended(self.x, at=at)
            return figures.lines(values, self.x, said(name), ended)
        bounds = possible(said(name))
        limits = bounds if np.isfinite(bounds).all() else None
        edge = self._edge(name, values) if name in FITTED else None
        panel = Panel(values, self.x, self.y, said(name), limits=limits, boundary=edge)
        span = figures.finite_range(self.result[name].mean("seed").values)  # of all sliders
        return figures.heat_map(panel, self._ended(self.y, self.x, at=at), span)

    @property
    def seen(self) -> str:
        """What the figures show, in a sentence."""
        if not self.quantities:
            return "Nothing has been measured yet."
        if self.x is None:
            return "There is one setting; below is how it trained."
        x, y = (plain_name(self.result[dim]) if dim else "" for dim in (self.x, self.y))
        title = self.quantities[0].title
        if self.y is None:
            return f"The figure below shows {title} along {x}: every point is one setting."
        return (
            f"The heat map below shows {title} over {x} and {y}: every cell is one setting, its colour what was "
            "measured there."
        )

    def about(self, name: str) -> str:
        """What one sees in the figure of a quantity, for somebody who has never seen it."""
        return "" if self.x is None else self._about(name)

    @cached_property
    def curve_groups(self) -> list[CurveGroup]:
        """The curves that were recorded along training, by what they are about."""
        own = {*axes_of(self.result), "seed", "step"}
        names = [
            str(name)
            for name, values in self.result.data_vars.items()
            if set(values.dims) == own and values.notnull().any()
        ]
        found = []
        for title, belongs, log in _CURVES:
            those = tuple(name for name in names if belongs(name.removesuffix("_curve")))
            names = [name for name in names if name not in those]
            if those:
                found.append(CurveGroup(title, those, log))
        return found + ([CurveGroup(THEORY, tuple(names), alone=True)] if names else [])

    def curves(self, group: CurveGroup, **cell: int) -> Figure:
        """The curves of one cell: means over seeds between the lowest and the highest of them."""
        here = self.result[list(group.names)].isel({dim: cell.get(dim, 0) for dim in self.dims})

        def numbers(name: str, kind: str) -> list:
            reduce = {"mean": "mean", "low": "min", "high": "max"}[kind]
            return rounded(getattr(here[name], reduce)("seed").values)

        return self.curve_figure(group, numbers)

    def curve_figure(
        self,
        group: CurveGroup,
        numbers: Callable[[str, str], object],
        steps: Sequence[int] | None = None,
    ) -> Figure:
        """The same with other numbers in it, or references that a page fills in later, at some of the steps."""
        named = [(name, said(name)) for name in group.names]
        alone = self.result[group.names[0]].attrs.get("units", "1")
        label = said(group.names[0]) if len(named) == 1 else group.title.lower()
        if alone not in ("1", ""):
            label = f"{label} ({alone})"
        steps = list(steps or self.result["step"].values.tolist())
        band = self.result.sizes["seed"] > 1
        return figures.training(named, steps, numbers, label=label, log=group.log, band=band)

    @cached_property
    def endings(self) -> xr.DataArray:
        """How the runs of every cell ended, in words."""
        return xr.DataArray(endings(self.result["status"], *self.dims), dims=self.dims)

    @property
    def dims(self) -> list[str]:
        """All axes of the experiment: what a cell is one place of each."""
        return axes_of(self.result)

    def place(self, number: int) -> int:
        """The number of a cell on figures, whose axes ascend, from its number in the specification."""
        if not self.dims:
            return 0
        sizes = [self.result.sizes[dim] for dim in self.dims]
        at = np.unravel_index(number, sizes)
        ranks = [self._ranks[dim][i] for dim, i in zip(self.dims, at, strict=True)]
        return int(np.ravel_multi_index(ranks, sizes))

    def _of_paper(self, recipe: Recipe | None) -> list[Panel]:
        """The maps of a recipe; none where its axes were changed so that they cannot be drawn."""
        if recipe is None or recipe.panels is None:
            return []
        try:
            panels = recipe.panels(self._raw)
            _ = [self._homes(panel) for panel in panels]
            return panels
        except Exception as error:
            self.note = f"The maps of {recipe.name} cannot be drawn: {error}"
            return []

    def _homes(self, panel: Panel) -> list[str]:
        """The axes of the experiment that a panel draws, which may have given them other names."""
        return [home(self._raw, panel.values[dim]) for dim in (panel.x, panel.y)]

    def _slice(self, values: xr.DataArray, at: Mapping[str, int]) -> xr.DataArray:
        rest = [dim for dim in self.dims if dim not in (self.x, self.y) and dim in values.dims]
        return values.isel({dim: at.get(dim, 0) for dim in rest}, drop=True)

    def _ended(self, *dims: str, at: Mapping[str, int]) -> np.ndarray:
        return self._slice(self.endings, at).transpose(*dims).values

    def _edge(self, name: str, values: xr.DataArray) -> Boundary | None:
        """The boundary of an accuracy, where both axes hold numbers that a law can be about."""
        try:
            if any(LABELS in values[dim].attrs for dim in (self.x, self.y)):
                return None
            return boundary(values.rename(said(name)), LEVEL)
        except ValueError:
            return None

    def _about(self, name: str) -> str:
        seeds = self.result.sizes["seed"]
        of = f"mean over {seeds} seeds" if seeds > 1 else "one run"
        title = next(each.title for each in self.quantities if each.name == name)
        if self.y is None:
            bands = "; the band is its 95 % interval" if seeds > 1 else ""
            return (
                f"Each point is one setting of the experiment: {title} ({of}{bands}). "
                "Choose one to see how it trained."
            )
        panel = self._panels[int(name[6:])] if name.startswith("paper ") else None
        told = [
            f"Each cell is one setting of the experiment. Its colour is {title} ({of}): dark is low, bright is high.",
            *_explained(panel, name in FITTED),
            "Choose a cell to see how it trained.",
        ]
        return " ".join(told)


def plain_name(coordinate: xr.DataArray) -> str:
    """The name of an axis in a sentence."""
    return str(coordinate.attrs.get("long_name", coordinate.name))


def _explained(panel: Panel | None, fitted: bool) -> list[str]:
    """What lies over a map."""
    told = []
    if panel is not None and panel.printed is not None:
        prints = "that the paper prints" if panel.printed_by == "paper" else PARTLY
        told.append(f"The orange line is the law {prints}.")
    edge = panel.boundary if panel else None
    if edge is not None or (panel is None and fitted):
        level = edge.level if edge else LEVEL
        told.append(
            f"White dots mark where the map crosses {level:g}; the dashed line is the power law fitted to "
            "them, the pale band its 95 % interval (as far as the runs determine one)."
        )
    if panel is not None and panel.predicted is not None and edge is not None:
        told.append("The dotted blue line is what theory predicts without training anything.")
    if panel is not None and panel.moved is not None:
        told.append("Crosses mark cells that change when the step size is divided by four.")
    return told


_CURVES: tuple[tuple[str, Callable[[str], bool], bool], ...] = (
    ("Loss", lambda name: name.endswith("_loss"), True),
    ("Accuracy and error", lambda name: "accuracy" in name or name.endswith("error"), False),
    ("Attention", lambda name: name.startswith("attention_on"), False),
)
"""kinds of curves, what belongs to each, and whether it is drawn on a logarithmic axis"""


def _title(panel: Panel) -> str:
    return panel.label if panel.cut is None else f"{panel.label}, cut at {panel.cut:g}"


def _meaning(values: xr.DataArray) -> str:
    return str(values.attrs.get("long_name", ""))
