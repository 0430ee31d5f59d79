"""A small experiment for tests: two sample sizes, two ratios, two seeds, milliseconds."""

from pathlib import Path
from typing import Any

import yaml

from benign.experiment import Experiment
from benign.spec.yaml import with_overrides

FIELDS: dict[str, Any] = {
    "data": {
        "kind": "signal_noise",
        "samples": [2, 4],
        "tokens": 3,
        "dim": 8,
        "noise_std": 0.4,
        "snr": [0.5, 2.0],
    },
    "network": {
        "kind": "attention",
        "hidden": 4,
        "init": {"kind": "torch_default", "divide_by": 4.0},
    },
    "training": {"rate": 0.5, "stop_loss": 0.3, "max_steps": 40},
    "evaluation": {"samples": 20},
    "seeds": 2,
}


def tiny(*changes: str) -> Experiment:
    """Return the experiment, with changes written as for `--set`."""
    return Experiment.from_dict(with_overrides(FIELDS, changes))


def tiny_file(folder: Path, *changes: str, name: str = "tiny.yaml") -> Path:
    """Write the experiment to a file and return its path."""
    path = folder / name
    path.write_text(yaml.safe_dump(with_overrides(FIELDS, changes)), encoding="utf-8")
    return path
