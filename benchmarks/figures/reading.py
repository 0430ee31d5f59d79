"""From a cell of an experiment to a case; what the other contestants do not do is refused."""

import math
from typing import Any

from benchmarks.figures.cases import AttackCase, BallCase, Case
from benign.attacks.attack import Attack
from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.data.feature_patches import FeaturePatches
from benign.data.mixture import Mixture
from benign.data.signal_noise import SignalNoise
from benign.networks.attention import Attention
from benign.networks.initial import TorchDefault
from benign.networks.linear import Linear
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.spec.axes import settings
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup


def case_of(cell: Setup) -> Case:
    """Return the numbers of a cell. Raise ValueError if it asks for something that the other contestants lack."""
    training = cell.training
    if not isinstance(training, GradientDescent) or training.first_attacked_step:
        raise ValueError(
            "the contestants know plain gradient descent, attacked from its first step"
        )
    if training.stop_on != "attacked":
        raise ValueError("the contestants stop by the loss that they descend")
    return Case(
        **_data(cell),
        **_network(cell),
        samples=cell.data.samples,
        tokens=cell.data.tokens,
        dim=cell.data.dim,
        rate=training.rate,
        stop_loss=training.stop_loss,
        max_steps=training.max_steps,
        drop_every=training.drop_every,
        drop_by=training.drop_by,
        tests=cell.evaluation.samples,
        precision=cell.precision,
        attack=_attack(cell.attack, cell),
        judge=_attack(cell.final_attack, cell),
        snapshots=tuple(cell.snapshot_steps()) if cell.evaluation.at == "snapshots" else (),
    )


def _data(cell: Setup) -> dict[str, Any]:
    data = cell.data
    known = {"samples", "tokens", "dim"}
    if isinstance(data, SignalNoise):
        _only(data, known | {"snr", "signal", "noise_std", "strong_noise_std"})
        if data.projected or data.directions != "axes":
            raise ValueError("the contestants draw isotropic noise, and signals along axes")
        strong = data.strong_noise_std
        return {
            "data": "signal_noise",
            "signal": float(data.signal_norm()),
            "noise_std": float(data.noise_std),
            "strong_noise_std": None if strong is None else float(strong),
            "balanced": data.balanced,
        }
    if isinstance(data, Mixture):
        _only(data, known | {"signal", "noise_std", "flip"})
        return {
            "data": "mixture",
            "signal": float(data.signal),
            "noise_std": float(data.noise_std),
            "flip": float(data.flip),
            "balanced": data.balanced,
        }
    if isinstance(data, FeaturePatches):
        _only(data, known | {"noise_std", "alpha", "beta", "robust_patches", "classes"})
        if data.classes != 2 or data.balanced:
            raise ValueError("the contestants draw two classes with independent labels")
        return {
            "data": "feature_patches",
            "noise_std": float(data.noise_std),
            "alpha": float(data.alpha or 0.0),
            "beta": float(data.beta or 0.0),
            "robust_patches": data.robust_patches,
        }
    raise ValueError(f"the contestants do not draw `{data.kind}`")


def _only(spec: Any, known: set[str]) -> None:
    """Raise ValueError if another field that may be an axis differs from its default."""
    others = {path[0] for path, _ in settings(spec)} - known
    if others:
        raise ValueError(f"the contestants do not know {sorted(others)} of `{spec.kind}`")


def _network(cell: Setup) -> dict[str, Any]:
    network = cell.network
    if isinstance(network, Attention):
        _only(network, {"hidden", "init"})
        if not isinstance(network.init, TorchDefault) or network.init.divide_output:
            raise ValueError("the contestants start from PyTorch's default, with w_O undivided")
        return {
            "network": "attention",
            "width": network.hidden,
            "normal_weights": network.init.entries == "normal",
            "divide_by": float(network.init.divide_by),
        }
    if isinstance(network, TwoLayer):
        if network.preset != "torch_default" or network.activation != "relu":
            raise ValueError("the contestants know `preset: torch_default` with ReLU")
        return {"network": "two_layer", "width": network.width}
    if isinstance(network, PatchCNN):
        if (network.q, network.threshold, network.outputs) != (3, 1.0, "classes"):
            raise ValueError("the contestants know q = 3, rho = 1 and one output a class")
        return {"network": "patch_cnn", "width": network.width, "init_std": float(network.init_std)}
    if isinstance(network, Linear):
        if network.output_norm != 1 or cell.data.tokens != 1:
            raise ValueError("the contestants know the linear network of one token with |w_O| = 1")
        return {"network": "linear", "width": 1, "init_std": float(network.init_std)}
    raise ValueError(f"the contestants do not know `{network.kind}`")


def _attack(attack: Attack | None, cell: Setup) -> AttackCase | None:
    if attack is None:
        return None
    threat = attack.threat()
    if not isinstance(threat, Ball) or threat.box is not None or threat.p not in (2, "inf"):
        raise ValueError("the contestants know whole l2 and linf balls")
    if threat.relative_to == "point":
        raise ValueError("the contestants know one radius a run")
    ball = BallCase(threat.p, threat.per, float(threat.size(cell.data)))
    if isinstance(attack, OneStep):
        if attack.loss != "own":
            raise ValueError("the contestants know one step on -F_y")
        return AttackCase("one_step", ball, step=float(attack.rate))
    if isinstance(attack, PGD):
        plain = attack.loss == "margin" and attack.start == "zero" and attack.restarts == 1
        if not plain or attack.stop_when_wrong:
            raise ValueError("the contestants know PGD on the margin, from the clean point")
        return AttackCase("pgd", ball, attack.steps, float(attack.step), attack.keep == "best")
    if isinstance(attack, EnsembleAttack):
        also = _attack(attack.also, cell)
        if also and not math.isclose(also.ball.radius, ball.radius):
            raise ValueError("the ball of the training attack differs from that of the evaluation")
        return AttackCase("ensemble", ball, attack.steps, 0.1, True, attack.restarts, also)
    raise ValueError(f"the contestants do not know the attack `{attack.kind}`")
