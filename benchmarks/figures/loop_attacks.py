"""The attacks of the plain loop, as one would write them for one network: PGD, APGD, one step, the worst of all."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.figures.cases import AttackCase, BallCase, checkpoints

Forward = Callable[[Tensor], Tensor]
"""points [n, tokens, dim] to outputs [n] or [n, classes]"""


def margin(outputs: Tensor, y: Tensor) -> Tensor:
    """y f, or with one output a class that of the own class minus the largest other."""
    if outputs.ndim == 1:
        return y * outputs
    own = outputs.gather(1, y.long()[:, None])[:, 0]
    others = outputs.scatter(1, y.long()[:, None], -math.inf)
    return own - others.amax(1)


def _axes(ball: BallCase) -> tuple[int, ...]:
    return (-1,) if ball.per == "token" else (-2, -1)


def _direction(gradient: Tensor, ball: BallCase) -> Tensor:
    if ball.p == "inf":
        return gradient.sign()
    tiny = torch.finfo(gradient.dtype).tiny
    scaled = gradient / gradient.abs().amax(_axes(ball), keepdim=True).clamp_min(tiny)
    norm = torch.linalg.vector_norm(scaled, dim=_axes(ball), keepdim=True)
    return scaled / norm.clamp_min(tiny)


def _project(delta: Tensor, ball: BallCase) -> Tensor:
    if ball.p == "inf":
        return delta.clamp(-ball.radius, ball.radius)
    norm = torch.linalg.vector_norm(delta, dim=_axes(ball), keepdim=True)
    return delta * (ball.radius / norm.clamp_min(1e-30)).clamp_max(1)


def _uniform(x: Tensor, ball: BallCase) -> Tensor:
    if ball.p == "inf":
        return (2 * torch.rand_like(x) - 1) * ball.radius
    direction = _direction(torch.randn_like(x), ball)
    size = x.shape[-1] if ball.per == "token" else x.shape[-1] * x.shape[-2]
    share = torch.rand_like(direction.sum(_axes(ball), keepdim=True)) ** (1 / size)
    return direction * share * ball.radius


class _Worst:
    """The perturbation of smallest margin of every point so far."""

    def __init__(self, x: Tensor):
        self.delta = torch.zeros_like(x)
        self.margins = torch.full(x.shape[:1], math.inf, dtype=x.dtype, device=x.device)

    def offer(self, delta: Tensor, margins: Tensor) -> None:
        worse = margins < self.margins
        self.margins = torch.where(worse, margins, self.margins)
        self.delta = torch.where(worse[:, None, None], delta, self.delta)


def _look(forward: Forward, x: Tensor, y: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Return the margins at x + delta, and the gradient of minus their sum."""
    delta = delta.detach().requires_grad_()
    margins = margin(forward(x + delta), y)
    (gradient,) = torch.autograd.grad(-margins.sum(), delta)
    return margins.detach(), gradient


def pgd(forward: Forward, x: Tensor, y: Tensor, attack: AttackCase) -> Tensor:
    """Projected ascent of minus the margin from the clean point; the last iterate, or the worst one of all."""
    ball, delta, worst = attack.ball, torch.zeros_like(x), _Worst(x)
    for _ in range(attack.steps):
        margins, gradient = _look(forward, x, y, delta)
        if attack.best:
            worst.offer(delta, margins)
        delta = _project(delta + attack.step * ball.radius * _direction(gradient, ball), ball)
    if not attack.best:
        return delta
    with torch.no_grad():
        worst.offer(delta, margin(forward(x + delta), y))
    return worst.delta


def apgd(forward: Forward, x: Tensor, y: Tensor, attack: AttackCase, start: Tensor) -> _Worst:
    """APGD of Croce and Hein (2020) on minus the margin, and one full steepest step from the start."""
    ball, worst = attack.ball, _Worst(x)
    delta, (margins, gradient) = start, _look(forward, x, y, start)
    worst.offer(delta, margins)
    edge = _project(ball.radius * _direction(gradient, ball), ball)
    with torch.no_grad():
        worst.offer(edge, margin(forward(x + edge), y))
    best, best_value, best_gradient = delta, -margins, gradient
    value, before = -margins, None
    step = torch.full((len(x), 1, 1), 2 * ball.radius, dtype=x.dtype, device=x.device)
    rises, last_step, last_best = torch.zeros_like(value), step, best_value
    checks = checkpoints(attack.steps)
    for number in range(1, attack.steps + 1):
        new = _project(delta + step * _direction(gradient, ball), ball)
        if before is not None:
            new = _project(delta + 0.75 * (new - delta) + 0.25 * (delta - before), ball)
        before, delta, old = delta, new, value
        margins, gradient = _look(forward, x, y, delta)
        worst.offer(delta, margins)
        value = -margins
        rises = rises + (value > old)
        better = ~(best_value >= value)
        best = torch.where(better[:, None, None], delta, best)
        best_gradient = torch.where(better[:, None, None], gradient, best_gradient)
        best_value = torch.where(better, value, best_value)
        if number in checks:
            unchanged = (step == last_step)[:, 0, 0] & (best_value <= last_best)
            stuck = (rises < 0.75 * checks[number]) | unchanged
            last_step, last_best, rises = step, best_value, torch.zeros_like(rises)
            wide = stuck[:, None, None]
            step = torch.where(wide, step / 2, step)
            delta, gradient = (
                torch.where(wide, best, delta),
                torch.where(wide, best_gradient, gradient),
            )
            value = torch.where(stuck, best_value, value)
            before = torch.where(wide, delta, before)
    return worst


def one_step(forward: Forward, x: Tensor, y: Tensor, attack: AttackCase) -> Tensor:
    """One step along the gradient of -F_y, every coordinate clipped (Li section 2)."""
    points = x.detach().requires_grad_()
    own = forward(points).gather(1, y.long()[:, None]).sum()
    (gradient,) = torch.autograd.grad(-own, points)
    return (attack.step * gradient).clamp(-attack.ball.radius, attack.ball.radius)


def ensemble(forward: Forward, x: Tensor, y: Tensor, attack: AttackCase) -> Tensor:
    """The worst of the clean point, the training attack, PGD in short steps, and APGD from several starts."""
    worst = _Worst(x)
    tried = [torch.zeros_like(x)]
    if attack.also:
        tried.append(perturb(forward, x, y, attack.also))
    tried.append(pgd(forward, x, y, attack))
    for restart in range(attack.restarts):
        start = _uniform(x, attack.ball) if restart else torch.zeros_like(x)
        tried.append(apgd(forward, x, y, attack, start).delta)
    for delta in tried:
        with torch.no_grad():
            worst.offer(delta, margin(forward(x + delta), y))
    return worst.delta


def perturb(forward: Forward, x: Tensor, y: Tensor, attack: AttackCase | None) -> Tensor:
    """Return the perturbation of every point."""
    if attack is None or not attack.ball.radius:
        return torch.zeros_like(x)
    how = {"pgd": pgd, "one_step": one_step, "ensemble": ensemble}
    return how[attack.kind](forward, x, y, attack)


def sign_ascent(
    forward: Forward,
    x: Tensor,
    y: Tensor,
    ball: BallCase,
    ascended: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """20 sign steps of an eighth of the radius on a loss, from the clean point: the curves of li/fig3."""
    delta = torch.zeros_like(x)
    for _ in range(20):
        delta = delta.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(ascended(forward(x + delta), y), delta)
        delta = _project(delta + 2.5 / 20 * ball.radius * gradient.sign(), ball)
    return delta.detach()


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, y.long(), reduction="sum")
