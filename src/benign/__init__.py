"""benign: a laboratory for the theory of benign overfitting and feature learning under attack.

Names are imported when first used, so `import benign` is quick and loads neither torch nor matplotlib.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Attention": "networks.attention",
    "Ball": "attacks.balls",
    "Evaluation": "training.setup",
    "Experiment": "experiment",
    "GaussianInit": "networks.initial",
    "GradientDescent": "training.setup",
    "PGD": "attacks.pgd",
    "SignalNoise": "data.signal_noise",
    "SpecError": "spec",
    "TorchDefault": "networks.initial",
    "boundary": "theory.boundary",
    "linspace": "axes",
    "logspace": "axes",
    "merge": "experiment",
    "open_experiment": "experiment",
    "open_result": "experiment",
    "pack": "experiment",
    "recipe": "papers.recipes",
    "snapshot": "training.probes",
    "tally": "training.probes",
    "zipped": "axes",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'benign' has no attribute {name!r}")
    return getattr(importlib.import_module(f"benign.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
