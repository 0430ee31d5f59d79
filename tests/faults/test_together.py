"""Two processes on one sweep: both end well, and the result is that of one."""

import importlib.util
import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import benign as bo
from tests.faults.sweeps import ENVIRONMENT, contents, python
from tests.tiny import tiny, tiny_file

SWEEP = ("data.samples=[2, 3, 4, 5, 6, 7]", "training.stop_loss=0", "training.max_steps=200")
TAKING = importlib.util.find_spec("benign.sweep.lease") is not None

# Some of `benign`, forked after the imports, that note every unit they compute by the keys of its runs.
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
from benign.cli.main import main
import benign.cli.run, matplotlib.pyplot
forked = []
for _ in range(int(sys.argv[2])):
    forked.append(os.fork())
    if not forked[-1]:
        os._exit(main(sys.argv[3:]))
print([os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in forked], file=sys.stderr)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs fork")
@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_that_begin_together(tmp_path, processes):
    tiny_file(tmp_path, *SWEEP)
    command = ["run", "tiny.yaml", "--workers", 1, "--out", "run"]
    done = subprocess.run(
        python("-c", COUNTING, "counts", processes, *command),
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stderr.splitlines()[-1] == str([0] * processes), done.stderr
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
