"""Which record counts for a run: one rule for every reader of a store.

A run may be in several records: it failed here and was computed there, or stores of other batchings were
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

ENDED = (Status.CONVERGED, Status.STEP_CAP, Status.DIVERGED)
"""runs with these statuses ended properly, and are kept"""
RETRIED = (Status.FAILED, Status.OUT_OF_MEMORY)
"""runs with these statuses have a record and are computed again when the sweep is run again"""


class ResultWarning(UserWarning):
    """Something to know about a result before using it."""


class RunsFailed(ResultWarning):
    """Some runs of a result failed or had too little memory."""


@dataclass(frozen=True, slots=True)
class RunAt:
    """A run in a record."""

    status: Status
    names: frozenset[str]
    """the variables of its record"""
    meta: Mapping[str, Any]
    """how its record was made"""
    changed: frozenset[str]
    """the user's own code that has changed since"""

    @property
    def ended(self) -> bool:
        """Whether the run ended properly; a diverged run did."""
        return self.status in ENDED

    def lacks(self, run: Run) -> set[str]:
        """Return the variables of this run that were not measured."""
        return variables(run.cell).keys() - self.names

    def beats(self, other: "RunAt") -> bool:
        return self._rank() >= other._rank()

    def _rank(self) -> tuple[bool, bool, int]:
        return (not self.changed, self.ended, len(self.names))


class RunResolver:
    """Decides which record counts for each run, from the records in the order of their keys."""

    def __init__(self) -> None:
        self.runs: dict[str, RunAt] = {}

    def add(self, record: Record) -> list[tuple[int, str]]:
        """Add a record. Return its rows that count so far, each with the key of its run."""
        names = record.names
        changed_parts = changed(record.meta.get("code") or {})
        statuses = {
            code: RunAt(Status(code), names, record.meta, changed_parts)
            for code in np.unique(record.arrays["status"]).tolist()
        }
        keys = record.arrays["run"].tolist()
        runs = [statuses[code] for code in record.arrays["status"].tolist()]
        if self.runs.keys().isdisjoint(keys):  # nearly always
            self.runs.update(zip(keys, runs, strict=True))
            return list(enumerate(keys))
        rows = []
        for row, (key, at) in enumerate(zip(keys, runs, strict=True)):
            other = self.runs.get(key)
            if other is None or at.beats(other):
                self.runs[key] = at
                rows.append((row, key))
        return rows


def runs_in(records: Iterable[Record]) -> dict[str, RunAt]:
    """Return the runs that records hold, by key."""
    resolver = RunResolver()
    for record in records:
        resolver.add(record)
    return resolver.runs


def outdoes(new: Record, old: Record) -> bool:
    """Return whether more runs ended properly in the new record, those of the old one among them."""
    before, after = (
        set(record.arrays["run"][np.isin(record.arrays["status"], ENDED)].tolist())
        for record in (old, new)
    )
    return before < after


def unfinished(
    units: Iterable[Unit], recorded: Mapping[str, RunAt], recompute: bool = False
) -> list[Unit]:
    """Return the units with a run that is still to be computed.

    With `recompute` these include runs whose code has changed and runs that lack a variable.
    """

    def done(run: Run) -> bool:
        at = recorded.get(run.key)
        if at is None or not at.ended:
            return False
        return not (recompute and (at.changed or at.lacks(run)))

    return [unit for unit in units if not all(map(done, unit.runs))]


def failures(runs: Iterable[RunAt]) -> Counter[str]:
    """Return the errors of failed runs, with the number of runs; of runs without an error text the status."""
    failed = (at for at in runs if at.status in RETRIED)
    return Counter(str(at.meta.get("error") or "").strip() or at.status.label for at in failed)


def changed_code(runs: Iterable[RunAt]) -> Counter[str]:
    """Return the user's own code that has changed since runs were finished, with the number of these runs."""
    return Counter(name for at in runs if at.ended for name in at.changed)


def damage(damaged: Collection[str]) -> str:
    """Return a note about damaged records; empty if there are none."""
    return f"{len(damaged)} damaged records will be computed again" if damaged else ""


def other_versions(recorded: Mapping[str, RunAt], known: Collection[str]) -> str:
    """Return a note about runs whose keys are not among the `known` ones; empty if there are none."""
    others = [at.meta for key, at in recorded.items() if key not in known]
    if not others:
        return ""
    versions = sorted({_version(meta) for meta in others})
    return (
        f"{len(others)} runs there were made by {', '.join(versions)}, whose results may differ from those of "
        f"benign {__version__} (numerics {NUMERICS}): they are not used, running computes them again and keeps the "
        "old ones; to open the old ones use that version"
    )


def _version(meta: Mapping[str, Any]) -> str:
    if "benign" not in meta:
        return "an earlier benign"
    return f"benign {meta['benign']} (numerics {meta.get('numerics')})"
