"""What tf32 products cost in accuracy, and gain in time: the same runs in float64, float32 and tf32 on a GPU.

python -m benchmarks.precision
"""

import time

import torch

from benchmarks.peers.by_benign import prepare
from benchmarks.peers.problems import FIGURES, Problem
from benign.training.engine import exact_products

RUNS, STEPS = 60, 40


def trained(figure: str, precision: str) -> tuple[torch.Tensor, float]:
    """Losses of the runs after so many steps, and microseconds of a run-step."""
    samples = FIGURES[figure].samples[-1]
    dtype = "float64" if precision == "float64" else "float32"
    problem = Problem.of(figure, samples, precision=dtype)
    with exact_products(precision != "tf32"):
        train = prepare(problem.batch(0, RUNS, "cuda"))
        train(1)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        losses = train(STEPS).double()
        torch.cuda.synchronize()
    return losses, (time.perf_counter() - begin) / STEPS / RUNS * 1e6


def main() -> None:
    print(
        f"| figure ({RUNS} runs, loss after {STEPS + 1} steps) | precision | median error | largest error | us |"
    )
    print("| --- | --- | --- | --- | --- |")
    for figure in FIGURES:
        exact, slow = trained(figure, "float64")
        print(f"| {figure} | float64 | 0 | 0 | {slow:.0f} |", flush=True)
        for precision in ("float32", "tf32"):
            losses, microseconds = trained(figure, precision)
            error = ((losses - exact) / exact).abs()
            print(
                f"| {figure} | {precision} | {error.median():.1e} | {error.max():.1e} | {microseconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
