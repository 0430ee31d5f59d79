"""One contestant in a fresh process: `python -m benchmarks.figures.work REQUEST ANSWER`, both JSON.

The time of the process is measured from outside; the answer says what it did.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.figures.cases import from_dict

BEGIN = time.time()


def loop(request: dict[str, Any]) -> dict[str, Any]:
    """Run the given runs one after the other."""
    import torch

    from benchmarks.figures import by_loop

    rows, device = request["runs"], request["device"]
    cases = [from_dict(row["case"]) for row in rows]
    torch.set_float32_matmul_precision("high" if cases[0].precision == "tf32" else "highest")
    found = []
    for row, case in zip(rows, cases, strict=True):
        torch.manual_seed(1_000_003 * (row["cell"] + 1) + row["seed"])
        begin = time.perf_counter()
        values = by_loop.run(case, device)
        found.append(_row(row, values) | {"seconds": time.perf_counter() - begin})
    return {"runs": found}


def jax(request: dict[str, Any]) -> dict[str, Any]:
    """Run all runs of the sample; trials and compilation are reported apart."""
    from benchmarks.figures.by_jax import Batching, Runs

    rows = request["runs"]
    cases = [from_dict(row["case"]) for row in rows]
    tried = [
        Batching(min(count, len(rows)), _divisor(cases[0].tests, chunk), order)
        for count, chunk in request["batches"]
        for order in (("samples", "signal") if 1 < count < len(rows) else ("samples",))
    ]
    runs = Runs(cases, request["device"])
    begin = time.time()
    how = runs.best(list(dict.fromkeys(tried)))
    trial, before = time.time() - begin, runs.compile_seconds
    values = runs.results(how, seed=1)
    return {
        "trial": trial,
        "compile": runs.compile_seconds,
        "compile_after_trial": runs.compile_seconds - before,
        "batch": f"{how.runs} runs by {how.order}, {how.chunk} points",
        "runs": [_row(row, value) for row, value in zip(rows, values, strict=True)],
    }


def _divisor(tests: int, chunk: int) -> int:
    """Return the largest number of points of a chunk, up to `chunk`, that divides the number of tests."""
    return next(size for size in range(min(chunk, tests), 0, -1) if tests % size == 0)


def benign(request: dict[str, Any]) -> dict[str, Any]:
    """Run the sweep as `benign run` does, in a new folder, with the figure's own choice of workers."""
    from benign.sweep.executors.processes import start_server

    if request["device"] == "cpu" and request["scale"] == "paper":  # as the command does
        start_server()
    timers = None
    if request["split"]:
        import benign

        timers = benign.load(Path(__file__).with_name("split.py"))
    from benign.sweep.executors.base import ExecutionConfig
    from benign.sweep.progress import Watcher
    from benign.sweep.runner import Runner

    sample = _sample(request)
    imported = time.time()
    with tempfile.TemporaryDirectory() as folder:
        config = ExecutionConfig(device=request["device"], workers=None, compile=request["compile"])
        runner = Runner(
            _with_coordinates(sample.experiment, request), Path(folder) / "store", config
        )
        planned = time.time()
        result = runner.run(Watcher())
        ended = time.time()
    return {
        "workers": runner.units_at_once,
        "stamps": [imported, planned, ended],
        "runs": _rows_of(sample, result),
        "pid": os.getpid(),
        "own": {"seconds": timers.seconds, "units": timers.units} if timers else None,
    }


def _with_coordinates(experiment: Any, request: dict[str, Any]) -> Any:
    wanted = request.get("coordinates")
    return experiment.model_copy(update={"coordinates": wanted}) if wanted else experiment


def _rows_of(sample: Any, result: Any) -> list[dict[str, Any]]:
    """Return the numbers of every run that are compared, in the order of the sample."""
    import numpy as np

    wanted = [
        name
        for name in ("train_loss", "test_loss", "test_accuracy", "robust_loss", "robust_accuracy")
        if name in result
    ]
    wanted += [name for name in ("robust_noisy_error",) if name in result]
    wanted += [
        name for name in ("train_robust_accuracy_judged", "train_robust_loss") if name in result
    ]
    flat = {name: result[name].stack(run=result[name].dims).values for name in ("steps", *wanted)}
    if sample.runs[0].case.snapshots:
        from benchmarks.figures.by_loop import CURVES

        for name in CURVES:
            curve = result[f"{name}_curve"]
            rest = [dim for dim in curve.dims if dim != "step"]
            flat[f"{name}_mean"] = np.nanmean(
                curve.stack(run=rest).transpose("run", "step").values, 1
            )
    return [
        _row(vars(run), {name: float(values[place]) for name, values in flat.items()})
        for place, run in enumerate(sample.runs)
    ]


def _row(run: dict[str, Any], values: dict[str, float]) -> dict[str, Any]:
    return {name: run[name] for name in ("cell", "seed", "row", "band")} | {"values": values}


def _sample(request: dict[str, Any]) -> Any:
    from benchmarks.figures.problems import sample_of

    names = ("figure", "scale", "device", "count", "loop_runs")
    return sample_of(*(request[name] for name in names))


if __name__ == "__main__":
    given, answer = map(Path, sys.argv[1:])
    request = json.loads(given.read_text())
    found = {"loop": loop, "jax": jax, "benign": benign}[request["contestant"]](request)
    answer.write_text(json.dumps(found | {"begin": BEGIN}))
