"""A run in plain numbers: what the loop and JAX are given, whose pages would not import benign: nor does this."""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class BallCase:
    p: Any
    """2, or `inf`"""
    per: str
    """every `token` has its own ball, or the whole `sample` one"""
    radius: float


@dataclass(frozen=True)
class AttackCase:
    """PGD, one clipped step, or the ensemble of the evaluation: PGD, APGD, and the training attack."""

    kind: str
    """`pgd`, `one_step` or `ensemble`"""
    ball: BallCase
    steps: int = 1
    step: float = 0.0
    """length of a step as a share of the radius; of `one_step` the factor of the gradient"""
    best: bool = False
    """the iterate of smallest margin, not the last"""
    restarts: int = 1
    """of APGD; all but the first start in a uniform point of the ball"""
    also: "AttackCase | None" = None


@dataclass(frozen=True)
class Case:
    """One run. What a figure does not have keeps its default."""

    data: str
    """`signal_noise`, `mixture` or `feature_patches`"""
    network: str
    """`attention`, `two_layer`, `patch_cnn` or `linear`"""
    samples: int
    tokens: int
    dim: int
    width: int
    """of queries, keys and values; neurons; filters of a class"""
    rate: float
    stop_loss: float
    max_steps: int
    tests: int
    """fresh points"""
    precision: str
    attack: AttackCase | None = None
    judge: AttackCase | None = None
    """the attack on fresh points at the end"""
    drop_every: int = 0
    drop_by: float = 10.0
    signal: float = 0.0
    """length of the signal"""
    noise_std: float = 1.0
    strong_noise_std: float | None = None
    """of token 2, if it differs"""
    balanced: bool = False
    flip: float = 0.0
    """share of flipped training labels"""
    alpha: float = 0.0
    beta: float = 0.0
    """strengths of robust and non-robust features"""
    robust_patches: int = 0
    divide_by: float = 1.0
    """divides PyTorch's default of W_Q, W_K and W_V"""
    normal_weights: bool = False
    """whether these are normal with the standard deviation of PyTorch's default, not uniform"""
    init_std: float = 0.0
    snapshots: tuple[int, ...] = ()
    """steps at which fresh points are tested; the curves of li/fig3"""


def attacked_at(case: Case, step: int) -> bool:
    """Return whether a snapshot has the curves under attack: half an octave after the last that had, and the last."""
    last = step == case.max_steps
    return last or not step or step == round(2 ** (round(2 * math.log2(step)) / 2))


def checkpoints(steps: int) -> dict[int, int]:
    """Return the steps at which APGD checks its progress, each with the steps since the last check."""
    found, before, here, period = {}, 0, 0.22, 0.22
    while (number := math.ceil(round(here * steps, 6))) <= steps:
        if number > before:
            found[number] = number - before
        before, period = number, max(period - 0.03, 0.06)
        here += period
    return found


def as_dict(case: Case) -> dict[str, Any]:
    """Return plain data for another process."""
    return asdict(case)


def from_dict(given: dict[str, Any]) -> Case:
    attack, judge = (_attack_from(given[name]) for name in ("attack", "judge"))
    return Case(
        **{**given, "attack": attack, "judge": judge, "snapshots": tuple(given["snapshots"])}
    )


def _attack_from(given: dict[str, Any] | None) -> AttackCase | None:
    if given is None:
        return None
    ball, also = BallCase(**given["ball"]), _attack_from(given["also"])
    return AttackCase(**{**given, "ball": ball, "also": also})
