"""Guards of what `many_runs.py` measures."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("runs", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_store_of_many_runs_opens_and_shows_its_status_quickly(runs):
    """In a process of its own: here annotations are checked. It may take four times as long, as machines are shared."""
    command = [sys.executable, "-m", "tests.faults.many_runs"]
    done = subprocess.run(
        [*command, "--runs", str(runs), "--patience", "4"], cwd=ROOT, capture_output=True, text=True
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
