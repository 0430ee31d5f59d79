"""A description of the machine and the speed of its matrix products; nothing that identifies a single machine."""

import importlib.util
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

CPU_INFO = Path("/proc/cpuinfo")


def uses_own_time(device: str, cores: int) -> bool:
    """Return whether the CPU time of a process is its duration: on one core, where no thread waits for another.

    What else the machine does moves it less than the time on the wall, but moves it: caches and memory are shared.
    """
    return device == "cpu" and cores == 1


def product_rate(device: str, cores: int) -> float:
    """Return the multiplications and additions per second of a large float32 matrix product, the best of several."""
    size, clock = 2048 if device == "cpu" else 8192, time.perf_counter
    if uses_own_time(device, cores):
        clock = time.process_time
    torch.set_num_threads(cores)
    a = torch.randn(size, size, device=device)
    times = []
    for _ in range(6):
        begin = clock()
        (a @ a)[0, 0].item()
        times.append(clock() - begin)
    return 2 * size**3 / min(times)


def facts(device: str, cores: int, peak: float) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else _processor(),
        "cores": cores,
        "clock": "CPU time" if uses_own_time(device, cores) else "wall",
        "torch": torch.__version__,
        "JAX": version("jax") if has_jax() else "not installed",
        "GFLOP/s of a large product": round(peak / 1e9),
        "load before": load(),
    }


def load() -> float | None:
    """Return the number of processes that ran or waited in the last minute."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def has_jax() -> bool:
    return importlib.util.find_spec("jax") is not None


def _processor() -> str:
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    named = (line.split(": ")[1] for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
