"""The specification of an experiment: pure data. A runner (`benign.sweep.runner`) plans and runs it."""

import json
import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr
from pydantic import model_validator

import benign.attacks
import benign.data
import benign.networks
from benign.spec.axes import cells, check_rows, dimensions
from benign.spec.base import Count, SpecError
from benign.spec.registry import load_components
from benign.spec.yaml import source_of, yaml_text
from benign.training.metrics import variables
from benign.training.setup import Setup

if TYPE_CHECKING:
    from benign.sweep.plan import Unit
    from benign.sweep.progress import Watcher
    from benign.sweep.replay import Replay

Folder = str | PathLike[str]

MOST_RUNS = 1_000_000
SPECIFICATION = 1
"""version of the format of specifications: the field `benign` of a file, which may leave it out"""

for package in (benign.data, benign.networks, benign.attacks):
    load_components(package)


class Experiment(Setup):
    """A grid of runs: any marked field of its parts may be a list, which becomes a dimension of the result.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=10, dim=50, signal=[1.0, 4.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=200),
    ...     seeds=3,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep.run(folder)
    >>> dict(result.test_accuracy.sizes)
    {'signal': 2, 'seed': 3}
    """

    seeds: Count = 1
    """independent repetitions of every cell"""

    @model_validator(mode="after")
    def _check_grid(self) -> "Experiment":
        grid = dimensions(self)
        check_rows(grid)
        runs = self.seeds * math.prod(len(dim.values) for dim in grid)
        if runs > MOST_RUNS:
            raise ValueError(
                f"the experiment has {runs:,} runs, more than {MOST_RUNS:,}: "
                f"lower `seeds` ({self.seeds:,}) or shorten an axis"
            )
        _, cell = next(cells(self))
        measured = variables(cell)
        own_axes = {name for variable in measured.values() for name in variable.axes}
        for name in {"seed", "step", *measured, *own_axes} & {dim.name for dim in grid}:
            raise ValueError(f"the zipped group `{name}` needs another name: results use this one")
        return self

    @classmethod
    def from_yaml(cls, source: Folder) -> "Experiment":
        """Read an experiment from a YAML file or from YAML text, with the fields of the Python classes.

        Errors name the field, the value and the line.
        """
        text = source_of(source)
        with text.naming_lines():
            return cls.from_dict(text.fields())

    def to_yaml(self, path: Folder | None = None) -> str:
        """Return the experiment as YAML, which `from_yaml` and `benign run` read. Also write it to `path` if given."""
        text = yaml_text({"benign": SPECIFICATION, **self.as_dict()})
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Experiment":
        """Return the experiment with these fields. The field `benign` is the version of their format."""
        fields = dict(fields)
        version = fields.pop("benign", SPECIFICATION)
        if type(version) is not int or version < 1:
            problem = f"must be the version of the format, {SPECIFICATION}, got {version!r}"
            raise SpecError([("benign", problem)])
        if version > SPECIFICATION:
            problem = f"the format has version {version}, this benign reads up to {SPECIFICATION}: use a newer benign"
            raise SpecError([("benign", problem)])
        return super().from_dict(fields)

    def run(
        self,
        folder: Folder,
        device: str = "cpu",
        workers: int = 1,
        watcher: "Watcher | None" = None,
        recompute: bool = False,
        made: Mapping[str, Any] | None = None,
        executor: str | None = None,
        unit_timeout: float | None = None,
        steal: bool = False,
        keep_weights: bool = False,
        compile: bool = False,
        slots: int | None = None,
        track: str | Sequence[str] = (),
    ) -> xr.Dataset:
        """Compute the runs that the folder lacks and return the whole result.

        A second call resumes, or returns at once. More seeds or longer axes extend the folder. An experiment that is a
        part of what the folder holds returns that part. Any other change is refused, with the difference.

        `workers` units are computed at a time on the CPU, each by a process with one thread. The default is one: a
        script that asks for more needs the usual `if __name__ == "__main__":`. `executor` computes on a cluster
        instead: `dask`, `slurm`, an address or a scheduler file (docs/clusters.md). A unit that takes longer than
        `unit_timeout` seconds is stopped, and its runs have failed. Ctrl-c once stops after the units in progress,
        twice at once.

        Several processes may run the same folder. With `steal` units leased by other hosts are computed too, since
        nobody here can know whether those processes are alive. With `recompute` runs are computed again if they lack
        a variable, or if your own code that made them has changed. With `keep_weights` the final weights are kept in
        the folder. `compile` compiles the steps of attacks first, for long sweeps on a GPU (docs/gpu.md); compiled
        code rounds differently, so records say so. On a GPU runs of several units train together, in `slots` that the
        next run gets when one ends; 0 trains every unit by itself.

        Progress appears where stderr is a terminal, or is reported to a `watcher`
        (`benign.sweep.progress.Watcher()` is silent). `track` logs every run once to a tracker:
        "tensorboard=FOLDER", "mlflow=sqlite:///FILE" (docs/around.md). `made` is kept in the folder: the request that
        led to it.
        """
        from benign.sweep.executors.base import ExecutionConfig
        from benign.sweep.runner import Runner

        config = ExecutionConfig(
            device=device,
            workers=workers,
            executor=executor,
            unit_timeout=unit_timeout,
            steal=steal,
            keep_weights=keep_weights,
            compile=compile,
            slots=slots,
            recompute=recompute,
            track=(track,) if isinstance(track, str) else tuple(track),
            made=made,
        )
        return Runner(self, folder, config).run(watcher)

    def result_in(self, folder: Folder) -> xr.Dataset:
        """Return the result as far as a folder holds it. The folder may hold more."""
        from benign.sweep.folders import result_in

        return result_in(folder, self)

    def units(self) -> "list[Unit]":
        """Return the units of work of a fresh sweep."""
        from benign.sweep.plan import units_of

        return units_of([self])

    def replay(self, seed: int = 0, device: str = "cpu", **where: Any) -> "Replay":
        """Train one run again, step by step: `sweep.replay(samples=22, snr=4, seed=3)`."""
        from benign.sweep.replay import replay

        return replay(self, seed, device, where)


def specification(result: xr.Dataset) -> dict[str, Any]:
    """Return the experiment behind a result, as plain data."""
    return json.loads(result.attrs["experiment"])


def experiment_of(result: xr.Dataset) -> Experiment:
    """Return the experiment behind a result."""
    return Experiment.from_dict(specification(result))
