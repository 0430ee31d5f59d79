"""What a batch of runs needs to go on where it was, on disk: nothing of a long training is lost with its process.

Streams have no state, so that all there is to keep is numbers: weights, what updates remember, which runs are left,
what has been measured. A run that goes on from here is bitwise the run that was never stopped.
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
from benign.training.descent import Batch, Place

SECONDS = 120.0
"""between two checkpoints; BENIGN_CHECKPOINT_SECONDS changes it"""
FORMAT = 2
"""of the files; those of format 1 had no checksum"""
REFERENCE = "reference-"
"""begins the names of checkpoints of reference networks"""

NamedTensors = dict[str, Tensor]
"""tensors by name: `group/name`"""
T = TypeVar("T")


class DroppedCheckpoint(UserWarning):
    """A checkpoint could not be used, and its batch starts again."""


class CheckpointConfig(NamedTuple):
    """Where a unit keeps what is not a result, and what made these files: those of another origin are not used."""

    checkpoints: Path | None = None
    """a folder: what long trainings need to go on"""
    weights: Path | None = None
    """a folder: the final weights of every run"""
    numerics: int = 0
    code: str = ""
    """a digest of the user's own code, and of whether steps are compiled"""


class Checkpoint:
    """The file of one batch. Without a path nothing is kept."""

    def __init__(
        self,
        path: Path | None,
        runs: str,
        keeping: CheckpointConfig = CheckpointConfig(),  # noqa: B008
    ):
        self._path = path
        self._origin = {
            "format": FORMAT,
            "runs": runs,
            "numerics": keeping.numerics,
            "code": keeping.code,
        }
        self._every = float(os.environ.get("BENIGN_CHECKPOINT_SECONDS", SECONDS))
        self._last = time.monotonic()

    def due(self) -> bool:
        return self._path is not None and time.monotonic() - self._last >= self._every

    def write(self, kept: NamedTensors) -> None:
        """Replace what is there: whole, or not at all."""
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(f".{os.getpid()}.tmp")
        parts = {name: value.detach().contiguous().cpu() for name, value in kept.items()}
        about = {**self._origin, "sha256": _checksum(parts, self._origin)}
        # In one entry: safetensors writes several in any order, and equal files are to have equal bytes.
        save_file(parts, part, {"benign": canonical(about)})
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(self._path)
        self._last = time.monotonic()

    def resume(self, device: str, begin: Callable[[NamedTensors], T]) -> T | None:
        """What `begin` makes of the tensors that were kept of this very batch.

        None where there are none. None also, with a warning, where anything is wrong with them: `begin` raises
        before it changes anything.
        """
        if self._path is None:
            return None
        try:
            if not self._path.exists():
                return None
            kept = read_checked(self._path, self._origin)
            return begin({name: part.to(device) for name, part in kept.items()})
        except Exception as error:  # a file can be wrong in any way, and all it saves is time
            why = " ".join(str(error).split()) or type(error).__name__
            message = f"{self._path} cannot be used ({why}): its batch starts again at step 0"
            warnings.warn(message, DroppedCheckpoint, stacklevel=2)
            return None


def read_checked(path: Path, origin: Mapping[str, Any]) -> NamedTensors:
    """The tensors of a file; ValueError unless they are as they were written, by this origin."""
    if not path.is_file():  # a pipe would wait for ever
        raise ValueError("it is no file")
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get("benign", "{}"))
            kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        checksum = about.pop("sha256", None)
        intact = checksum == _checksum(kept, about)
    except Exception as error:  # of safetensors and json: nothing but this file went in
        raise ValueError(f"it is damaged: {error}") from error
    if not checksum:
        raise ValueError("it has no checksum: an earlier version wrote it")
    if not intact:
        raise ValueError("it is damaged: its checksum does not fit its content")
    for name, wanted in origin.items():
        if about.get(name) != wanted:
            raise ValueError(f"its `{name}` is {about.get(name)!r} in place of {wanted!r}")
    return kept


def fault_of(path: Path) -> str:
    """What is wrong with a file of a checkpoint or of weights; empty where nothing is."""
    try:
        read_checked(path, {"format": FORMAT, "runs": path.stem.removeprefix(REFERENCE)})
    except ValueError as error:
        return str(error)
    return ""


def read_weights(path: Path, numerics: int) -> NamedTensors:
    """The final weights of a run; ValueError where they are damaged or of other numerics."""
    try:
        return read_checked(path, {"format": FORMAT, "runs": path.stem, "numerics": numerics})
    except ValueError as error:
        raise ValueError(
            f"{path} cannot be used ({error}): run again with keep_weights in another folder"
        ) from error


def _checksum(kept: NamedTensors, about: Mapping[str, Any]) -> str:
    """SHA-256 of the origin and of the names, types and shapes as a line of JSON, then of the tensors' bytes."""
    names = sorted(kept)
    layout = [[name, str(kept[name].dtype), list(kept[name].shape)] for name in names]
    found = hashlib.sha256(canonical([about, layout]).encode() + b"\n")
    for name in names:
        found.update(kept[name].reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def grouped(kept: NamedTensors, group: str) -> NamedTensors:
    """The tensors of a group by their own names."""
    start = f"{group}/"
    return {name.removeprefix(start): part for name, part in kept.items() if name.startswith(start)}


def named(group: str, parts: dict) -> NamedTensors:
    """Tensors, or arrays, under the names of a group."""
    return {f"{group}/{name}": torch.as_tensor(part) for name, part in parts.items()}


def kept_place(here: Place) -> NamedTensors:
    """What a batch needs to go on from a place."""
    reached = {} if here.reached is None else {"reached": here.reached}
    place = named("place", {"number": here.number, "index": here.batch.index, **reached})
    return place | named("weights", here.batch.held) | named("moments", here.batch.moments)


def found_place(start: Batch, kept: NamedTensors, like: NamedTensors) -> Place:
    """The place that was kept of a batch, which was drawn again at its start.

    ValueError unless `kept` holds a place of this batch and tensors of the names, shapes and types of `like`.
    """
    index, number = kept["place/index"], int(kept["place/number"])
    if not len(index) or not torch.equal(index, start.index[torch.isin(start.index, index)]):
        raise ValueError("it holds other runs than the batch")
    if not 0 <= number <= start.setup.training.most_steps():
        raise ValueError(f"it is of step {number}, which the batch does not have")
    batch, reached = start.select(torch.isin(start.index, index)), kept.get("place/reached")
    if (reached is not None) != (number > 0 and start.batches_per_epoch > 1):
        raise ValueError("it has, or lacks, the loss of a step in mini-batches")
    if reached is not None and reached.shape != index.shape:
        raise ValueError("its `place/reached` has another shape")
    check_like(kept, kept_place(Place(batch, number, reached)) | like)
    fill(batch.held, grouped(kept, "weights"))
    fill(batch.moments, grouped(kept, "moments"))
    return Place(batch, number, reached)


def check_like(kept: NamedTensors, like: NamedTensors) -> None:
    """Raise ValueError unless both hold tensors of the same names, shapes and types."""
    if misfits := kept.keys() ^ like.keys():
        raise ValueError(f"it lacks, or should not hold, {', '.join(sorted(misfits))}")
    for name, part in like.items():
        if (kept[name].shape, kept[name].dtype) != (part.shape, part.dtype):
            raise ValueError(f"its `{name}` has another shape or type")


def fill(parts: Params, kept: Params) -> None:
    """Copy what was kept into parts, by name."""
    for name, part in parts.items():
        part.copy_(kept[name])
