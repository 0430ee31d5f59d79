"""The gallery says which version of the numbers its pictures show."""

import json
from pathlib import Path

from benign.plan.runs import NUMERICS

GALLERY = Path(__file__).parents[1] / "gallery"
MADE: dict[str, int] = json.loads((GALLERY / "made.json").read_text(encoding="utf-8"))["numerics"]


def test_every_picture_is_listed_with_its_numerics():
    assert sorted(MADE) == sorted(path.name for path in GALLERY.glob("*.png"))
    assert all(1 <= number <= NUMERICS for number in MADE.values())


def test_pictures_of_older_numerics_are_marked_in_their_section():
    """Whoever raises NUMERICS runs the recipe again, or says that the picture is older."""
    sections = (GALLERY / "README.md").read_text(encoding="utf-8").split("\n## ")
    for name, number in MADE.items():
        [section] = [each for each in sections if f"({name})" in each]
        if number < NUMERICS:
            assert f"numerics {number}" in section, f"{name} is of numerics {number}: say so"
