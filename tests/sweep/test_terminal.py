"""What a sweep shows while it runs: how often, in which words, and that it costs nothing."""

import io
import re
import sys
import time

import numpy as np
import pytest

from benign.sweep import progress as along
from benign.sweep import terminal as progress
from benign.sweep.progress import Watcher
from benign.sweep.terminal import Bar, Lines, display_for, duration, statuses
from benign.training.descent import Status
from benign.training.engine import TESTING
from tests.says import holds
from tests.tiny import tiny

UNITS = tiny().units()
FIRST, SECOND = (unit.key for unit in UNITS)
ANSI = "\x1b["


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    for module in (progress, along):
        monkeypatch.setattr(module, "time", clock)
    return clock


def numbers(line: str) -> list[int]:
    """The numbers of a line, lowest first."""
    return sorted(int(number) for number in re.findall(r"\d+", line))


def arrays(*codes: Status) -> dict[str, np.ndarray]:
    return {"status": np.array(codes, np.int8)}


def test_lines_show_what_there_is_to_do_and_how_it_went(clock):
    stream = io.StringIO()
    lines = Lines(stream)
    with lines:
        lines.begin(2, 12, 4)
        lines.unit_begins(UNITS[0])
        lines.step(FIRST, 0, 4)
        clock.now += 6
        lines.step(FIRST, 20, 3)
        clock.now += 2
        lines.step(FIRST, TESTING, 4)
        clock.now += 2
        four = (Status.CONVERGED, Status.CONVERGED, Status.STEP_CAP, Status.DIVERGED)
        lines.unit_ends(UNITS[0], arrays(*four), 10.0)
        lines.unit_begins(UNITS[1])
        lines.step(SECOND, 0, 4)
        clock.now += 5
        lines.step(SECOND, 10, 4)
        clock.now += 5
        lines.unit_ends(UNITS[1], arrays(*[Status.FAILED] * 4), 10.0)
        lines.end()
    first, *lines_shown = stream.getvalue().splitlines()
    assert numbers(first) == [2, 4, 8, 12]
    assert holds(first, "8 runs", "4 of 12")
    four = f"2 converged, 1 {Status.STEP_CAP.label}, 1 diverged"
    expected = [
        ("4 of 12", "2 x 3 x 8, ", {"20", "3"}, "6 s", "18 s"),
        ("4 of 12", "2 x 3 x 8, ", {"4"}, "8 s", "8 s"),
        ("8 of 12", four, {"1", "2"}, "10 s", "10 s"),
        ("8 of 12", "4 x 3 x 8, ", {"10", "4"}, "15 s", "17 s"),
        ("12 of 12", "4 failed", {"2"}, "20 s", ""),
    ]
    for line, (done, shape, others, elapsed, left) in zip(lines_shown, expected, strict=True):
        before, doing, time = line.split(" | ")
        assert before.startswith(done)
        assert shape in doing
        assert set(re.findall(r"\d+", doing.replace(shape, ""))) == others
        assert re.findall(r"\d+ s\b", time) == [elapsed, *filter(None, [left])]
    assert all("training" in line.split(" | ")[-1] for line in lines_shown[:2]), (
        "time of tests is unknown"
    )


def test_a_finished_sweep_says_so():
    stream = io.StringIO()
    lines = Lines(stream)
    with lines:
        lines.begin(0, 12, 12)
        lines.end()
    assert stream.getvalue().count("\n") == 1
    assert numbers(stream.getvalue()) == [0, 0, 12, 12]


def test_lines_are_seldom(clock):
    """Ten thousand steps of 10 ms: a line every 5 seconds."""
    stream = io.StringIO()
    lines = Lines(stream)
    lines.begin(1, 4, 0)
    lines.unit_begins(UNITS[0])
    for number in range(10_000):
        clock.now += 0.01
        lines.step(FIRST, number, 4)
    assert 18 <= len(stream.getvalue().splitlines()) - 1 <= 20


def test_units_that_run_side_by_side_have_no_one_shape(clock):
    stream = io.StringIO()
    lines = Lines(stream)
    lines.begin(2, 8, 0)
    for unit in UNITS:
        lines.unit_begins(unit)
    clock.now += 6
    lines.step(FIRST, 0, 0)  # the processes are not yet up
    line = stream.getvalue().splitlines()[-1]
    assert holds(line, "0 of 8", "start", "6 s")
    assert numbers(line) == [0, 6, 8]
    clock.now += 6
    lines.step(FIRST, 3, 0)
    line = stream.getvalue().splitlines()[-1]
    assert holds(line, "0 of 8", "reference networks", "step 3", "12 s")
    assert numbers(line) == [0, 3, 8, 12]
    clock.now += 6
    lines.step(FIRST, 0, 4)
    lines.step(SECOND, 0, 4)
    clock.now += 6
    lines.step(FIRST, 10, 4)
    lines.step(SECOND, 20, 3)
    clock.now += 6
    lines.step(FIRST, 20, 4)
    line = stream.getvalue().splitlines()[-1]
    assert holds(line, "0 of 8", "step 20", "7 training", "30 s", "12 s")
    assert numbers(line) == [0, 7, 8, 12, 20, 30]
    lines.step(SECOND, TESTING, 4)
    lines.step("of nobody here", 99, 99)  # a late report
    clock.now += 6
    lines.step(FIRST, 30, 4)
    line = stream.getvalue().splitlines()[-1]
    assert re.search(r"step 30\b.*\b4 training\b.*\b4\b.*evaluat", line)


def test_the_last_runs_are_evaluated_and_no_time_is_shown(clock):
    """It was `at most 0 s left` for as long as that took."""
    stream = io.StringIO()
    lines = Lines(stream)
    lines.begin(1, 4, 0)
    lines.unit_begins(UNITS[0])
    lines.step(FIRST, 0, 4)
    clock.now += 3  # less than between lines
    lines.step(FIRST, TESTING, 4)
    line = stream.getvalue().splitlines()[-1]
    assert holds(line, "0 of 4", "2 x 3 x 8", "evaluat", "3 s")
    assert numbers(line) == [0, 2, 3, 3, 4, 4, 8]


def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(display_for(Terminal()), Bar)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert isinstance(display_for(io.StringIO()), Lines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display_for(Terminal()), Lines)


def test_the_bar_shows_runs_step_and_time_and_restores_the_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    bar = Bar(stream)
    bar.every = 0.0
    with bar:
        bar.begin(2, 8, 0)
        bar.unit_begins(UNITS[0])
        bar.step(FIRST, 7, 4)
        bar.progress.refresh()
        bar.unit_ends(UNITS[0], arrays(*[Status.STEP_CAP] * 4), 1.0)
        bar.progress.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "8 runs" in shown
    assert "0/8 runs" in shown
    assert holds(shown, "2 x 3 x 8", "step 7", "4 training")
    assert "4/8 runs" in shown
    assert f"4 {Status.STEP_CAP.label}" in shown
    assert stream.getvalue().rstrip().endswith(f"{ANSI}?25h")  # the cursor is back


def test_an_interrupted_bar_restores_the_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()

    def interrupted() -> None:
        with display_for(stream) as bar:
            bar.begin(2, 8, 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert f"{ANSI}?25l" in stream.getvalue()
    assert stream.getvalue().rstrip().endswith(f"{ANSI}?25h")


def test_a_step_that_shows_nothing_costs_nothing():
    """Well below a thousandth of the fastest step, which takes about a millisecond."""
    lines = Lines(io.StringIO())
    lines.begin(1, 4, 0)
    lines.unit_begins(UNITS[0])
    begin = time.perf_counter()
    for number in range(10_000):
        lines.step(FIRST, number, 4)
    assert (time.perf_counter() - begin) / 10_000 < 100e-6  # takes 0.3e-6, more under type checks


def test_a_sweep_can_be_watched(tmp_path):
    stream = io.StringIO()
    with display_for(stream) as watcher:
        tiny().run(tmp_path / "run", watcher=watcher)
    lines = stream.getvalue().splitlines()
    assert numbers(lines[0]) == [2, 8]
    assert holds(lines[-1], "8 of 8", "2 of 2")
    assert ANSI not in stream.getvalue()


def test_a_sweep_in_python_is_shown_on_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    tiny().run(tmp_path / "run")
    assert "8 runs" in stream.getvalue()
    assert stream.getvalue().rstrip().endswith(f"{ANSI}?25h")  # the cursor is back


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_a_sweep_in_python_is_silent_elsewhere(tmp_path, monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    tiny().run(tmp_path / "run")
    assert not stream or not stream.getvalue()


def test_a_sweep_in_python_is_silent_where_asked_to_be(tmp_path, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    tiny().run(tmp_path / "run", watcher=Watcher())
    assert not stream.getvalue()


def test_statuses_in_words():
    assert statuses({}) == "none"
    counts = {status: number for number, status in enumerate(Status, 1)}
    parts = statuses(counts).split(", ")
    names = ("converged", "step cap", "diverged", "failed", "memory", "missing")
    for number, name, part in zip((2, 3, 4, 5, 6, 1), names, parts, strict=True):
        assert part.startswith(f"{number} ")
        assert name in part


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 s"), (0.5, "0.5 s"), (59.6, "60 s"), (150, "2 min"), (8000, "2 h"), (1e6, "12 days")],
)
def test_durations_are_in_the_unit_a_person_would_choose(seconds, words):
    assert duration(seconds) == words
