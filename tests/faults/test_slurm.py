"""A real SLURM of one node on loopback: a job is cancelled mid-way, another takes its place; complete and identical."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.sweeps import ENVIRONMENT, contents, files
from tests.faults.test_dask import LONGER, started, until
from tests.tiny import tiny, tiny_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]
HERE = Path(__file__).parent / "slurm"
STEPS = "training.max_steps=1000"
OPTIONS = """
jobs: 2
cores: 1
memory: 1GB
interface: lo
walltime: "00:20:00"
"""


@pytest.fixture
def slurm(tmp_path) -> Iterator[dict[str, str]]:
    """The environment in which `sbatch` sends to it."""
    if (
        os.name == "nt"
        or os.geteuid()
        or not (shutil.which("slurmctld") or shutil.which("apt-get"))
    ):
        pytest.skip("needs root, and SLURM or Debian's apt-get to install it")
    folder = tmp_path / "slurm"
    try:
        done = subprocess.run(
            [HERE / "setup.sh", folder], capture_output=True, text=True, check=False, timeout=200
        )
        if done.returncode:
            pytest.skip(f"SLURM cannot be started here: {done.stderr.strip()[-500:]}")
        yield {**ENVIRONMENT, "SLURM_CONF": str(folder / "slurm.conf")}
    finally:
        subprocess.run([HERE / "teardown.sh", folder], check=False, timeout=60)


def jobs(environment: dict[str, str]) -> list[str]:
    """Numbers of those that run."""
    command = ["squeue", "--noheader", "--states=RUNNING", "--format=%i"]
    return subprocess.check_output(command, env=environment, text=True).split()


def test_a_job_is_cancelled(tmp_path, slurm):
    file, out = tiny_file(tmp_path, *LONGER, STEPS), tmp_path / "out"
    (tmp_path / "slurm.yaml").write_text(OPTIONS)
    tiny(*LONGER, STEPS).run(tmp_path / "local")
    begun = time.monotonic()
    command = ["-m", "benign", "run", file, "--out", out, "--executor", "slurm"]
    how = {"cwd": tmp_path, "env": slurm, "stdout": subprocess.DEVNULL}
    with started(*command, **how) as driver:
        until(lambda: (len(files(out)) >= 1 and len(jobs(slurm)) == 2) or driver.poll() is not None)
        first, done = jobs(slurm), len(files(out))
        subprocess.run(["scancel", first[0]], env=slurm, check=True)
        until(lambda: set(jobs(slurm)) - set(first) or driver.poll() is not None)
        second = jobs(slurm)
        until(lambda: driver.poll() is not None)
    assert driver.returncode == 0
    assert contents(out) == contents(tmp_path / "local")
    until(lambda: not jobs(slurm))  # those we started end with the sweep
    print(
        f"\njob {first[0]} of {first} cancelled after {done} of {len(files(out))} units, then {second}: "
        f"complete and identical after {time.monotonic() - begun:.0f} s"
    )
