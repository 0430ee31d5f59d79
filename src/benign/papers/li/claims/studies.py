"""The studies that judge the claims about Li and Li, and their runs trained again step by step.

Inside the theorems sigma_0 = sigma_n = 1/sqrt(d). Standard training has alpha = 2 and 31 patches against one, so that
the power method (Lemma B.2) has a clear winner. Adversarial training has separated classes, alpha = 2.5 > 2 eps, with
just enough patches for Assumption 2.3 (19 beta^3 > alpha^3). Some studies need the smaller start of Figure 3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.model_free import AllPatch
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.claims import Evidence, Undecided
from benign.claims.replays import Replays
from benign.claims.study import Reading, Scaled, Study
from benign.data.feature_patches import FeaturePatches
from benign.experiment import Experiment
from benign.losses import correct, margin
from benign.networks.patch_cnn import PatchCNN
from benign.spec.axes import Axis, dimensions, zipped
from benign.training.descent import Batch
from benign.training.metrics.features import correlations, own
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

EPS = 1.2
"""radius of Figure 3"""
FIG3_START = 0.01
"""sigma_0 of Figure 3"""
FIGURE: dict[str, Any] = {"tokens": 16, "alpha": 2.0, "beta": 1.0}
"""patches of Figure 3: 2 eps > alpha"""
DENSE: dict[str, Any] = {"tokens": 32, "alpha": 2.0, "beta": 1.0}
"""patches with slack in the density condition: 31 against 8"""
SEPARATED: dict[str, Any] = {"tokens": 20, "alpha": 2.5, "beta": 1.0}
"""patches of separated classes inside Assumption 2.3"""


SIZES = Scaled(smoke=(10, 5, 20), quick=(10, 10, 100), paper=(100, 40, 500))
"""training points, filters of a class, test points"""


def linf(radius: float = EPS) -> Ball:
    """Return the l_inf ball of the paper."""
    return Ball(p="inf", radius=radius, per="sample")


def judge(steps: int) -> EnsembleAttack:
    """Return the attack that evaluates: the worst of two ascents and the closed form against robust features."""
    return EnsembleAttack(ball=linf(), steps=steps, restarts=2, also=AllPatch(clip=EPS))


IN_DIM_100: dict[str, Any] = {"dim": 100, "noise_std": 0.1}


def _experiment(
    scale: str,
    law: dict[str, Any],
    sizes: dict[str, Any],
    *,
    start: Any = FIG3_START,
    rate: Any = 0.1,
    steps: int,
    seeds: int,
    attack: Any = None,
    judge: Attack | None = None,
) -> Experiment:
    """Return an experiment; `sizes` are dim and noise_std, the scale sets width and numbers of points."""
    samples, width, tests = SIZES[scale]
    return Experiment(
        data=FeaturePatches(samples=samples, **law, **sizes),
        network=PatchCNN(width=width, threshold=1.0, init_std=start),
        attack=attack,
        training=GradientDescent(rate=rate, stop_loss=0.0, max_steps=steps),
        evaluation=Evaluation(samples=tests, attack=judge),
        seeds=seeds,
    )


def _along(dims: tuple[int, ...]) -> tuple[dict[str, Any], Axis]:
    """Return dimensions with noise of length 1, and 1/sqrt(d) for initial weights of length 1."""
    roots = zipped("size", [1 / math.sqrt(dim) for dim in dims])
    return {"dim": zipped("size", list(dims)), "noise_std": roots}, roots


def _standard(scale: str, reading: Reading) -> Experiment:
    dims, seeds, steps = Scaled(
        smoke=((100, 144), 2, 128),
        quick=((100, 400, 900), 14, 512),
        paper=((100, 400, 1600), 29, 2048),
    )[scale]
    sizes, roots = _along(dims)
    return _experiment(scale, DENSE, sizes, start=roots, rate=roots, steps=steps, seeds=seeds)


def _adversarial(scale: str, reading: Reading) -> Experiment:
    dims, seeds, steps = Scaled(
        smoke=((100, 144), 2, 64),
        quick=((100, 200), 14, 1000),
        paper=((100, 400, 1600), 29, 10_000),
    )[scale]
    rates = zipped("size", [math.sqrt(dim) for dim in dims])  # c0 = 1/2
    attack = OneStep(rate=rates, clip=EPS)
    sizes, roots = _along(dims)
    # Larger steps than 1/sqrt(d), with which d = 400 had not fitted its attacked points after 600 steps.
    return _experiment(
        scale,
        SEPARATED,
        sizes,
        start=roots,
        steps=steps,
        seeds=seeds,
        attack=attack,
        judge=judge(20),
    )


def _small_start(scale: str, reading: Reading) -> Experiment:
    seeds, steps = Scaled(smoke=(2, 64), quick=(14, 600), paper=(29, 1600))[scale]
    attack = OneStep(rate=10.0, clip=EPS)
    return _experiment(
        scale, SEPARATED, IN_DIM_100, steps=steps, seeds=seeds, attack=attack, judge=judge(20)
    )


def _noise(scale: str, reading: Reading) -> Experiment:
    dims, seeds, steps = Scaled(
        smoke=((100, 200, 400), 2, 32),
        quick=((100, 400, 1600, 6400), 5, 200),
        paper=((100, 400, 1600, 6400), 10, 1000),
    )[scale]
    sizes, roots = _along(dims)
    attacks = OneStep(rate=10.0, clip=[0.0, EPS])
    evaluating = OneStep(rate=10.0, clip=EPS)
    # Few points and filters, as at smoke scale: only d matters here.
    return _experiment(
        "smoke",
        SEPARATED,
        sizes,
        start=roots,
        steps=steps,
        seeds=seeds,
        attack=attacks,
        judge=evaluating,
    )


def _attack_rates(scale: str, reading: Reading) -> Experiment:
    seeds, steps = Scaled(smoke=(2, 64), quick=(5, 1000), paper=(10, 1000))[scale]
    rates = [1.0, 10.0] if scale == "smoke" else [1.0, 3.0, 10.0, 30.0, 100.0]
    attack = OneStep(rate=rates, clip=EPS)
    return _experiment(
        scale, FIGURE, IN_DIM_100, steps=steps, seeds=seeds, attack=attack, judge=judge(5)
    )


def inner_attacks() -> list[Attack]:
    """Return the paper's step, full ascent of the margin in the same ball, and the step in an l2 ball around each
    patch."""
    patch = Ball(p=2, radius=EPS, per="token")
    return [
        OneStep(rate=10.0, clip=EPS),
        PGD(ball=linf(), steps=10, step=0.25),
        OneStep(rate=10.0, ball=patch),
    ]


def _inner(scale: str, reading: Reading) -> Experiment:
    seeds, steps = Scaled(smoke=(2, 64), quick=(14, 600), paper=(29, 1600))[scale]
    return _experiment(
        scale,
        SEPARATED,
        IN_DIM_100,
        steps=steps,
        seeds=seeds,
        attack=inner_attacks(),
        judge=judge(5),
    )


STANDARD = Study(name="li/standard", build=_standard)
ADVERSARIAL = Study(name="li/adversarial", build=_adversarial)
SMALL_START = Study(name="li/small_start", build=_small_start)
NOISE = Study(name="li/noise", build=_noise)
ATTACK_RATES = Study(name="li/attack_rates", build=_attack_rates)
INNER = Study(name="li/inner", build=_inner)


# Runs trained again.


Curves = Float[Tensor, "steps seeds classes width"]
Perturb = Callable[[Target], Points]
"""an attack: `attack.perturb`, or a function of a target"""


@dataclass(frozen=True)
class Trained:
    """All seeds of one cell: their filters' own features at every step, and the networks at snapshot steps."""

    end: Batch
    A: Curves
    """<w_ir, u_i>"""
    B: Curves
    """<w_ir, v_i>"""
    weights: dict[int, Tensor]
    """at snapshot steps"""

    def at(self, step: int) -> Batch:
        """Return the networks at a snapshot step."""
        return replace(self.end, raw_params={"weights": self.weights[step]})

    @property
    def robust(self) -> Float[Tensor, "steps seeds classes"]:
        """max_r A at every step"""
        return self.A.amax(3)

    @property
    def non_robust(self) -> Float[Tensor, "steps seeds classes"]:
        """max_r B at every step"""
        return self.B.amax(3)


def trained(evidence: Evidence, study: int = 0, **cell: Any) -> Trained:
    """Return the runs of the cell with these coordinates, and the last ones along every other axis."""
    last = {dim.name: dim.values[-1] for dim in dimensions(evidence.experiments[study])}
    return _trained(evidence.replay(study, **(last | cell)))


@lru_cache(maxsize=8)
def _trained(replay: Replays) -> Trained:
    """Cached: several claims need the same runs, at most the three sizes of two studies, or five rates."""
    batch, snapshots = replay.start(), set(replay.cell.snapshot_steps())
    curves, weights = [], {}
    for step, _ in replay.steps():
        batch = step.batch
        curves.append([own(part).clone() for part in correlations(step)])
        if step.number in snapshots:
            weights[step.number] = batch.params["weights"].clone()
    if len(batch) < len(replay):
        raise Undecided(f"{len(replay) - len(batch)} of {len(replay)} runs ended before the others")
    robust, non_robust = (torch.stack(part) for part in zip(*curves, strict=True))
    return Trained(batch, robust, non_robust, weights)


def accuracy(batch: Batch, perturb: Perturb | None, count: int) -> Float[Tensor, " seeds"]:
    """Return the share of the first fresh points that are classified correctly, attacked or clean."""
    target = fresh(batch, count)
    points = perturb(target) if perturb else target.x
    return correct(margin(target.run(points).outputs, target.y)).mean(1)


def fresh(batch: Batch, count: int) -> Target:
    """Return the first test points of the evaluation, with the networks."""
    return batch.target(batch.test_points("test/0", count), "attack/claims")


def predicted(target: Target, points: Points) -> Int64[Tensor, "seeds samples"]:
    """Return the class with the largest output."""
    return target.run(points).outputs.argmax(2)
