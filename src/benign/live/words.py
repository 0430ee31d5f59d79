"""What the pages say of a sweep, in words."""

from datetime import datetime

from benign.live.watch import Sweep, shown
from benign.progress import duration


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
        "diverged": counts.diverged,
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


def left_text(sweep: Sweep, now: float) -> str:
    """How long it will take, or why nobody can tell."""
    if sweep.standing is None:
        return ""
    counts = sweep.standing.counts
    if counts.done == counts.runs:
        return "finished"
    if not sweep.at_work:
        return "nobody is working on it"
    if sweep.pace is None:
        return "at work; the time left is not known before some runs have ended"
    left = sweep.pace.left(counts, now)
    return f"about {duration(left)} left" if left >= 1 else "the last runs take longer than others"


def clock(seconds: float, now: float) -> str:
    """A time of day, with the date where that is another than today's."""
    then, today = datetime.fromtimestamp(seconds), datetime.fromtimestamp(now).date()
    return then.strftime("%H:%M:%S" if then.date() == today else "%Y-%m-%d %H:%M")
