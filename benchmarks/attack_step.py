"""The cost of a step of projected ascent relative to its forward and backward pass, for each ball.

    python benchmarks/attack_step.py [--device cuda]

The first table ascends in R^d. The second shows how much ascent on products with the weights saves in the same l2
balls: PGD and APGD on training points, a whole attacked training step, and PGD on a block of fresh points.
Both sides are timed in turn, in one process on one thread; the median of their ratios is printed.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import benign as bo
from benign.attacks.attack import Attack, Target
from benign.attacks.gram import plain_attacks
from benign.losses import loss_slope
from benign.streams import RunId, Streams

SIZES = {
    "small": (8, 512, 64),
    "zhang/fig1": (4, 1024, 128),
    "jiang/fig1": (2, 1024, 512),
}
"""runs, dimension and width; 20 points of 16 tokens"""
BALLS = {
    "l2 token": bo.Ball(radius=0.1),
    "l2 sample": bo.Ball(radius=0.1, per="sample"),
    "linf token": bo.Ball(p="inf", radius=0.1),
    "linf sample": bo.Ball(p="inf", radius=0.1, per="sample"),
    "l1 token": bo.Ball(p=1, radius=0.1),
    "l2 token, box": bo.Ball(radius=0.1, box=(-9.0, 9.0)),
}
SAVINGS = ("PGD", "APGD", "training step", "PGD, 250 fresh")
STEPS, REPEATS = 10, 9


def target(runs: int, dim: int, hidden: int, device: str, samples: int = 20) -> Target:
    data = bo.SignalNoise(samples=samples, tokens=16, dim=dim, snr=1.0, noise_std=0.4)
    network = bo.Attention(hidden=hidden, init=bo.TorchDefault(divide_by=16))
    streams = Streams([RunId(0, index, "") for index in range(runs)], device)
    sample = data.sample(streams, "train", data.samples, torch.float32)
    params = network.initial_params(data, streams, torch.float32)
    return Target(network, params, data, sample, streams)


def seconds(work: Callable[[], object], device: str) -> float:
    begin = time.perf_counter()
    work()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def ratio(work: Callable[[], object], other: Callable[[], object], device: str) -> float:
    """Return the median ratio of the times of two functions."""
    work()
    other()
    return statistics.median(seconds(work, device) / seconds(other, device) for _ in range(REPEATS))


def cost_relative_to_passes(point: Target, ball: bo.Ball, device: str) -> float:
    attack = bo.PGD(ball=ball, steps=STEPS)

    def passes() -> None:
        for _ in range(STEPS):
            point.run(point.x).inputs_gradient(point.y)

    with plain_attacks():
        return ratio(lambda: attack.perturb(point), passes, device)


def saved(work: Callable[[], object], device: str) -> float:
    """Return the speed-up by products with the weights."""

    def plain() -> None:
        with plain_attacks():
            work()

    return ratio(plain, work, device)


def training_step(point: Target, attack: Attack) -> None:
    """Attack, forward pass, and the gradient in the weights."""
    output = point.run(attack.perturb(point))
    output.params_gradient(loss_slope(output.outputs, point.y))


def savings(size: tuple[int, int, int], device: str) -> list[float]:
    """Return the speed-ups of every column of the second table."""
    point, fresh = target(*size, device), target(*size, device, samples=250)
    ball = BALLS["l2 token"]
    pgd, apgd = bo.PGD(ball=ball), bo.APGD(ball=ball, steps=20, restarts=2)
    return [
        saved(lambda: pgd.perturb(point), device),
        saved(lambda: apgd.perturb(point), device),
        saved(lambda: training_step(point, pgd), device),
        saved(lambda: pgd.perturb(fresh), device),
    ]


def top_k_share(count: int) -> float:
    """Return the share of the exact gain that 40 l1 steps of `count` coordinates reach on a linear network, d = 512."""
    data = bo.SignalNoise(samples=20, tokens=4, dim=512, snr=1.0, noise_std=0.4)
    network, streams = bo.Linear(init_std=1.0), Streams([RunId(0, 0, "")])
    sample = data.sample(streams, "train", data.samples, torch.float64)
    params = network.initial_params(data, streams, torch.float64)
    attack = bo.PGD(ball=bo.Ball(p=1, radius=0.5, coordinates=count), steps=40)
    points = attack.perturb(Target(network, params, data, sample, streams))
    gain = sample.y * (network.forward(params, sample.x) - network.forward(params, points))
    return float((gain / (0.5 * params["u"].abs().amax(1, keepdim=True))).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    torch.set_num_threads(1)
    print("size".ljust(12), *(name.rjust(14) for name in BALLS))
    with torch.no_grad():
        for name, size in SIZES.items():
            point = target(*size, device)
            costs = (cost_relative_to_passes(point, ball, device) for ball in BALLS.values())
            print(name.ljust(12), *(f"{cost:14.2f}" for cost in costs))
        print("\nin R^d over products".ljust(12))
        print("size".ljust(12), *(name.rjust(14) for name in SAVINGS))
        for name, size in SIZES.items():
            print(name.ljust(12), *(f"{times:14.2f}" for times in savings(size, device)))
    shares = ", ".join(f"{count}: {top_k_share(count):.2f}" for count in (1, 4, 16, 64))
    print(f"share of the exact gain by coordinates of an l1 step: {shares}")


if __name__ == "__main__":
    main()
