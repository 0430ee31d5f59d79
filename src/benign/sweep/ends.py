"""Masked runs of a result, and both ends of its robust variables.

An attack bounds robust accuracy from above and the robust loss from below; a certificate bounds accuracy from below and
the loss from above. In a masked run training misled its attack, so that what attacks show may be far from the truth.
"""

import math
from typing import Literal

import xarray as xr

from benign.sweep.dataset import masked, masked_share
from benign.sweep.terminal import counted
from benign.training.metrics.audit import FLAGS, LEAST_RISE, MASKING, RISE

End = Literal["attacked", "certified", "masked runs certified", "unproven"]
"""which end of robust variables a result has: that of the attacks; that of the certificates; that of the attacks, with
the certificates' end in masked runs; or the trivial end, as if there were no certificates"""

ACCURACIES = ("robust_accuracy", "train_robust_accuracy")
ERRORS = ("robust_error", "robust_noisy_error")
LOSSES = ("robust_loss", "train_robust_loss")
"""first words of the names of variables that attacks bound"""
CERTIFIED = "_certified"

REASONS = {
    2: f"the evaluation attack raises their training loss by more than {100 * RISE:g} % and {LEAST_RISE:g}",
    32: "the evaluation attack is weaker than the training attack on fresh points",
}
"""why runs are masked, by the code of the flag"""
BY_LOSS = 6
"""the first numerics in which the audit compares training losses; before it compared accuracies"""


def at_end(result: xr.Dataset, end: End) -> xr.Dataset:
    """Return the result with its robust variables, in all runs or in masked ones, at an end; missing values stay."""
    if end == "attacked" or (end == "masked runs certified" and "audit" not in result):
        return result
    new = {}
    for name in map(str, result):
        proven = _proven(result, name, certificates=end != "unproven")
        if proven is not None:
            there = result[name].notnull()
            there = there & masked(result) if end == "masked runs certified" else there
            values = xr.where(there, proven, result[name]).transpose(*result[name].dims)
            new[name] = values.assign_attrs(result[name].attrs)
    return result.assign(new)


def _proven(result: xr.Dataset, name: str, certificates: bool) -> xr.DataArray | float | None:
    """Return what is proven for a variable on the side on which attacks prove nothing; None if no attack bounds it.

    Without a certificate that is an accuracy of 0, an error of 1, an infinite loss.
    """
    if name.endswith(CERTIFIED):
        return None
    for starts, trivial in ((ACCURACIES, 0.0), (ERRORS, 1.0), (LOSSES, math.inf)):
        for start in starts:
            if name.startswith(start):
                known = certificates and f"{start}{CERTIFIED}" in result
                return result[f"{start}{CERTIFIED}"] if known and "_curve" not in name else trivial
    return None


def masked_count(result: xr.Dataset) -> str:
    """Return how many runs are masked, and in how many cells, of those that have an audit; empty if none is."""
    count = int(masked(result).sum()) if "audit" in result else 0
    if not count:
        return ""
    audited, share = int(result["audit"].notnull().sum()), masked_share(result)
    cells = f"{int((share > 0).sum())} of {counted(int(share.notnull().sum()), 'cell')}"
    return (
        f"{count} of {counted(audited, 'audited run')} ({100 * count / audited:.0f} %), in {cells}"
    )


def masked_cells(result: xr.Dataset, name: str) -> xr.DataArray | None:
    """Return the share of masked runs of every cell, for marks in a map of a robust variable; None without any."""
    robust = _proven(result, name, certificates=False) is not None
    return masked_share(result) if robust and masked_count(result) else None


def masked_text(result: xr.Dataset) -> str:
    """Return a sentence about masked runs, the same in captions, pages and on the command line; empty if none is."""
    count = masked_count(result)
    if not count:
        return ""
    codes = result["audit"].fillna(0).astype(int)
    reasons = [text for code, text in REASONS.items() if ((codes & code) > 0).any()]
    if result.attrs.get("numerics", BY_LOSS) < BY_LOSS:
        reasons = [
            f"found by an older audit, which compared accuracies (numerics {result.attrs['numerics']})"
        ]
    return f"Masked runs: {count}; {', or '.join(reasons)}."


def other_doubts(result: xr.Dataset) -> str:
    """Return what else the audit found, with the number of runs; empty if nothing."""
    return flags_text(result, [code for code in FLAGS if not code & MASKING])


def flags_text(result: xr.Dataset, codes: list[int] | None = None) -> str:
    """Return the flags that runs have, all or some, with the number of these runs."""
    if "audit" not in result:
        return ""
    flags = result["audit"].fillna(0).astype(int)
    counts = {code: int(((flags & code) > 0).sum()) for code in (codes or FLAGS)}
    return "; ".join(
        f"{counted(count, 'run')}: {FLAGS[code].replace('_', ' ')}"
        for code, count in counts.items()
        if count
    )


def doubts(result: xr.Dataset) -> list[str]:
    """Return sentences about runs whose robust numbers are doubtful: masked runs first."""
    others = other_doubts(result)
    return list(filter(None, [masked_text(result), f"Flagged: {others}." if others else ""]))
