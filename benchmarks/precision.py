"""The loss of accuracy and the gain of time by tf32 products: the same runs in float64, float32 and tf32 on a GPU.

python -m benchmarks.precision
"""

import time
from itertools import islice

import torch

from benchmarks.peers.problems import FIGURES, Problem
from benign.training.descent import descend
from benign.training.engine import products

RUNS, STEPS = 60, 10
"""few steps: later on zhang/fig1 is chaotic at high SNR, where any rounding decides"""


def trained(figure: str, precision: str) -> tuple[torch.Tensor, float]:
    """Return the losses of the runs after some steps, and the microseconds of a run-step."""
    dtype = "float64" if precision == "float64" else "float32"
    problem = Problem.of(figure, FIGURES[figure].samples[-1], precision=dtype)
    losses = torch.full((RUNS,), torch.nan, dtype=torch.float64, device="cuda")
    with products(precision, "cuda"):
        steps = descend(problem.batch(0, RUNS, "cuda"))
        next(steps)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for step, _ in islice(steps, STEPS):
            losses[step.batch.index] = step.loss.double()
        torch.cuda.synchronize()
    return losses, (time.perf_counter() - begin) / STEPS / RUNS * 1e6


def main() -> None:
    columns = ("figure", "precision", "median error of the loss", "largest error", "us a run-step")
    print(f"{RUNS} runs, {STEPS} steps")
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for figure in FIGURES:
        exact, _ = trained(figure, "float64")
        for precision in ("float64", "float32", "tf32"):
            losses, microseconds = trained(figure, precision)
            error = (losses - exact).abs()
            numbers = (f"{error.median():.1e}", f"{error.max():.1e}", f"{microseconds:.0f}")
            print(f"| {' | '.join((figure, precision, *numbers))} |", flush=True)


if __name__ == "__main__":
    main()
