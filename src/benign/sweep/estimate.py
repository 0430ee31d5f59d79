"""Estimates the cost of an experiment before it runs."""

import math
import time
from dataclasses import dataclass
from functools import cache

import torch

from benign.attacks import relu_ascent
from benign.attacks.attack import Attack
from benign.attacks.gram import multiplications
from benign.attacks.pgd import PGD
from benign.sweep.plan import Unit
from benign.training.engine import batch_size, one_thread, products, run_bytes
from benign.training.metrics.image_features import reference_key
from benign.training.setup import Setup

SECONDS_PER_DRAW = 1e-8
"""one normal draw on one CPU core; measured by `python -m benchmarks.figures`, which prints it"""
SECONDS_PER_PASS = 3e-4
"""one pass of a batch however small: a few dozen calls of torch"""
SECONDS_PER_NUMBER = 2.5e-9
"""one number that a pass holds for a point, on one CPU core: small networks wait for memory more than they multiply
(the README's experiment took 24 s, of which products explain 5)"""


@dataclass(frozen=True)
class Cost:
    """Runs, memory of the largest batch, and time.

    The number of steps to the loss of a run is not known in advance. The least time assumes that no run takes a step,
    except runs to a loss of 0, which take all; the most assumes that every run takes all steps.
    """

    runs: int
    units: int
    bytes: int
    least_seconds: float
    most_seconds: float
    sure_training: float
    """seconds of training of the runs to a loss of 0, which take every step"""
    least_floor: float
    """seconds of the matrix products alone, at the peak of this device, where `least_seconds` are of all work"""
    most_floor: float
    """the same where `most_seconds` are of all work"""


def estimate(units: list[Unit], device: str) -> Cost:
    """Estimate from operation counts and a short measurement of this device's matrix products."""
    least = most = sure = memory = least_floor = most_floor = 0.0
    references: set[str] = set()
    for unit in units:
        setup, runs = unit.runs[0].cell, len(unit.runs)
        rate = _products_per_second(device, setup.dtype, setup.precision)
        fixed = runs * _fixed_seconds(setup, rate, device)
        if setup.evaluation.features and (key := reference_key(setup)) not in references:
            references.add(key)  # which runs with another attack share
            fixed += runs * _reference_products(setup) / rate
        together = min(runs, batch_size(setup, device))
        batches_per_epoch = setup.training.batches_per_epoch(setup.data.samples)
        calls = batches_per_epoch * math.ceil(runs / together) * _step_passes(setup)
        each_step = calls * SECONDS_PER_PASS + runs * _step_products(setup.reduced(), device) / rate
        stepwise = setup.training.most_steps() * each_step
        to_the_end = sum(run.cell.training.stop_loss == 0 for run in unit.runs) / runs
        sure += to_the_end * stepwise
        least += fixed + to_the_end * stepwise
        most += fixed + stepwise
        memory = max(memory, together * run_bytes(setup))
        ends = [operations(setup, steps, device) / 2 for steps in (0, setup.training.most_steps())]
        least_floor += runs * (ends[0] + to_the_end * (ends[1] - ends[0])) / rate
        most_floor += runs * ends[1] / rate
    total = sum(len(unit.runs) for unit in units)
    return Cost(total, len(units), int(memory), least, most, sure, least_floor, most_floor)


def operations(setup: Setup, steps: float, device: str = "cpu") -> float:
    """Return the operations of the matrix products of a run of so many steps, with its evaluation.

    This bounds the time on a GPU from below. An attack is counted in the cheaper of its two ways.
    """
    small = setup.reduced()
    trained = steps * _step_products(small, device)
    tested = _attack_products(small, setup.final_attack, setup.evaluation.samples, device)
    return 2 * (trained + tested + setup.evaluation.samples * _multiplies(small))


def _step_products(small: Setup, device: str) -> float:
    """Return the multiplications of a training step of one run: its attack, and the pass forward and backward."""
    points = small.data.samples
    attack = _attack_products(small, small.attack, points, device)
    return 2 * points * _multiplies(small) + attack


def _attack_products(setup: Setup, attack: Attack | None, points: int, device: str) -> float:
    """Return the multiplications of an attack on points of one run."""
    if attack is None:
        return 0.0
    plain = attack.passes() * points * _multiplies(setup)
    columns, data = setup.network.cost(setup.data).columns, setup.data
    if not columns:
        return plain
    steps, products = attack.passes() // 2, None
    if isinstance(attack, PGD):
        where = torch.device(device)
        one = relu_ascent.why_not(setup.network, columns, where, attack.loss) is None
        products = attack.restarts if one else None
    return min(plain, *multiplications(points * data.tokens, data.dim, columns, steps, products))


def _reference_products(setup: Setup) -> float:
    """Return the multiplications of both references of a run and of the points made with them."""
    tests = setup.evaluation.features
    assert tests is not None
    trained = setup.training.most_steps() * setup.data.samples * (4 + tests.attack.passes())
    searched = tests.steps + len(tests.pairs) * tests.matching_steps
    return (trained + 2 * tests.samples * 2 * searched) * _multiplies(setup)


def _step_passes(setup: Setup) -> int:
    """Return the passes forward and backward, for the step and for its attack."""
    return 2 + (setup.attack.passes() if setup.attack else 0)


def _multiplies(setup: Setup) -> int:
    return setup.network.cost(setup.data).multiplies


def _fixed_seconds(setup: Setup, rate: float, device: str) -> float:
    """Return the seconds for drawing data and weights, reducing their coordinates, and evaluating at the end."""
    small, drawn = setup.reduced(), setup.space.drawn_dim
    cost, data = small.network.cost(small.data), small.data
    attack = setup.final_attack
    passes = 1 + (attack.passes() + 1 if attack else 0)
    tokens = (data.samples + setup.evaluation.samples) * data.tokens
    draws = tokens * drawn + cost.weights / 2 * drawn / data.dim
    multiplied = setup.evaluation.samples * cost.multiplies
    multiplied += _attack_products(small, attack, setup.evaluation.samples, device)
    if setup.space.mode == "projected":
        multiplied += (tokens + 2 * data.dim) * drawn * data.dim
    numbers = passes * setup.evaluation.samples * cost.point if device == "cpu" else 0
    return draws * SECONDS_PER_DRAW + multiplied / rate + numbers * SECONDS_PER_NUMBER


@cache
def _products_per_second(device: str, dtype: torch.dtype, precision: str) -> float:
    """Return the multiplications per second of a matrix product of a usual size, on one thread as in a run."""
    size = 512 if device == "cpu" else 4096  # a smaller one waits for the launch on a GPU
    left = torch.ones(size, 2 * size, dtype=dtype, device=device)
    right = torch.ones(2 * size, size, dtype=dtype, device=device)
    with one_thread(), products(precision, device):
        float((left @ right)[0, 0])
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < 0.1:
            float((left @ right)[0, 0])
            count += 1
    return count * 2 * size**3 / (time.perf_counter() - begin)
