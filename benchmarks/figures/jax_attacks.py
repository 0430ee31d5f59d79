"""The attacks of the loop in JAX, for the points of one run; programs map them over runs."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.figures.cases import AttackCase, BallCase, checkpoints

Forward = Callable[[Any], Any]


def margin(outputs, y):
    if outputs.ndim == 1:
        return y * outputs
    own = jnp.take_along_axis(outputs, y.astype(int)[:, None], 1)[:, 0]
    others = jnp.where(jnp.arange(outputs.shape[1]) == y.astype(int)[:, None], -jnp.inf, outputs)
    return own - others.max(1)


def _axes(ball: BallCase):
    return (-1,) if ball.per == "token" else (-2, -1)


def _norm(delta, ball: BallCase):
    return jnp.sqrt(jnp.square(delta).sum(_axes(ball), keepdims=True))


def _direction(gradient, ball: BallCase):
    if ball.p == "inf":
        return jnp.sign(gradient)
    tiny = jnp.finfo(gradient.dtype).tiny  # anything smaller is flushed to 0
    scaled = gradient / jnp.maximum(jnp.abs(gradient).max(_axes(ball), keepdims=True), tiny)
    return scaled / jnp.maximum(_norm(scaled, ball), tiny)


def _project(delta, ball: BallCase):
    if ball.p == "inf":
        return jnp.clip(delta, -ball.radius, ball.radius)
    return delta * jnp.minimum(ball.radius / jnp.maximum(_norm(delta, ball), 1e-30), 1)


def _uniform(key, x, ball: BallCase):
    one, two = jax.random.split(key)
    if ball.p == "inf":
        return jax.random.uniform(one, x.shape, x.dtype, -1, 1) * ball.radius
    direction = _direction(jax.random.normal(one, x.shape, x.dtype), ball)
    size = x.shape[-1] if ball.per == "token" else x.shape[-1] * x.shape[-2]
    share = jax.random.uniform(two, direction.sum(_axes(ball), keepdims=True).shape, x.dtype)
    return direction * share ** (1 / size) * ball.radius


def _offer(worst, delta, margins):
    """Keep the perturbation of smallest margin of every point."""
    worse = margins < worst[1]
    return jnp.where(worse[:, None, None], delta, worst[0]), jnp.where(worse, margins, worst[1])


def _nothing(x):
    return jnp.zeros_like(x), jnp.full(len(x), jnp.inf, x.dtype)


def _look(forward: Forward, x, y, delta):
    def lowered(delta):
        margins = margin(forward(x + delta), y)
        return -margins.sum(), margins

    gradient, margins = jax.grad(lowered, has_aux=True)(delta)
    return margins, gradient


def pgd(forward: Forward, x, y, attack: AttackCase):
    ball = attack.ball

    def step(state, _):
        delta, worst = state
        margins, gradient = _look(forward, x, y, delta)
        worst = _offer(worst, delta, margins) if attack.best else worst
        delta = _project(delta + attack.step * ball.radius * _direction(gradient, ball), ball)
        return (delta, worst), None

    start = jnp.zeros_like(x)
    worst = _nothing(x) if attack.best else None
    (delta, worst), _ = lax.scan(step, (start, worst), None, length=attack.steps)
    return _offer(worst, delta, margin(forward(x + delta), y))[0] if attack.best else delta


def apgd(forward: Forward, x, y, attack: AttackCase, start):
    ball, checks = attack.ball, checkpoints(attack.steps)
    margins, gradient = _look(forward, x, y, start)
    worst = _offer(_nothing(x), start, margins)
    edge = _project(ball.radius * _direction(gradient, ball), ball)
    worst = _offer(worst, edge, margin(forward(x + edge), y))

    def one(state, checked):
        (delta, value, gradient), best, before, step, rises, last, worst, first = state
        new = _project(delta + step * _direction(gradient, ball), ball)
        moved = _project(delta + 0.75 * (new - delta) + 0.25 * (delta - before), ball)
        before, delta, old = delta, jnp.where(first, new, moved), value
        margins, gradient = _look(forward, x, y, delta)
        worst, value = _offer(worst, delta, margins), -margins
        rises = rises + (value > old)
        here = (delta, value, gradient)
        best = _chosen(~(best[1] >= value), here, best)
        unchanged = (step == last[0])[:, 0, 0] & (best[1] <= last[1])
        stuck = (checked > 0) & ((rises < 0.75 * checked) | unchanged)
        last = tuple(jnp.where(checked > 0, a, b) for a, b in ((step, last[0]), (best[1], last[1])))
        rises = jnp.where(checked > 0, 0.0, rises)
        wide = stuck[:, None, None]
        here = _chosen(stuck, best, here)
        before = jnp.where(wide, here[0], before)
        return (
            here,
            best,
            before,
            jnp.where(wide, step / 2, step),
            rises,
            last,
            worst,
            False,
        ), None

    here = (start, -margins, gradient)
    step = jnp.zeros((len(x), 1, 1), x.dtype) + 2 * ball.radius
    rises = jnp.zeros_like(margins)
    state = (here, here, start, step, rises, (step, -margins), worst, True)
    each = np.array([checks.get(number, 0) for number in range(1, attack.steps + 1)], x.dtype)
    return lax.scan(one, state, each)[0][6]


def _chosen(mask, one, other):
    wide = mask[:, None, None]
    return tuple(
        jnp.where(mask if a.ndim == 1 else wide, a, b) for a, b in zip(one, other, strict=True)
    )


def one_step(forward: Forward, x, y, attack: AttackCase):
    def lowered(x):
        return -jnp.take_along_axis(forward(x), y.astype(int)[:, None], 1).sum()

    return jnp.clip(attack.step * jax.grad(lowered)(x), -attack.ball.radius, attack.ball.radius)


def ensemble(forward: Forward, x, y, attack: AttackCase, key):
    zero = jnp.zeros_like(x)
    worst = _offer(_nothing(x), zero, margin(forward(x), y))
    tried = [perturb(forward, x, y, attack.also, key)] if attack.also else []
    tried.append(pgd(forward, x, y, attack))
    tried.append(apgd(forward, x, y, attack, zero)[0])
    for delta in tried:
        worst = _offer(worst, delta, margin(forward(x + delta), y))
    if attack.restarts == 1:
        return worst[0]

    def again(worst, key):
        delta, _ = apgd(forward, x, y, attack, _uniform(key, x, attack.ball))
        return _offer(worst, delta, margin(forward(x + delta), y)), None

    return lax.scan(again, worst, jax.random.split(key, attack.restarts - 1))[0][0]


def perturb(forward: Forward, x, y, attack: AttackCase | None, key=None):
    if attack is None:
        return jnp.zeros_like(x)
    if attack.kind == "ensemble":
        return ensemble(forward, x, y, attack, key)
    return {"pgd": pgd, "one_step": one_step}[attack.kind](forward, x, y, attack)


def with_radius(attack: AttackCase | None, radius) -> AttackCase | None:
    """Return the attack in a ball whose radius is a traced number."""
    if attack is None:
        return None
    also = with_radius(attack.also, radius)
    return replace(attack, ball=replace(attack.ball, radius=radius), also=also)


def sign_ascent(forward: Forward, x, y, radius, ascended):
    def step(delta, _):
        gradient = jax.grad(lambda delta: ascended(forward(x + delta), y))(delta)
        return jnp.clip(delta + 2.5 / 20 * radius * jnp.sign(gradient), -radius, radius), None

    return lax.scan(step, jnp.zeros_like(x), None, length=20)[0]
