"""Whole figures, side by side in one go: seconds of a plain PyTorch loop, of JAX and of benign on the same runs.

python -m benchmarks.figures                                # all figures at paper scale: about two hours on two cores
python -m benchmarks.figures jiang/fig1 --json benchmarks/results/figures-cpu.json
python -m benchmarks.figures zhang/fig1 --device cuda --loop-runs 11
python -m benchmarks.figures --scale smoke                  # a check that everything works, not of its speed

From the command to the dataset: imports, planning, start of processes, drawing, training, test, records. A ratio is
void if the results of two contestants do not agree in law (`law.py`).
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.figures.compare import CONTESTANTS, Options, contest
from benchmarks.figures.problems import FIGURES, LOOP_RUNS
from benchmarks.figures.report import rounded, table
from benchmarks.peers.machine import facts, has_jax, load, product_rate
from benign.streams import RunId, Streams
from benign.training.machine import cores


def main() -> None:
    given = parse()
    unknown = set(given.figures) - set(FIGURES)
    if unknown:
        raise SystemExit(
            f"no figure {', '.join(sorted(unknown))}; choose from {', '.join(FIGURES)}"
        )
    if given.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    if not has_jax():
        print("JAX is not installed: its numbers are missing (pip install 'benign[bench]')")
    begin = time.perf_counter()
    machine = facts(given.device, cores(), product_rate(given.device, cores()))
    machine |= normals(given.device)
    options = Options(
        given.device,
        given.scale,
        given.runs,
        given.loop_runs,
        given.only.split(","),
        given.compile,
        given.rounds,
    )
    rows: list[dict[str, Any]] = []
    for figure in given.figures or FIGURES:
        rows.append(rounded(contest(figure, options)))
        machine |= {"load after": load(), "minutes": round((time.perf_counter() - begin) / 60, 1)}
        found = {"machine": machine, "figures": rows}
        if given.json:  # after each, so that an interrupted run loses one figure at most
            given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table([{"machine": machine, "figures": rows}]))


def normals(device: str) -> dict[str, float]:
    """Return the nanoseconds of a normal from benign's streams and from torch, on one CPU thread."""
    threads, count = torch.get_num_threads(), 4_000_000
    torch.set_num_threads(1)
    stream = Streams([RunId(0, 0, "")], device)("bench")
    ways: dict[str, Callable[[int], torch.Tensor]] = {
        "ns a normal": lambda n: stream.normal(n, dtype=torch.float32),
        "ns a normal of torch.randn": lambda n: torch.randn(n, device=device),
    }
    found = {}
    for name, draw in ways.items():
        draw(count // 4).sum().item()
        begin = time.perf_counter()
        draw(count).sum().item()
        found[name] = round((time.perf_counter() - begin) / count * 1e9, 2)
    torch.set_num_threads(threads)
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--scale", default="paper", choices=["smoke", "quick", "paper"])
    parser.add_argument(
        "--runs",
        type=int,
        help="about so many runs of every figure, of every size and every band of signals; 0 for all",
    )
    parser.add_argument(
        "--loop-runs",
        type=int,
        default=LOOP_RUNS,
        help=f"runs of these that the loop computes (default {LOOP_RUNS})",
    )
    parser.add_argument(
        "--only", default=",".join(CONTESTANTS), help="contestants: loop,jax,benign"
    )
    parser.add_argument("--compile", action="store_true", help="benign compiles, as with --compile")
    parser.add_argument("--rounds", type=int, default=1, help="times in turn; the least counts")
    parser.add_argument("--cores", type=int, help="CPU cores to use, all by default")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
