"""A figure in JAX: one jitted program draws, trains and tests a batch of runs.

`vmap` over runs; points beyond a run's N have weight zero; `lax.while_loop` goes on until all runs of the batch have
ended; fresh points are drawn, tested and attacked in chunks. A batch has runs of similar N and signal.
"""
# pyright: reportMissingImports=false

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.figures.cases import Case, attacked_at
from benchmarks.figures.jax_attacks import margin, perturb, sign_ascent, with_radius

# A generator of the hardware's kind: threefry, the default, is several times as slow.
jax.config.update("jax_default_prng_impl", "unsafe_rbg")

CURVE_POINTS = 250
"""fresh points under the attacks of the curves of li/fig3"""


TRIAL_STEPS = 300
"""most steps of a trial; enough for batches to wait for their last runs"""


@dataclass
class Numbers:
    """What differs between the runs of a program, [runs] each; a pytree."""

    samples: Any
    signal: Any
    radius: Any
    judge_radius: Any


jax.tree_util.register_dataclass(Numbers, ["samples", "signal", "radius", "judge_radius"], [])


def numbers_of(cases: Sequence[Case]) -> Numbers:
    columns = (
        [case.samples for case in cases],
        [case.signal for case in cases],
        [case.attack.ball.radius if case.attack else 0.0 for case in cases],
        [case.judge.ball.radius if case.judge else 0.0 for case in cases],
    )
    return Numbers(*(jnp.asarray(np.array(column, np.float32)) for column in columns))


def program_of(case: Case) -> Case:
    """Return the case without what differs between the runs of one program."""
    blank = replace(case, samples=0, signal=0.0)
    return replace(blank, attack=with_radius(case.attack, 0.0), judge=with_radius(case.judge, 0.0))


# Data


def draw(case: Case, key, count: int, numbers: Numbers, training: bool):
    """Return points [count, tokens, dim], observed and clean labels."""
    label, noise, flip = jax.random.split(key, 3)
    x = jax.random.normal(noise, (count, case.tokens, case.dim)) * case.noise_std
    if case.data == "feature_patches":
        y = jax.random.randint(label, (count,), 0, 2)
        robust = jnp.arange(case.tokens) < case.robust_patches
        features = jnp.eye(4, case.dim)
        signal = jnp.where(
            robust[None, :, None],
            case.alpha * features[y][:, None],
            case.beta * features[y + 2][:, None],
        )
        return x + signal, y.astype(x.dtype), y.astype(x.dtype)
    if case.balanced and training:
        y = 1.0 - 2 * (jnp.arange(count) % 2)
    else:
        y = jax.random.randint(label, (count,), 0, 2) * 2.0 - 1
    if case.data == "mixture":
        flipped = jax.random.uniform(flip, (count,)) < (case.flip if training else 0)
        return x.at[:, 0, 0].add(y * numbers.signal), jnp.where(flipped, -y, y), y
    if case.strong_noise_std:
        x = x.at[:, 1].multiply(case.strong_noise_std / case.noise_std)
    pair = jnp.eye(2, case.dim) * numbers.signal
    return x.at[:, 0].set(jnp.where((y > 0)[:, None], pair[0], pair[1])), y, y


# Networks


def start(case: Case, key):
    """Return trained and frozen weights."""
    one, two, three, four = jax.random.split(key, 4)

    def default(key, inputs, *shape):
        return jax.random.uniform(key, shape, minval=-1, maxval=1) / math.sqrt(inputs)

    width, dim = case.width, case.dim
    if case.network == "attention":
        keys = zip(("query", "key", "value"), (one, two, three), strict=True)
        shape, scale = (dim, width), 1 / (case.divide_by * math.sqrt(3 * dim))
        weights = {
            name: jax.random.normal(key, shape) * scale
            if case.normal_weights
            else default(key, dim, *shape) / case.divide_by
            for name, key in keys
        }
        return weights, {"output": default(four, width, width)}
    if case.network == "two_layer":
        shapes = {"inner": (one, dim, dim, width), "inner_bias": (two, dim, width)}
        shapes |= {"outer": (three, width, width), "outer_bias": (four, width)}
        return {name: default(*how) for name, how in shapes.items()}, {}
    if case.network == "patch_cnn":
        return {"filters": jax.random.normal(one, (2, width, dim)) * case.init_std}, {}
    return {"u": jax.random.normal(one, (dim,)) * case.init_std}, {}


def forward(case: Case, weights, frozen, x):
    if case.network == "attention":
        query, key, value = (x @ weights[name] for name in ("query", "key", "value"))
        scores = jax.nn.softmax(jnp.einsum("nlh,njh->nlj", query, key), axis=-1)
        return ((scores @ value) @ frozen["output"]).mean(-1)
    if case.network == "two_layer":
        hidden = jax.nn.relu(x[:, 0] @ weights["inner"] + weights["inner_bias"])
        return hidden @ weights["outer"] + weights["outer_bias"]
    if case.network == "patch_cnn":
        filters = weights["filters"]
        z = x @ filters.reshape(-1, filters.shape[-1]).T
        activated = jnp.clip(z, 0, 1) ** 3 / 3 + jax.nn.relu(z - 1)
        return activated.sum(1).reshape(len(x), *filters.shape[:2]).sum(2)
    return x.mean(1) @ weights["u"]


def losses(outputs, y):
    if outputs.ndim == 1:
        return jax.nn.softplus(-y * outputs)
    chosen = jnp.take_along_axis(outputs, y.astype(int)[:, None], 1)[:, 0]
    return jax.nn.logsumexp(outputs, axis=1) - chosen


# A batch of runs


def build(case: Case, padded: int, chunk: int):
    """Return the program: (keys, numbers, most steps, chunks of fresh points) to values of the runs.

    The last two are arguments, so that a trial of few steps is the same program.
    """
    net = partial(forward, case)
    snapshots = jnp.array(case.snapshots or (-1,))
    attacked = jnp.array([step for step in case.snapshots if attacked_at(case, step)] or (-1,))

    def prepare(key, numbers):
        data, init = jax.random.split(key)
        return draw(case, data, padded, numbers, True), start(case, init)

    def step(weights, frozen, points, numbers):
        x, y, _ = points
        attack = with_radius(case.attack, numbers.radius)
        moved = x + perturb(lambda x: net(weights, frozen, x), x, y, attack)
        present = jnp.arange(padded) < numbers.samples

        def mean(weights):
            return (losses(net(weights, frozen, moved), y) * present).sum() / numbers.samples

        return jax.value_and_grad(mean)(weights)

    def tested(weights, frozen, key, numbers):
        """Sums over a chunk of fresh points."""
        one, two, three = jax.random.split(key, 3)
        x, y, _ = draw(case, one, chunk, numbers, False)

        def here(x):
            return net(weights, frozen, x)

        outputs = here(x)
        parts = {"test_loss": losses(outputs, y), "test_accuracy": margin(outputs, y) > 0}
        if case.judge:
            judge = with_radius(case.judge, numbers.judge_radius)
            outputs = here(x + perturb(here, x, y, judge, two))
            wrong = margin(outputs, y) <= 0
            parts |= {"robust_loss": losses(outputs, y), "robust_accuracy": ~wrong}
            if case.flip:
                raised = margin(here(x + perturb(here, x, -y, judge, three)), y) >= 0
                parts |= {"robust_noisy_error": (1 - case.flip) * wrong + case.flip * raised}
        return {name: part.sum() for name, part in parts.items()}

    def audited(weights, frozen, points, key, numbers):
        x, y, _ = points
        present = (jnp.arange(padded) < numbers.samples) / numbers.samples

        def here(x):
            return net(weights, frozen, x)

        judge = with_radius(case.judge, numbers.judge_radius)
        outputs = here(x + perturb(here, x, y, judge, key))
        trained = here(x + perturb(here, x, y, with_radius(case.attack, numbers.radius)))
        worst = jnp.stack([losses(each, y) for each in (here(x), outputs, trained)]).max(0)
        return {
            "train_robust_accuracy_judged": ((margin(outputs, y) > 0) * present).sum(),
            "train_robust_loss": (worst * present).sum(),
        }

    def whole(keys, numbers, most_steps, chunks):
        points, (weights, frozen) = jax.vmap(prepare)(keys, numbers)
        fresh_keys = jax.vmap(partial(jax.random.fold_in, data=1))(keys)
        runs = len(numbers.samples)
        curves: dict[str, Any] = {}
        fresh: Any = None
        if case.snapshots:
            fresh = jax.vmap(lambda key, n: draw(case, key, case.tests, n, False))(
                fresh_keys, numbers
            )
            curves = {name: jnp.zeros((len(case.snapshots), runs)) for name in CURVES}

        def body(state):
            weights, number, active, steps, reached, curves = state
            value, gradient = jax.vmap(step)(weights, frozen, points, numbers)
            for steps_of, measured in ((snapshots, _plain), (attacked, _under)):
                if case.snapshots:
                    curves = lax.cond(
                        (steps_of == number).any(),
                        lambda now, measured=measured: _written(
                            now,
                            jnp.searchsorted(snapshots, number),
                            jax.vmap(partial(measured, case))(weights, *fresh[:2], numbers),
                        ),
                        lambda now: now,
                        curves,
                    )
            ends = (value <= case.stop_loss) | (number >= most_steps) | ~jnp.isfinite(value)
            steps = jnp.where(active & ends, number, steps)
            reached = jnp.where(active & ends, value, reached)
            active &= ~ends
            drops = number // case.drop_every if case.drop_every else 0
            rate = case.rate / case.drop_by**drops

            def moved(w, g):
                wide = active.reshape(-1, *[1] * (w.ndim - 1))
                return jnp.where(wide, w - rate * g, w)

            return (
                jax.tree.map(moved, weights, gradient),
                number + 1,
                active,
                steps,
                reached,
                curves,
            )

        first = (weights, 0, jnp.ones(runs, bool), jnp.zeros(runs, int), jnp.zeros(runs), curves)
        weights, _, _, steps, reached, curves = lax.while_loop(lambda s: s[2].any(), body, first)

        def more(number, sums):
            keys = jax.vmap(partial(jax.random.fold_in, data=number + 2))(fresh_keys)
            here = jax.vmap(tested)(weights, frozen, keys, numbers)
            return jax.tree.map(jnp.add, sums, here)

        shape = jax.eval_shape(jax.vmap(tested), weights, frozen, fresh_keys, numbers)
        zeros = jax.tree.map(lambda each: jnp.zeros(each.shape), shape)
        sums = lax.fori_loop(0, chunks, more, zeros)
        found = {name: total / (chunks * chunk) for name, total in sums.items()}
        found |= {"steps": steps.astype(float), "train_loss": reached}
        if case.attack and case.judge:
            found |= jax.vmap(audited)(weights, frozen, points, fresh_keys, numbers)
        return found | {f"{name}_mean": _mean(case, name, curve) for name, curve in curves.items()}

    return whole


def run(case: Case, padded: int, chunk: int):
    """Return the compiled-at-first-call program."""
    return jax.jit(build(case, padded, chunk))


# The curves of li/fig3

PLAIN = (
    "robust_feature_learned",
    "non_robust_feature_learned",
    "test_accuracy",
    "robust_feature_accuracy",
    "non_robust_feature_accuracy",
    "robust_accuracy",
)
UNDER = ("one_step", "own_ascent", "margin_ascent", "loss_ascent", "feature_swap", "all_patch")
CURVES = (*PLAIN, *(f"robust_accuracy_{name}" for name in UNDER))


def _written(curves, place, values):
    return curves | {name: curves[name].at[place].set(value) for name, value in values.items()}


def _mean(case: Case, name: str, curve):
    """The mean over snapshots; those under attack have values half an octave apart."""
    if name in PLAIN:
        return curve.mean(0)
    kept = [place for place, step in enumerate(case.snapshots) if attacked_at(case, step)]
    return curve[np.array(kept)].mean(0)


def _right(case: Case, weights, points, y):
    return (margin(forward(case, weights, {}, points), y) > 0).mean()


def _plain(case: Case, weights, x, y, numbers):
    """Features learned, and accuracies on fresh points: clean, under the training attack, and on features alone."""
    filters, classes, own = weights["filters"], jnp.arange(2), y.astype(int)
    robust = (jnp.arange(case.tokens) < case.robust_patches)[None, :, None]
    features = jnp.eye(4, case.dim)
    u, v = case.alpha * features[own][:, None], case.beta * features[own + 2][:, None]

    def here(x):
        return forward(case, weights, {}, x)

    moved = x + perturb(here, x, y, with_radius(case.attack, numbers.radius))
    return {
        "robust_feature_learned": filters[classes, :, classes].max(1).mean(),
        "non_robust_feature_learned": filters[classes, :, classes + 2].max(1).mean(),
        "test_accuracy": _right(case, weights, x, y),
        "robust_feature_accuracy": _right(case, weights, x - v * ~robust, y),
        "non_robust_feature_accuracy": _right(case, weights, x - u * robust, y),
        "robust_accuracy": _right(case, weights, moved, y),
    }


def _under(case: Case, weights, x, y, numbers):
    """Accuracies under ordinary attacks on the first fresh points."""
    x, y = x[:CURVE_POINTS], y[:CURVE_POINTS]
    own, features = y.astype(int), jnp.eye(4, case.dim)
    robust = (jnp.arange(case.tokens) < case.robust_patches)[None, :, None]
    assert case.judge
    eps, one = numbers.judge_radius, with_radius(case.judge.also, numbers.judge_radius)
    u, v, other_u, other_v = (features[each][:, None] for each in (own, own + 2, 1 - own, 3 - own))

    def here(x):
        return forward(case, weights, {}, x)

    def ascent(ascended):
        return sign_ascent(here, x, y, eps, ascended)

    def minus_own(outputs, y):
        return -jnp.take_along_axis(outputs, y.astype(int)[:, None], 1).sum()

    deltas = {
        "one_step": perturb(here, x, y, one),
        "own_ascent": ascent(minus_own),
        "margin_ascent": ascent(lambda out, y: -margin(out, y).sum()),
        "loss_ascent": ascent(lambda out, y: losses(out, y).sum()),
        "feature_swap": (eps * other_v - jnp.minimum(case.beta, eps) * v) * ~robust,
        "all_patch": eps * (other_u - u * robust),
    }
    return {f"robust_accuracy_{n}": _right(case, weights, x + d, y) for n, d in deltas.items()}


# A sample of runs


@dataclass(frozen=True)
class Batching:
    """How JAX goes through its runs."""

    runs: int
    """runs of a batch"""
    chunk: int
    """fresh points of a run that are attacked at once"""
    order: str = "samples"
    """runs of a batch have similar `samples`, then similar `signal`, or the reverse"""


class Runs:
    """All runs of a figure, one program for each shape other than N."""

    def __init__(self, cases: Sequence[Case], device: str):
        self.cases = list(cases)
        self.device = jax.devices("gpu" if device == "cuda" else "cpu")[0]
        # On a GPU the precision of the figure; a CPU has one only.
        tf32 = cases[0].precision == "tf32"
        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if tf32 else "highest")
        self.groups: dict[Case, list[int]] = {}
        for place, case in enumerate(self.cases):
            self.groups.setdefault(program_of(case), []).append(place)
        self.compile_seconds = 0.0
        self._programs: dict[tuple, Any] = {}
        self._batches, self._mean_steps = 0, 0.0

    def best(self, tried: Sequence[Batching]) -> Batching:
        """Return the cheapest batching per run, by a trial of one batch of each."""
        return tried[0] if len(tried) == 1 else min(tried, key=self._trial)

    def _trial(self, how: Batching) -> float:
        """Return seconds a run: of the middle batch, trained for some steps and tested on one chunk.

        The seconds of training are divided by the steps that runs took, so that a batch pays for waiting until its
        last run has ended.
        """
        program, places = next(iter(self.groups.items()))
        batches = self._in_batches(places, how)
        batch = batches[len(batches) // 2]
        cases, steps = [self.cases[place] for place in batch], min(program.max_steps, TRIAL_STEPS)

        def seconds(steps: int, chunks: int) -> tuple[float, float]:
            begin = time.perf_counter()
            values = self._batch(program, cases, how, steps, chunks, 0)
            return time.perf_counter() - begin, float(values["steps"].sum())

        try:
            seconds(0, 1)  # compiles
            (start, _), (trained, taken) = seconds(0, 0), seconds(steps, 0)
            tested = (seconds(0, 1)[0] - start) * program.tests / how.chunk / how.runs
        except jax.errors.JaxRuntimeError as error:  # no memory
            print(f"JAX: {how} left out: {str(error).splitlines()[0]}", flush=True)
            return math.inf
        self._mean_steps = self._mean_steps or max(1.0, taken / how.runs)
        return (trained - start) / max(1.0, taken) * self._mean_steps + tested + start / how.runs

    def _in_batches(self, places: Sequence[int], how: Batching) -> list[list[int]]:
        """Return the runs of every batch; the last run fills up the last batch, for the shape of the program."""

        def key(place: int):
            case = self.cases[place]
            both = (case.samples, case.signal)
            return both if how.order == "samples" else both[::-1]

        ordered = sorted(places, key=key)
        parts = [ordered[begin : begin + how.runs] for begin in range(0, len(ordered), how.runs)]
        return [part + part[-1:] * (how.runs - len(part)) for part in parts]

    def results(self, how: Batching, seed: int = 0) -> list[dict[str, float]]:
        """Train and test every run; in the order of the cases."""
        found: list[dict[str, float]] = [{}] * len(self.cases)
        for program, places in self.groups.items():
            chunks = -(-program.tests // how.chunk)
            for batch in self._in_batches(places, how):
                cases = [self.cases[place] for place in batch]
                values = self._batch(program, cases, how, program.max_steps, chunks, seed)
                for row, place in enumerate(batch):
                    found[place] = {name: float(value[row]) for name, value in values.items()}
        return found

    def _batch(self, program: Case, cases, how: Batching, steps: int, chunks: int, seed: int):
        padded = max(self.cases[place].samples for place in self.groups[program])
        self._batches += 1  # other draws for every batch
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), self._batches), len(cases))
        with jax.default_device(self.device):
            given = (keys, numbers_of(cases), steps, chunks)
            name = (program, padded, how.runs, how.chunk)
            if name not in self._programs:
                begin = time.perf_counter()
                self._programs[name] = run(program, padded, how.chunk).lower(*given).compile()
                self.compile_seconds += time.perf_counter() - begin
            return {key: np.asarray(part) for key, part in self._programs[name](*given).items()}
