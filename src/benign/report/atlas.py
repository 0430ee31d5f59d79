"""The axes of a result as a picture needs them: numbers that ascend, or names of what is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
import xarray as xr

from benign.papers.recipes import Recipe
from benign.plot.maps import Panel
from benign.plot.variables import nan_if_never, readable, value_range
from benign.report import figures
from benign.report.cells import Limits, endings, rounded, settled
from benign.report.figures import LABELS, Figure, names_of
from benign.stats.boundary import Boundary, boundary


def ascending(result: xr.Dataset) -> xr.Dataset:
    """With the numbers of every axis in order; labels stay where they are."""
    return result.sortby([dim for dim in axes_of(result) if _counts(result[dim])])


def axes_of(result: xr.Dataset) -> list[str]:
    return [str(dim) for dim in result["status"].dims if dim != "seed"]


def _counts(coordinate: xr.DataArray) -> bool:
    return np.issubdtype(coordinate.dtype, np.number)


def ranks(coordinate: xr.DataArray) -> np.ndarray:
    """The place that each value has when numbers ascend; labels stay where they are."""
    order = np.arange(coordinate.size)
    if _counts(coordinate):
        order[np.argsort(coordinate.values, kind="stable")] = np.arange(coordinate.size)
    return order


def numbered(
    result: xr.Dataset, names: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> xr.Dataset:
    """With numbers on every axis: fields that move together get the numbers of the only field that tells them apart,
    or are counted, as labels are; the attribute `labels` then names them, in the words of `names` where it has any."""
    for dim in axes_of(result):
        if len(names.get(dim, ())) == result.sizes[dim]:
            told = {"long_name": dim, LABELS: list(names[dim])}
            result = result.assign_coords({dim: (dim, np.arange(result.sizes[dim]), told)})
            continue
        beside = [each for each in result.coords.values() if each.dims == (dim,)]
        beside = [each for each in beside if each.name != dim]
        if not beside and _counts(result[dim]):
            continue
        alike = {
            tuple(each.values.tolist()): each for each in reversed(beside)
        }  # the first one counts
        alone = next(iter(alike.values())) if len(alike) == 1 else None
        if alone is not None and _counts(alone) and alone.to_index().is_monotonic_increasing:
            told = {**alone.attrs, "long_name": f"{alone.name}: {alone.attrs.get('long_name', '')}"}
            result = result.assign_coords({dim: (dim, alone.values, told)})
            continue
        fields = {str(each.name): told_apart(names_of(each)) for each in reversed(alike.values())}
        words = told_apart(_in_words(fields) if fields else names_of(result[dim]))
        told = {"long_name": ", ".join(fields) or dim, LABELS: words}
        result = result.assign_coords({dim: (dim, np.arange(len(words)), told)})
    return result


def named_by(
    recipe: Recipe | None, result: xr.Dataset, changes: Sequence[str]
) -> dict[str, Sequence[str]]:
    """The names that a recipe has for places of its axes, but for axes of which a change replaced a field."""
    replaced = {change.partition("=")[0].rpartition(".")[2] for change in changes}
    fields = {
        dim: {str(name) for name, each in result.coords.items() if each.dims == (dim,)}
        for dim in axes_of(result)
    }
    known = recipe.names.items() if recipe else ()
    return {dim: names for dim, names in known if not fields.get(dim, set()) & replaced}


def _in_words(fields: dict[str, list[str]]) -> list[str]:
    """What fields that move together say at each place; the last words of their names will do where these differ."""
    last = [name.rpartition(".")[2] for name in fields]
    short = last if len(set(last)) == len(last) else list(fields)
    return [
        ", ".join(f"{name} {word}" for name, word in zip(short, words, strict=True))
        for words in zip(*fields.values(), strict=True)
    ]


def told_apart(labels: list[str]) -> list[str]:
    """Labels without the parts that all of them share.

    >>> told_apart(["net(width=4, rate=1)", "net(width=8, rate=1)"])
    ['net(width=4)', 'net(width=8)']
    """
    parts = [label.removesuffix(")").split(", ") for label in labels]
    shared = set.intersection(*map(set, parts))
    short = [", ".join(part for part in each if part not in shared) for each in parts]
    if len(set(short)) < len(set(labels)) or not all(short):
        return labels
    return [f"{each})" if each.count("(") > each.count(")") else each for each in short]


def chosen(result: xr.Dataset, several: list[str]) -> list[str]:
    """The two axes of a map: numbers before labels, long ones before short ones, in the order of the experiment."""
    best = sorted(several, key=lambda dim: (LABELS in result[dim].attrs, -result.sizes[dim]))[:2]
    return [dim for dim in several if dim in best]


def home(result: xr.Dataset, coordinate: xr.DataArray) -> str:
    """The axis of a result that holds the values of a coordinate."""
    if coordinate.name in axes_of(result):
        return str(coordinate.name)
    wanted = coordinate.values
    for each in result.coords.values():
        if each.ndim == 1 and each.shape == wanted.shape and (each.values == wanted).all():
            return str(each.dims[0])
    raise ValueError(f"no axis of the experiment holds the values of `{coordinate.name}`")


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

    def __init__(
        self, result: xr.Dataset, recipe: Recipe | None = None, changes: Sequence[str] = ()
    ) -> None:
        """`changes` are those of the recipe's experiment, `field=value`, whose names it cannot know."""
        self._raw = ascending(result)
        names = named_by(recipe, self._raw, changes)
        steps = {name: nan_if_never(values) for name, values in self._raw.data_vars.items()}
        self.result = numbered(self._raw.assign(steps), names)
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
            Quantity(f"paper {number}", _title(panel), PAPER, self._meaning_of(panel))
            for number, panel in enumerate(self._panels)
        ]
        drawn = {each.title for each in found}
        own = {*axes_of(self.result), "seed"}
        names = [
            str(name)
            for name, values in self.result.data_vars.items()
            if set(values.dims) == own and name not in NO_QUANTITY and values.notnull().any()
        ]
        names = [name for name in names if readable(name) not in drawn]
        names.sort(key=lambda name: MAIN.index(name) if name in MAIN else len(MAIN))
        return found + [
            Quantity(
                name, readable(name), CHIEF if name in MAIN else REST, _meaning(self.result[name])
            )
            for name in names
        ]

    def figure(
        self, name: str, at: Mapping[str, int] = MappingProxyType({}), span: Limits | None = None
    ) -> Figure:
        """The figure of a quantity, at places of the sliders (0 where none is given), and what one sees, as `about`.

        Colours without limits of their own reach over `span`, or what the quantity has at all places of sliders.
        """
        if self.x is None:
            raise ValueError("the experiment has one cell: there are no axes to draw over")
        title, meaning = self._told[name]
        if self.y is None:
            values, ended = self._slice(self.result[name], at), self._ended(self.x, at=at)
            about = figures.explain_lines(title, meaning, values.sizes["seed"])
            return figures.lines(values, self.x, readable(name), ended) | {"about": about}
        panel = self._panel(name, at)
        y, x = self._homes(panel)[::-1] if name in self._of_name else (self.y, self.x)
        drawn = figures.heat_map(panel, self._ended(y, x, at=at), span or self.span(name))
        return drawn | {"about": figures.explain_map(panel, title, meaning)}

    def span(self, name: str) -> Limits:
        """The lowest and the highest mean of a quantity, wherever sliders stand."""
        values = self._of_name[name].values if name in self._of_name else self.result[name]
        return figures.finite_range(values.mean("seed").values)

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
            return (
                f"The figure below shows {title} along {x}: every point is one setting.{self._slid}"
            )
        return (
            f"The heat map below shows {title} over {x} and {y}: every cell is one setting, its colour what was "
            f"measured there.{self._slid}"
        )

    @property
    def _slid(self) -> str:
        return f" Above it one chooses {', '.join(self.sliders)}." if self.sliders else ""

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
        here = self.result.isel({dim: cell.get(dim, 0) for dim in self.dims})
        curves = {name: settled(here, name) for name in group.names}

        def numbers(name: str, kind: str) -> list:
            reduce = {"mean": "mean", "low": "min", "high": "max"}[kind]
            return rounded(getattr(curves[name], reduce)("seed").values)

        return self.curve_figure(group, numbers)

    def curve_figure(
        self,
        group: CurveGroup,
        numbers: Callable[[str, str], object],
        steps: Sequence[int] | None = None,
    ) -> Figure:
        """The same with other numbers in it, or references that a page fills in later, at some of the steps."""
        named = [(name, readable(name)) for name in group.names]
        alone = self.result[group.names[0]].attrs.get("units", "1")
        label = readable(group.names[0]) if len(named) == 1 else group.title.lower()
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

    def _meaning_of(self, panel: Panel) -> str:
        """The definition of a variable that a panel draws as it is; what is computed from one keeps its attributes."""
        told, drawn = _meaning(panel.values), panel.values
        as_they_are = (
            values.transpose(*drawn.dims)
            for values in self._raw.data_vars.values()
            if _meaning(values) == told and set(values.dims) == set(drawn.dims)
        )
        same = any(np.array_equal(each, drawn, equal_nan=True) for each in as_they_are)
        return told if same else ""

    @cached_property
    def _of_name(self) -> dict[str, Panel]:
        """The maps of the paper by the names of their quantities."""
        return {f"paper {number}": panel for number, panel in enumerate(self._panels)}

    @cached_property
    def _told(self) -> dict[str, tuple[str, str]]:
        """Title and meaning of what can be drawn, measured or not."""
        known = {name: (readable(str(name)), _meaning(self.result[name])) for name in self.result}
        return {str(name): told for name, told in known.items()} | {
            each.name: (each.title, each.meaning) for each in self.quantities
        }

    def _panel(self, name: str, at: Mapping[str, int]) -> Panel:
        if name in self._of_name:
            return self._of_name[name]
        assert self.x is not None
        assert self.y is not None
        values, bounds = self._slice(self.result[name], at), value_range(readable(name))
        limits = bounds if np.isfinite(bounds).all() else None
        edge = self._edge(name, values) if name in FITTED else None
        return Panel(values, self.x, self.y, readable(name), limits=limits, boundary=edge)

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
        if any(LABELS in self.result[dim].attrs for dim in (self.x, self.y)):
            return None
        try:
            return boundary(values.rename(readable(name)), LEVEL)
        except ValueError:
            return None


def plain_name(coordinate: xr.DataArray) -> str:
    """The name of an axis in a sentence."""
    return str(coordinate.attrs.get("long_name", coordinate.name))


_CURVES: tuple[tuple[str, Callable[[str], bool], bool], ...] = (
    ("Loss", lambda name: name.endswith("_loss"), True),
    ("Accuracy", lambda name: "accuracy" in name, False),
    ("Error", lambda name: name.endswith("error"), False),
    ("Attention", lambda name: name.startswith("attention_on"), False),
)
"""kinds of curves, what belongs to each, and whether it is drawn on a logarithmic axis"""


def _title(panel: Panel) -> str:
    return panel.label if panel.cut is None else f"{panel.label}, cut at {panel.cut:g}"


def _meaning(values: xr.DataArray) -> str:
    return str(values.attrs.get("long_name", ""))
