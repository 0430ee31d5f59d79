"""Stores with made-up runs, written in a second by the code that writes real ones."""

from pathlib import Path

import numpy as np

from benign.data.mixture import Mixture
from benign.data.model import DataModel
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.papers.registry import claims, recipe, study_of
from benign.sweep.compute import Computed, write_unit
from benign.sweep.plan import NUMERICS, Run, units_of
from benign.sweep.store import About, Store
from benign.training.descent import Status
from benign.training.metrics import Variable, variables


def fill(folder: Path, experiment: Experiment, made: dict | None = None) -> Path:
    """Write the records of a finished sweep: accuracies from 0 to 1, falling curves, incompressible noise."""
    store = Store.open(folder, create=True)
    store.set_about(About([experiment.as_dict()], made or {}, NUMERICS))
    draws = np.random.default_rng(0)
    for unit in units_of([experiment]):
        steps = np.array(unit.runs[0].cell.snapshot_steps(), dtype=float)
        arrays = {
            name: _values(name, each, unit.runs, steps, draws)
            for name, each in variables(unit.runs[0].cell).items()
        }
        arrays["status"] = np.full(len(unit.runs), Status.CONVERGED, np.int8)
        arrays["steps"] = np.full(len(unit.runs), int(steps[-1]))
        arrays["audit"] = np.zeros(len(unit.runs))
        write_unit(unit, store, Computed(arrays, 1.0, None, "cpu (made up)", "0"))
    return folder


def _values(
    name: str,
    variable: Variable,
    runs: tuple[Run, ...],
    steps: np.ndarray,
    draws: np.random.Generator,
) -> np.ndarray:
    """Return values of every run: accuracies rise with its size, everything else decays."""
    size = np.array([_size(run.cell.data) for run in runs])
    end = 1 / (1 + np.exp(-np.log(size / 4)))
    noise = draws.normal(size=(len(runs), len(steps) if variable.along_steps else 1))
    if "accuracy" in name:
        found = np.clip(0.5 + 0.5 * end[:, None] + 0.02 * noise, 0, 1)
    else:
        found = (1 + 0.1 * noise) / (1 + end[:, None] * (steps if variable.along_steps else 1))
    return found if variable.along_steps else found[:, 0]


def _size(data: DataModel) -> float:
    """Return the quantity that decides about a run: N SNR^2, or n r^4 / d."""
    if isinstance(data, Mixture):
        return data.samples * data.signal**4 / data.dim
    assert isinstance(data, SignalNoise)
    assert data.snr is not None
    return data.samples * data.snr**2


def claims_of(paper: str) -> set[str]:
    """Return the ids of the claims of a paper."""
    return {name for name in claims() if name.startswith(f"{paper}/")}


def judged_on(name: str) -> set[str]:
    """Return the ids of the claims that need the runs of one recipe only."""
    chosen = recipe(name)
    return {
        claim.id
        for claim in claims().values()
        if claim.studies and all(study_of(need) is chosen for need in claim.studies)
    }
