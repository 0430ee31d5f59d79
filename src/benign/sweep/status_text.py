"""Text about folders of results: their content, how far they are, what failed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from benign.experiment import Experiment
from benign.spec.axes import dimensions
from benign.sweep.dataset import ended, masked_share
from benign.sweep.folders import current_experiment
from benign.sweep.plan import keys_of
from benign.sweep.results import RunAt, RunResolver, changed_code, failures, other_versions
from benign.sweep.status import Counts, SweepStatus, Worker
from benign.sweep.store import Store, StoreError, request_text
from benign.sweep.terminal import duration, statuses
from benign.sweep.text import labelled, table, value_text, values_text
from benign.sweep.validation import valid_records
from benign.training.descent import Status

MOST_ROWS = 24
"""cells of a result that are printed as a table"""
MAIN = ("steps", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "robust_accuracy")


def folder_text(folder: Path) -> str:
    """Return the content of a folder of results, even if its specification cannot be read here."""
    store = Store.open(folder, writing=False)
    if not store.history:
        return f"{folder}: no experiment yet"
    resolver, seconds, records = RunResolver(), 0.0, 0
    for record in valid_records(store):
        resolver.add(record)
        seconds += float(record.meta.get("seconds") or 0)
        records += 1
    recorded = resolver.runs
    try:
        experiment = current_experiment(store)
        grid, wanted = grid_rows(experiment), set(keys_of(experiment))
    except StoreError as error:
        grid, wanted = [("cannot read", str(error).splitlines())], set(recorded)
    counts = Counter(recorded[key].status if key in recorded else Status.MISSING for key in wanted)
    damaged = store.damaged
    made_on = Counter(
        f"{at.meta.get('device')}, torch {at.meta.get('torch')}" for at in recorded.values()
    )
    pictures = sorted(path.name for kind in ("png", "svg") for path in folder.glob(f"*.{kind}"))
    changed = changed_code(recorded[key] for key in wanted & recorded.keys())
    rows = [
        *grid,
        ("status", [statuses(counts)]),
        (
            "records",
            [f"{records} intact, {len(damaged)} damaged; {duration(seconds)} of work"],
        ),
        ("made by", _made(store.about.made)),
        ("made on", [f"{where}: {number} runs" for where, number in made_on.items()]),
        ("versions", list(filter(None, [other_versions(recorded, wanted)]))),
        ("changed", [f"{name} since {number} runs were made" for name, number in changed.items()]),
        ("damaged", list(damaged.values())),
        ("errors", error_lines(recorded.values())),
        ("pictures", [", ".join(pictures)] if pictures else []),
    ]
    return f"{folder}\n{labelled((label, lines) for label, lines in rows if lines)}"


def grid_rows(experiment: Experiment) -> list[tuple[str, list[str]]]:
    """Return the axes of an experiment and its size, as labelled lines."""
    axes = [
        [dim.name, f"{len(dim.values)}:", values_text(dim.values)] for dim in dimensions(experiment)
    ]
    return [("axes", table(axes) or ["none"]), ("runs", [grid_size(experiment)])]


def grid_size(experiment: Experiment) -> str:
    """Return the number of runs, cells and seeds."""
    cells = int(np.prod([len(dim.values) for dim in dimensions(experiment)], dtype=object))
    seeds = experiment.seeds
    return f"{cells * seeds} runs: {cells} cells, each with {seeds} seed{'s' * (seeds != 1)}"


def sweep_text(folder: Path, status: SweepStatus) -> str:
    """Return how far a sweep is, also along its axes, which processes work on it, and the next steps."""
    rows = [
        ("runs", [progress_text(status.counts)]),
        *((name, _axis(values)) for name, values in status.axes.items()),
        ("damaged", list(status.damaged.values())),
        ("at work", list(map(_worker, status.workers))),
        ("note", status.notes),
    ]
    whole = labelled((label, lines) for label, lines in rows if lines)
    todo = [f"next: {line}" for line in next_steps(folder, status)]  # commands are not broken
    return "\n".join([str(folder), whole, *todo])


def sweeps_text(statuses_by_folder: Mapping[Path, SweepStatus | str]) -> str:
    """Return one line for each of several folders; for a folder that cannot be read, its error."""
    width = max(len(str(folder)) for folder in statuses_by_folder)
    return "\n".join(
        f"{folder!s:{width}}  {each if isinstance(each, str) else _short_progress(each)}"
        for folder, each in statuses_by_folder.items()
    )


def next_steps(folder: Path, status: SweepStatus, doubtful: bool = False) -> list[str]:
    """Return suggestions for a sweep. `doubtful`: an audit has flagged some of its runs."""
    counts, steps = status.counts, []
    resume = f"`benign resume {folder}`"
    if counts.running:
        some = "every run that is left is" if not counts.missing else f"{counts.running} runs are"
        steps.append(f"wait: {some} being computed")
    if status.damaged:
        steps.append(
            f"`benign store check {folder}` verifies every record; {resume} replaces damaged ones"
        )
    if counts.failed or counts.out_of_memory:
        steps.append(f"`benign show {folder}` shows why runs failed; {resume} tries them again")
    if counts.missing and counts.running:
        steps.append(
            f"{resume} may help, also from another machine: it computes units that nobody has begun"
        )
    elif counts.missing:
        steps.append(f"{resume} computes the missing runs")
    if counts.diverged:
        some = f"{counts.diverged} run{'s' * (counts.diverged != 1)} diverged"
        steps.append(
            f"{some}: a smaller `training.rate` may help; `benign show {folder}` shows more"
        )
    if doubtful:
        steps.append(f"`benign audit {folder}` shows which attacks are doubtful, and why")
    if counts.done == counts.runs:
        steps.append(f"all is done: `benign show {folder}`, `benign export {folder} FILE.nc`")
    if counts.done:
        steps.append(f"`benign report {folder}` writes a page about the results so far")
    return steps


def progress_text(counts: Counts) -> str:
    """Return how far a sweep is, in a line."""
    numbers = {
        "running": counts.running, "failed": counts.failed, "out of memory": counts.out_of_memory,
        "missing": counts.missing,
    }  # fmt: skip
    rest = "".join(f", {number} {what}" for what, number in numbers.items() if number)
    diverged = f" ({counts.diverged} diverged)" if counts.diverged else ""
    return f"{counts.done} of {counts.runs} done{diverged}{rest}"


def _short_progress(status: SweepStatus) -> str:
    damaged = len(status.damaged)
    return progress_text(status.counts) + (f"; {damaged} damaged records" if damaged else "")


def _axis(values: list[tuple[Any, Counts]]) -> list[str]:
    """Return a table of the values of an axis; for a long axis, of the values with runs left."""
    listed = values
    if len(values) > MOST_ROWS:
        listed = [each for each in values if each[1].done < each[1].runs][:MOST_ROWS]
    rows = [["", "done", "of", "failed", "diverged"]] + [
        [
            value_text(value),
            *map(str, (at.done, at.runs, at.failed + at.out_of_memory, at.diverged)),
        ]
        for value, at in listed
    ]
    left = [at for _, at in values if all(at is not each for _, each in listed)]
    done = sum(at.done == at.runs for at in left)
    rest = [f"and {len(left)} more values, {done} of them done"] if left else []
    return [*(table(rows) if listed else []), *rest]


def _worker(worker: Worker) -> str:
    since = datetime.fromtimestamp(worker.since).strftime("%Y-%m-%d %H:%M")
    units = f"{worker.units} unit{'s' * (worker.units != 1)}"
    text = f"{worker.host}, process {worker.pid}, since {since}: {units}"
    if worker.alive is None:
        return f"{text} (on another host: whether it still runs is not known here)"
    return text if worker.alive else f"{text} (has ended: its units are free)"


def _made(made: dict[str, Any]) -> list[str]:
    """Return the request that led to a folder and the version that made it, as far as they are recorded."""
    version = f"benign {made['benign']}" if "benign" in made else ""
    parts = list(filter(None, [request_text(made), version]))
    return ["; ".join(parts)] if parts else []


def result_text(result: xr.Dataset) -> str:
    """Return how the runs ended and, for a small grid, the means of the main variables."""
    dims = [str(dim) for dim in result["status"].dims if dim != "seed"]
    names = [name for name in MAIN if name in result]
    sizes = [result.sizes[dim] for dim in dims]
    if np.prod(sizes) > MOST_ROWS:
        return ""
    means = result[names].where(ended(result)).mean("seed")
    share = masked_share(result)
    marked = bool((share > 0).any())
    rows = [[*dims, *names, *(["masked runs"] * marked)]]
    for index in np.ndindex(*sizes):
        cell = means[dict(zip(dims, index, strict=True))]
        where = [value_text(result[dim].values[i]) for dim, i in zip(dims, index, strict=True)]
        part = float(share[dict(zip(dims, index, strict=True))])
        text = "no audit" if np.isnan(part) else f"{100 * part:.0f} %"
        numbers = [f"{float(cell[name]):.4g}" for name in names]
        rows.append([*where, *numbers, *([text] * marked)])
    seeds = result.sizes["seed"]
    return "\n".join([f"means over {seeds} seed{'s' * (seeds != 1)}", *table(rows)])


def error_lines(runs: Iterable[RunAt], in_full: bool = False) -> list[str]:
    """Return the errors of failed runs: the last line of each error, or all of it."""
    counts: Counter[str] = Counter()
    for text, number in failures(runs).items():
        counts[text if in_full else text.splitlines()[-1]] += number
    return [f"{number} runs: {text}" for text, number in counts.items()]
