"""The modules of the plain loop for many runs at once, by `torch.func`: `vmap` over runs, `grad` inside."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad, grad_and_value, vmap
from torch.nn import functional

from benchmarks.peers.by_loop import loss, module_of, own
from benchmarks.peers.problems import Task

Weights = dict[str, Tensor]


def step_of(task: Task) -> Callable[..., tuple[Weights, Tensor]]:
    """One training step of one run: its weights after it and its loss before it."""
    model = module_of(task, 0).to("meta")

    def forward(weights: Weights, frozen: Weights, x: Tensor) -> Tensor:
        return functional_call(model, {**weights, **frozen}, (x,))

    def pgd(weights: Weights, frozen: Weights, x: Tensor, y: Tensor, radius: Tensor) -> Tensor:
        ascent_direction = grad(lambda delta: -own(forward(weights, frozen, x + delta), y))
        delta = torch.zeros_like(x)
        for _ in range(task.attack_steps):
            direction = functional.normalize(ascent_direction(delta), dim=-1, eps=1e-30)
            delta = delta + task.attack_step * radius * direction
            delta = delta * (radius / delta.norm(dim=-1, keepdim=True).clamp_min(1e-30)).clamp_max(
                1
            )
        return x + delta

    def one_step(weights: Weights, frozen: Weights, x: Tensor, y: Tensor, clip: Tensor) -> Tensor:
        gradient = grad(lambda points: -own(forward(weights, frozen, points), y))(x)
        return x + (task.attack_step * gradient).clamp(-clip, clip)

    attacks = {"none": lambda weights, frozen, x, y, radius: x, "pgd": pgd, "one_step": one_step}
    attack = attacks[task.attack]

    def step(weights: Weights, frozen: Weights, x: Tensor, y: Tensor, radius: Tensor):
        points = attack(weights, frozen, x, y, radius)
        gradient, value = grad_and_value(lambda weights: loss(forward(weights, frozen, points), y))(
            weights
        )
        return {name: w - task.rate * gradient[name] for name, w in weights.items()}, value

    return step


def prepare(task: Task) -> Callable[[int], Tensor]:
    """Train all runs together for some steps, and return their losses at the last step."""
    step = vmap(step_of(task))
    weights = task.weights

    def advance(steps: int) -> Tensor:
        nonlocal weights
        value = task.x.new_zeros(len(task.x))
        for _ in range(steps):
            weights, value = step(weights, task.frozen, task.x, task.y, task.radius)
        return value

    return advance
