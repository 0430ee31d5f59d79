"""Workers are forked from a server that has imported what they need, and otherwise begin as new processes do."""

import json
from pathlib import Path

import pytest

from benign.sweep.executors import processes
from tests.sweep.executors.test_local import scripted

pytestmark = pytest.mark.skipif(not processes.FORKS, reason="this system cannot fork")

SCRIPT = """
import sys
there = set(sys.modules)  # what a worker has before it imports anything

import json, os
from benign.sweep.executors import processes

def report(environment):
    processes.set_environment(environment)
    found = [name in there for name in ("torch", "benign.experiment", "benign.sweep.compute", "matplotlib")]
    with open("/proc/self/status") if os.path.exists("/proc/self/status") else open(os.devnull) as status:
        threads = [int(line.split()[1]) for line in status if line.startswith("Threads")]
    with open("found.json", "w") as file:
        json.dump([found, os.environ.get("LATER"), os.getcwd(), threads], file)

if __name__ == "__main__":
    assert not there & {"torch", "benign.sweep.executors.local"}, "the server alone imports"
    processes.start_server()
    os.environ["LATER"] = "set after the server has started"
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    worker = processes.context().Process(target=report, args=(dict(os.environ),))
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)
"""


def test_a_worker_begins_with_its_imports_done_in_the_place_and_environment_of_its_parent(
    tmp_path: Path,
):
    done = scripted(tmp_path, SCRIPT)
    assert done.returncode == 0, done.stderr
    found, later, place, threads = json.loads((tmp_path / "elsewhere" / "found.json").read_text())
    assert found == [True, True, True, False], (
        "matplotlib is for figures, which workers do not draw"
    )
    assert later == "set after the server has started"
    assert Path(place) == tmp_path / "elsewhere"
    assert set(threads) <= {1}, "a fork copies one thread only: the server must have no other"
