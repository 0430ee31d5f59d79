"""How the runs behind a picture ended, in words."""

import numpy as np
import xarray as xr

from benign.training.descent import Status

WORDS = {
    Status.MISSING: "are missing",
    Status.STEP_CAP: "ended at the step cap",
    Status.DIVERGED: "diverged",
    Status.FAILED: "failed",
    Status.OUT_OF_MEMORY: "did not fit the memory",
}


def endings(result: xr.Dataset) -> str:
    """What a caption must say of runs that did not reach their loss; empty where all did.

    Runs at the step cap count in means like the others; the rest have no value.
    """
    status = result.status.values
    counts = {words: int(np.sum(status == code)) for code, words in WORDS.items()}
    told = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
    return f"Of {status.size} runs {told}." if told else ""
