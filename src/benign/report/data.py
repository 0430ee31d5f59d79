"""What the script of a page needs to draw: figures by quantity and slider, curves, conditions of cells."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from benign.plot.variables import possible
from benign.report.atlas import CHIEF, REST, Atlas, CurveGroup, Quantity, said
from benign.report.cells import Limits, means
from benign.report.figures import names_of
from benign.report.folder import Folder
from benign.report.over import Figure
from benign.report.packed import BUDGET, PackedCurves, as_bytes, packed_curves
from benign.report.theorem import Theorem

MOST_HOVERS = 150_000
"""texts of cells on a page; above, only the main quantities are drawn"""


@dataclass(frozen=True)
class Group:
    """Folders that stand side by side: one recipe at one scale under several readings, or one experiment."""

    folders: tuple[Folder, ...]

    @property
    def title(self) -> str:
        return self.folders[0].title

    @property
    def name(self) -> str:
        first = self.folders[0]
        if first.recipe is None:
            return first.label
        return f"{first.recipe.name}, {first.scale} scale" if first.scale else first.recipe.name

    @cached_property
    def spans(self) -> dict[str, Limits]:
        """The range of every quantity over the folders: one colour means one number in all of them."""
        found: dict[str, Limits] = {}
        for atlas in (folder.atlas for folder in self.folders if folder.atlas.x):
            for name in (each.name for each in atlas.quantities):
                low, high = atlas.span(name)
                known = found.get(name, (low, high))
                found[name] = min(low, known[0]), max(high, known[1])
        return found


def grouped(folders: Sequence[Folder]) -> list[Group]:
    """Folders of one recipe, scale and shape of figures together, in the order in which they came."""
    found: dict[Any, list[Folder]] = {}
    for folder in folders:
        atlas = folder.atlas
        sliders = tuple((name, len(labels)) for name, labels in atlas.sliders.items())
        of = folder.recipe.name if folder.recipe else str(folder.path.resolve())
        found.setdefault((of, folder.scale, atlas.x, atlas.y, sliders), []).append(folder)
    return [Group(tuple(those)) for those in found.values()]


@dataclass(frozen=True)
class ForScript:
    """What the script of a page needs of a folder."""

    first: dict[str, Any]
    """at once: the first figure"""
    later: dict[str, Any]
    """when somebody asks: the other figures, and what there is to know of cells"""
    curves: bytes


def for_script(
    folder: Folder, theorems: Sequence[Theorem], share: int, spans: Mapping[str, Limits]
) -> ForScript:
    """The data of a folder that is one of `share` on the page; colours of quantities reach over `spans`."""
    atlas = folder.atlas
    drawn = [each.name for each in quantities(atlas, share)] if atlas.x else []
    groups = atlas.curve_groups
    names = [name for group in groups for name in group.names]
    curves = packed_curves(atlas.result, names, atlas.dims, BUDGET // share)
    first = {
        "label": folder.label,
        "x": atlas.x,
        "y": atlas.y,
        "figures": {name: _figures(atlas, name, spans) for name in drawn[:1]},
    }
    later = {
        "figures": {name: _figures(atlas, name, spans) for name in drawn[1:]},
        "dims": atlas.dims,
        "sizes": [atlas.result.sizes[dim] for dim in atlas.dims],
        "places": [names_of(atlas.result[dim]) for dim in atlas.dims],
        "ended": atlas.endings.values.ravel().tolist(),
        "numbers": _numbers(atlas),
        "curves": _curves(atlas, groups, curves),
        "theorems": [
            {"title": each.title, "tables": _by_cell(folder, each.tables)} for each in theorems
        ],
    }
    return ForScript(first, later, as_bytes(curves.numbers))


def quantities(atlas: Atlas, share: int = 1) -> list[Quantity]:
    """What is drawn: all that was measured, or the main quantities of an experiment of very many cells."""
    cells = int(np.prod([atlas.result.sizes[dim] for dim in atlas.dims], dtype=int))
    all_of_them = atlas.quantities
    if cells * len(all_of_them) * share <= MOST_HOVERS:
        return all_of_them
    return [each for each in all_of_them if each.group != REST]


def _figures(atlas: Atlas, name: str, spans: Mapping[str, Limits]) -> dict[str, Figure]:
    """The figure at every setting of the sliders, by their places: `0`, `1,2`."""
    sizes = [range(len(labels)) for labels in atlas.sliders.values()]
    return {
        ",".join(map(str, at)): atlas.figure(
            name, dict(zip(atlas.sliders, at, strict=True)), spans.get(name)
        )
        for at in itertools.product(*sizes)
    }


def _numbers(atlas: Atlas) -> list[tuple[str, list[str]]]:
    """The main quantities of every cell in words."""
    chief = [each for each in atlas.quantities if each.group == CHIEF]
    cells = list(np.ndindex(*(atlas.result.sizes[dim] for dim in atlas.dims)))
    return [
        (each.title, [found.text(cell) for cell in cells])
        for each in chief
        for found in [means(atlas.result[each.name], *atlas.dims, within=possible(each.title))]
    ]


def _curves(atlas: Atlas, groups: Sequence[CurveGroup], packed: PackedCurves) -> dict[str, Any]:
    """Figures of curves with references `{"curve": [name, kind]}` in place of numbers; the last group one by one."""
    steps = atlas.result["step"].isel(step=packed.points)

    def reference(name: str, kind: str) -> dict[str, list[int]]:
        return {"curve": [packed.names.index(name), packed.kinds.index(kind)]}

    def drawn(group: CurveGroup) -> Figure:
        return atlas.curve_figure(group, reference, steps.values.tolist())

    kept = [
        replace(group, names=names)
        for group in groups
        if (names := tuple(name for name in group.names if name in packed.names))
    ]
    together = [group for group in kept if not group.alone]
    alone = [
        CurveGroup(group.title, (name,)) for group in kept if group.alone for name in group.names
    ]
    return {
        "names": len(packed.names),
        "kinds": len(packed.kinds),
        "points": len(packed.points),
        "left": sum(len(group.names) for group in groups) - len(packed.names),
        "together": [{"title": group.title, "figure": drawn(group)} for group in together],
        "alone": [
            {
                "title": said(group.names[0]),
                "meaning": str(atlas.result[group.names[0]].attrs.get("long_name", "")),
                "figure": drawn(group),
            }
            for group in alone
        ],
    }


def _by_cell(folder: Folder, tables: dict[int, list[list[Any]]]) -> dict[int, list[list[Any]]]:
    """Tables by the number of their cell on the page, where axes ascend, and not in the order of the specification."""
    return {folder.atlas.place(number): table for number, table in tables.items()}
