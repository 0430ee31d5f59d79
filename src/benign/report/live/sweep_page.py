"""The page of one sweep: how far it is, its figures as they fill, what went wrong."""

import asyncio
import time
from pathlib import Path

from nicegui import ui

from benign.plot.caption import describe
from benign.report.live.choice import Choice
from benign.report.live.drawn import Drawn, drawn
from benign.report.live.frame import Scheme, told
from benign.report.live.panel import Panel
from benign.report.live.reader import Reader
from benign.report.live.watch import Sweep, Watch, shown
from benign.report.live.words import (
    clock,
    empty_text,
    ended_text,
    left_text,
    made_text,
    progress_text,
    share_done,
    steps_text,
    trouble_text,
)
from benign.sweep.console import shown as shown_path
from benign.sweep.status_text import next_steps

GONE = "This sweep is gone from the disk. Below is what was there last."


class SweepPage:
    """Elements of the page; `refresh` is called again and again and changes what has to change."""

    def __init__(self, watch: Watch, name: str, scheme: Scheme, choice: Choice):
        self.watch, self.name = watch, name
        self.reader = Reader(watch.sweeps[name].folder)
        self.sweep: Sweep | None = None
        self.drawn: Drawn | None = None
        self.empty = ""
        """what is said of cells that have not run"""
        self.busy = asyncio.Lock()
        self.problem = told("", "bad card")
        with ui.element("section").classes("card"):
            self.made = told("", "soft")
            self.bar = ui.linear_progress(0, show_value=False, size="12px")
            self.bar.props('rounded aria-label="share of runs done"')
            self.progress = told("", "progress")
            self.steps = told("")
            self.ended = told("")
            self.trouble = told("", "bad")
        self.specification = _Specification()
        self.panel = Panel(scheme, choice, self.refresh)
        self.troubles = _Lines("What went wrong, and what to know", "bad")
        self.next = _Lines("What you can do next", "soft")
        self._say_problem("")

    async def refresh(self) -> None:
        """Show what has changed since the last time."""
        if self.busy.locked():
            return  # what is asked for now is seen at the next tick
        async with self.busy:
            sweep = self.watch.sweeps.get(self.name)
            before, self.sweep = self.sweep, sweep
            if sweep is None:
                self._say_problem(GONE)
            # Steps of units change more often than records, of which alone figures are made.
            elif not before or sweep.standing is not before.standing:
                self._say_problem(await self._take(sweep))
            if sweep and sweep.standing:
                self._tick(sweep)
            if self.drawn:
                await self._draw(self.drawn)

    async def _draw(self, found: Drawn) -> None:
        try:
            await self.panel.draw(found.atlas, self.empty)
        except Exception as error:  # as in `_take`
            self._say_problem(f"The figure cannot be drawn: {_why(error)}")

    def _tick(self, sweep: Sweep) -> None:
        now = time.time()
        so_far = f"{progress_text(sweep)}; {left_text(sweep, now)}"
        self.progress.text = f"{so_far}; last change {clock(sweep.changed, now)}"
        self.steps.text = steps_text(sweep)

    async def _take(self, sweep: Sweep) -> str:
        """Read and show what a sweep has now; what is wrong with it comes back."""
        self.made.text = made_text(sweep)
        self.bar.value = share_done(sweep)
        standing = sweep.standing
        if standing is None:
            return sweep.problem
        self.ended.text = ended_text(sweep)
        self.trouble.text = trouble_text(sweep)
        folder = Path(shown_path(sweep.folder))
        self.empty = shown(empty_text(sweep, str(folder)))
        try:
            self.drawn = await asyncio.to_thread(drawn, self.reader)
        # It vanishes, or a stranger's file is wrong in some way: that is told, and the page goes on.
        except Exception as error:
            return _why(error)
        atlas = self.drawn.atlas
        notes = [*standing.notes, *filter(None, [atlas.note])]
        self.troubles.show([*self.drawn.troubles, *standing.damaged.values(), *notes])
        self.next.show(next_steps(folder, standing, bool(self.drawn.doubts)))
        self.specification.show(self.drawn)
        self.panel.offer(atlas)
        return ""

    def _say_problem(self, problem: str) -> None:
        self.problem.text = problem
        self.problem.set_visibility(bool(problem))


def _why(error: Exception) -> str:
    return shown((str(error).splitlines() or [type(error).__name__])[0])


class _Specification:
    """What the experiment is; closed until somebody opens it."""

    def __init__(self) -> None:
        with ui.expansion("What this experiment is").classes("card spec") as self.card:
            self.described = told("")
            self.yaml = told("", "command")
        self.card.set_visibility(False)

    def show(self, found: Drawn) -> None:
        self.card.set_visibility(True)
        self.described.text = shown(describe(found.experiment))
        self.yaml.text = shown(found.experiment.to_yaml())


class _Lines:
    """A card with a list of lines; not there while there are none."""

    def __init__(self, title: str, classes: str):
        self.classes = classes
        with ui.element("section").classes("card") as self.card:
            with ui.element("h2"):
                told(title)
            self.list = ui.element("div")
        self.lines: list[str] = []
        self.card.set_visibility(False)

    def show(self, lines: list[str]) -> None:
        if lines != self.lines:
            self.lines = lines
            self.card.set_visibility(bool(lines))
            self.list.clear()
            with self.list:
                for line in lines:
                    told(shown(line), self.classes)
