"""Where small coordinates would not be exact, and why: each answer names the field, its value and a remedy.

Everything must look the same in every orthonormal basis and stay in the span of training tokens, signals
and initial weights (papers/jiang.md 7.2, papers/wang.md 6.1 and 6.4).
"""

from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack
from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.attacks.strong import EnsembleAttack
from benign.data.model import DataModel
from benign.networks.network import Network
from benign.reduction.rows import TokenRows

ROTATING = (PGD, APGD, EnsembleAttack)
"""attacks that take steps along gradients and project on their ball; by class, a subclass may do something else"""


def why_not_projected(network: Network, attack: Attack | None, judge: Attack | None) -> str | None:
    """What makes the span of a run depend on more than its start, or on the basis; None where nothing does."""
    if not isinstance(network, TokenRows):
        return f"`network` ({network.kind}) does not declare its weights as vectors of token space"
    trouble = _attack_trouble("attack", attack, training=True)
    return trouble or _attack_trouble("evaluation.attack", judge, training=False)


def why_not_sampled(
    data: DataModel, network: Network, attack: Attack | None, judge: Attack | None
) -> str | None:
    """The same, or a law that rotations change; None where nothing stands against it."""
    trouble = why_not_projected(network, attack, judge)
    if trouble:
        return trouble
    assert isinstance(network, TokenRows)
    return data.why_not_gaussian() or network.why_not_gaussian()


def _attack_trouble(field: str, attack: Attack | None, *, training: bool) -> str | None:
    if attack is None:
        return None
    if type(attack) not in ROTATING:
        kinds = ", ".join(each.kind for each in ROTATING)
        return (
            f"`{field}` is {attack.kind}, which is not known to act alike in every basis: "
            f"use one of {kinds} in an l2 ball"
        )
    if training and starts_at_random(attack):
        return (
            f"`{field}` ({attack.kind}) starts at random, which leaves the span in every training step: "
            "use `start: zero` and `restarts: 1`"
        )
    threat = attack.threat()
    troubles = [_ball_trouble(field, ball) for ball in (threat.each() if threat else [])]
    troubles.append(
        _attack_trouble(f"{field}.also", getattr(attack, "also", None), training=training)
    )
    return next(filter(None, troubles), None)


def starts_at_random(attack: Attack) -> bool:
    """Whether a climb of the attack starts at a random point of its ball."""
    return getattr(attack, "start", "zero") != "zero" or getattr(attack, "restarts", 1) > 1


def _ball_trouble(field: str, ball: Ball) -> str | None:
    if ball.p != 2:
        return (
            f"`{field}.ball.p` is {ball.p}, and only l2 balls are alike in every basis: use `p: 2`"
        )
    if ball.box is not None:
        return f"`{field}.ball.box` is {[*ball.box]}, which belongs to one basis: leave it out"
    if ball.relative_to == "point":
        return (
            f"`{field}.ball.relative_to` is 'point', and fresh points are longer than what the span holds of "
            "them: measure the radius by the signal or in the data's units"
        )
    return None
