"""What tests of faults share: a sweep of three units, the command line, and what a store holds."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benign.sweep.store import Store

ROOT = Path(__file__).parents[2]
THREE_UNITS = "data.samples=[2, 4, 6]"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def python(*arguments: Any) -> list[str]:
    return [sys.executable, *map(str, arguments)]


def typed(*arguments: Any, **how: Any) -> subprocess.CompletedProcess[str]:
    """`benign` with these arguments, in a fresh process."""
    options = {"capture_output": True, "text": True, "env": ENVIRONMENT, "timeout": 100, **how}
    return subprocess.run(python("-m", "benign", *arguments), check=False, **options)


def contents(folder: Path) -> dict[str, dict[str, tuple[str, tuple[int, ...], bytes]]]:
    """Every array of every record, the keys of its runs among them, to the byte; no record may be damaged."""
    store = Store.open(folder, writing=False)
    found = {
        key: {
            name: (array.dtype.str, array.shape, array.tobytes())
            for name, array in record.arrays.items()
        }
        for key, record in store.records()
    }
    assert not store.damaged
    return found


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Which file each record is, and of when: another once it is written again."""
    found = {path.name: path.stat() for path in (folder / "records").glob("[!.]*")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}
