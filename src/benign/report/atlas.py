"""The figures of a result for browsers: which quantities, which axes (ascending numbers, or labels), which curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
import xarray as xr

from benign.papers.recipes import Recipe
from benign.plot.maps import Panel, finite_range
from benign.plot.variables import nan_if_never, readable, value_range
from benign.report import figures
from benign.report.cells import Limits, ending_texts, finished_curve, rounded
from benign.report.figures import LABELS, PlotlyFigure, labels_of
from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary
from benign.sweep.ends import masked_cells


def ascending(result: xr.Dataset) -> xr.Dataset:
    """Return the result with the numbers of every axis in ascending order; labels keep their order."""
    return result.sortby([dim for dim in experiment_axes(result) if _is_numeric(result[dim])])


def experiment_axes(result: xr.Dataset) -> list[str]:
    """Return all axes of the experiment, without the seeds."""
    return [str(dim) for dim in result["status"].dims if dim != "seed"]


def _is_numeric(coordinate: xr.DataArray) -> bool:
    return np.issubdtype(coordinate.dtype, np.number)


def ranks(coordinate: xr.DataArray) -> np.ndarray:
    """Return the index of each value after sorting in ascending order; labels keep their order."""
    order = np.arange(coordinate.size)
    if _is_numeric(coordinate):
        order[np.argsort(coordinate.values, kind="stable")] = np.arange(coordinate.size)
    return order


def numbered(
    result: xr.Dataset, names: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> xr.Dataset:
    """Return the result with numbers on every axis.

    Fields that vary together get the numbers of the one field that identifies them, if there is one. Otherwise the
    values of the axis are counted and the attribute `labels` names them, with the labels of `names` if it has any.
    """
    for dim in experiment_axes(result):
        if len(names.get(dim, ())) == result.sizes[dim]:
            attrs = {"long_name": dim, LABELS: list(names[dim])}
            result = result.assign_coords({dim: (dim, np.arange(result.sizes[dim]), attrs)})
            continue
        fields = [
            each for each in result.coords.values() if each.dims == (dim,) and each.name != dim
        ]
        if not fields and _is_numeric(result[dim]):
            continue
        # Of fields with equal values the first one is used.
        distinct = {tuple(each.values.tolist()): each for each in reversed(fields)}
        only = next(iter(distinct.values())) if len(distinct) == 1 else None
        if only is not None and _is_numeric(only) and only.to_index().is_monotonic_increasing:
            attrs = {**only.attrs, "long_name": f"{only.name}: {only.attrs.get('long_name', '')}"}
            result = result.assign_coords({dim: (dim, only.values, attrs)})
            continue
        texts = {
            str(each.name): without_shared_parts(labels_of(each))
            for each in reversed(distinct.values())
        }
        labels = without_shared_parts(_joined(texts) if texts else labels_of(result[dim]))
        attrs = {"long_name": ", ".join(texts) or dim, LABELS: labels}
        result = result.assign_coords({dim: (dim, np.arange(len(labels)), attrs)})
    return result


def recipe_labels(
    recipe: Recipe | None, result: xr.Dataset, changes: Sequence[str]
) -> dict[str, Sequence[str]]:
    """Return the labels that a recipe has for its axes, except for axes with a field that was changed."""
    replaced = {change.partition("=")[0].rpartition(".")[2] for change in changes}
    fields = {
        dim: {str(name) for name, each in result.coords.items() if each.dims == (dim,)}
        for dim in experiment_axes(result)
    }
    labels = recipe.names.items() if recipe else ()
    return {dim: names for dim, names in labels if not fields.get(dim, set()) & replaced}


def _joined(fields: dict[str, list[str]]) -> list[str]:
    """Return labels of fields that vary together: names and values; names are shortened where they stay different."""
    last = [name.rpartition(".")[2] for name in fields]
    short = last if len(set(last)) == len(last) else list(fields)
    return [
        ", ".join(f"{name} {value}" for name, value in zip(short, values, strict=True))
        for values in zip(*fields.values(), strict=True)
    ]


def without_shared_parts(labels: list[str]) -> list[str]:
    """Return labels without the parts that all of them share.

    >>> without_shared_parts(["net(width=4, rate=1)", "net(width=8, rate=1)"])
    ['net(width=4)', 'net(width=8)']
    """
    parts = [label.removesuffix(")").split(", ") for label in labels]
    shared = set.intersection(*map(set, parts))
    short = [", ".join(part for part in each if part not in shared) for each in parts]
    if len(set(short)) < len(set(labels)) or not all(short):
        return labels
    return [f"{each})" if each.count("(") > each.count(")") else each for each in short]


def map_axes(result: xr.Dataset, several: list[str]) -> list[str]:
    """Return the two axes of a map: axes of numbers before those of labels, long ones before short ones."""
    best = sorted(several, key=lambda dim: (LABELS in result[dim].attrs, -result.sizes[dim]))[:2]
    return [dim for dim in several if dim in best]


def axis_with_values(result: xr.Dataset, coordinate: xr.DataArray) -> str:
    """Return the axis of a result that has the values of a coordinate, perhaps under another name."""
    if coordinate.name in experiment_axes(result):
        return str(coordinate.name)
    values = coordinate.values
    for each in result.coords.values():
        if each.ndim == 1 and each.shape == values.shape and (each.values == values).all():
            return str(each.dims[0])
    raise ValueError(f"no axis of the experiment has the values of `{coordinate.name}`")


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
"""the main quantities, which come first if they are measured"""
NO_QUANTITY = {"status", "audit"}
"""codes, which cells show in words"""
LEVEL = 0.75
"""accuracy at which a boundary is fitted, unless a recipe draws another one"""
FITTED = ("test_accuracy", "robust_accuracy")

PAPER, CHIEF, REST = "As the paper draws it", "Main quantities", "Everything else measured"
THEORY = "Coordinates of the theory"


@dataclass(frozen=True)
class Quantity:
    """A quantity that a figure shows over the axes of an experiment."""

    name: str
    """argument of `Atlas.figure`"""
    title: str
    group: str
    """heading of the menu: PAPER, CHIEF or REST"""
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
    """whether each curve has a figure of its own, since they have different units"""


class Atlas:
    """Figures of a result, complete or not; a recipe adds the maps of its paper.

    `x` and `y` are the axes of the maps; without `y` figures show lines along `x`, and without `x` the experiment
    has one cell and no figure. `sliders` are the other axes with several values, by name, with a label for each value.
    """

    def __init__(
        self, result: xr.Dataset, recipe: Recipe | None = None, changes: Sequence[str] = ()
    ) -> None:
        """`changes` are the fields of the recipe that were changed, `field=value`."""
        self._raw = ascending(result)
        names = recipe_labels(recipe, self._raw, changes)
        steps = {name: nan_if_never(values) for name, values in self._raw.data_vars.items()}
        self.result = numbered(self._raw.assign(steps), names)
        self._ranks = {dim: ranks(result[dim]) for dim in experiment_axes(result)}
        self.note = ""
        """why the maps of the paper cannot be drawn; empty if they can, or if the paper has none"""
        self._panels = self._paper_panels(recipe)
        several = [dim for dim in experiment_axes(result) if result.sizes[dim] > 1]
        drawn = (
            self._panel_axes(self._panels[0]) if self._panels else map_axes(self.result, several)
        )
        self.x, self.y = (*drawn, None, None)[:2]
        self.sliders = {dim: labels_of(self.result[dim]) for dim in several if dim not in drawn}

    @cached_property
    def quantities(self) -> list[Quantity]:
        """The quantities that figures can show, the most important first."""
        of_paper = [
            Quantity(f"paper {number}", _title(panel), PAPER, self._meaning_of(panel))
            for number, panel in enumerate(self._panels)
        ]
        drawn = {each.title for each in of_paper}
        own = {*experiment_axes(self.result), "seed"}
        names = [
            str(name)
            for name, values in self.result.data_vars.items()
            if set(values.dims) == own and name not in NO_QUANTITY and values.notnull().any()
        ]
        names = [name for name in names if readable(name) not in drawn]
        names.sort(key=lambda name: MAIN.index(name) if name in MAIN else len(MAIN))
        return of_paper + [
            Quantity(
                name, readable(name), CHIEF if name in MAIN else REST, _meaning(self.result[name])
            )
            for name in names
        ]

    def figure(
        self, name: str, at: Mapping[str, int] = MappingProxyType({}), span: Limits | None = None
    ) -> PlotlyFigure:
        """Return the figure of a quantity at positions of the sliders (0 if not given), and `about`, a text about it.

        A colour scale without limits of its own covers `span`, or the range of the quantity at all positions.
        """
        if self.x is None:
            raise ValueError("the experiment has one cell: there are no axes to draw over")
        title, meaning = self._titles[name]
        if self.y is None:
            values, ended = self._slice(self.result[name], at), self._ended(self.x, at=at)
            about = figures.explain_lines(title, meaning, values.sizes["seed"])
            return figures.lines(values, self.x, readable(name), ended) | {"about": about}
        panel = self._panel(name, at)
        y, x = self._panel_axes(panel)[::-1] if name in self._panels_by_name else (self.y, self.x)
        drawn = figures.heat_map(panel, self._ended(y, x, at=at), span or self.span(name))
        return drawn | {"about": figures.explain_map(panel, title, meaning)}

    def span(self, name: str) -> Limits:
        """Return the lowest and the highest mean of a quantity over all positions of the sliders."""
        values = (
            self._panels_by_name[name].values if name in self._panels_by_name else self.result[name]
        )
        return finite_range(values.mean("seed").values)

    @property
    def description(self) -> str:
        """The contents of the figures in a sentence."""
        if not self.quantities:
            return "Nothing has been measured yet."
        if self.x is None:
            return "There is one setting; its training is shown below."
        x, y = (_long_name(self.result[dim]) if dim else "" for dim in (self.x, self.y))
        title = self.quantities[0].title
        if self.y is None:
            text = f"The figure below shows {title} along {x}: each point is one setting."
        else:
            text = f"The heat map below shows {title} over {x} and {y}: each cell is one setting."
        return text + (f" Choose {', '.join(self.sliders)} above it." if self.sliders else "")

    @cached_property
    def curve_groups(self) -> list[CurveGroup]:
        """The curves recorded along training, grouped by kind."""
        own = {*experiment_axes(self.result), "seed", "step"}
        names = [
            str(name)
            for name, values in self.result.data_vars.items()
            if set(values.dims) == own and values.notnull().any()
        ]
        groups = []
        for title, belongs, log in _CURVES:
            members = tuple(name for name in names if belongs(name.removesuffix("_curve")))
            names = [name for name in names if name not in members]
            if members:
                groups.append(CurveGroup(title, members, log))
        return groups + ([CurveGroup(THEORY, tuple(names), alone=True)] if names else [])

    def curves(self, group: CurveGroup, **cell: int) -> PlotlyFigure:
        """Return the curves of one cell: the mean over seeds, and a band from the lowest to the highest."""
        here = self.result.isel({dim: cell.get(dim, 0) for dim in self.dims})
        curves = {name: finished_curve(here, name) for name in group.names}

        def numbers(name: str, kind: str) -> list:
            reduce = {"mean": "mean", "low": "min", "high": "max"}[kind]
            return rounded(getattr(curves[name], reduce)("seed").values)

        return self.curve_figure(group, numbers)

    def curve_figure(
        self,
        group: CurveGroup,
        numbers: Callable[[str, str], object],
        steps: Sequence[int] | None = None,
    ) -> PlotlyFigure:
        """Return a figure of curves at some steps, with these numbers or references that a page fills in later."""
        named = [(name, readable(name)) for name in group.names]
        units = self.result[group.names[0]].attrs.get("units", "1")
        label = readable(group.names[0]) if len(named) == 1 else group.title.lower()
        if units not in ("1", ""):
            label = f"{label} ({units})"
        steps = list(steps or self.result["step"].values.tolist())
        band = self.result.sizes["seed"] > 1
        return figures.training(named, steps, numbers, label=label, log=group.log, band=band)

    @cached_property
    def endings(self) -> xr.DataArray:
        """How the runs of every cell ended, and how many are masked, in words."""
        return xr.DataArray(ending_texts(self.result, *self.dims), dims=self.dims)

    @property
    def dims(self) -> list[str]:
        """All axes of the experiment; a cell is one value of each."""
        return experiment_axes(self.result)

    def cell_number(self, number: int) -> int:
        """Return the number of a cell in figures, whose axes ascend, from its number in the specification."""
        if not self.dims:
            return 0
        sizes = [self.result.sizes[dim] for dim in self.dims]
        at = np.unravel_index(number, sizes)
        ranks = [self._ranks[dim][i] for dim, i in zip(self.dims, at, strict=True)]
        return int(np.ravel_multi_index(ranks, sizes))

    def _paper_panels(self, recipe: Recipe | None) -> list[Panel]:
        """Return the maps of a recipe; none if its axes were changed so that they cannot be drawn."""
        if recipe is None or recipe.panels is None:
            return []
        try:
            panels = recipe.panels(self._raw)
            _ = [self._panel_axes(panel) for panel in panels]
            return panels
        except Exception as error:
            self.note = f"The maps of {recipe.name} cannot be drawn: {error}"
            return []

    def _meaning_of(self, panel: Panel) -> str:
        """Return the definition of the variable that a panel draws; empty if it draws something computed from one.

        Computed values keep the attributes of the variable, so the values are compared.
        """
        meaning, drawn = _meaning(panel.values), panel.values
        variables = (
            values.transpose(*drawn.dims)
            for values in self._raw.data_vars.values()
            if _meaning(values) == meaning and set(values.dims) == set(drawn.dims)
        )
        unchanged = any(np.array_equal(each, drawn, equal_nan=True) for each in variables)
        return meaning if unchanged else ""

    @cached_property
    def _panels_by_name(self) -> dict[str, Panel]:
        """The maps of the paper by the names of their quantities."""
        return {f"paper {number}": panel for number, panel in enumerate(self._panels)}

    @cached_property
    def _titles(self) -> dict[str, tuple[str, str]]:
        """Title and definition of every variable, also without values, and of the maps of the paper."""
        variables = {
            str(name): (readable(str(name)), _meaning(self.result[name])) for name in self.result
        }
        return variables | {each.name: (each.title, each.meaning) for each in self.quantities}

    def _panel(self, name: str, at: Mapping[str, int]) -> Panel:
        if name in self._panels_by_name:
            return self._panels_by_name[name]
        assert self.x is not None
        assert self.y is not None
        values, bounds = self._slice(self.result[name], at), value_range(readable(name))
        limits = bounds if np.isfinite(bounds).all() else None
        edge = self._edge(name, at) if name in FITTED else None
        marks = masked_cells(self.result, name)
        masked = None if marks is None else self._slice(marks, at)
        return Panel(
            values, self.x, self.y, readable(name), limits=limits, boundary=edge, masked=masked
        )

    def _panel_axes(self, panel: Panel) -> list[str]:
        """Return the axes of the experiment that a panel draws, perhaps under other names."""
        return [axis_with_values(self._raw, panel.values[dim]) for dim in (panel.x, panel.y)]

    def _slice(self, values: xr.DataArray, at: Mapping[str, int]) -> xr.DataArray:
        rest = [dim for dim in self.dims if dim not in (self.x, self.y) and dim in values.dims]
        return values.isel({dim: at.get(dim, 0) for dim in rest}, drop=True)

    def _ended(self, *dims: str, at: Mapping[str, int]) -> np.ndarray:
        return self._slice(self.endings, at).transpose(*dims).values

    def _edge(self, name: str, at: Mapping[str, int]) -> Boundary | None:
        """Return the boundary of an accuracy; None if an axis has labels, or if no boundary can be computed."""
        if any(LABELS in self.result[dim].attrs for dim in (self.x, self.y)):
            return None

        def of_map(result: xr.Dataset) -> xr.DataArray:
            return self._slice(result[name], at).rename(readable(name))

        try:
            return audited_boundary(self.result, of_map, LEVEL)
        except ValueError:
            return None


def _long_name(coordinate: xr.DataArray) -> str:
    """Return the name of an axis in a sentence."""
    return str(coordinate.attrs.get("long_name", coordinate.name))


_CURVES: tuple[tuple[str, Callable[[str], bool], bool], ...] = (
    ("Loss", lambda name: name.endswith("_loss"), True),
    ("Accuracy", lambda name: "accuracy" in name, False),
    ("Error", lambda name: name.endswith("error"), False),
    ("Attention", lambda name: name.startswith("attention_on"), False),
)
"""kinds of curves, which variables belong to each, and whether its axis is logarithmic"""


def _title(panel: Panel) -> str:
    return panel.label if panel.cut is None else f"{panel.label}, cut at {panel.cut:g}"


def _meaning(values: xr.DataArray) -> str:
    return str(values.attrs.get("long_name", ""))
