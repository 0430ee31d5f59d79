"""Cores, memory and devices of this machine, and checks of what it cannot compute."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import torch

from benign.data.model import DataModel
from benign.reduction.modes import Sampled
from benign.spec.axes import replace
from benign.spec.base import canonical
from benign.training.engine import run_bytes
from benign.training.setup import Setup


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_of(device: str) -> int | None:
    """Return the bytes of memory of a device, or None if the system does not report them."""
    if device != "cpu":
        return torch.cuda.get_device_properties(device).total_memory
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_kills() -> int:
    """Return how many processes the system has killed for lack of memory, or 0 if it does not report them.

    They are counted in our group of processes if Linux does that, or else on the machine.
    """
    group = _text("/proc/self/cgroup").rpartition("::")[2].strip()
    for path in (f"/sys/fs/cgroup{group}/memory.events", "/proc/vmstat"):
        if line := re.search(r"^oom_kill (\d+)$", _text(path), re.MULTILINE):
            return int(line[1])
    return 0


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def check_machine(cells: Iterable[Setup], device: str, workers: int) -> None:
    """Raise ValueError if this machine cannot compute the cells."""
    check_device(device)
    cells = list(cells)
    check_memory(cells, device)
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, got {workers}")


def check_device(device: str) -> None:
    """Raise ValueError if there is no such device."""
    available = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if device not in available and not (device == "cuda" and len(available) > 1):
        none = device.startswith("cuda") and len(available) == 1
        why = "; torch sees no CUDA device" if none else ""
        raise ValueError(f"`device` must be one of {', '.join(available)}, got {device!r}{why}")


def check_memory(cells: Iterable[Setup], device: str) -> None:
    """Raise ValueError if one run is larger than the memory of the machine or of the GPU."""
    cell = max(cells, key=run_bytes)
    needed, there = run_bytes(cell), memory_of(device)
    if there and needed > there:
        data, other = cell.data, _smaller(cell, there)
        raise ValueError(
            f"one run with `dim` {data.dim}, `samples` {data.samples} and `tokens` {data.tokens} "
            f"needs about {needed // 2**30:,} GiB of memory, {device} has {there / 2**30:,.1f} GiB: "
            f"lower one of them{other}"
        )


class FilesMissing(ValueError):
    """Files that runs need are not on this machine, are damaged, or hold too few points."""


def check_data(cells: Iterable[Setup]) -> None:
    """Raise FilesMissing if data or published weights are not on this machine, or are too few."""
    try:
        _check_data(cells)
    except ValueError as error:
        raise FilesMissing(str(error)) from error


def _check_data(cells: Iterable[Setup]) -> None:
    wanted: dict[str, tuple[DataModel, int]] = {}
    for cell in cells:
        cell.network.require()
        if type(cell.data).require is not DataModel.require:
            tests, features = cell.evaluation.samples, cell.evaluation.features
            most = max(tests, features.samples if features else 0)
            wanted[canonical(cell.data.as_dict())] = (cell.data, most)
    for data, tests in wanted.values():
        data.require(tests)


def _smaller(cell: Setup, there: int) -> str:
    """Return the remedy: coordinates in which the run would fit, or the reason against them, or an empty text."""
    auto: Setup = replace(cell, {("coordinates",): "auto"})
    if run_bytes(auto) <= there:
        return f", or use `coordinates: {auto.space.mode}`"
    if auto.space.mode != "projected":
        return ""
    # Projected points are drawn in R^dim first.
    against = Sampled.why_not(cell.data, cell.network, cell.attack, cell.final_attack)
    return f", or use `coordinates: sampled`, which is not exact yet: {against}"
