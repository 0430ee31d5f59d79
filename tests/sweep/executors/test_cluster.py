"""A cluster that cannot compute the units is refused before any work, with what would help."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distributed
import pytest

from benign.sweep.executors import cluster as clusters
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.executors.cluster import cluster
from tests.faults.sweeps import contents
from tests.says import holds, says
from tests.tiny import tiny


@contextmanager
def there(**options: Any) -> Iterator[str]:
    """A cluster inside this process; gives its address."""
    how = {"processes": False, "dashboard_address": None, "protocol": "tcp", **options}
    found: Any = distributed.LocalCluster(**how)
    with found:
        yield found.scheduler_address


def refused(where: str, device: str = "cpu") -> str:
    with (
        pytest.raises(ValueError, match=says(where, "dask worker")) as caught,
        cluster(ExecutionConfig(device, 1, where)),
    ):
        pass
    return str(caught.value)


def test_a_cluster_without_workers_is_refused(monkeypatch):
    monkeypatch.setattr(clusters, "PATIENCE", 1)
    with there(n_workers=0) as where:
        command = f"dask worker {where} --nworkers N --nthreads 1"
        assert holds(refused(where), f"{where} ", "workers", command)


def test_workers_of_several_threads_are_refused():
    with there(n_workers=1, threads_per_worker=2) as where:
        assert holds(refused(where), "workers", "threads", f"dask worker {where} ", "--nthreads 1")


def test_units_for_a_gpu_need_workers_that_declare_one():
    with there(n_workers=2, threads_per_worker=1) as where:
        assert refused(where, "cuda").endswith("--nthreads 1 --resources GPU=1")
    with (
        there(n_workers=2, threads_per_worker=1, resources={"GPU": 1}) as where,
        cluster(ExecutionConfig("cuda", 1, where)) as executor,
    ):
        assert executor.size == 2  # none waits at a worker


def test_a_second_unit_a_worker_waits_at_the_scheduler():
    with (
        there(n_workers=2, threads_per_worker=1) as where,
        cluster(ExecutionConfig("cpu", 1, where)) as executor,
    ):
        assert executor.size == 4


def test_units_of_a_cluster_are_those_of_this_process(tmp_path):
    """What tests/faults/test_dask.py asks of workers that are killed, of workers that live."""
    changes = "data.samples=[2, 4, 6]"
    whole = tiny(changes).run(tmp_path / "whole")
    tiny().run(tmp_path / "run")
    with there(n_workers=2, threads_per_worker=1) as where:
        result = tiny(changes).run(tmp_path / "run", executor=where)
    assert result.identical(whole)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
