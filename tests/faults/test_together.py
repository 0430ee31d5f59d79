"""Two processes on one sweep: both end well, and the result is that of one."""

import importlib.util
import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import benign as bo
from tests.faults.sweeps import ENVIRONMENT, contents, python
from tests.tiny import tiny, tiny_file

SWEEP = ("data.samples=[2, 3, 4, 5, 6, 7]", "training.stop_loss=0", "training.max_steps=200")
TAKING = importlib.util.find_spec("benign.sweep.taken") is not None

# `benign` that notes every unit it computes, by the keys of its runs.
COUNTING = """
import json, os, sys
from benign.sweep.store import Store
write = Store.write
def counted(store, key, *given):
    handle = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, (json.dumps(key) + "\\n").encode())
    os.close(handle)
    write(store, key, *given)
Store.write = counted
from benign.cli import main
import benign.perform, matplotlib.pyplot  # so that both begin together
print("ready", flush=True)
sys.stdin.readline()
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_that_begin_together(tmp_path, processes):
    tiny_file(tmp_path, *SWEEP)
    command = python("-c", COUNTING, "counts", "run", "tiny.yaml", "--workers", 1, "--out", "run")
    both = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    for process in both:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    told = [process.communicate(timeout=100) for process in both]
    assert [process.returncode for process in both] == [0] * processes, told
    whole = tiny(*SWEEP).run(tmp_path / "whole")
    assert bo.open_result(tmp_path / "run").identical(whole)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    counts = counted(tmp_path / "counts")
    print(f"\n{processes} processes, {len(counts)} units, computed {sum(counts.values())} times")
    assert counts.keys() == contents(tmp_path / "whole").keys()
    if TAKING:
        assert set(counts.values()) == {1}


def counted(path: Path) -> Counter[str]:
    """How often each unit was recorded."""
    return Counter(map(json.loads, path.read_text().splitlines()))
