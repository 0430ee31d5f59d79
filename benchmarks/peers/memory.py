"""The peak memory of a computation."""

import ctypes
import gc
import sys
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Meter:
    """A meter of the bytes above those in use when it was made.

    On a GPU what torch had allocated; on Linux what the process had resident; None elsewhere.
    """

    def __init__(self, device: str):
        self.device = device
        gc.collect()
        _give_back()
        self.before = self._now()

    def restart(self) -> None:
        """Forget the peak so far: drawing the points needs more than training on them."""
        gc.collect()
        if self.device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        elif STATUS.exists():
            CLEAR.write_text("5")  # resets VmHWM, see proc(5)

    def peak(self) -> int | None:
        if self.device != "cpu":
            return torch.cuda.max_memory_allocated() - (self.before or 0)
        return _resident("VmHWM") - (self.before or 0) if STATUS.exists() else None

    def _now(self) -> int | None:
        if self.device != "cpu":
            return torch.cuda.memory_allocated()
        return _resident("VmRSS") if STATUS.exists() else None


def _give_back() -> None:
    """Let the allocator return free memory; otherwise the next computation uses it and seems to need none."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
        if trim:
            trim(0)


def _resident(field: str) -> int:
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
