"""What the pages say of a sweep, in words."""

from datetime import datetime

from benign.report.cells import ENDED
from benign.report.live.watch import Sweep, shown
from benign.sweep.progress import UnitPosition
from benign.sweep.terminal import duration
from benign.training.descent import Status

MOST_UNITS = 3
"""under way, of which each is told"""


def made_text(sweep: Sweep) -> str:
    """What was asked for: recipe, scale, reading, changes."""
    made = sweep.made
    reading = (f"{question}={answer}" for question, answer in (made.get("reading") or {}).items())
    words = [made.get("target"), made.get("scale"), *reading, *made.get("changes", ())]
    return shown(" ".join(str(word) for word in words if word))


def share_done(sweep: Sweep) -> float:
    """Runs that are done, between 0 and 1."""
    counts = sweep.standing.counts if sweep.standing else None
    return counts.done / counts.runs if counts and counts.runs else 0.0


def trouble_text(sweep: Sweep) -> str:
    """What is wrong with it, in a line; empty where nothing is."""
    if sweep.standing is None:
        return sweep.problem
    counts, damaged = sweep.standing.counts, len(sweep.standing.damaged)
    told = {
        "failed": counts.failed,
        "out of memory": counts.out_of_memory,
        f"damaged record{'s' * (damaged != 1)}": damaged,
    }
    return ", ".join(f"{number} {what}" for what, number in told.items() if number)


def progress_text(sweep: Sweep) -> str:
    """How far it is, in a line."""
    if sweep.standing is None:
        return ""
    counts = sweep.standing.counts
    running = f", {counts.running} running" if counts.running else ""
    return f"{counts.done} of {counts.runs} runs done{running}"


def ended_text(sweep: Sweep) -> str:
    """How its runs ended, in a line; empty where none has."""
    if sweep.standing is None:
        return ""
    counts = sweep.standing.counts
    told = {
        Status.CONVERGED: counts.converged,
        Status.STEP_CAP: counts.step_cap,
        Status.DIVERGED: counts.diverged,
    }
    return ", ".join(f"{number} {ENDED[end]}" for end, number in told.items() if number)


def steps_text(sweep: Sweep) -> str:
    """How far the units under way are; empty where nobody works, or none has told yet."""
    places = [unit.note.at for unit in sweep.under_way if unit.note and sweep.at_work]
    if len(places) <= MOST_UNITS:
        return "; ".join(_at_text(at) for at in places)
    steps = [at.step for at in places if not at.testing]
    training = sum(at.training for at in places if not at.testing)
    told = [f"{len(places)} units under way"]
    if steps:
        told += [f"at steps {min(steps):,} to {max(steps):,}", f"{training:,} runs still training"]
    return ", ".join(told)


def _at_text(at: UnitPosition) -> str:
    if at.testing and at.training:
        return f"evaluating {at.training:,} runs"
    if at.step and not at.training:
        return f"reference networks, step {at.step:,}"
    return f"step {at.step:,} of at most {at.most:,}, {at.training:,} still training"


def left_text(sweep: Sweep, now: float) -> str:
    """How long it will take, or why nobody can tell."""
    if sweep.standing is None:
        return ""
    counts = sweep.standing.counts
    if counts.done == counts.runs:
        return "finished"
    if not sweep.at_work:
        return "nobody is working on it"
    left = sweep.left(now)
    if left is None:
        return "at work; the time left is not known yet"
    if left < 1:
        return "nearly done; how long the last runs take is not known"
    if sweep.pace.runs:
        return f"about {duration(left)} left"
    return (
        f"about {duration(left)} of training left, less if runs stop early; then they are evaluated"
    )


def empty_text(sweep: Sweep, folder: str) -> str:
    """What is said of cells that have not run."""
    if sweep.at_work:
        return "Empty cells have not run yet; they fill by themselves."
    return f"Empty cells have not run, and nobody is working on them: `benign resume {folder}` goes on."


def clock(seconds: float, now: float) -> str:
    """A time of day, with the date where that is another than today's."""
    then, today = datetime.fromtimestamp(seconds), datetime.fromtimestamp(now).date()
    return then.strftime("%H:%M:%S" if then.date() == today else "%Y-%m-%d %H:%M")
