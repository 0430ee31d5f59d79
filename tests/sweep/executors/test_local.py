"""Processes that die as they start are started again, then the sweep goes on with fewer; with none it ends."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from benign.sweep.compute import compute
from benign.sweep.executors.base import ExecutionConfig, ProcessEnded
from benign.sweep.executors.local import TRIES, ProcessExecutor, _end_of
from benign.training import machine
from benign.training.checkpoint import CheckpointConfig
from benign.training.descent import Status
from tests.faults.sweeps import ENVIRONMENT, contents, python, typed
from tests.says import holds
from tests.tiny import tiny, tiny_file

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals")

THREE = "data.samples=[2, 4, 6]"
DIES = """
import multiprocessing, os, signal, time
from pathlib import Path

import benign as bo

HERE = Path(__file__).parent


def new(name):
    try:
        (HERE / name).touch(exist_ok=False)
        return True
    except FileExistsError:
        return False


if multiprocessing.parent_process():
    if {condition}:
        with open(HERE / "deaths", "a") as deaths:
            deaths.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    while len((HERE / "deaths").read_text()) < {first}:
        time.sleep(0.05)
"""


def swept(folder: Path, condition: str, first: int) -> tuple[subprocess.CompletedProcess[str], int]:
    """A sweep of two workers, whose processes die under a condition as they start, so many before another one begins
    to work; and how many did."""
    (folder / "deaths").touch()
    (folder / "dies.py").write_text(DIES.format(condition=condition, first=first))
    tiny_file(folder, THREE)
    words = ["--plugin", "dies.py", "run", "tiny.yaml", "--out", "run", "--workers", "2"]
    done = typed(*words, cwd=folder)
    return done, len((folder / "deaths").read_text())


def check_whole(folder: Path, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    tiny(THREE).run(folder / "whole")
    assert contents(folder / "run") == contents(folder / "whole")


def test_a_process_killed_as_it_starts_is_started_again(tmp_path):
    done, deaths = swept(tmp_path, "new('first')", 1)
    assert deaths == 1
    check_whole(tmp_path, done)


@pytest.mark.slow
def test_a_place_whose_processes_always_die_leaves_the_work_to_the_others(tmp_path):
    done, deaths = swept(tmp_path, "not new('the one that lives')", TRIES)
    assert deaths == TRIES
    check_whole(tmp_path, done)
    assert "SIGKILL" in done.stderr
    assert "1 of 2" in done.stderr


@pytest.mark.slow
def test_a_sweep_ends_where_no_process_can_start(tmp_path):
    done, deaths = swept(tmp_path, "True", 0)
    assert deaths == 2 * TRIES
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "SIGKILL" in last
    assert "--workers 1" in last
    assert not any((tmp_path / "run" / "taken").glob("*.json"))
    assert typed("run", "run", "--workers", "1", cwd=tmp_path).returncode == 0


def test_a_machine_that_starts_no_more_processes_is_no_traceback(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.context.ForkServerProcess.start", full)
    with (
        pytest.warns(RuntimeWarning, match="1 of 2"),
        pytest.raises(ChildProcessError, match="--workers 1") as caught,
    ):
        tiny(THREE).run(tmp_path, workers=2)
    assert "Resource temporarily unavailable" in str(caught.value)


SCRIPT = """
import benign as bo

print("begun", flush=True)
bo.Experiment.from_yaml("tiny.yaml").run("run", workers=2)
"""


def scripted(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own."""
    (folder / "script.py").write_text(script)
    how = {"cwd": folder, "env": ENVIRONMENT, "capture_output": True, "text": True}
    return subprocess.run(python("script.py"), **how, timeout=60)


@pytest.mark.parametrize(
    "samples", ["[2, 4]", pytest.param("[2, 4, 6, 8, 10]", marks=pytest.mark.slow)]
)
def test_a_script_without_a_guard_is_one_sentence(tmp_path, samples):
    """Also where the processes of the script have all its units, for which their own copies of it would wait."""
    tiny_file(tmp_path, f"data.samples={samples}")
    done = scripted(tmp_path, SCRIPT)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ValueError")
    assert '`if __name__ == "__main__":`' in last
    assert done.stdout.count("begun") <= 3
    assert not any((tmp_path / "run" / "taken").glob("*.json"))


GUARDED = SCRIPT.replace("bo.Exp", 'if __name__ == "__main__":\n    bo.Exp')


@pytest.mark.slow
def test_a_script_with_a_guard_runs(tmp_path):
    tiny_file(tmp_path)
    done = scripted(tmp_path, GUARDED)
    assert done.returncode == 0, done.stderr
    assert len(contents(tmp_path / "run")) == 2


WITHIN = """
import multiprocessing
import torch
import benign as bo


inside = False


@bo.metric("nothing")
def nothing(step):
    global inside
    if multiprocessing.parent_process() and not inside:  # probes are tried before a run, this one as well
        inside = True
        bo.Experiment.from_yaml("tiny.yaml").run("inner", workers=2)
    return torch.zeros(len(step.batch))
"""


def test_a_worker_starts_no_workers(tmp_path):
    (tmp_path / "own.py").write_text(WITHIN)
    tiny_file(tmp_path)
    words = ["--plugin", "own.py", "run", "tiny.yaml", "--out", "run", "--workers", "2"]
    done = typed(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert holds(done.stderr, "`workers`", "1")
    assert not (tmp_path / "inner" / "records").exists() or not contents(tmp_path / "inner")


def test_a_process_that_died_between_two_units_is_replaced(tmp_path):
    """Nobody noticed, and the next unit is not to blame."""
    first, second = tiny().units()
    executor = ProcessExecutor(ExecutionConfig(), 1, lambda unit: CheckpointConfig(None, None))
    try:
        executor.submit(first).result(60)
        [place] = executor._places
        assert place._process is not None
        place._process.kill()
        place._process.join()
        executor.check_timeouts()
        done = executor.submit(second).result(60)
    finally:
        executor.close()
    assert {*done.arrays} == {*compute(second, "cpu").arrays}


@pytest.mark.parametrize(
    ("code", "memory", "how", "status"),
    [
        (7, False, ["exit code 7"], Status.FAILED),
        (-signal.SIGSEGV, True, ["SIGSEGV"], Status.FAILED),
        (-signal.SIGKILL, False, ["SIGKILL", "memory", "workers"], Status.FAILED),
        (-signal.SIGKILL, True, ["SIGKILL", "memory", "workers"], Status.OUT_OF_MEMORY),
        (-signal.SIGRTMIN - 3, False, [str(signal.SIGRTMIN + 3)], Status.FAILED),
    ],
)
def test_the_end_of_a_process_is_what_is_known_of_it(code, memory, how, status):
    """Out of memory only where the system says so."""
    end = _end_of(code, True, memory)
    assert isinstance(end, ProcessEnded)
    assert holds(end.how, *how)
    assert end.status == status


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        (
            {
                "/proc/self/cgroup": "0::/a\n",
                "/sys/fs/cgroup/a/memory.events": "oom 2\noom_kill 3\n",
            },
            3,
        ),
        ({"/proc/self/cgroup": "0::/\n", "/proc/vmstat": "oom_kill 5\n"}, 5),
        ({}, 0),
    ],
)
def test_kills_for_memory_are_those_of_the_own_group_where_counted(monkeypatch, files, kills):
    monkeypatch.setattr(machine, "_text", lambda path: files.get(path, ""))
    assert machine.memory_kills() == kills


def test_the_units_with_most_work_come_first(monkeypatch):
    """Of runs of 2, 8 and 4 points those of 8; a unit whose work is unknown comes last."""
    units = tiny("data.samples=[2, 8, 4]").units()
    executor = ProcessExecutor(ExecutionConfig(workers=2), 2, lambda _: CheckpointConfig())
    points = [unit.runs[0].cell.data.samples for unit in executor.ordered(units)]
    assert points == [8, 4, 2]

    def fails(cell, steps):
        if cell.data.samples == 8:
            raise RuntimeError("a component of somebody")
        return cell.data.samples

    monkeypatch.setattr("benign.sweep.executors.local.operations", fails)
    points = [unit.runs[0].cell.data.samples for unit in executor.ordered(units)]
    assert points == [4, 2, 8]
