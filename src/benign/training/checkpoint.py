"""Checkpoints: files from which a batch of runs goes on after its process has ended, and files of final weights.

Streams have no state, so a checkpoint holds numbers only: weights, moments of the optimiser, which runs are left, and
what has been measured. A resumed run is bitwise the run that was never stopped.
"""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from benign.networks.network import Params
from benign.spec.base import canonical
from benign.training.descent import Batch, Position

SECONDS = 120.0
"""between two checkpoints; BENIGN_CHECKPOINT_SECONDS changes it"""
FORMAT = 2
"""of the files; those of format 1 had no checksum"""
REFERENCE = "reference-"
"""beginning of the names of checkpoints of reference networks"""
IN_SLOTS = "slots-"
"""beginning of the names of checkpoints of runs that train in slots"""

NamedTensors = dict[str, Tensor]
"""tensors by name: `group/name`"""
T = TypeVar("T")


class DroppedCheckpoint(UserWarning):
    """A checkpoint could not be used, and its batch starts again."""


class CheckpointConfig(NamedTuple):
    """Folders for the files of a unit that are no results, and their origin: files of another origin are not used."""

    checkpoints: Path | None = None
    """a folder for interrupted trainings"""
    weights: Path | None = None
    """a folder for the final weights of every run"""
    numerics: int = 0
    code: str = ""
    """a digest of the user's own code and of whether steps are compiled"""


class Checkpoint:
    """The file of one batch. Without a path nothing is written."""

    def __init__(
        self,
        path: Path | None,
        runs: str,
        config: CheckpointConfig = CheckpointConfig(),  # noqa: B008
    ):
        self._path = path
        self._origin = {
            "format": FORMAT,
            "runs": runs,
            "numerics": config.numerics,
            "code": config.code,
        }
        self._every = float(os.environ.get("BENIGN_CHECKPOINT_SECONDS", SECONDS))
        self._last = time.monotonic()

    def due(self) -> bool:
        """Return whether enough time has passed since the last write."""
        return self._path is not None and time.monotonic() - self._last >= self._every

    def write(self, tensors: NamedTensors) -> None:
        """Replace the file atomically."""
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(f".{os.getpid()}.tmp")
        parts = {name: value.detach().contiguous().cpu() for name, value in tensors.items()}
        about = {**self._origin, "sha256": _checksum(parts, self._origin)}
        # In one entry: safetensors writes several in any order, but equal files should have equal bytes.
        save_file(parts, part, {"benign": canonical(about)})
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(self._path)
        self._last = time.monotonic()

    def resume(self, device: str, begin: Callable[[NamedTensors], T]) -> T | None:
        """Call `begin` with the tensors of the file and return its result, or None if there is no file.

        If anything is wrong with the file, warn and return None. `begin` raises before it changes anything.
        """
        if self._path is None:
            return None
        try:
            if not self._path.exists():
                return None
            tensors = read_checked(self._path, self._origin)
            return begin({name: part.to(device) for name, part in tensors.items()})
        except Exception as error:  # a file can be wrong in any way, and all it saves is time
            why = " ".join(str(error).split()) or type(error).__name__
            message = f"{self._path} cannot be used ({why}): its batch starts again at step 0"
            warnings.warn(message, DroppedCheckpoint, stacklevel=2)
            return None


def read_checked(path: Path, origin: Mapping[str, Any]) -> NamedTensors:
    """Return the tensors of a file. Raise ValueError unless it is intact and of this origin."""
    if not path.is_file():  # reading a pipe would never end
        raise ValueError("it is no file")
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get("benign", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        checksum = about.pop("sha256", None)
        intact = checksum == _checksum(tensors, about)
    except Exception as error:  # safetensors and json raise many kinds; all come from this file
        raise ValueError(f"it is damaged: {error}") from error
    if not checksum:
        raise ValueError("it has no checksum: an earlier version wrote it")
    if not intact:
        raise ValueError("it is damaged: its checksum does not fit its content")
    for name, wanted in origin.items():
        if about.get(name) != wanted:
            raise ValueError(f"its `{name}` is {about.get(name)!r} in place of {wanted!r}")
    return tensors


def fault_of(path: Path) -> str:
    """Return the problem of a file of a checkpoint or of weights, or an empty text."""
    try:
        runs = path.stem.removeprefix(REFERENCE).removeprefix(IN_SLOTS)
        read_checked(path, {"format": FORMAT, "runs": runs})
    except ValueError as error:
        return str(error)
    return ""


def read_weights(path: Path, numerics: int) -> NamedTensors:
    """Return the final weights of a run. Raise ValueError if they are damaged or of other numerics."""
    try:
        return read_checked(path, {"format": FORMAT, "runs": path.stem, "numerics": numerics})
    except ValueError as error:
        raise ValueError(
            f"{path} cannot be used ({error}): run again with keep_weights in another folder"
        ) from error


def _checksum(tensors: NamedTensors, about: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the origin and of names, types and shapes as a line of JSON, then of the tensors' bytes."""
    names = sorted(tensors)
    layout = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in names]
    checksum = hashlib.sha256(canonical([about, layout]).encode() + b"\n")
    for name in names:
        checksum.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return checksum.hexdigest()


def grouped(tensors: NamedTensors, group: str) -> NamedTensors:
    """Return the tensors of a group by their names in the group."""
    start = f"{group}/"
    return {
        name.removeprefix(start): part for name, part in tensors.items() if name.startswith(start)
    }


def named(group: str, parts: dict) -> NamedTensors:
    """Return tensors, or arrays, under the names of a group."""
    return {f"{group}/{name}": torch.as_tensor(part) for name, part in parts.items()}


def position_tensors(position: Position) -> NamedTensors:
    """Return the tensors from which a batch goes on at a position."""
    batch = position.batch
    reached = {} if position.reached is None else {"reached": position.reached}
    numbers = named("place", {"number": position.number, "index": batch.index, **reached})
    return numbers | named("weights", batch.raw_params) | named("moments", batch.moments)


def restored_position(start: Batch, tensors: NamedTensors, like: NamedTensors) -> Position:
    """Return the position of a batch in the tensors of a checkpoint; the batch has been drawn again at its start.

    Raise ValueError unless they hold a position of this batch and tensors of the names, shapes and types of `like`.
    """
    index, number = tensors["place/index"], int(tensors["place/number"])
    if not len(index) or not torch.equal(index, start.index[torch.isin(start.index, index)]):
        raise ValueError("it holds other runs than the batch")
    if not 0 <= number <= start.setup.training.most_steps():
        raise ValueError(f"it is of step {number}, which the batch does not have")
    batch, reached = start.select(torch.isin(start.index, index)), tensors.get("place/reached")
    if (reached is not None) != (number > 0 and start.batches_per_epoch > 1):
        raise ValueError("it has, or lacks, the loss of a step in mini-batches")
    if reached is not None and reached.shape != index.shape:
        raise ValueError("its `place/reached` has another shape")
    check_like(tensors, position_tensors(Position(batch, number, reached)) | like)
    fill(batch.raw_params, grouped(tensors, "weights"))
    fill(batch.moments, grouped(tensors, "moments"))
    return Position(batch, number, reached)


def check_like(tensors: NamedTensors, like: NamedTensors) -> None:
    """Raise ValueError unless both hold tensors of the same names, shapes and types."""
    if misfits := tensors.keys() ^ like.keys():
        raise ValueError(f"it lacks, or should not hold, {', '.join(sorted(misfits))}")
    for name, part in like.items():
        if (tensors[name].shape, tensors[name].dtype) != (part.shape, part.dtype):
            raise ValueError(f"its `{name}` has another shape or type")


def fill(parts: Params, values: Params) -> None:
    """Copy values into the parts of the same names."""
    for name, part in parts.items():
        part.copy_(values[name])
