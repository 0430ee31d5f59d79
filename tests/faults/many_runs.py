"""A store of 100,000 tiny runs: how long it takes to open, to see how far it is, and what it weighs.

    python -m tests.faults.many_runs

The records are made up, with the variables and lengths that the runs of tests/tiny.py have.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benign.experiment import Experiment
from benign.sweep.plan import NUMERICS, units_of
from benign.sweep.results import runs_in
from benign.sweep.status import sweep_status
from benign.sweep.status_text import sweep_text
from benign.sweep.store import About, Store
from benign.sweep.validation import valid_records
from benign.training.descent import Status
from benign.training.metrics import variables
from tests.tiny import tiny

META = {
    "benign": "0.1.0",
    "code": {},
    "device": "cpu (x86_64)",
    "error": None,
    "numerics": NUMERICS,
}


class Figures(NamedTuple):
    """Seconds and bytes."""

    runs: int
    opened: float
    """to open the store and read, all of it, which runs are there"""
    status: float
    overhead: float
    """bytes on the disk a run, beyond those of its numbers"""


def many(runs: int) -> Experiment:
    """That many runs, a hundred seeds a cell."""
    return tiny("seeds=100", f"data.snr={{linspace: [0.1, 5, {runs // 200}]}}")


def fill(folder: Path, experiment: Experiment) -> int:
    """Write records as a finished sweep has them; returns the bytes of their numbers."""
    store = Store.open(folder, create=True)
    store.set_about(About([experiment.as_dict()], {}, NUMERICS))
    numbers = 0
    for unit in units_of([experiment]):
        cell, count = unit.runs[0].cell, len(unit.runs)
        steps = len(cell.snapshot_steps())
        arrays = {
            name: np.full((count, steps) if each.along_steps else count, 0.5)
            for name, each in variables(cell).items()
        }
        arrays["status"] = np.full(count, Status.CONVERGED, np.int8)
        numbers += sum(array.nbytes for array in arrays.values())
        store.write(unit.key, {**arrays, "run": np.array([run.key for run in unit.runs])}, META)
    return numbers


def opened(folder: Path) -> int:
    return len(runs_in(valid_records(Store.open(folder))))


def status(folder: Path) -> str:
    store = Store.open(folder, writing=False)
    return sweep_text(folder, sweep_status(store, store.experiments()))


def on_disk(folder: Path) -> int:
    """Bytes of the blocks that files take."""
    return sum(512 * path.stat().st_blocks for path in folder.rglob("*") if path.is_file())


def quickest(what: Callable[[Path], Any], folder: Path, tries: int = 3) -> float:
    """The least processor time of several tries: the machine may be shared."""
    times = []
    for _ in range(tries):
        begin = time.process_time()
        what(folder)
        times.append(time.process_time() - begin)
    return min(times)


def measured(folder: Path, runs: int) -> Figures:
    """Fill an empty folder and measure it."""
    numbers = fill(folder, many(runs))
    assert opened(folder) == runs
    assert f"{runs} of {runs} done" in status(folder)
    overhead = (on_disk(folder) - numbers) / runs
    return Figures(runs, quickest(opened, folder), quickest(status, folder), overhead)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--patience", type=float, default=1, help="how much longer it may take")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder) / "many", asked.runs)
    share = asked.patience * asked.runs / 100_000
    print(f"{found.runs:,} runs, in seconds of processor time and bytes on the disk")
    print(f"opened, every byte verified: {found.opened:.2f} (may take {2 * share:.2f})")
    print(f"status: {found.status:.2f} (may take {share:.2f})")
    print(f"overhead a run: {found.overhead:.0f} (may be 1,000)")
    sys.exit(not (found.opened < 2 * share and found.status < share and found.overhead < 1000))


if __name__ == "__main__":
    main()
