"""A unit belongs to the process that took it, until that process is dead."""

import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benign.sweep.lease import Lease, acquire, leases_in, release
from benign.sweep.store import Store, sealed
from tests.says import holds

KEY = "0" * 32


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store", create=True)


def write(store: Store, lease: Lease) -> None:
    (store.folder / "taken").mkdir(exist_ok=True)
    (store.folder / "taken" / f"{KEY}.json").write_bytes(sealed(asdict(lease)))


def mine(store: Store) -> Lease:
    assert acquire(store, KEY) is None
    return leases_in(store)[KEY]


def test_who_took_a_unit_keeps_it(store):
    me = mine(store)
    assert (me.host, me.pid) == (socket.gethostname(), os.getpid())
    assert abs(me.since - time.time()) < 60
    assert me.alive()
    assert acquire(store, KEY) == me
    assert acquire(store, KEY, steal=True) == me, "it is alive on this host"
    release(store, KEY)
    assert leases_in(store) == {}
    assert acquire(store, KEY) is None


def test_a_dead_process_has_no_unit(store):
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    me = mine(store)
    write(store, replace(me, pid=process.pid))
    assert leases_in(store)[KEY].alive() is False
    assert acquire(store, KEY) is None
    assert leases_in(store)[KEY].pid == os.getpid()


def test_another_process_of_the_same_number_is_not_the_one_that_took_it(store):
    write(store, replace(mine(store), started="long ago"))
    assert acquire(store, KEY) is None


def test_of_another_host_only_a_person_knows(store):
    other = replace(mine(store), host="far away")
    write(store, other)
    assert other.alive() is None
    assert acquire(store, KEY) == other
    assert holds(str(other), "far away", str(os.getpid()), " 20")
    assert acquire(store, KEY, steal=True) is None
    assert leases_in(store)[KEY].host == socket.gethostname()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"host": 1, "pid": "../1", "started": "", "since": 0.0}',
        b"\xff" * 9,
        *(
            sealed({"host": "far away", "pid": 1, "started": "1", "since": 1.0} | more)
            for more in (
                {"pid": -1},
                {"pid": 0},
                {"pid": True},
                {"pid": 10**40},
                {"since": 1e300},
                {"since": -1.0},
                {"since": 1},
                {"host": 1},
                {"host": "\ud800"},
                {"started": None},
                {"more": 1},
            )
        ),
        sealed({"host": "far away", "pid": 1, "started": "1", "since": 1.0}).replace(
            b"1.0", b"2.0"
        ),
    ],
)
def test_what_no_process_wrote_holds_no_unit(store, content):
    me = mine(store)
    (store.folder / "taken" / f"{KEY}.json").write_bytes(content)
    assert leases_in(store) == {}
    assert acquire(store, KEY) is None
    assert leases_in(store)[KEY].pid == me.pid
