"""A stored specification, run again, gives the stored numbers: one figure of each paper, at quick scale.

`python -m tests.test_stored` runs the figures whole and stores what they gave. The tests run a few cells of each again,
from the specification that was stored, not from the recipe of today.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from benign.experiment import Experiment
from benign.papers.registry import recipe
from benign.sweep.progress import Watcher

STORED = Path(__file__).parent / "stored"
CELLS: dict[str, dict[str, list[Any]]] = {
    "jiang/fig1": {"samples": [4, 12], "snr": [0.15625, 5.3125]},
    "zhang/fig1": {"samples": [2], "snr": [0.16]},
    "wang/fig1": {"signal": [4.0], "dim": [500, 900]},
    "li/fig3": {"clip": [1.2]},
}
"""the cells that are run again: not chaotic ones (zhang/fig1 at high SNR), where rounding decides"""
WHERE = {"samples": "data", "snr": "data", "signal": "data", "dim": "data", "clip": "attack"}
"""the part of the specification that an axis is in"""
NUMBERS = ("train_loss", "test_loss", "test_accuracy", "robust_accuracy", "steps")
LOSS, POINTS = 1e-3, 2
"""tolerance, for float32 on other machines: losses relative, accuracies in test points"""


def path(name: str) -> Path:
    return STORED / f"{name.replace('/', '-')}.json"


def as_lists(result: xr.Dataset) -> dict[str, Any]:
    """Return axes and numbers as plain lists."""
    names = [name for name in NUMBERS if name in result]
    axes = {str(dim): result[dim].values.tolist() for dim in result[names[0]].dims}
    return {"axes": axes, **{name: result[name].round(7).values.tolist() for name in names}}


def stored(name: str) -> tuple[dict[str, Any], xr.Dataset]:
    """Return the stored specification and numbers of a figure."""
    saved = json.loads(path(name).read_text(encoding="utf-8"))
    axes, numbers = saved["numbers"].pop("axes"), saved["numbers"]
    values = {each: (list(axes), np.array(value)) for each, value in numbers.items()}
    return saved["specification"], xr.Dataset(values, axes)


SECONDS = ("jiang/fig1", "wang/fig1")
"""those that take seconds; tests/test_numerics.py covers the others, with fewer steps"""


@pytest.mark.parametrize(
    "name",
    [name if name in SECONDS else pytest.param(name, marks=pytest.mark.slow) for name in CELLS],
)
def test_a_stored_specification_gives_the_stored_numbers(name, tmp_path):
    specification, before = stored(name)
    for axis, values in CELLS[name].items():
        specification[WHERE[axis]][axis] = values
    again = Experiment.from_dict({**specification, "seeds": 1})
    result = again.run(tmp_path, watcher=Watcher())
    points = again.evaluation.samples
    for each in before:
        found = result[each]
        expected = before[each].sel({**CELLS[name], "seed": [0]}).transpose(*found.dims)
        relative, absolute = LOSS, 1e-6
        if str(each).endswith("accuracy"):
            relative, absolute = 0.0, (POINTS + 0.5) / points
        np.testing.assert_allclose(
            found.values, expected.values, relative, absolute, err_msg=str(each)
        )


def main() -> None:
    """Run the figures at quick scale and store what they give."""
    import tempfile

    STORED.mkdir(exist_ok=True)
    for name in CELLS:
        experiment = recipe(name).experiment("quick")
        with tempfile.TemporaryDirectory() as folder:
            result = experiment.run(folder, workers=2, watcher=Watcher())
        saved = {"specification": experiment.as_dict(), "numbers": as_lists(result)}
        path(name).write_text(json.dumps(saved) + "\n", encoding="utf-8")
        print(name, flush=True)


if __name__ == "__main__":
    main()
