"""A cluster of Dask on loopback whose workers, and whose driving process, are killed: complete and identical."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from benign.cli.main import main
from benign.sweep.executors import cluster
from benign.sweep.executors.base import ExecutionConfig
from tests.faults.sweeps import ENVIRONMENT, contents, files, python, typed
from tests.says import holds, says
from tests.tiny import tiny, tiny_file

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL"),
    pytest.mark.timeout(400),  # a dozen processes import torch, on a machine that may be busy
]
LONGER = ["data.samples=[2, 3, 4, 5, 6, 7]", "training.max_steps=400"]
LONGER += ["training.stop_loss=1.0e-9"]
"""six units of a few tenths of a second"""
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@contextmanager
def started(*arguments: Any, **how: Any) -> Iterator[subprocess.Popen]:
    """A process of its own, ended with the block."""
    with subprocess.Popen(python(*arguments), **{"env": ENVIRONMENT, **how}) as process:
        try:
            yield process
        finally:
            process.kill()


def until(there: Callable[[], Any], seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


@contextmanager
def loopback(folder: Path, workers: int = 2, *more: str) -> Iterator[tuple[str, list]]:
    """The address of a scheduler, and its workers."""
    file = folder / "scheduler.json"
    with ExitStack() as stack:
        dask = ["-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", 0]
        dask += ["--no-dashboard", "--scheduler-file", file]
        stack.enter_context(started(*dask, cwd=folder, **QUIET))
        until(lambda: file.exists() and file.stat().st_size)
        dask = ["-m", "distributed.cli.dask_worker", "--scheduler-file", file, "--no-dashboard"]
        dask += ["--nthreads", 1, "--no-nanny", *more]
        there = [stack.enter_context(started(*dask, cwd=folder, **QUIET)) for _ in range(workers)]
        address = file.read_text().split('"address": "')[1].partition('"')[0]
        yield address, there


@pytest.mark.slow
def test_a_worker_and_then_the_driver_are_killed(tmp_path):
    out, file = tmp_path / "out", tiny_file(tmp_path, *LONGER)
    tiny(*LONGER).run(tmp_path / "local")
    with loopback(tmp_path) as (address, workers):
        command = ["-m", "benign", "run", file, "--out", out, "--executor", address]
        with started(*command, **QUIET) as driver:
            until(lambda: len(files(out)) >= 1 or driver.poll())
            workers[0].kill()
            until(lambda: len(files(out)) >= 3 or driver.poll())
            driver.send_signal(signal.SIGKILL)
        assert driver.returncode == -signal.SIGKILL
        before = files(out)
        command[-1] = tmp_path / "scheduler.json"
        assert main(list(map(str, command[2:]))) == 0
        assert workers[1].poll() is None  # a cluster that was joined stays
    assert contents(out) == contents(tmp_path / "local")
    after = files(out)
    assert {name: after[name] for name in before} == before
    print(f"\n{len(before)} of {len(after)} records were there when the driver was killed")


@pytest.mark.slow
def test_a_local_cluster_ends_a_unit_that_takes_too_long(tmp_path):
    changes = ["data.samples=[2, 4, 200000]", "training.stop_loss=1.0e-9"]
    file, out = tiny_file(tmp_path, *changes, "training.max_steps=200"), tmp_path / "out"
    tiny(*changes, "data.samples=[2, 4]", "training.max_steps=200").run(tmp_path / "local")
    how = ["--executor", "dask", "--workers", 2, "--unit-timeout", 4]
    done = typed("run", file, "--out", out, *how, timeout=200)
    assert done.returncode == 1
    assert holds(done.stderr, "4 s", "--unit-timeout")
    assert "Traceback" not in done.stderr
    small = contents(tmp_path / "local")
    assert {key: contents(out)[key] for key in small} == small


def test_nobody_there(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.3)
    file = str(tiny_file(tmp_path))
    where = "tcp://127.0.0.1:9"
    assert main(["run", file, "--out", str(tmp_path / "out"), "--executor", where]) == 1
    errors = capfd.readouterr().err
    assert holds(errors, where, "Dask", "0.3 s")
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("executor", "words"),
    [
        ("ray", ["`executor`", "dask", "slurm", "'ray'"]),
        ("slurm:no.yaml", ["no.yaml", "No such file"]),
        ("slurm:odd.yaml", ["odd.yaml", "coers, speed", "account, ", "cores"]),
        ("slurm:none.yaml", ["none.yaml", "`jobs`", " 0"]),
        ("tcp://host:port:", ["`executor`", "'tcp://host:port:'", "Dask"]),
    ],
)
def test_an_executor_that_cannot_be(executor, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("odd.yaml").write_text("coers: 2\nspeed: high")
    Path("none.yaml").write_text("jobs: 0")
    before = signal.getsignal(signal.SIGINT)
    with (
        pytest.raises(ValueError, match=says(*words)),
        cluster.cluster(ExecutionConfig(executor=executor)),
    ):
        pass
    assert signal.getsignal(signal.SIGINT) is before  # dask_jobqueue takes it
