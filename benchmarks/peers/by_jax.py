"""The same in JAX: one compiled program with the loop over training steps, `vmap` over runs, `scan` over the attack."""
# pyright: reportMissingImports=false

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from torch import Tensor

from benchmarks.peers.problems import Task

jax.config.update("jax_default_matmul_precision", "highest")  # float32 proper on a GPU, no TF32


def attention(weights, x):
    """[samples, tokens, dim] to [samples]."""
    query, key, value = (x @ weights[f"{name}.weight"].T for name in ("query", "key", "value"))
    scores = jax.nn.softmax(jnp.einsum("nlh,njh->nlj", query, key), axis=-1)
    return ((scores @ value) @ weights["output.weight"][0]).mean(-1)


def two_layer(weights, x):
    hidden = jax.nn.relu(x[:, 0] @ weights["inner.weight"].T + weights["inner.bias"])
    return hidden @ weights["outer.weight"][0] + weights["outer.bias"][0]


def patch_cnn(weights, x):
    filters = weights["filters"]
    z = x @ filters.reshape(-1, filters.shape[-1]).T
    activated = jnp.clip(z, 0, 1) ** 3 / 3 + jax.nn.relu(z - 1)
    return activated.sum(1).reshape(len(x), *filters.shape[:2]).sum(2)


NETWORKS = {"attention": attention, "two_layer": two_layer, "patch_cnn": patch_cnn}


def loss(outputs, y):
    if outputs.ndim == 1:
        return jax.nn.softplus(-y * outputs).mean()
    chosen = jnp.take_along_axis(outputs, y.astype(int)[:, None], 1)[:, 0]
    return (jax.nn.logsumexp(outputs, axis=1) - chosen).mean()


def own(outputs, y):
    if outputs.ndim == 1:
        return (y * outputs).sum()
    return jnp.take_along_axis(outputs, y.astype(int)[:, None], 1).sum()


def pgd(forward, x, y, radius, task: Task):
    """Every token in its own l2 ball, from zero."""

    def step(delta, _):
        gradient = jax.grad(lambda delta: -own(forward(x + delta), y))(delta)
        delta += task.attack_step * radius * gradient / _length(gradient)
        return delta * jnp.minimum(1, radius / _length(delta)), None

    return x + lax.scan(step, jnp.zeros_like(x), None, length=task.attack_steps)[0]


def _length(tokens):
    return jnp.maximum(jnp.linalg.norm(tokens, axis=-1, keepdims=True), 1e-30)


def one_step(forward, x, y, clip, task: Task):
    gradient = jax.grad(lambda points: -own(forward(points), y))(x)
    return x + jnp.clip(task.attack_step * gradient, -clip, clip)


ATTACKS = {"none": lambda forward, x, y, radius, task: x, "pgd": pgd, "one_step": one_step}


def trainer(task: Task):
    """Return the program: it returns the weights of all runs after some steps, and their losses at the last step."""
    network, attack = NETWORKS[task.network], ATTACKS[task.attack]

    def step(weights, frozen, x, y, radius):
        points = attack(lambda x: network({**weights, **frozen}, x), x, y, radius, task)
        value, gradient = jax.value_and_grad(lambda w: loss(network({**w, **frozen}, points), y))(
            weights
        )
        return jax.tree.map(lambda w, g: w - task.rate * g, weights, gradient), value

    def train(weights, steps, frozen, x, y, radius):
        def body(_, state):
            return jax.vmap(step)(state[0], frozen, x, y, radius)

        return lax.fori_loop(0, steps, body, (weights, jnp.zeros(len(x), x.dtype)))

    return partial(jax.jit, donate_argnums=0)(train)


class Prepared:
    """Train all runs together for some steps, and return their losses at the last step.

    The number of steps is an argument of the program, which is compiled once, at the first call.
    """

    def __init__(self, task: Task, device: str = "cpu"):
        self.device = jax.devices("gpu" if device == "cuda" else "cpu")[0]
        parts = (task.weights, task.frozen, task.x, task.y, task.radius)
        self.weights, *self.rest = (self._moved(part) for part in parts)
        self.train, self.program = trainer(task), None

    def _moved(self, part: Tensor | dict[str, Tensor]):
        # A copy: JAX may take over the memory of a numpy array, and `donate` then writes into it.
        return jax.device_put(
            jax.tree.map(lambda each: each.cpu().numpy().copy(), part), self.device
        )

    def __call__(self, steps: int) -> Tensor:
        if self.program is None:
            self.program = self.train.lower(self.weights, steps, *self.rest).compile()
        self.weights, losses = self.program(self.weights, steps, *self.rest)
        return torch.from_numpy(np.array(losses))

    def bytes(self) -> int:
        """Return the memory that the program needs on the device, as planned by the compiler."""
        assert self.program is not None, "not compiled yet"
        plan = self.program.memory_analysis()
        assert plan is not None, "the compiler gives no plan here"
        sizes = (plan.argument_size_in_bytes, plan.output_size_in_bytes, plan.temp_size_in_bytes)
        return sum(sizes) - plan.alias_size_in_bytes
