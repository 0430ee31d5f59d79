"""Flips single bits in every kind of file of a folder of results: detected or harmless, never another number.

    python scripts/flip_bits.py [FLIPS] [--seed SEED]

It makes a finished sweep and one whose process ended in the midst of its second unit, which left a checkpoint, a lease
and a note. Then FLIPS times (2160) it damages one file of a copy, and does what a user does: status, check, export,
resume, weights, and now and then the page of a report. Of every ten damages nine are one flipped bit; the tenth cuts
the file or zeroes a part of it. Records and weights are compared with undamaged ones by zipfile and numpy alone.

A damage is *detected* where something is reported, or refused, that is not for the undamaged folder, and *harmless*
where nothing is. `another number` and `traceback` are failures; each is printed, and the exit code is 1.
"""

import argparse
import csv
import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

import benign as bo
from benign.cli import main as cli
from benign.report.folder import ResultFolder
from benign.report.page import page
from benign.sweep import lease
from benign.sweep.folders import open_experiment
from benign.sweep.lease import leases_in
from benign.sweep.progress import Watcher
from benign.sweep.store import Store

SAMPLES, SIGNALS = [6, 8], [1.0, 3.0]
CELLS = list(product(SAMPLES, SIGNALS))
FIELDS = {
    "data": {"kind": "mixture", "samples": SAMPLES, "dim": 3, "signal": SIGNALS},
    "network": {"kind": "two_layer", "width": 2, "activation": "relu", "preset": "torch_default"},
    "training": {"kind": "adam_w", "rate": 0.01, "epochs": 4, "batch": 3, "stop_loss": 0.001},
    "evaluation": {"samples": 3},
}
LEFT_AT = 3
"""the step of the second unit at which the unfinished sweep ends"""
KINDS = {
    "record": "records/*.npz",
    "experiment.json": "experiment.json",
    "weights": "weights/*.safetensors",
    "checkpoint": "checkpoints/*/*.safetensors",
    "lease": "taken/*.json",
    "note": "taken/steps-*",
}
DETECTED, HARMLESS, WRONG, TRACEBACK = "detected", "harmless", "another number", "traceback"
OUTCOMES = (DETECTED, HARMLESS, WRONG, TRACEBACK)
PAGE_EVERY = 40
"""damages between two pages of a report, which takes as long as all the rest"""

Arrays = dict[str, tuple[str, tuple[int, ...], bytes]]


class AnotherNumber(Exception):
    """Something that a damaged folder gave, and that the undamaged one does not."""


def equal(value: Any, expected: Any, what: str) -> None:
    """Raise AnotherNumber unless both are the same."""
    if value != expected:
        raise AnotherNumber(what)


# The sweeps


class _Ending(Watcher):
    """Ends this process in the midst of the second unit, as a kill does."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def step(self, key: str, number: int, training: int) -> None:
        if key not in self.keys:
            self.keys.append(key)
        if len(self.keys) == 2 and number == LEFT_AT:
            os._exit(9)


def _leave_unfinished(folder: Path) -> None:
    os.environ["BENIGN_CHECKPOINT_SECONDS"] = "0"
    lease.NOTE_EVERY = 0.0
    bo.Experiment.from_dict(FIELDS).run(folder, watcher=_Ending(), keep_weights=True)


def make_sweeps(folder: Path) -> dict[str, Path]:
    """A finished sweep, and one that ended early."""
    made = {name: folder / name for name in ("finished", "unfinished")}
    bo.Experiment.from_dict(FIELDS).run(made["finished"], watcher=Watcher(), keep_weights=True)
    command = [sys.executable, __file__, "--leave-unfinished", str(made["unfinished"])]
    assert subprocess.run(command, check=False).returncode == 9
    missing = [kind for kind, names in KINDS.items() if not list(made["unfinished"].glob(names))]
    assert not missing, f"the unfinished sweep has no {missing}"
    return made


# What is there, without the package


def records_in(folder: Path) -> dict[str, Arrays]:
    """Every array of every record, by zipfile and numpy."""
    records: dict[str, Arrays] = {}
    for path in sorted((folder / "records").glob("*.npz")):
        with ZipFile(path) as archive:
            arrays = {
                name: np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        records[path.name] = {
            name: (each.dtype.str, each.shape, each.tobytes()) for name, each in arrays.items()
        }
    return records


def weights_in(path: Path) -> dict[str, bytes]:
    """The bytes of every tensor of a file, without safetensors."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    places = {name: part["data_offsets"] for name, part in header.items() if name[:2] != "__"}
    return {name: data[begin + place : begin + end] for name, (place, end) in places.items()}


# What a user does


@dataclass
class Used:
    """What the folder gave to somebody who used it."""

    reports: list[str] = field(default_factory=list)
    """warnings, refusals and faults, in the order of use"""
    status: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, str]] = field(default_factory=list)
    """of the exported table"""
    taken: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    page: str = ""
    records: dict[str, Arrays] = field(default_factory=dict)
    """after the sweep was resumed"""
    weights: dict[tuple[Any, ...], dict[str, bytes]] = field(default_factory=dict)

    def command(self, *words: str) -> str:
        """What a command prints; how it failed, and what it complained of, is a report."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = cli.main(list(words))
        if code or err.getvalue():
            self.reports.append(f"{words[0]}: {code} {err.getvalue()}")
        return "" if code else out.getvalue()


def use(folder: Path, with_page: bool = False) -> Used:
    """Do what a user does with a folder: only refusals are caught, as the command line does."""
    used = Used()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _read(folder, used, with_page)
        try:
            open_experiment(folder).run(folder, watcher=Watcher(), keep_weights=True)
            used.records = records_in(folder)
        except (ValueError, OSError) as error:
            used.reports.append(f"resume: {error}")
        _read_weights(folder, used)
    used.reports += [f"a warning: {each.message}" for each in caught]
    return used


def _read(folder: Path, used: Used, with_page: bool) -> None:
    table, store = folder.with_suffix(".csv"), Store(folder)
    table.unlink(missing_ok=True)
    if printed := used.command("status", str(folder), "--json"):
        used.status = json.loads(printed)
    used.command("store", "check", str(folder))
    if used.command("export", str(folder), str(table), "--force"):
        used.rows = list(csv.DictReader(io.StringIO(table.read_text(encoding="utf-8"))))
    for key, who in leases_in(store).items():
        used.taken[key] = vars(who)
        if note := lease.note_of(store, key):
            used.notes[key] = vars(note.at)
    if with_page:
        try:
            used.page = page([ResultFolder.open(folder)])
        except (ValueError, OSError) as error:
            used.reports.append(f"report: {error}")


def _read_weights(folder: Path, used: Used) -> None:
    for samples, signal in CELLS:
        try:
            weights = bo.weights(folder, samples=samples, signal=signal)
        except ValueError as error:
            used.reports.append(f"weights: {error}")
            continue
        tensors = {name: part.numpy().tobytes() for name, part in weights.items()}
        used.weights[samples, signal] = tensors


def _is_missing(row: dict[str, str]) -> bool:
    """Whether the table has no number of this run."""
    numbers = [value for name, value in row.items() if name not in ("samples", "signal", "seed")]
    return [each for each in numbers if each] == ["missing"]


def compare(used: Used, sound: Used) -> None:
    """Raise AnotherNumber where a damaged folder gave something else than the sound one."""
    silent = used.reports == sound.reports
    if used.records:
        equal(used.records, sound.records, "a record after resume")
    for place, weights in used.weights.items():
        equal(weights, sound.weights[place], f"weights of {place}")
    for row in used.rows:
        equal(row in sound.rows or (_is_missing(row) and not silent), True, f"the row {row}")
    for name in ("taken", "notes"):
        there = getattr(sound, name)
        for key, value in getattr(used, name).items():
            equal(value, there.get(key), f"{name} of {key}")
    if used.status and silent:
        for name in used.status.keys() - {"workers", "next", "running", "missing", "axes"}:
            equal(used.status[name], sound.status[name], f"`{name}` of status")
    if used.page and silent:
        equal(used.page, sound.page, "the page of the report")


# Damages


def damaged(data: bytes, chance: random.Random, turn: int) -> tuple[bytes, str]:
    """With one bit flipped; every tenth cut, or with some bytes zeroed."""
    place = chance.randrange(len(data))
    if turn % 10:
        bit = chance.randrange(8)
        flipped = bytes([data[place] ^ (1 << bit)])
        return data[:place] + flipped + data[place + 1 :], f"bit {bit} of byte {place}"
    if turn % 20:
        return data[:place], f"cut at byte {place}"
    end = min(place + chance.randint(1, 64), len(data))
    return data[:place] + bytes(end - place) + data[end:], f"bytes {place} to {end} zeroed"


@dataclass(frozen=True)
class Trial:
    """One damage and what came of it."""

    state: str
    kind: str
    damage: str
    outcome: str
    why: str = ""


class Flipper:
    """Damages copies of sweeps that were made once; each copy has the same path, which reports name."""

    def __init__(self, folder: Path, seed: int = 0):
        self.made, self.copy = make_sweeps(folder), folder / "copy"
        self.chance = random.Random(seed)
        self.sound = {state: self._used(state, None, True) for state in self.made}
        whole = self.sound["finished"]
        assert len(whole.records) == 2
        assert len(whole.rows) == len(whole.weights) == 4
        for path in (self.made["finished"] / "weights").iterdir():
            assert weights_in(path) in list(whole.weights.values())
        for state in ("records", "weights"):
            assert getattr(self.sound["unfinished"], state) == getattr(whole, state)

    def _used(self, state: str, damage: tuple[Path, bytes] | None, with_page: bool) -> Used:
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.made[state], self.copy)
        if damage:
            path, data = damage
            (self.copy / path).write_bytes(data)
        return use(self.copy, with_page)

    def trials(self, flips: int, kinds: Iterator[tuple[str, str]] | None = None) -> Iterator[Trial]:
        """So many damages, spread evenly over the kinds of files of both sweeps."""
        pairs = list(kinds or self.pairs())
        for turn in range(flips):
            state, kind = pairs[turn % len(pairs)]
            yield self._trial(state, kind, turn // len(pairs), turn % PAGE_EVERY == 0)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Every kind of file that each sweep has."""
        for (state, folder), (kind, names) in product(self.made.items(), KINDS.items()):
            if any(folder.glob(names)):
                yield state, kind

    def _trial(self, state: str, kind: str, turn: int, with_page: bool) -> Trial:
        folder, sound = self.made[state], self.sound[state]
        path = self.chance.choice(sorted(folder.glob(KINDS[kind]))).relative_to(folder)
        data, how = damaged((folder / path).read_bytes(), self.chance, turn)
        damage = f"{path}: {how}"
        try:
            used = self._used(state, (path, data), with_page)
            compare(used, sound)
        except AnotherNumber as error:
            return Trial(state, kind, damage, WRONG, str(error))
        except Exception as error:  # what no command catches
            return Trial(state, kind, damage, TRACEBACK, f"{type(error).__name__}: {error}")
        outcome = HARMLESS if used.reports == sound.reports else DETECTED
        return Trial(state, kind, damage, outcome)


def table(trials: list[Trial]) -> str:
    """How many damages of each kind of file came to what."""
    counts = Counter((trial.state, trial.kind, trial.outcome) for trial in trials)
    pairs = dict.fromkeys((trial.state, trial.kind) for trial in trials)
    lines = ["| sweep | file | damages | " + " | ".join(OUTCOMES) + " |", "| --- " * 7 + "|"]
    for pair in pairs:
        numbers = [counts[*pair, outcome] for outcome in OUTCOMES]
        lines.append("| " + " | ".join(map(str, (*pair, sum(numbers), *numbers))) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("flips", nargs="?", type=int, default=2160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--leave-unfinished", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.leave_unfinished:
        _leave_unfinished(given.leave_unfinished)
        return 1
    begun, trials, bad = time.monotonic(), [], 0
    with tempfile.TemporaryDirectory() as folder:
        for trial in Flipper(Path(folder), given.seed).trials(given.flips):
            trials.append(trial)
            if trial.outcome in (WRONG, TRACEBACK):
                bad += 1
                print(trial, flush=True)
    print(table(trials))
    print(f"{len(trials)} damages in {time.monotonic() - begun:.0f} s, {bad} failures")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
