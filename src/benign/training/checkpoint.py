"""What a batch of runs needs to go on where it was, on disk: nothing of a long training is lost with its process.

Streams have no state, so that all there is to keep is numbers: weights, what updates remember, which runs are left,
what has been measured. A run that goes on from here is bitwise the run that was never stopped.
"""

import os
import time
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from benign.networks.network import Params
from benign.training.descent import Batch, Place

SECONDS = 120.0
"""between two checkpoints; BENIGN_CHECKPOINT_SECONDS changes it"""

Kept = dict[str, Tensor]
"""tensors by name: `group/name`"""


class Checkpoint:
    """The file of one batch. Without a path nothing is kept."""

    def __init__(self, path: Path | None, told: str):
        self._path, self._told = path, told
        self._every = float(os.environ.get("BENIGN_CHECKPOINT_SECONDS", SECONDS))
        self._last = time.monotonic()

    def due(self) -> bool:
        return self._path is not None and time.monotonic() - self._last >= self._every

    def write(self, kept: Kept) -> None:
        """Replace what is there: whole, or not at all."""
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(f".{os.getpid()}.tmp")
        parts = {name: value.detach().contiguous().cpu() for name, value in kept.items()}
        save_file(parts, part, {"told": self._told})
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(self._path)
        self._last = time.monotonic()

    def read(self, device: str) -> Kept | None:
        """What was kept of this very batch; None where there is nothing, or nothing that can be used."""
        if self._path is None or not self._path.exists():
            return None
        try:
            with safe_open(self._path, "pt", device=device) as file:
                if (file.metadata() or {}).get("told") != self._told:
                    return None
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError):  # cut off, or of another kind: the batch begins anew
            return None


def read_weights(path: Path) -> Kept:
    """The tensors of a file; ValueError where it is damaged."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error}): run again to write it anew") from error


def grouped(kept: Kept, group: str) -> Kept:
    """The tensors of a group by their own names."""
    start = f"{group}/"
    return {name.removeprefix(start): part for name, part in kept.items() if name.startswith(start)}


def named(group: str, parts: dict) -> Kept:
    """Tensors, or arrays, under the names of a group."""
    return {f"{group}/{name}": torch.as_tensor(part) for name, part in parts.items()}


def kept_place(here: Place) -> Kept:
    """What a batch needs to go on from a place."""
    reached = {} if here.reached is None else {"reached": here.reached}
    place = named("place", {"number": here.number, "index": here.batch.index, **reached})
    return place | named("weights", here.batch.held) | named("moments", here.batch.moments)


def found_place(start: Batch, kept: Kept) -> Place:
    """The place that was kept of a batch, which was drawn again at its start."""
    place = grouped(kept, "place")
    batch = start.select(torch.isin(start.index, place["index"]))
    fill(batch.held, grouped(kept, "weights"))
    fill(batch.moments, grouped(kept, "moments"))
    return Place(batch, int(place["number"]), place.get("reached"))


def fill(parts: Params, kept: Params) -> None:
    """Copy what was kept into parts, by name."""
    for name, part in parts.items():
        part.copy_(kept[name])
