"""The contestants on the runs of a figure, in turn, each in a fresh process that is timed from outside."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.figures.law import Outcome, compare
from benchmarks.figures.problems import FIGURES, LOOP_RUNS, Run, Sample, sample_of
from benchmarks.peers.machine import has_jax, load, product_rate
from benign.sweep.estimate import operations
from benign.sweep.plan import runs_of
from benign.training.machine import cores

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("drawing", "training", "evaluation", "audit")
"""of the time of a unit (`split.py`)"""
CONTESTANTS = ("loop", "jax", "benign")


class Failed(Exception):
    """The error of a contestant."""


@dataclass(frozen=True)
class Options:
    device: str = "cpu"
    scale: str = "paper"
    count: int | None = None
    """runs of the figure; 0 takes all, None those of `FIGURES`"""
    loop_runs: int = LOOP_RUNS
    only: Sequence[str] = CONTESTANTS
    compile: bool = False
    rounds: int = 1


@dataclass(frozen=True)
class Timed:
    """A contestant's process."""

    wall: float
    begin: float
    answer: dict[str, Any]
    split: dict[str, Any] | None = None


def contest(figure: str, options: Options) -> dict[str, Any]:
    """Time the contestants on a figure and return one row of results."""
    its = FIGURES[figure]
    count = options.count
    if count is None and options.scale == "paper":
        count = its.runs.get(options.device)
    sample = sample_of(figure, options.scale, options.device, count or None, options.loop_runs)
    row: dict[str, Any] = {
        "figure": figure,
        "device": options.device,
        "scale": options.scale,
        "runs": len(sample.runs),
        "figure_runs": sample.figure_runs,
        "part": sample.part,
        "load_before": load(),
    }
    request = {
        "figure": figure,
        "scale": options.scale,
        "device": options.device,
        "count": count or None,
        "loop_runs": options.loop_runs,
        "batches": its.batches[options.device],
        "compile": options.compile,
        "split": False,
    }
    found: dict[str, dict[str, Any]] = {}
    for _ in range(options.rounds):
        for name in [*options.only, *(["other"] if "benign" in options.only and its.other else [])]:
            if name == "jax" and not has_jax():
                continue
            runs = sample.thinned(options.loop_runs) if name == "loop" else sample.runs
            if name in ("loop", "jax"):  # which need not import benign to know their runs
                request["runs"] = [run.as_dict() for run in runs]
            timed = _entered(name, request, its.other)
            if timed is None:
                continue
            here = {"loop": _loop, "jax": _jax}.get(name, _benign)(timed, sample)
            seconds = f"{here['seconds']:.4g} s"
            print(f"{figure} {name}: {seconds} for {len(sample.runs)} runs", flush=True)
            if name not in found or here["seconds"] < found[name]["seconds"]:
                found[name] = here
    row |= _row(found, sample, its.other, options)
    return row | {"load_after": load()}


def _entered(name: str, request: dict[str, Any], other: str | None) -> Timed | None:
    """Run a contestant; None with a message if it fails."""
    mine = {**request, "contestant": "benign" if name == "other" else name}
    if name == "other":
        mine["coordinates"] = other
    # On a CPU the timers of the split cost nothing; on a GPU they would make the sweep wait for it.
    mine["split"] = name == "benign" and request["device"] == "cpu"
    try:
        timed = launch(mine)
        if name == "benign" and not mine["split"]:
            timed = Timed(
                timed.wall, timed.begin, timed.answer, launch({**mine, "split": True}).split
            )
        return timed
    except Failed as error:
        print(f"{request['figure']}: no result of {name}\n{error}", flush=True)
        return None


def launch(request: dict[str, Any]) -> Timed:
    """Run one contestant in a fresh process."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        given, answer, times = folder / "request.json", folder / "answer.json", folder / "split"
        times.mkdir()
        given.write_text(json.dumps(request), encoding="utf-8")
        env = {**os.environ, "BENIGN_SPLIT": str(times)}
        if request["device"] != "cpu":
            env["BENIGN_SPLIT_WAITS"] = "1"
        command = [sys.executable, "-m", "benchmarks.figures.work", str(given), str(answer)]
        begin = time.time()
        done = subprocess.run(
            command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True, check=False
        )
        wall = time.time() - begin
        if done.returncode:
            raise Failed(done.stderr[-2000:])
        found = json.loads(answer.read_text(encoding="utf-8"))
        split = split_of(found, begin, wall, times) if request["split"] else None
        return Timed(wall, begin, found, split)


# What each contestant took


def _loop(timed: Timed, sample: Sample) -> dict[str, Any]:
    rows = timed.answer["runs"]
    measured = sum(row["seconds"] for row in rows)
    whole = extrapolated(rows, sample.runs)
    return {
        "seconds": timed.wall - measured + whole,
        "rows": rows,
        "loop_runs": len(rows),
        "loop_extrapolated": len(rows) < len(sample.runs),
    }


def extrapolated(rows: Sequence[dict[str, Any]], runs: Sequence[Run]) -> float:
    """Return the seconds of all runs, from those of some of every stratum."""
    times: dict[tuple[float, int], list[float]] = {}
    for row in rows:
        times.setdefault((row["row"], row["band"]), []).append(row["seconds"])
    return sum(sum(times[run.stratum]) / len(times[run.stratum]) for run in runs)


def _jax(timed: Timed, sample: Sample) -> dict[str, Any]:
    answer = timed.answer
    return {
        "seconds": timed.wall - answer["trial"] - answer["compile_after_trial"],
        "rows": answer["runs"],
        "compile_s": answer["compile"],
        "jax_batch": answer["batch"],
    }


def _benign(timed: Timed, sample: Sample) -> dict[str, Any]:
    return {
        "seconds": timed.wall,
        "rows": timed.answer["runs"],
        "workers": timed.answer["workers"],
        "split": timed.split,
    }


def split_of(answer: dict[str, Any], begin: float, wall: float, folder: Path) -> dict[str, Any]:
    """Return seconds of all workers by part, each measured; `covers` is their sum over wall time times workers.

    `idle` is the time of a worker between its units and after its last one; records are written meanwhile.
    """
    workers, own = answer["workers"], answer["own"]
    imported, planned, ended = answer["stamps"]
    others = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in folder.glob("*.json")
        if path.stem != str(answer["pid"])
    ]
    active = [each for each in [own, *others] if each["units"]]
    split = {part: sum(e["seconds"].get(part, 0.0) for e in active) for part in PARTS}
    result = own["seconds"].get("result", 0.0)
    written = own["seconds"].get("records", 0.0)
    split["records"] = written + workers * result
    last = ended - result
    starts = sum(each["units"][0][0] - planned for each in active)
    gaps = sum(
        b[0] - a[1] for e in active for a, b in zip(e["units"], e["units"][1:], strict=False)
    )
    tails = sum(last - each["units"][-1][1] for each in active)
    other = {
        "imports": workers * (imported - begin),
        "planning": workers * (planned - imported),
        "start of workers": starts,
        "idle": max(0.0, gaps + tails - written) + (workers - len(active)) * (last - planned),
        "end": workers * (begin + wall - ended),
    }
    split["other"] = sum(other.values())
    covers = sum(split.values()) / (wall * workers)
    return {"workers": workers, "seconds": split, "other": other, "covers": covers, "wall": wall}


# The row


def _row(
    found: dict[str, dict[str, Any]], sample: Sample, other: str | None, options: Options
) -> dict[str, Any]:
    row: dict[str, Any] = {
        f"{name}_s": found[name]["seconds"] for name in CONTESTANTS if name in found
    }
    for name, keys in (
        ("loop", ("loop_runs", "loop_extrapolated")),
        ("jax", ("compile_s", "jax_batch")),
        ("benign", ("workers", "split")),
    ):
        row |= {key: found[name][key] for key in keys if name in found}
    if "other" in found:
        row |= {"other_coordinates": other, "other_s": found["other"]["seconds"]}
    row["law"], void = laws(found)
    if "benign" in found:
        peak = peak_of(sample, options.device)
        row |= {"operations": _operations(found["benign"]["rows"], sample), "peak": peak}
        row["floor_s"] = row["operations"] / peak
        for name in ("loop", "jax"):
            if name in found:
                ratio = found[name]["seconds"] / found["benign"]["seconds"]
                row[f"ratio_to_{name}"] = None if name in void else ratio
    return row | {"void": void, "compile": options.compile}


def laws(found: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Compare the results of the others with benign's, and the loop's with JAX's; return why ratios are void."""
    outcomes = {
        name: [Outcome(r["cell"], r["band"], r["values"]) for r in each["rows"]]
        for name, each in found.items()
    }
    pairs = [
        (a, b)
        for a, b in (("loop", "benign"), ("jax", "benign"), ("other", "benign"), ("loop", "jax"))
    ]
    checked, void = {}, {}
    for one, two in pairs:
        if one not in outcomes or two not in outcomes:
            continue
        law = compare(outcomes[one], outcomes[two])
        checked[f"{one}, {two}"] = law.as_dict()
        if two == "benign" and not law.equal:
            void[one] = f"{law.worst} differs by {law.difference:.3g} (p = {law.p:.2g})"
    return checked, void


def _operations(rows: Sequence[dict[str, Any]], sample: Sample) -> float:
    """Return the operations of the matrix products of all runs, by the product's own estimate at the steps taken."""
    runs = runs_of(sample.experiment)
    steps = (row["values"]["steps"] for row in rows)
    return sum(operations(run.cell, taken) for run, taken in zip(runs, steps, strict=True))


def peak_of(sample: Sample, device: str) -> float:
    """Return operations per second of a large product, measured now, in the precision of the figure."""
    before = torch.get_float32_matmul_precision()
    tf32 = device != "cpu" and sample.runs[0].case.precision == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        return product_rate(device, cores())
    finally:
        torch.set_float32_matmul_precision(before)
