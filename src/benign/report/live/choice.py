"""What a person has chosen to see of a sweep, and the address that shows it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

Labels = Mapping[str, list[str]]
"""axes by name, with a label for each place"""
QUANTITY, CURVE, PLACE = "show", "curve", "at."
"""names in the query of an address; places are told by labels, since an axis may grow"""


@dataclass
class Choice:
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
