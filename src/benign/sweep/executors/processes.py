"""How worker processes start. Imports nothing heavy, so that the command line can start the server at once.

A worker is forked from a server, a process of its own that has imported what workers need and has started no thread:
two workers begin after 0.1 s, where new interpreters need 4 s of imports on two cores. Forking the process of the user
would be as fast, but its threads (of torch, of a notebook) do not survive a fork. Windows has no fork: there every
worker is a new interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext

WORKER_MODULE = "benign.sweep.executors.local"
"""what the server imports"""
FORKS = "forkserver" in multiprocessing.get_all_start_methods()


def context() -> BaseContext:
    """Return the context in which worker processes start."""
    if not FORKS:
        return multiprocessing.get_context("spawn")
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload([WORKER_MODULE])
    return forking


def start_server() -> None:
    """Start the server, which imports while this process does other work. Does nothing if it runs."""
    if FORKS:
        from multiprocessing import forkserver

        context()
        with interrupts_wait():
            forkserver.ensure_running()


def set_environment(variables: dict[str, str]) -> None:
    """In a worker: take over the environment of the parent, which may have changed since the server started."""
    os.environ.clear()
    os.environ.update(variables)


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Delay ctrl-c, which reaches all processes of a terminal, so that only the parent reacts.

    A process started inside never receives one; the parent receives it afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # before: where it starts, interrupts come through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
