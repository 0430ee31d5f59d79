"""A sweep that is killed, again and again: `python dying.py points|moments FILE OUT STEP`.

Every sweep is the command line in a process of its own, forked after the imports, which take ten times as long as a
tiny sweep. The first one, in OUT/whole, is left alone. Of each other, in OUT/0, OUT/1, ..., a first process dies by
SIGKILL, at its n-th write for n = STEP, 2 STEP, ... until it lives (`points`), or at a random moment until STEP have
died (`moments`), and a second one resumes. A line of JSON describes each; what a process
printed is in OUT/n.log.
"""

import builtins
import importlib
import io
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WARM = ("torch", "matplotlib.pyplot", "benign.cli.main", "benign.cli.run", "benign.papers.registry")


class Death:
    """Kills this process at its n-th write: before a file is opened, in the midst of its bytes, before it is on the
    disk, before it takes its name, before its folder is on the disk."""

    def __init__(self, at: int):
        self.left = at

    def comes(self) -> bool:
        self.left -= 1
        return self.left == 0

    def wrap(self, function: Callable) -> Callable:
        def wrapped(*given: Any, **named: Any) -> Any:
            if self.comes():
                _die()
            return function(*given, **named)

        return wrapped

    def set_up(self) -> None:
        plain, death = builtins.open, self

        class Dying(io.BufferedWriter):
            def write(self, data: Any) -> int:
                if death.comes():
                    super().write(bytes(data)[: len(data) // 2])
                    self.flush()
                    _die()
                return super().write(data)

        def opened(file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            if set(mode).isdisjoint("wxa+"):
                return plain(file, mode, *given, **named)
            if self.comes():
                _die()
            if mode == "xb":
                return Dying(io.FileIO(file, "x"))
            return plain(file, mode, *given, **named)

        builtins.open = opened
        for name in ("fsync", "replace", "rename", "mkdir", "unlink", "link"):
            setattr(os, name, self.wrap(getattr(os, name)))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def started(arguments: list[str], log: Path, before: Callable[[], None] = lambda: None) -> int:
    """The command line in a forked process; its number."""
    number = os.fork()
    if number:
        return number
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    from benign.cli.main import main

    before()
    code = main(arguments)
    sys.stdout.flush()
    os._exit(code)


def ended(number: int) -> int:
    """Waits for a process; its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def records(folder: Path) -> dict[str, list[int]]:
    """Which file each record is, and of when."""
    found = {path.name: path.stat() for path in (folder / "records").glob("[!.]*")}
    return {name: [stat.st_ino, stat.st_mtime_ns] for name, stat in found.items()}


def batches_per_epoch(
    how: str, seconds: float, step: int
) -> Iterator[tuple[Any, Callable, float | None]]:
    """Each way to die: what it is called, what to do before, and how long to wait."""
    if how == "points":
        for at in itertools.count(step, step):
            yield at, Death(at).set_up, None
    else:
        chance = random.Random(10)
        while True:
            moment = chance.uniform(0, seconds)
            yield round(moment, 3), lambda: None, moment


def main(how: str, file: str, out: Path, step: int) -> None:
    for name in WARM:
        importlib.import_module(name)
    out.mkdir(exist_ok=True)

    def command(folder: Path) -> list[str]:
        return ["run", file, "--workers", "1", "--out", str(folder)]

    begin = time.perf_counter()
    assert ended(started(command(out / "whole"), out / "whole.log")) == 0
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds}), flush=True)
    killed = 0
    for turn, (at, before, wait) in enumerate(batches_per_epoch(how, seconds, step)):
        folder, log = out / str(turn), out / f"{turn}.log"
        number = started(command(folder), log, before)
        if wait is not None:
            time.sleep(wait)
            os.kill(number, signal.SIGKILL)
        first = ended(number)
        kept = records(folder)
        left = len(list(folder.rglob(".*.tmp")))
        second = ended(started(command(folder), log))
        outcome = {"at": at, "first": first, "second": second, "kept": kept, "temporary": left}
        print(json.dumps({**outcome, "then": records(folder)}), flush=True)
        killed += first == -signal.SIGKILL
        if killed == step if how == "moments" else first == 0:
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
