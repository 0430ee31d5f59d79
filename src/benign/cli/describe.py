"""Papers and experiments in words: what the command line says before anything is run."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benign.claims.study import SCALES
from benign.experiment import Experiment
from benign.papers.recipes import Recipe
from benign.papers.registry import papers, recipes
from benign.reduction.modes import Approximate
from benign.spec.axes import dimensions
from benign.sweep.estimate import Estimate, estimate
from benign.sweep.plan import OtherExperiment, Unit
from benign.sweep.store import Store
from benign.sweep.terminal import duration
from benign.sweep.text import abbreviated, bytes_text, labelled, table, values_text, wrapped
from benign.training.machine import memory_of

LONG = 60.0
"""seconds of work whose cost is told before it starts"""


def papers_text(name: str | None = None) -> str:
    """The papers and their recipes: all, those of one paper, or one recipe in full."""
    known = recipes()
    if name in known:
        return recipe_text(known[name])
    registered = papers()
    if name is not None and name not in registered:
        choices = ", ".join([*sorted(registered), *sorted(known)])
        raise ValueError(f"no paper or recipe {name!r}: choose one of {choices}")
    blocks = []
    for paper in [name] if name else sorted(registered):
        blocks.append(wrapped(registered[paper].title))
        for recipe in (known[each] for each in sorted(known) if each.startswith(f"{paper}/")):
            told = [recipe.title, f"shows {recipe.shows}"]
            told += [f"reading {q.name}: {', '.join(_answers(q))}" for q in recipe.questions]
            blocks.append(labelled([(f"  {recipe.name}", told)]))
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
    return f"{recipe.name}: {recipe.title}\n{labelled(rows)}"


def plan_text(experiment: Experiment, folder: Path, device: str, workers: int) -> str:
    """What running an experiment in a folder would do, or why it would be refused there."""
    units, left, state = _state(experiment, folder)
    rows = [
        *grid_rows(experiment),
        ("units", [f"{len(units)}, each of runs of one shape", *_shapes(units)]),
        *_coordinates(units),
        *_absent(units),
        *_cost(left, device, workers),
        ("folder", f"{folder}: {state}".splitlines()),
    ]
    return labelled(rows)


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
    return [("coordinates", abbreviated(lines))] if lines else []


def _trust(unit: Unit) -> str:
    """How far approximate coordinates can be trusted: the run that the attack moves most tells."""
    spaces = [space for run in unit.runs if isinstance(space := run.cell.space, Approximate)]
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
    memory = f"about {bytes_text(cost.bytes)} for the largest batch"
    if at_once > 1:
        memory += f", {at_once} at a time"
    if there := memory_of(device):
        memory += f"; {device} has {bytes_text(there)}"
    return [("memory", [memory]), ("time", [_time(cost, at_once, left)])]


def cost_text(
    experiment: Experiment, folder: Path, device: str, workers: int, recompute: bool = False
) -> str:
    """What is left to compute, and the time to expect; empty where it is less than a minute."""
    _, left, _ = _state(experiment, folder, recompute)
    if not left:
        return ""
    cost, at_once = estimate(left, device), min(workers, len(left))
    if cost.most_seconds / at_once < LONG:
        return ""
    return f"cost: {cost.runs} runs, {_time(cost, at_once, left)}"


def _time(cost: Estimate, at_once: int, left: list[Unit]) -> str:
    """Time to expect, and what makes it uncertain."""
    least, most = (duration(t / at_once) for t in (cost.least_seconds, cost.most_seconds))
    steps = f"{left[0].runs[0].cell.training.most_steps():,}"
    if least == most:
        return f"about {most}, for up to {steps} steps a run"
    return f"at most about {most}, if no run reaches its loss before step {steps}; {least} if all do at once"


def _state(
    experiment: Experiment, folder: Path, recompute: bool = False
) -> tuple[list[Unit], list[Unit], str]:
    """All units of an experiment in a folder, those left to compute, and what is there in words."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        units = experiment.units()
        return units, units, "nothing there yet"
    store = Store.open(folder, writing=False)
    try:
        work = experiment.work_in(store, recompute)
    except OtherExperiment as error:
        units = experiment.units()
        return units, units, f"it would be refused: {error}"
    state = f"{work.done} of {work.done + sum(len(unit.runs) for unit in work.left)} runs are done"
    if work.note:
        state += f"; {work.note}"
    return work.units, work.left, state


def grid_rows(experiment: Experiment) -> list[tuple[str, list[str]]]:
    """The axes of an experiment and its size."""
    axes = [
        [dim.name, f"{len(dim.values)}:", values_text(dim.values)] for dim in dimensions(experiment)
    ]
    return [("axes", table(axes) or ["none"]), ("runs", [_size(experiment)])]


def _size(experiment: Experiment) -> str:
    cells = int(np.prod([len(dim.values) for dim in dimensions(experiment)], dtype=object))
    seeds = experiment.seeds
    return f"{cells * seeds} runs: {cells} cells, each with {seeds} seed{'s' * (seeds != 1)}"


def _shapes(units: Sequence[Unit]) -> list[str]:
    shapes: Counter[str] = Counter()
    for unit in units:
        data = unit.runs[0].cell.reduced().data
        shapes[f"{data.samples} samples x {data.tokens} tokens x {data.dim}"] += len(unit.runs)
    return abbreviated([f"{shape}: {runs} runs" for shape, runs in shapes.items()])


def _answers(question: Any) -> list[str]:
    return [answer + "*" * (answer == question.default) for answer in question.answers]
