"""The folder of image sets on this machine. A module of its own, so that the command line need not import torch."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "BENIGN_DATA"
"""environment variable with the folder; `--data` sets it, so that worker processes use the same folder"""


def data_folder() -> Path:
    """Return the folder that `BENIGN_DATA` names, or a folder in the user's cache."""
    if named := os.environ.get(VARIABLE):
        return Path(os.path.expanduser(named))
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "benign" / "data"


def use_folder(folder: Path) -> None:
    """Use this folder, in this process and in the processes it starts."""
    os.environ[VARIABLE] = os.path.abspath(folder)


@contextmanager
def staging(paths: tuple[str, ...]) -> Iterator[Path]:
    """Yield a temporary folder to write these files or folders to; without an error they move to the folder of data."""
    folder = data_folder()
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".staging-", dir=folder))
    try:
        yield temporary
        for path in paths:
            if (folder / path).exists():  # the former one is deleted with the temporary folder
                os.replace(folder / path, temporary / f"former-{path}")
            os.replace(temporary / path, folder / path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
