"""A disk that is full or read-only, and a clock that jumps: nothing finished is lost, and nothing is half there."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from benign.cli import main as cli
from benign.sweep.folders import open_experiment
from benign.sweep.records import replacing, temporary_name
from benign.sweep.runner import Runner
from benign.sweep.store import Store
from tests.faults.sweeps import THREE_UNITS, contents, files
from tests.says import holds
from tests.tiny import tiny, tiny_file

YEAR = 365 * 86400.0
SMALL = "1m"
SWEEP = tiny(THREE_UNITS, "training.max_steps=2", "evaluation.samples=2", "seeds=1")


def mount(*arguments: str | Path) -> None:
    if os.name == "nt" or os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root mounts a small disk")
    done = subprocess.run(
        ["mount", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path):
    """A small disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", folder)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """`benign run` of the sweep on the disk: its exit code and the last line of stderr."""
    monkeypatch.chdir(tmp_path)
    tiny_file(tmp_path, THREE_UNITS)

    def command(*arguments: str) -> tuple[int, str]:
        code = cli.main(["run", "tiny.yaml", "--workers", "1", "--out", "disk/run", *arguments])
        err = capsys.readouterr().err
        assert "Traceback" not in err
        return code, (err.splitlines() or [""])[-1]

    return command


def filled(folder: Path, left: int) -> Path:
    """A file that leaves so many bytes of the disk free."""
    path = folder / "ballast"
    disk = os.statvfs(folder)
    path.write_bytes(bytes(disk.f_bavail * disk.f_frsize - left))
    return path


def test_a_full_disk(disk, run, tmp_path):
    """A record has 30 kB: the first fits, the second does not."""
    ballast = filled(disk, 60_000)
    code, message = run()
    assert code == 1
    assert message.startswith("benign: disk/run/records/")
    assert message.endswith(".npz: No space left on device")
    kept = files(disk / "run")
    assert len(kept) == 1
    assert len(contents(disk / "run")) == 1
    assert not list(disk.rglob(".*.tmp"))
    ballast.unlink()
    assert run()[0] == 0
    assert kept.items() <= files(disk / "run").items()
    tiny(THREE_UNITS).run(tmp_path / "whole")
    assert contents(disk / "run") == contents(tmp_path / "whole")
    print(
        f"\ndisk of {SMALL} full after 1 of 3 records: reported, 1 kept; 3 identical once there is space"
    )


def test_a_disk_without_space_for_a_byte_is_refused_before_any_work(disk, run):
    filled(disk, 0)
    code, message = run()
    assert code == 2
    assert holds(message, "disk/run", "(No space left on device)", "folder")


def test_a_read_only_disk_is_refused_before_any_work(disk, run):
    Runner(tiny(THREE_UNITS), disk / "run")
    mount("-o", "remount,ro", disk)
    begin = time.perf_counter()
    code, message = run()
    assert code == 2
    assert holds(message, "disk/run", "(Read-only file system)")
    print(f"\nread-only disk reported after {time.perf_counter() - begin:.2f} s")
    with pytest.raises(OSError, match="Read-only"):
        (disk / "run" / "x").touch()
    assert open_experiment(disk / "run") == tiny(THREE_UNITS)  # reading needs no writing
    mount("-o", "remount,rw", disk)


def set_time(path: Path, when: float) -> None:
    os.utime(path, (when, when))


def test_a_clock_that_jumps(tmp_path, monkeypatch):
    """While a process writes, its clock or that of the disk goes a year back and forth."""
    folder, now, clock = tmp_path / "run", time.time(), time.time
    before = SWEEP.run(folder)
    kept, other = files(folder), folder / "records" / f"{'0' * 32}.npz"
    for jump in (-YEAR, YEAR, 0):
        with replacing(other) as file:
            file.write(b"whole")
            [half] = folder.rglob(".*.tmp")
            set_time(half, now - jump)
            monkeypatch.setattr(time, "time", lambda jump=jump: clock() + jump)
            assert SWEEP.run(folder).identical(before)
            assert half.exists()
        assert other.read_bytes() == b"whole"
        other.unlink()
        assert files(folder) == kept


def test_files_of_another_year(tmp_path):
    """Nothing is decided by the time of a file, but whether a killed process left it behind."""
    folder = tmp_path / "run"
    before = SWEEP.run(folder)
    for jump in (-YEAR, YEAR):
        for path in folder.rglob("*"):
            set_time(path, time.time() + jump)
        kept = files(folder)
        assert SWEEP.run(folder).identical(before)
        assert files(folder) == kept
    dead = temporary_name(folder / "records" / f"{'0' * 32}.npz")
    for age, stays in ((-YEAR, True), (0, True), (YEAR, False)):
        dead.write_bytes(b"half")
        set_time(dead, time.time() - age)
        Store.open(folder)
        assert dead.exists() == stays
