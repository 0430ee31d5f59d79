"""Which record counts for a run: one rule for all who read a store.

A run may stand in several records: it failed here and was computed there, or stores of other batchings were
merged. A record of today's code beats one of the user's earlier code, a run that ended properly beats one that
failed, one with more variables beats one with fewer, and of equals the last in the order of keys counts.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benign import __version__
from benign.sweep.own_code import changed
from benign.sweep.plan import NUMERICS, Run, Unit
from benign.sweep.records import Record
from benign.training.descent import Status
from benign.training.metrics import variables

RETRIED = (Status.FAILED, Status.OUT_OF_MEMORY)
"""runs that ended so are computed again when the sweep is run again"""


class ResultWarning(UserWarning):
    """What one should know of a result before using it."""


class RunsFailed(ResultWarning):
    """Some runs of a result failed or had too little memory."""


@dataclass(frozen=True, slots=True)
class RunAt:
    """A run as a record holds it."""

    status: Status
    names: frozenset[str]
    """the variables of its record"""
    meta: Mapping[str, Any]
    """what its record tells of how it was made"""
    changed: frozenset[str]
    """code of the user's own that is another today"""

    @property
    def ended(self) -> bool:
        """Whether the run ended properly; a diverged one did."""
        return self.status not in RETRIED

    def lacks(self, run: Run) -> set[str]:
        """The variables of this run that were not measured."""
        return variables(run.cell).keys() - self.names

    def beats(self, other: "RunAt") -> bool:
        return self._rank() >= other._rank()

    def _rank(self) -> tuple[bool, bool, int]:
        return (not self.changed, self.ended, len(self.names))


class RunResolver:
    """The runs found while records are looked at one after another, in the order of their keys."""

    def __init__(self) -> None:
        self.runs: dict[str, RunAt] = {}

    def take(self, record: Record) -> list[tuple[int, str]]:
        """Note a record; its rows, with the keys of their runs, that count unless a later record beats them."""
        names = record.names
        otherwise = changed(record.meta.get("code") or {})
        statuses = {
            code: RunAt(Status(code), names, record.meta, otherwise)
            for code in np.unique(record.arrays["status"]).tolist()
        }
        keys = record.arrays["run"].tolist()
        found = [statuses[code] for code in record.arrays["status"].tolist()]
        if self.runs.keys().isdisjoint(keys):  # nearly always
            self.runs.update(zip(keys, found, strict=True))
            return list(enumerate(keys))
        rows = []
        for row, (key, at) in enumerate(zip(keys, found, strict=True)):
            other = self.runs.get(key)
            if other is None or at.beats(other):
                self.runs[key] = at
                rows.append((row, key))
        return rows


def runs_in(records: Iterable[Record]) -> dict[str, RunAt]:
    """The runs that records hold, by key."""
    counting = RunResolver()
    for record in records:
        counting.take(record)
    return counting.runs


def outdoes(new: Record, old: Record) -> bool:
    """Whether all runs that ended properly in the old record did so in the new one, and more."""
    before, after = (_ended(record) for record in (old, new))
    return before < after


def _ended(record: Record) -> set[str]:
    return set(record.arrays["run"][~np.isin(record.arrays["status"], RETRIED)].tolist())


def unfinished(
    units: Iterable[Unit], held: Mapping[str, RunAt], recompute: bool = False
) -> list[Unit]:
    """The units with a run that is still to be computed; with `recompute` also one whose code has changed since or
    that lacks a variable."""

    def done(run: Run) -> bool:
        at = held.get(run.key)
        if at is None or not at.ended:
            return False
        return not (recompute and (at.changed or at.lacks(run)))

    return [unit for unit in units if not all(map(done, unit.runs))]


def failures(found: Iterable[RunAt]) -> Counter[str]:
    """What made runs fail, and how many."""
    texts = (str(at.meta.get("error") or "").strip() for at in found if not at.ended)
    return Counter(text or "out of memory" for text in texts)


def changed_code(found: Iterable[RunAt]) -> Counter[str]:
    """The user's own code that has changed since finished runs were made, and the number of these."""
    return Counter(name for at in found if at.ended for name in at.changed)


def damage(damaged: Collection[str]) -> str:
    """What to know of damaged records; empty where there are none."""
    return f"{len(damaged)} damaged records will be computed again" if damaged else ""


def other_versions(held: Mapping[str, RunAt], known: Collection[str]) -> str:
    """What to know of runs that belong to none of the `known` ones; empty where there are none."""
    strangers = [at.meta for key, at in held.items() if key not in known]
    if not strangers:
        return ""
    versions = sorted({_version(meta) for meta in strangers})
    return (
        f"{len(strangers)} runs there were made by {', '.join(versions)}, whose results may differ from those of "
        f"benign {__version__} (numerics {NUMERICS}): they are left aside, running computes them again beside the "
        "old; to look at the old ones use that version"
    )


def _version(meta: Mapping[str, Any]) -> str:
    if "benign" not in meta:
        return "an earlier benign"
    return f"benign {meta['benign']} (numerics {meta.get('numerics')})"
