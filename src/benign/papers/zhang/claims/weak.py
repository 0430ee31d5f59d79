"""Lemmas 4 and 6 of Zhang et al.: the effect of a weak attack on attention and on margins, inside the theorem.

One study: Case 1 of Theorem 2 with r = c / log d_h, and d from the smallest that Condition 1 allows to 1e6. Its runs
are trained again here, because the statistics need the final weights.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.claims import (
    Claims,
    Direction,
    Evidence,
    Measured,
    Reading,
    Study,
    Undecided,
    at_most,
    slope_by_seed,
    worst_of_runs,
)
from benign.claims.conditions import Conditions
from benign.claims.replays import Replays
from benign.claims.study import Scaled
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.losses import margin
from benign.networks.attention import Attention
from benign.papers.inside import attention_along, descent_along, inside_theorem
from benign.papers.jiang.theory import parts
from benign.papers.zhang.bounds import LARGEST_ATTENTION_RATIO
from benign.papers.zhang.theory import conditions
from benign.spec.axes import zipped
from benign.training.descent import Batch, Status
from benign.training.setup import Evaluation, Setup

CLAIMS = Claims("zhang")
SHARES = (0.1, 0.3, 1.0)
"""c of r = c / log d_h"""


@dataclass(frozen=True)
class _WeakSize:
    loss: float
    """eps, which decides d_h and the smallest d"""
    dims: int
    """number of dimensions, up to 1e6"""
    seeds: int


_SIZES = Scaled(
    smoke=_WeakSize(0.65, 2, 2), quick=_WeakSize(0.5, 3, 7), paper=_WeakSize(0.3, 6, 20)
)
"""a share of 0.95 needs at least 63 runs, all without a failure"""


def _build(scale: str, reading: Reading) -> Experiment:
    size = _SIZES[scale]
    choice = {"samples": 4, "tokens": 2, "loss": size.loss, "snr": 1.0}
    least = parts(inside_theorem("zhang", **choice).experiment)
    dims = np.geomspace(least[0].dim, 1e6, size.dims).round().astype(int).tolist()
    cells = [inside_theorem("zhang", **choice, dim=dim).experiment for dim in dims]
    radii = [c / math.log(least[1].hidden) for c in SHARES]
    return Experiment(
        data=SignalNoise(
            samples=4,
            tokens=2,
            dim=zipped("size", dims),
            snr=1.0,
            noise_std=zipped("size", [dim**-0.5 for dim in dims]),
            projected=True,
            balanced=True,
        ),
        network=attention_along("size", cells),
        attack=PGD(ball=Ball(radius=radii, relative_to="signal"), steps=20, step=0.2),
        training=descent_along("size", cells, max_steps=400),
        evaluation=Evaluation(samples=4),  # for the audit alone
        precision="float64",
        coordinates="sampled",
        seeds=size.seeds,
    )


WEAK = Study(name="zhang/weak_attack", build=_build)


def _case_1(cell: Setup) -> Conditions:
    return conditions(cell, 1)


@dataclass(frozen=True)
class AttackEffect:
    """The effect of an attack on a trained run."""

    seed: int
    tokens: int
    dim: int
    hidden: int
    radius: float
    """tau / |mu|"""
    log_ratio: float
    """log of the largest over the smallest attention of a signal token on a noise token, over the balls"""
    gap: float
    """largest fall of a training margin, in units of |u| tau"""

    @property
    def share(self) -> float:
        """c of r = c / log d_h"""
        return self.radius * math.log(self.hidden)


def _effects(evidence: Evidence) -> list[AttackEffect]:
    """Return the effect on every run that converged."""
    effects = _effects_on(evidence.replays())
    if not effects:
        raise Undecided("no run converged")
    return effects


@lru_cache(maxsize=2)
def _effects_on(replays: tuple[Replays, ...]) -> list[AttackEffect]:
    """Cached: three claims need them."""
    return [effect for replay in replays for effect in _effects_on_unit(replay)]


def _effects_on_unit(replay: Replays) -> Iterator[AttackEffect]:
    for runs, batch in replay.ended(Status.CONVERGED):
        ratios = (_log_attention(batch, 1.0) + _log_attention(batch, -1.0)).amax(1)
        gaps = _gaps(batch).amax(1)
        for run, ratio, gap in zip(runs, ratios.tolist(), gaps.tolist(), strict=True):
            data, layer = parts(run.cell)
            assert isinstance(run.cell.attack, PGD)
            radius = run.cell.attack.ball.radius
            yield AttackEffect(run.seed, data.tokens, data.dim, layer.hidden, radius, ratio, gap)


def _attention(batch: Batch) -> Attention:
    assert isinstance(batch.setup.network, Attention)
    return batch.setup.network


def _log_attention(batch: Batch, sign: float, steps: int = 30) -> Tensor:
    """Return the largest sign log A_12 in the ball of every training point, by ascent from the clean point."""
    network, x, params = _attention(batch), batch.sample.x, batch.params
    attack = batch.setup.attack
    assert isinstance(attack, PGD)
    ball, radius = attack.ball, attack.ball.radii(batch.setup.data, x)
    query, key = network.queries(params), network.keys(params)

    def log_attention(points: Tensor) -> Tensor:
        scores = torch.einsum("rnd,rdh,reh,rnje->rnj", points[:, :, 0], query, key, points)
        return scores.log_softmax(2)[..., 1]

    delta = torch.zeros_like(x)
    for _ in range(steps):
        delta.requires_grad_()
        with torch.enable_grad():
            gradient = torch.autograd.grad(sign * log_attention(x + delta).sum(), delta)[0]
        moved = delta.detach() + 0.2 * radius * ball.steepest(gradient)
        delta = ball.project(moved, radius, x)
    return sign * log_attention(x + delta)


def _gaps(batch: Batch) -> Tensor:
    """Return (y f - min y f) / (|u| tau) of every training point, with the minimum by the judging attack."""
    attack, network = batch.setup.final_attack, _attention(batch)
    assert attack is not None
    assert batch.setup.attack is not None
    target = batch.widened_for(attack, batch.target(batch.sample, "claim"))
    clean, attacked = (
        margin(target.run(points).outputs, target.y)
        for points in (target.x, attack.perturb(target))
    )
    threat = batch.setup.attack.threat()
    assert isinstance(threat, Ball)
    tau = threat.radii(batch.setup.data, batch.sample.x)[:, :, 0, 0]
    length = network.values(batch.params).norm(dim=(1, 2))
    return (clean - attacked) / (length[:, None] * tau)


@CLAIMS.add(
    "lem4.attn_ratio",
    "Lemmas 4 and 20",
    {
        **{f"c={c:g}": at_most(0.0) for c in SHARES},
        "largest": at_most(math.log(LARGEST_ATTENTION_RATIO)),
    },
    WEAK,
    conditions=_case_1,
    informational=("largest",),
    version=2,
)
def attention_ratio(evidence: Evidence) -> dict[str, Measured]:
    """An attack of radius c |mu| / log d_h changes an entry of trained attention by a factor of at most e/2 in every
    dimension: the logarithm of the factor does not grow with d. (By ascent: the true factors are at least these.)"""
    effects = _effects(evidence)
    parts: dict[str, Measured] = {}
    for c in SHARES:
        table: dict[int, dict[int, float]] = {}  # log ratio by dimension and seed
        for effect in effects:
            if math.isclose(effect.share, c, rel_tol=1e-3):
                table.setdefault(effect.dim, {})[effect.seed] = effect.log_ratio
        if not table:
            raise Undecided(f"no run that converged has a radius of {c:g} |mu| / log d_h")
        dims = sorted(table)
        seeds = range(evidence.experiment.seeds)
        rows = [[table[dim].get(seed, math.nan) for dim in dims] for seed in seeds]
        parts[f"c={c:g}"] = slope_by_seed("slope of log ratio on log d", np.log(dims), rows)
    largest = max(effects, key=lambda effect: effect.log_ratio)
    logs = _largest_by_seed(effects, lambda effect: effect.log_ratio)
    overall = worst_of_runs("log of the largest factor", logs)
    note = f"at d = {largest.dim}, r = {largest.radius:.3g}"
    return {**parts, "largest": overall.noting(note)}


def _largest_by_seed(
    effects: list[AttackEffect], number: Callable[[AttackEffect], float]
) -> list[list[float]]:
    """Return the largest number of the runs of each seed that has any: a row for each seed."""
    seeds = sorted({effect.seed for effect in effects})
    return [[max(number(each) for each in effects if each.seed == seed)] for seed in seeds]


@CLAIMS.add(
    "lem6.margin_gap",
    "Lemma 6",
    at_most(1.0),
    WEAK,
    conditions=_case_1,
    robust=Direction.FALLS,
    version=2,
)
def margin_gap(evidence: Evidence) -> Measured:
    """An attack of radius at most |mu| / log d_h lowers no margin by more than M |u| tau."""
    gaps = _largest_by_seed(_effects(evidence), lambda effect: effect.gap / effect.tokens)
    return worst_of_runs("gap / (M |u| tau)", gaps, log=True)


@CLAIMS.add(
    "derived.frozen_gap",
    "derived (Lemma 6 with attention that the attack does not move)",
    at_most(1.1),
    WEAK,
    conditions=_case_1,
    robust=Direction.FALLS,
    version=2,
)
def frozen_gap(evidence: Evidence) -> Measured:
    """The attack moves values but not attention: it lowers no margin by more than 1.1 |u| tau."""
    gaps = _largest_by_seed(_effects(evidence), lambda effect: effect.gap)
    return worst_of_runs("gap / (|u| tau)", gaps, log=True)
