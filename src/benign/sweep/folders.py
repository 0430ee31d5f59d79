"""Folders of results: open one, pack it into a file, merge another one into it."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import xarray as xr

from benign.experiment import Experiment, Folder
from benign.networks.network import Params
from benign.sweep import pack as packs
from benign.sweep.dataset import assemble, not_measured
from benign.sweep.pack import Merged
from benign.sweep.plan import NUMERICS, find_run, keys_of, merge_history
from benign.sweep.records import Record
from benign.sweep.results import (
    RETRIED,
    ResultWarning,
    RunAt,
    RunsFailed,
    changed_code,
    damage,
    other_versions,
    runs_in,
)
from benign.sweep.store import Store, StoreError
from benign.sweep.validation import RecordCache, valid_records
from benign.training.checkpoint import read_weights
from benign.training.engine import weights_name

MOST_NAMES = 4
"""variables that a warning names"""


def open_result(folder: Folder) -> xr.Dataset:
    """Return the result in a folder, as far as it has been computed.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=4, dim=5, signal=2.0),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=3),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep.run(folder)
    ...     bo.open_result(folder).identical(result)
    True
    """
    return current_result(Store.open(folder, writing=False))


def current_result(store: Store) -> xr.Dataset:
    """Return the result in an open store. Raise if it was made by code that has changed since."""
    experiment, records = current_experiment(store), RecordCache(store)
    recorded, keys = runs_in(records), set(keys_of(experiment))
    check_code(store.folder, [recorded.get(key) for key in keys])
    for note in filter(None, (damage(store.damaged), other_versions(recorded, keys))):
        warnings.warn(f"{store.folder}: {note}", ResultWarning, stacklevel=3)
    return result_of(experiment, records, store.folder, store.about.recipe)


def result_in(folder: Folder, experiment: Experiment) -> xr.Dataset:
    """Return the result of an experiment as far as a folder holds it."""
    store = Store.open(folder, writing=False)
    return result_of(experiment, valid_records(store), store.folder, store.about.recipe)


def result_of(
    experiment: Experiment, records: Iterable[Record], folder: Path, recipe: str = ""
) -> xr.Dataset:
    """Return the result of an experiment from the records of a folder. Warn if runs failed or lack variables."""
    result = assemble(experiment, records)
    if recipe:
        result.attrs["recipe"] = recipe
    failed = sum(result.attrs[f"runs_{status.name.lower()}"] for status in RETRIED)
    if failed:
        warnings.warn(
            f"{failed} of {result.attrs['runs']} runs failed: {result.attrs['first_error']}; "
            f"`benign show {folder}` shows more",
            RunsFailed,
            stacklevel=4,
        )
    if lacking := not_measured(result):
        names = [f"`{name}` in {count} runs" for name, count in lacking.items()]
        if len(names) > MOST_NAMES:
            names[MOST_NAMES:] = [f"{len(names) - MOST_NAMES} more"]
        warnings.warn(
            f"{folder}: not measured, since newer than the runs: {', '.join(names)}; running with recompute=True "
            "(on the command line --recompute) computes these runs again",
            ResultWarning,
            stacklevel=4,
        )
    return result


def check_code(folder: Path, finished: Iterable[RunAt | None]) -> None:
    """Raise if your own code that made these runs has changed since."""
    if names := changed_code(run for run in finished if run):
        listed = ", ".join(f"`{name}` (in {count} runs)" for name, count in sorted(names.items()))
        raise StoreError(
            f"{folder} holds results of code or data that has changed since: {listed}; choose another folder, "
            "compute them again (recompute=True, on the command line --recompute), or undo the change"
        )


def open_experiment(folder: Folder) -> Experiment:
    """Return the experiment of a folder of results.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=4, dim=5, signal=2.0),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=3),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = sweep.run(folder)
    ...     bo.open_experiment(folder) == sweep
    True
    """
    return current_experiment(Store.open(folder, writing=False))


def current_experiment(store: Store) -> Experiment:
    """Return the last experiment of an open store."""
    history = store.experiments()
    if not history:
        raise StoreError(f"{store.folder} holds no experiment yet: run one there first")
    return history[-1]


def pack(folder: Folder, file: Folder) -> int:
    """Write a folder of results into one file and return the number of records.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=4, dim=5, signal=2.0),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=3),
    ... )
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = sweep.run(f"{place}/ours")
    ...     bo.pack(f"{place}/ours", f"{place}/ours.pack")
    1
    """
    return packs.pack(folder, file)


def merge(source: Folder, folder: Folder) -> Merged:
    """Add the records of a pack, or of another folder, to a folder.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=4, dim=5, signal=2.0),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=3),
    ... )
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = sweep.run(f"{place}/theirs")
    ...     merge(f"{place}/theirs", f"{place}/ours")
    Merged(added=1, present=0, damaged=0)
    """

    def agree(target: list[dict], other: list[dict]) -> list[dict]:
        merged = merge_history(
            [Experiment.from_dict(d) for d in target], [Experiment.from_dict(d) for d in other]
        )
        return [each.as_dict() for each in merged]

    return packs.merge(source, folder, agree)


def weights(folder: Folder, seed: int = 0, **where: Any) -> Params:
    """Return the final weights of a run in a folder, by name, with a runs axis of length one.

    The sweep must have been run with `keep_weights`.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=4, dim=5, signal=[1.0, 2.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=3),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = sweep.run(folder, keep_weights=True)
    ...     {name: list(part.shape) for name, part in bo.weights(folder, signal=2.0).items()}
    {'output_norm': [1], 'u': [1, 5]}
    """
    run = find_run(open_experiment(folder), where, seed)
    file = Path(folder) / "weights" / f"{weights_name(run.cell, run.id)}.safetensors"
    if not file.exists():
        raise ValueError(
            f"{folder} holds no weights of this run: they are kept by keep_weights=True (--keep-weights); "
            "runs that are there already must be computed again in another folder"
        )
    return {name: part[None] for name, part in read_weights(file, NUMERICS).items()}
