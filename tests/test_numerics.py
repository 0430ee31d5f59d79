"""Trained numbers, pinned: a change that moves them must raise NUMERICS, so that old records are not mixed in."""

import json
from pathlib import Path

import pytest
import xarray as xr

from benign.papers.registry import recipe
from benign.spec.axes import replace
from benign.sweep.plan import NUMERICS
from benign.sweep.progress import Watcher

PINNED = json.loads((Path(__file__).parent / "numerics.json").read_text(encoding="utf-8"))
VARIABLES = ("train_loss", "test_loss", "test_accuracy", "robust_accuracy", "steps")


def trained(name: str, folder: Path) -> xr.Dataset:
    """A recipe at its smallest, one seed, in float64, for few steps: later rounding may decide.

    (zhang/fig1 at high SNR is chaotic: two paths that are equal but for rounding differ by 1e-16 after 8 steps, 1e-9
    after 30 and 20 % after 50, in float64.)
    """
    changes = {("precision",): "float64", ("seeds",): 1, ("training", "max_steps"): 8}
    return replace(recipe(name).experiment("smoke"), changes).run(folder, watcher=Watcher())


def numbers(result: xr.Dataset) -> dict[str, float]:
    """Means over all cells of what every recipe measures."""
    return {name: float(result[name].mean()) for name in VARIABLES if name in result}


@pytest.mark.parametrize("name", PINNED["recipes"])
def test_trained_numbers_are_those_of_these_numerics(name, tmp_path):
    advice = (
        "results moved: raise NUMERICS, run `python -m tests.test_numerics`, and the gallery again"
    )
    assert PINNED["numerics"] == NUMERICS, advice
    found = numbers(trained(name, tmp_path))
    assert found == pytest.approx(PINNED["recipes"][name], rel=1e-6, abs=1e-9), advice


def main() -> None:
    """Write the file anew."""
    import tempfile

    found = {}
    for name in PINNED["recipes"]:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = numbers(trained(name, Path(folder)))
    text = json.dumps({"numerics": NUMERICS, "recipes": found}, indent=1)
    (Path(__file__).parent / "numerics.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
