"""The speed-up of exact coordinates: a step of a cell of Wang's Figure 1, and whole runs over dimensions.

    python benchmarks/coordinates.py [--steps 20]

torch counts the operations; times are of one process on one thread, measured in turn.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import benign as bo
from benign.streams import RunId, Streams
from benign.training.descent import Batch, Step, descend
from benign.training.engine import train_runs
from benign.training.setup import Setup, stack

DIMS = [2_000, 1_000_000, 1_000_000_000, 1_000_000_000_000]
RUN = RunId(0, 0, "")


def figure_cell(coordinates: Any, preset: Any, steps: int) -> Setup:
    """n = 100, m = 1000, d = 18000, PGD of 20 steps (papers/wang.md 3.1), with Gaussian weights."""
    return Setup(
        data=bo.Mixture(samples=100, dim=18_000, signal=5.0, flip=0.1),
        network=bo.TwoLayer(width=1000, preset=preset),
        attack=bo.PGD(ball=bo.Ball(radius=0.1, relative_to="signal", per="sample"), steps=20),
        training=bo.GradientDescent(
            rate=0.1, stop_loss=0.0, max_steps=steps, first_attacked_step=1
        ),
        coordinates=coordinates,
    )


def small_cell(dim: int) -> Setup:
    return Setup(
        data=bo.Mixture(samples=50, dim=dim, signal=5.0, flip=0.1),
        network=bo.TwoLayer(width=100, init_std=1e-6),
        attack=bo.PGD(ball=bo.Ball(radius=0.1, relative_to="signal", per="sample"), steps=10),
        training=bo.GradientDescent(
            rate=50 / dim, stop_loss=0.0, max_steps=30, first_attacked_step=1
        ),
        evaluation=bo.Evaluation(samples=250),
        coordinates="sampled",
    )


def walked(setup: Setup) -> Iterator[Step]:
    for step, _ in descend(Batch.start(stack([setup], "cpu"), Streams([RUN]))):
        yield step


def per_step(setup: Setup) -> tuple[float, float]:
    """Return the operations and the median seconds of an attacked step."""
    times, before = [], time.perf_counter()
    for step in walked(setup):
        now = time.perf_counter()
        if step.number > 1:
            times.append(now - before)
        before = now
    few = setup.model_copy(update={"training": setup.training.model_copy(update={"max_steps": 3})})
    counts = []
    with FlopCounterMode(display=False) as counter:
        for _ in walked(few):
            counts.append(counter.get_total_flops())
    return counts[-1] - counts[-2], statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    with torch.no_grad():
        cells = {
            mode: figure_cell(mode, "hybrid", steps) for mode in ("ambient", "projected", "sampled")
        }
        cells["vanishing"] = figure_cell("sampled", "vanishing", steps)
        found = {f"{name} ({cell.space.dim})": per_step(cell) for name, cell in cells.items()}
    base = next(iter(found.values()))
    for name, (operations, seconds) in found.items():
        print(
            f"{name:16} {operations:.3g} operations a step, {seconds:.3f} s; fewer by "
            f"{base[0] / operations:.1f}, faster by {base[1] / seconds:.1f}"
        )
    times: dict[int, list[float]] = {dim: [] for dim in DIMS}
    for _ in range(7):
        for dim in DIMS:
            begin = time.perf_counter()
            train_runs([small_cell(dim)], [RUN])
            times[dim].append(time.perf_counter() - begin)
    for dim in DIMS:
        print(f"whole run at d = {dim:.0e}: median {statistics.median(times[dim]):.3f} s")


if __name__ == "__main__":
    main()
