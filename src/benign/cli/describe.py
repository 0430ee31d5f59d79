"""Papers and experiments as text: what the command line prints before it runs anything."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from benign.claims.study import SCALES
from benign.papers.recipes import Recipe
from benign.papers.registry import papers, recipes
from benign.reduction.modes import Approximate
from benign.sweep.estimate import Cost
from benign.sweep.plan import Unit
from benign.sweep.runner import Runner
from benign.sweep.status_text import grid_rows, grid_size
from benign.sweep.terminal import duration
from benign.sweep.text import abbreviated, bytes_text, labelled, wrapped
from benign.training.machine import memory_of

LONG = 60.0
"""seconds of work from which on its cost is printed before it starts"""


def papers_text(name: str | None = None) -> str:
    """Return the papers and their recipes: all, those of one paper, or one recipe in full."""
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
            lines = [recipe.title, f"shows {recipe.shows}"]
            lines += [f"reading {q.name}: {', '.join(_answers(q))}" for q in recipe.questions]
            blocks.append(labelled([(f"  {recipe.name}", lines)]))
    return "\n".join([*blocks, "", f"scales: {', '.join(SCALES)}; * is the default reading"])


def recipe_text(recipe: Recipe) -> str:
    """Return one recipe with its open questions and the size of each scale."""
    sizes = [f"{scale:6} {grid_size(recipe.experiment(scale))}" for scale in SCALES]
    rows = [("shows", [recipe.shows]), ("scales", sizes)]
    for question in recipe.questions:
        meanings = [
            f"{answer}: {meaning}"
            for answer, meaning in zip(_answers(question), question.answers.values(), strict=True)
        ]
        why = f"the default because: {question.reason}"
        rows.append((question.name, [question.asks, *meanings, why]))
    return f"{recipe.name}: {recipe.title}\n{labelled(rows)}"


def plan_text(runner: Runner) -> str:
    """Return what running an experiment would do, or why its folder would refuse it, from a dry run."""
    plan = runner.plan
    rows = [
        *grid_rows(runner.experiment),
        ("units", [f"{len(plan.units)}, each of runs of one shape", *_shapes(plan.units)]),
        *_coordinates(plan.units),
        *_absent(plan.units),
        *_cost_rows(runner),
        ("folder", f"{runner.folder}: {_state(runner)}".splitlines()),
    ]
    return labelled(rows)


def _state(runner: Runner) -> str:
    plan = runner.plan
    if plan.refusal:
        return f"it would be refused: {plan.refusal}"
    if runner.is_new:
        return "nothing there yet"
    done = f"{plan.done} of {plan.runs} runs are done"
    return f"{done}; {plan.note}" if plan.note else done


def _coordinates(units: Sequence[Unit]) -> list[tuple[str, list[str]]]:
    """Return the coordinates of the runs, with the reason; nothing if all runs are computed in R^d as specified."""
    by_space: dict[tuple[str, int], list[Unit]] = {}
    for unit in units:
        cell = unit.runs[0].cell
        if cell.coordinates != "ambient":
            by_space.setdefault((cell.space.mode, cell.space.dim), []).append(unit)
    lines = []
    for (mode, dim), same in by_space.items():
        runs, dims = sum(len(unit.runs) for unit in same), [u.runs[0].cell.data.dim for u in same]
        if min(dims) == max(dims):
            lines.append(f"{runs} runs: {same[0].runs[0].cell.space.text}")
        else:
            lines.append(f"{runs} runs: {mode}, {dim:,} for d from {min(dims):,} to {max(dims):,}")
        if mode == "approximate":
            lines += map(_trust, same)
    return [("coordinates", abbreviated(lines))] if lines else []


def _trust(unit: Unit) -> str:
    """Return how far approximate coordinates can be trusted, with the reason for the run that the attack moves most."""
    spaces = [space for run in unit.runs if isinstance(space := run.cell.space, Approximate)]
    shifts = [space.shift for space in spaces]
    worst = max(range(len(shifts)), key=lambda place: shifts[place])
    size = f"d = {unit.runs[0].cell.data.dim:,}, {len(spaces)} runs"
    return f"{size}, scores moved by {min(shifts):.2g} to {max(shifts):.2g}: {spaces[worst].why}"


def _absent(units: Sequence[Unit]) -> list[tuple[str, list[str]]]:
    """Return the images that are not on this machine."""
    absent = {unit.runs[0].cell.data.absent() for unit in units}
    lines = sorted(line for line in absent if line)
    return [("data", lines)] if lines else []


def _cost_rows(runner: Runner) -> list[tuple[str, list[str]]]:
    """Return memory and time of the units that are left."""
    left, device = runner.plan.left, runner.config.device
    if not left:
        return [("time", ["nothing is left to compute"])]
    cost, at_once = runner.cost(), runner.units_at_once
    memory = f"about {bytes_text(cost.bytes)} for the largest batch"
    if at_once > 1:
        memory += f", {at_once} at a time"
    if available := memory_of(device):
        memory += f"; {device} has {bytes_text(available)}"
    floor = _floor(cost, at_once, device)
    return [("memory", [memory]), ("time", [_time(cost, at_once, left)]), ("floor", [floor])]


def cost_text(runner: Runner) -> str:
    """Return how many runs are left and the time to expect; empty if that is less than a minute."""
    left = runner.plan.left
    if not left or runner.cost().most_seconds / runner.units_at_once < LONG:
        return ""
    return f"cost: {runner.cost().runs} runs, {_time(runner.cost(), runner.units_at_once, left)}"


def _time(cost: Cost, at_once: int, left: list[Unit]) -> str:
    """Return the time to expect, and the reason for its uncertainty."""
    least, most = (duration(t / at_once) for t in (cost.least_seconds, cost.most_seconds))
    steps = f"{left[0].runs[0].cell.training.most_steps():,}"
    if least == most:
        return f"about {most}, for up to {steps} steps a run"
    return f"at most about {most}, if no run reaches its loss before step {steps}; {least} if all do at once"


def _floor(cost: Cost, at_once: int, device: str) -> str:
    """Return the time that the matrix products alone would take: no program of these products is faster."""
    least, most = (duration(t / at_once) for t in (cost.least_floor, cost.most_floor))
    bound = f"the matrix products alone at the peak of {device}"
    return f"{least}: {bound}" if least == most else f"{least} to {most}: {bound}"


def _shapes(units: Sequence[Unit]) -> list[str]:
    shapes: Counter[str] = Counter()
    for unit in units:
        data = unit.runs[0].cell.reduced().data
        shapes[f"{data.samples} samples x {data.tokens} tokens x {data.dim}"] += len(unit.runs)
    return abbreviated([f"{shape}: {runs} runs" for shape, runs in shapes.items()])


def _answers(question: Any) -> list[str]:
    return [answer + "*" * (answer == question.default) for answer in question.answers]
