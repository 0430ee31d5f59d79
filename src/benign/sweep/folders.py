"""Folders of results as a person meets them: opened, packed into one file, brought together."""

import warnings
from pathlib import Path
from typing import Any

import xarray as xr

from benign.experiment import (
    Experiment,
    Folder,
    check_code,
    held_runs,
    history_of,
    result_of,
)
from benign.networks.network import Params
from benign.sweep import pack as packs
from benign.sweep.pack import Merged
from benign.sweep.plan import NUMERICS, keys_of, merge_history
from benign.sweep.results import ResultWarning, damage, other_versions
from benign.sweep.store import Store, StoreError
from benign.training.checkpoint import read_weights
from benign.training.engine import weights_name


def open_result(folder: Folder) -> xr.Dataset:
    """The result in a folder, as far as it has been computed.

    >>> import tempfile
    >>> import benign as bo
    >>> small = bo.recipe("jiang/fig1").experiment("smoke")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = small.prepare(folder)
    ...     result = bo.open_result(folder)
    >>> result.attrs["runs_missing"] == result.attrs["runs"]  # nothing has been computed yet
    True
    """
    store = Store.open(folder, writing=False)
    experiment, held = _current(store), held_runs(store)
    keys = set(keys_of(experiment))
    check_code(store, [held.get(key) for key in keys])
    for note in filter(None, (damage(store.damaged), other_versions(held, keys))):
        warnings.warn(f"{folder}: {note}", ResultWarning, stacklevel=2)
    return result_of(experiment, store)


def open_experiment(folder: Folder) -> Experiment:
    """The experiment whose results a folder holds.

    >>> import tempfile
    >>> import benign as bo
    >>> small = bo.recipe("jiang/fig1").experiment("smoke")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = small.prepare(folder)  # what `run` does before it works
    ...     bo.open_experiment(folder) == small
    True
    """
    return _current(Store.open(folder, writing=False))


def pack(folder: Folder, file: Folder) -> int:
    """Write a folder of results into one file; returns the number of records.

    >>> import tempfile
    >>> import benign as bo
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = bo.recipe("jiang/fig1").experiment("smoke").prepare(f"{place}/fig1")
    ...     bo.pack(f"{place}/fig1", f"{place}/fig1.pack")  # no runs yet, so no records
    0
    """
    return packs.pack(folder, file)


def merge(source: Folder, folder: Folder) -> Merged:
    """Bring the records of a pack, or of another folder, into a folder.

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


def _current(store: Store) -> Experiment:
    history = history_of(store)
    if not history:
        raise StoreError(f"{store.folder} holds no experiment yet: run one there first")
    return history[-1]


def weights(folder: Folder, seed: int = 0, **where: Any) -> Params:
    """The final weights of a run in a folder, by name, with a runs axis of length one.

    They are there where the sweep was run with `keep_weights`.

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
    run = open_experiment(folder).find(where, seed)
    file = Path(folder) / "weights" / f"{weights_name(run.cell, run.id)}.safetensors"
    if not file.exists():
        raise ValueError(
            f"{folder} holds no weights of this run: they are kept by keep_weights=True (--keep-weights); "
            "what is there already is computed again in another folder"
        )
    return {name: part[None] for name, part in read_weights(file, NUMERICS).items()}
