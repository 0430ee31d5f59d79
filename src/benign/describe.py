"""Papers, experiments, folders and results in words: what the command line prints."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from benign import files
from benign.axes import dimensions
from benign.claims.study import SCALES
from benign.experiment import SPECIFICATION, Experiment, open_experiment
from benign.machine import memory_of
from benign.papers.recipes import Recipe, recipes, rooms
from benign.plan.estimate import Estimate, estimate
from benign.plan.growth import OtherExperiment
from benign.plan.runs import Unit, keys_of
from benign.progress import duration, statuses
from benign.sweep.dataset import ended
from benign.sweep.results import Counting, RunAt, changed_code, failures, other_versions, runs_in
from benign.sweep.sound import sound_records
from benign.sweep.status import Counts, Standing, Worker
from benign.sweep.store import Store, StoreError
from benign.training.descent import Status

WIDTH = 100
MOST_ROWS = 24
"""cells of a result that are printed as a table"""
MAIN = ("steps", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "robust_accuracy")


def papers_text(name: str | None = None) -> str:
    """The papers and their recipes: all, those of one paper, or one recipe in full."""
    known = recipes()
    if name in known:
        return recipe_text(known[name])
    modules = rooms()
    if name is not None and name not in modules:
        choices = ", ".join([*sorted(modules), *sorted(known)])
        raise ValueError(f"no paper or recipe {name!r}: choose one of {choices}")
    blocks = []
    for room in [name] if name else sorted(modules):
        paper = modules[room].__doc__ or room
        blocks.append(_wrap(paper.splitlines()[0]))
        for recipe in (known[each] for each in sorted(known) if each.startswith(f"{room}/")):
            told = [recipe.title, f"shows {recipe.shows}"]
            told += [f"reading {q.name}: {', '.join(_answers(q))}" for q in recipe.questions]
            blocks.append(_labelled([(f"  {recipe.name}", told)]))
    return "\n".join([*blocks, "", f"scales: {', '.join(SCALES)}; * is the default reading"])


def recipe_text(recipe: Recipe) -> str:
    """One recipe with what it asks and the size of each scale."""
    sizes = [f"{scale:6} {_size(recipe.experiment(scale))}" for scale in SCALES]
    rows = [("shows", [recipe.shows]), ("scales", sizes)]
    for question in recipe.questions:
        meanings = [
            f"{answer}: {meaning}"
            for answer, meaning in zip(_answers(question), question.answers.values(), strict=True)
        ]
        why = f"the default because: {question.reason}"
        rows.append((question.name, [question.asks, *meanings, why]))
    return f"{recipe.name}: {recipe.title}\n{_labelled(rows)}"


def plan_text(experiment: Experiment, folder: Path, device: str, workers: int) -> str:
    """What running an experiment in a folder would do, or why it would be refused there."""
    units, left, state = _state(experiment, folder)
    rows = [
        *_grid(experiment),
        ("units", [f"{len(units)}, each of runs of one shape", *_shapes(units)]),
        *_coordinates(units),
        *_absent(units),
        *_cost(left, device, workers),
        ("folder", f"{folder}: {state}".splitlines()),
    ]
    return _labelled(rows)


def _coordinates(units: Sequence[Unit]) -> list[tuple[str, list[str]]]:
    """Where the runs are computed, and why; nothing where nothing else than R^d was asked for."""
    found: dict[tuple[str, int], list[Unit]] = {}
    for unit in units:
        cell = unit.runs[0].cell
        if cell.coordinates != "ambient":
            found.setdefault((cell.space.mode, cell.space.dim), []).append(unit)
    lines = []
    for (mode, dim), those in found.items():
        runs, dims = sum(len(unit.runs) for unit in those), [u.runs[0].cell.data.dim for u in those]
        if min(dims) == max(dims):
            lines.append(f"{runs} runs: {those[0].runs[0].cell.space.text}")
        else:
            lines.append(f"{runs} runs: {mode}, {dim:,} for d from {min(dims):,} to {max(dims):,}")
        if mode == "approximate":
            lines += map(_trust, those)
    return [("coordinates", _abbreviated(lines))] if lines else []


def _trust(unit: Unit) -> str:
    """How far approximate coordinates can be trusted: the run that the attack moves most tells."""
    spaces = [run.cell.space for run in unit.runs]
    shifts = [space.shift for space in spaces]
    worst = max(range(len(shifts)), key=lambda place: shifts[place])
    size = f"d = {unit.runs[0].cell.data.dim:,}, {len(spaces)} runs"
    return f"{size}, scores moved by {min(shifts):.2g} to {max(shifts):.2g}: {spaces[worst].why}"


def _absent(units: Sequence[Unit]) -> list[tuple[str, list[str]]]:
    """Images that are not on this machine."""
    told = (unit.runs[0].cell.data.absent() for unit in units)
    lines = sorted({line for line in told if line})
    return [("data", lines)] if lines else []


def _cost(left: list[Unit], device: str, workers: int) -> list[tuple[str, list[str]]]:
    """Memory and time of the units left to compute."""
    if not left:
        return [("time", ["nothing is left to compute"])]
    cost, at_once = estimate(left, device), min(workers, len(left))
    memory = f"about {_bytes(cost.bytes)} for the largest batch"
    if at_once > 1:
        memory += f", {at_once} at a time"
    if there := memory_of(device):
        memory += f"; {device} has {_bytes(there)}"
    return [("memory", [memory]), ("time", [_time(cost, at_once, left)])]


def _time(cost: Estimate, at_once: int, left: list[Unit]) -> str:
    """Time to expect, and what makes it uncertain."""
    least, most = (duration(t / at_once) for t in (cost.least_seconds, cost.most_seconds))
    steps = f"{left[0].runs[0].cell.training.most_steps():,}"
    if least == most:
        return f"about {most}, for up to {steps} steps a run"
    return f"at most about {most}, if no run reaches its loss before step {steps}; {least} if all do at once"


def folder_text(folder: Path) -> str:
    """What a folder of results holds, also where its specification cannot be read here."""
    store = Store.open(folder, writing=False)
    if not store.history:
        return f"{folder}: no experiment yet"
    counting, seconds, records = Counting(), 0.0, 0
    for record in sound_records(store):
        counting.take(record)
        seconds += float(record.meta.get("seconds") or 0)
        records += 1
    held = counting.runs
    try:
        experiment = open_experiment(folder)
        grid, wanted = _grid(experiment), set(keys_of(experiment))
    except StoreError as error:
        grid, wanted = [("cannot read", str(error).splitlines())], set(held)
    counts = Counter(held[key].status if key in held else Status.MISSING for key in wanted)
    damaged = store.damaged
    made_on = Counter(
        f"{at.meta.get('device')}, torch {at.meta.get('torch')}" for at in held.values()
    )
    pictures = sorted(path.name for kind in ("png", "svg") for path in folder.glob(f"*.{kind}"))
    changed = changed_code(held[key] for key in wanted & held.keys())
    rows = [
        *grid,
        ("status", [statuses(counts)]),
        (
            "records",
            [f"{records} intact, {len(damaged)} damaged; {duration(seconds)} of work"],
        ),
        ("made by", _made(store.about.made)),
        ("made on", [f"{where}: {number} runs" for where, number in made_on.items()]),
        ("versions", list(filter(None, [other_versions(held, wanted)]))),
        ("changed", [f"{name} since {number} runs were made" for name, number in changed.items()]),
        ("damaged", list(damaged.values())),
        ("errors", _errors(held.values())),
        ("pictures", [", ".join(pictures)] if pictures else []),
    ]
    return f"{folder}\n{_labelled((label, lines) for label, lines in rows if lines)}"


def standing_text(folder: Path, standing: Standing) -> str:
    """How far a sweep is, along its axes, who works on it, and what to do next."""
    rows = [
        ("runs", [_progress(standing.counts)]),
        *((name, _axis(values)) for name, values in standing.axes.items()),
        ("damaged", list(standing.damaged.values())),
        ("at work", list(map(_worker, standing.workers))),
        ("note", standing.notes),
    ]
    whole = _labelled((label, lines) for label, lines in rows if lines)
    todo = [f"next: {line}" for line in next_steps(folder, standing)]  # commands are not broken
    return "\n".join([str(folder), whole, *todo])


def standings_text(standings: Mapping[Path, Standing | str]) -> str:
    """One line for each of several folders; a word of what is wrong stands in place of what cannot be read."""
    width = max(len(str(folder)) for folder in standings)
    return "\n".join(
        f"{folder!s:{width}}  {each if isinstance(each, str) else _short_progress(each)}"
        for folder, each in standings.items()
    )


def next_steps(folder: Path, standing: Standing) -> list[str]:
    """What a person may want to do next with a sweep."""
    counts, told = standing.counts, []
    resume = f"`benign resume {folder}`"
    if standing.damaged:
        told.append(
            f"`benign check {folder}` verifies every record; {resume} replaces damaged ones"
        )
    if counts.failed or counts.out_of_memory:
        told.append(f"`benign show {folder}` says why runs failed; {resume} tries them again")
    if counts.missing:
        where = ", also on another machine beside those at work" if counts.running else ""
        told.append(f"{resume} computes what is missing{where}")
    if counts.done == counts.runs:
        told.append(f"all is done: `benign show {folder}`, `benign export {folder} FILE.nc`")
    return told or ["wait: every run that is left is being computed"]


def _progress(counts: Counts) -> str:
    told = {
        "running": counts.running, "failed": counts.failed, "out of memory": counts.out_of_memory,
        "missing": counts.missing,
    }  # fmt: skip
    rest = "".join(f", {number} {what}" for what, number in told.items() if number)
    diverged = f" ({counts.diverged} diverged)" if counts.diverged else ""
    return f"{counts.done} of {counts.runs} done{diverged}{rest}"


def _short_progress(standing: Standing) -> str:
    damaged = len(standing.damaged)
    return _progress(standing.counts) + (f"; {damaged} damaged records" if damaged else "")


def _axis(values: list[tuple[Any, Counts]]) -> list[str]:
    """A table of the values of an axis; of a long one those where something is left to do."""
    shown = values
    if len(values) > MOST_ROWS:
        shown = [each for each in values if each[1].done < each[1].runs][:MOST_ROWS]
    rows = [["", "done", "of", "failed", "diverged"]] + [
        [_value(value), *map(str, (at.done, at.runs, at.failed + at.out_of_memory, at.diverged))]
        for value, at in shown
    ]
    left = [at for _, at in values if all(at is not each for _, each in shown)]
    done = sum(at.done == at.runs for at in left)
    rest = [f"and {len(left)} more values, {done} of them done"] if left else []
    return [*(_table(rows) if shown else []), *rest]


def _worker(worker: Worker) -> str:
    since = datetime.fromtimestamp(worker.since).strftime("%Y-%m-%d %H:%M")
    units = f"{worker.units} unit{'s' * (worker.units != 1)}"
    told = f"{worker.host}, process {worker.pid}, since {since}: {units}"
    if worker.alive is None:
        return f"{told} (on another host: whether it still runs is not known here)"
    return told if worker.alive else f"{told} (has ended: its units are free)"


def _made(made: dict[str, Any]) -> list[str]:
    """Where a folder comes from, as far as it knows."""
    target = [made["target"], made.get("scale")] if "target" in made else []
    reading = made.get("reading") or {}
    told = [
        " ".join(str(word) for word in target if word),
        ", ".join(f"{question}={answer}" for question, answer in reading.items()),
        f"changed: {', '.join(made['changes'])}" if made.get("changes") else "",
        f"benign {made['benign']}" if "benign" in made else "",
    ]
    return ["; ".join(filter(None, told))] if made else []


def result_text(result: xr.Dataset) -> str:
    """How the runs ended and, for a small grid, the means of the main variables."""
    dims = [str(dim) for dim in result["status"].dims if dim != "seed"]
    names = [name for name in MAIN if name in result]
    sizes = [result.sizes[dim] for dim in dims]
    if np.prod(sizes) > MOST_ROWS:
        return ""
    means = result[names].where(ended(result)).mean("seed")
    rows = [[*dims, *names]]
    for index in np.ndindex(*sizes):
        cell = means[dict(zip(dims, index, strict=True))]
        where = [_value(result[dim].values[i]) for dim, i in zip(dims, index, strict=True)]
        rows.append([*where, *(f"{float(cell[name]):.4g}" for name in names)])
    seeds = result.sizes["seed"]
    return "\n".join([f"means over {seeds} seed{'s' * (seeds != 1)}", *_table(rows)])


def errors(folder: Path, whole: bool = False) -> list[str]:
    """What made runs of a folder fail: the last line of each error, or the whole of it."""
    store = Store.open(folder, writing=False)
    return _errors(runs_in(sound_records(store)).values(), whole)


def _errors(found: Iterable[RunAt], whole: bool = False) -> list[str]:
    counts: Counter[str] = Counter()
    for text, number in failures(found).items():
        counts[text if whole else text.splitlines()[-1]] += number
    return [f"{number} runs: {text}" for text, number in counts.items()]


def yaml_text(experiment: Experiment) -> str:
    """The experiment as a file that `benign run` takes."""
    return files.yaml_text({"benign": SPECIFICATION, **experiment.as_dict()})


def _state(experiment: Experiment, folder: Path) -> tuple[list[Unit], list[Unit], str]:
    """All units of an experiment in a folder, those left to compute, and what is there in words."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        units = experiment.units()
        return units, units, "nothing there yet"
    store = Store.open(folder, writing=False)
    try:
        work = experiment.work_in(store)
    except OtherExperiment as error:
        units = experiment.units()
        return units, units, f"it would be refused: {error}"
    state = f"{work.done} of {work.done + sum(len(unit.runs) for unit in work.left)} runs are done"
    if work.note:
        state += f"; {work.note}"
    return work.units, work.left, state


def _grid(experiment: Experiment) -> list[tuple[str, list[str]]]:
    axes = [
        [dim.name, f"{len(dim.values)}:", _values(dim.values)] for dim in dimensions(experiment)
    ]
    return [("axes", _table(axes) or ["none"]), ("runs", [_size(experiment)])]


def _size(experiment: Experiment) -> str:
    cells = int(np.prod([len(dim.values) for dim in dimensions(experiment)], dtype=object))
    seeds = experiment.seeds
    return f"{cells * seeds} runs: {cells} cells, each with {seeds} seed{'s' * (seeds != 1)}"


def _shapes(units: Sequence[Unit]) -> list[str]:
    shapes: Counter[str] = Counter()
    for unit in units:
        data = unit.runs[0].cell.reduced().data
        shapes[f"{data.samples} samples x {data.tokens} tokens x {data.dim}"] += len(unit.runs)
    return _abbreviated([f"{shape}: {runs} runs" for shape, runs in shapes.items()])


def _values(values: Sequence[Any]) -> str:
    return ", ".join(_abbreviated([_value(value) for value in values]))


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _abbreviated(words: list[str]) -> list[str]:
    return words if len(words) <= 8 else [*words[:4], "...", words[-1]]


def _answers(question: Any) -> list[str]:
    return [answer + "*" * (answer == question.default) for answer in question.answers]


def _bytes(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:,.3g} GiB"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of words as aligned lines."""
    widths = [max(len(word) for word in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{w:{n}}" for w, n in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _labelled(rows: Iterable[tuple[str, list[str]]]) -> str:
    """Labels with one or more lines each, wrapped and aligned."""
    rows = list(rows)
    width = max(len(label) for label, _ in rows)
    lines = []
    for label, texts in rows:
        for number, text in enumerate(texts):
            first = f"  {label if number == 0 else '':{width}}  "
            lines.append(_wrap(text, first, " " * (width + 6)))
    return "\n".join(lines)


def _wrap(text: str, first: str = "", rest: str = "  ") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest)
