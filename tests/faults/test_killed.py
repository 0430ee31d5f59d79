"""kill -9 at every write and at random moments: the next run completes the sweep, identical, and repeats nothing."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.faults.sweeps import ENVIRONMENT, THREE_UNITS, contents, python
from tests.tiny import tiny, tiny_file

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs fork and SIGKILL")


def deaths(folder: Path, how: str, step: int) -> list[dict]:
    """Return the report of tests/faults/dying.py on each killed sweep."""
    tiny_file(folder, THREE_UNITS)
    script = python(Path(__file__).with_name("dying.py"), how, "tiny.yaml", "out", step)
    done = subprocess.run(
        script, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()][1:]


def check(out: Path, reports: list[dict], by: str) -> None:
    whole = contents(out / "whole")
    assert len(whole) == 3
    names = {f"{unit.key}.npz" for unit in tiny(THREE_UNITS).units()}
    for turn, each in enumerate(reports):
        assert each["second"] == 0, (out / f"{turn}.log").read_text()
        assert "Traceback" not in (out / f"{turn}.log").read_text()
        assert set(each["then"]) == names
        assert each["kept"] == {name: each["then"][name] for name in each["kept"]}
        assert contents(out / str(turn)) == whole
    killed = [each for each in reports if each["first"] == -signal.SIGKILL]
    kept, left = (sum(len(each["kept"]) for each in killed), sum(e["temporary"] for e in killed))
    print(
        f"\n{len(killed)} sweeps killed {by}: all completed and identical; {kept} records were there and stayed, "
        f"{left} half-written files left aside"
    )


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_killed_at_a_write(tmp_path, step):
    reports = deaths(tmp_path, "points", step)
    check(tmp_path / "out", reports, f"at every {step}. write" if step > 1 else "at every write")
    *killed, last = [each["first"] for each in reports]
    assert set(killed) == {-signal.SIGKILL}
    assert last == 0
    assert len(killed) * step > 30  # every record is opened, written, synced, renamed and synced


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_a_random_moment(tmp_path):
    reports = deaths(tmp_path, "moments", 50)
    check(tmp_path / "out", reports, "at random moments")
    assert [each["first"] for each in reports].count(-signal.SIGKILL) == 50
