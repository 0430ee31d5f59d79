"""Rules that are frozen before runs: what decides about a claim, as data with a hash, kept in a file from the start.

    runs/verdicts/frozen.jsonl    a line of JSON for each event, never changed:
        {"event": "rule", "claim": ..., "scale": ..., "reading": ..., "data": ..., "runs": false, "time": ..., ...}
        {"event": "verdict", "claim": ..., "scale": ..., "reading": ..., "hash": ..., "time": ..., ...}

The data are never source text: to rename a statistic, to move it or to write its docstring anew changes no hash. What
code cannot say as data, that a statistic came to mean something else, is said by `Claim.version`, raised by hand.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benign import __version__
from benign.claims.claim import Claim, Direction
from benign.claims.measure import CONFIDENCE
from benign.claims.rule import as_data
from benign.claims.study import Reading
from benign.experiment import Experiment
from benign.spec.base import shortened
from benign.sweep.records import DamagedRecord, canonical_json, read_bytes
from benign.sweep.store import sealed, unsealed

LARGEST = 2**26
"""bytes of the file"""
LONGEST = 60
"""characters of a value in a remark"""
LADDER = (5, 10, 20, 40)
"""seeds of an inconclusive claim, one number after another, if `benign verify --ladder` asks for it"""
ERROR_RATE = 0.05
"""of all looks of a ladder together, and of a family of claims"""

Key = tuple[str, str, str]
"""claim, scale and reading"""


class FrozenError(ValueError):
    """A file of frozen rules that cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Rules:
    """What decides about a claim at a scale under a reading."""

    claim: str
    scale: str
    reading: Reading
    data: Mapping[str, Any]

    @property
    def key(self) -> Key:
        return self.claim, self.scale, canonical_json(dict(self.reading))

    @property
    def hash(self) -> str:
        """SHA-256 of the data as canonical JSON, in hex digits."""
        return hash_of(self.data)


@dataclass(frozen=True)
class Frozen:
    """What is known of the rules of a claim: their hash, and whether they were there before its runs."""

    hash: str
    """of the rules that judged"""
    first_seen: str
    """when rules of this claim were first recorded, or changed for the last time before there were runs"""
    changed: tuple[str, ...] = ()
    """what has changed since then although there were runs: one field each, from what to what"""
    late: bool = False
    """whether runs existed before any rule was recorded"""
    seeds: tuple[str, ...] = ()
    """studies with more seeds than the rules say, one line each: seeds that were added, outside a ladder"""

    def text(self) -> str:
        """Return a remark for the reader; empty if the rules were recorded before the runs and stayed."""
        parts = []
        if self.late:
            parts.append("runs existed before the rule was recorded")
        if self.changed:
            parts.append(f"the rule changed after runs existed: {'; '.join(self.changed)}")
        if self.seeds:
            parts.append(f"seeds were added, without a ladder: {'; '.join(self.seeds)}")
        return "; ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {
            "hash": self.hash,
            "first seen": self.first_seen,
            "changed": list(self.changed),
            "runs existed before": self.late,
            "seeds added": list(self.seeds),
        }


def rules_of(
    claim: Claim, scale: str, reading: Reading, experiments: Mapping[str, Experiment]
) -> Rules:
    """Return what decides about a claim, as data; `experiments` are those of its studies, by their names."""
    rules = claim.rule if isinstance(claim.rule, Mapping) else {"": claim.rule}
    data = {
        "id": claim.id,
        "version": claim.version,
        "kind": claim.kind.value,
        "derived": claim.derived,
        "of a figure": claim.of_a_figure,
        "has conditions": claim.conditions is not None,
        "rule": {name: rule.as_dict() for name, rule in rules.items()},
        "does not decide": sorted(claim.informational),
        "direction": _directions(claim.robust),
        "levels": {name: as_data(level) for name, level in claim.levels.items()},
        "confidence": CONFIDENCE,
        "scale": scale,
        "reading": dict(reading),
        "grid": {name: _grid(each) for name, each in experiments.items()},
        "seeds": {name: each.seeds for name, each in experiments.items()},
        "ladder": {"seeds": list(LADDER), "error rate": ERROR_RATE, "spent": "in equal parts"},
    }
    return Rules(claim.id, scale, dict(reading), data)


def hash_of(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of data as canonical JSON, in hex digits."""
    return hashlib.sha256(canonical_json(dict(data)).encode()).hexdigest()


def _directions(robust: Direction | Mapping[str, Direction] | None) -> dict[str, str]:
    directions = robust if isinstance(robust, Mapping) else {"": robust}
    return {name: each.value for name, each in directions.items() if each}


def _grid(experiment: Experiment) -> dict[str, Any]:
    """Return what identifies the runs of an experiment, without their seeds, as keys of records do."""
    return {name: value for name, value in experiment.identity().items() if name != "seeds"}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what differs between two data, in words: `levels accuracy from 0.75 to 0.8`."""
    before, after = _leaves(old), _leaves(new)
    texts = []
    for name in sorted({*before, *after}):
        if name not in before:
            texts.append(f"{name} is new: {_value(after[name])}")
        elif name not in after:
            texts.append(f"{name} is gone, it was {_value(before[name])}")
        elif before[name] != after[name]:
            first, second = _value(before[name]), _value(after[name])
            if first == second:  # too long to be shown in full
                first, second = f"{first} ({_digits(before[name])})", _digits(after[name])
            texts.append(f"{name} from {first} to {second}")
    return tuple(texts)


def _leaves(data: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return every value that is no dictionary, by the names that lead to it."""
    leaves: dict[str, Any] = {}
    for name, value in data.items():
        full = f"{path} {name}".strip()
        if isinstance(value, Mapping):
            leaves |= _leaves(value, full)
        else:
            leaves[full] = value
    return leaves


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _digits(value: Any) -> str:
    """Return the first digits of the hash of a value that is too long to be shown."""
    return f"sha256 {hash_of({'value': value})[:8]}"


@dataclass
class FrozenFile:
    """The file of the frozen rules of a folder. Processes may use it together: each adds whole lines, one at a time."""

    path: Path
    _marked: set[tuple[Key, str]] = field(default_factory=set)
    """rules that are known to have given a verdict"""

    def freeze(self, rules: Iterable[tuple[Rules, bool]]) -> dict[Key, Frozen]:
        """Record rules that are not the last recorded ones of their claim; each comes with whether it has runs.

        Return what is known of each, by its key.
        """
        rules = list(rules)
        with self._alone() as file:
            events = self._read()
            new = [
                _rule_event(each, runs)
                for each, runs in rules
                if _last_hash(events.get(each.key, [])) != each.hash
            ]
            self._append(file, new)
            for event in new:
                events.setdefault(_key(event), []).append(event)
        return {each.key: _known(each, events[each.key]) for each, _ in rules}

    def judged(self, rules: Rules) -> None:
        """Record that rules have given a verdict, once."""
        mark = (rules.key, rules.hash)
        if mark in self._marked:
            return
        with self._alone() as file:
            past = self._read().get(rules.key, [])
            if not any(e["event"] == "verdict" and e["hash"] == rules.hash for e in past):
                self._append(file, [_event("verdict", rules)])
        self._marked.add(mark)

    def _read(self) -> dict[Key, list[dict[str, Any]]]:
        """Return the events of each claim, in their order. A last line that a killed process left torn is ignored."""
        try:
            data = read_bytes(self.path, LARGEST)
        except FileNotFoundError:
            return {}
        except DamagedRecord as error:
            raise self._error(str(error)) from error
        whole = data.rpartition(b"\n")[0]
        events: dict[Key, list[dict[str, Any]]] = {}
        for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
            try:
                event = _checked(unsealed(line))
            except (DamagedRecord, ValueError) as error:
                raise self._error(f"line {number} {error}") from error
            events.setdefault(_key(event), []).append(event)
        return events

    def _error(self, problem: str) -> FrozenError:
        return FrozenError(
            f"{self.path}: {problem}; restore it from a copy, or move it away (verdicts then say that runs existed "
            "before the rule was recorded)"
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[int]:
        """Open the file for one process of this host at a time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_file()):
            raise self._error("it is a link or no file, and might lead anywhere")
        handle = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o666)
        try:
            with contextlib.suppress(ImportError, OSError):  # Windows; a file system without locks
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)

    def _append(self, handle: int, events: list[dict[str, Any]]) -> None:
        """Write whole lines at the end and wait until they are on the disk."""
        if not events:
            return
        size, data = os.fstat(handle).st_size, self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < size:  # a killed process left a torn line
            os.ftruncate(handle, whole)
        lines = b"".join(sealed(event) + b"\n" for event in events)
        try:
            while lines:
                lines = lines[os.write(handle, lines) :]
            os.fsync(handle)
        except OSError as error:
            error.filename = str(self.path)  # a full disk does not say where
            raise


def _event(event: str, rules: Rules) -> dict[str, Any]:
    return {
        "event": event,
        "claim": rules.claim,
        "scale": rules.scale,
        "reading": dict(rules.reading),
        "hash": rules.hash,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "benign": __version__,
    }


def _rule_event(rules: Rules, runs: bool) -> dict[str, Any]:
    return _event("rule", rules) | {"data": dict(rules.data), "runs": runs}


def _checked(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event whose checksum fits, if a version of benign could have written it."""
    kinds: dict[str, type] = {
        "event": str,
        "claim": str,
        "scale": str,
        "reading": dict,
        "hash": str,
        "time": str,
    }
    if event.get("event") == "rule":
        kinds |= {"data": dict, "runs": bool}
    wrong = [name for name, kind in kinds.items() if type(event.get(name)) is not kind]
    if wrong:
        raise ValueError(f"has no proper `{wrong[0]}`")
    if event["event"] not in ("rule", "verdict"):
        raise ValueError(f"has the unknown event {shortened(event['event'])!r}; update benign")
    if event["event"] == "rule" and hash_of(event["data"]) != event["hash"]:
        raise ValueError("has data of another hash")
    return event


def _key(event: Mapping[str, Any]) -> Key:
    return event["claim"], event["scale"], canonical_json(event["reading"])


def _last_hash(events: Iterable[Mapping[str, Any]]) -> str:
    """Return the hash of the rules that were recorded last; empty if there are none."""
    hashes = [event["hash"] for event in events if event["event"] == "rule"]
    return hashes[-1] if hashes else ""


def _known(rules: Rules, events: Iterable[Mapping[str, Any]]) -> Frozen:
    """Return what the events of a claim say of its rules: they count from the last ones before runs or a verdict."""
    first: Mapping[str, Any] | None = None
    late = started = False
    for event in events:
        if event["event"] == "verdict":
            started = True
        elif first is None:
            first, late = event, event["runs"]
            started = started or late
        elif event["runs"] or started:
            started = True
        else:
            first = event
    assert first is not None, "rules are recorded before they are asked for"
    changed = differences(first["data"], rules.data) if first["hash"] != rules.hash else ()
    return Frozen(rules.hash, first["time"], changed, late)
