"""The folder of data: where image sets lie on this machine, and how new ones get there."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "BENIGN_DATA"
"""names the folder; `--data` sets it, so that worker processes look in the same place"""


def data_folder() -> Path:
    """The folder that `BENIGN_DATA` names, or the user's cache."""
    if named := os.environ.get(VARIABLE):
        return Path(os.path.expanduser(named))
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "benign" / "data"


def use_folder(folder: Path) -> None:
    """Look for data there, in this process and in those it starts."""
    os.environ[VARIABLE] = os.path.abspath(folder)


@contextmanager
def arriving(parts: tuple[str, ...]) -> Iterator[Path]:
    """A folder to fill with these parts, files or folders; if that goes well they are moved to the folder of data."""
    folder = data_folder()
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".arriving-", dir=folder))
    try:
        yield place
        for part in parts:
            if (folder / part).exists():  # what was there goes with the temporary folder
                os.replace(folder / part, place / f"former-{part}")
            os.replace(place / part, folder / part)
    finally:
        shutil.rmtree(place, ignore_errors=True)
