"""Section 5 of Wang et al.: what their figures share, and what it leaves open (papers/wang.md 3)."""

from dataclasses import dataclass
from typing import Any, Literal

import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.claims.study import Question, Reading
from benign.data.mixture import Mixture
from benign.data.model import DataModel
from benign.experiment import Experiment, specification
from benign.networks.two_layer import TwoLayer
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

FLIP = 0.1
"""beta, share of flipped labels"""
RHO = 0.1
"""alpha / |mu| where it does not vary"""
PRINTED_EXPONENTS = {"clean": 4, "robust": 2}
"""figures 1 and 4 as printed: d ~ r^4 and d ~ r^2"""
UNPRINTED = "printed, constant fitted here"

RADIUS = Question(
    "radius",
    "the attack strength is printed as alpha / |mu|: is rho = 0.1 relative to the signal?",
    {
        "relative": "yes: radius rho |mu|, step a fifth of it",
        "absolute": "no: radius rho in the units of the data, as printed",
    },
    "only a relative radius gives the printed transition at d ~ r^2",
)
NETWORK = Question(
    "network",
    "the theory has a fixed outer layer and a symmetric start, the experiments PyTorch's default",
    {
        "torch_default": "biases, both layers trained, attacked from the first step on",
        "hybrid": "fixed outer layer, symmetric start of PyTorch's size, first step clean",
    },
    "the section on experiments says so",
)


@dataclass(frozen=True, kw_only=True)
class WangSize:
    """A figure at one scale."""

    samples: int
    width: int
    steps: int
    ascend: int
    """steps of the training attack, which go four radii together"""
    seeds: int
    test: int
    precision: Literal["float32", "tf32"] = "float32"


SMALLEST = "projected"
"""coordinates of the synthetic figures: the same runs, in the span of points and weights where that is less than R^d"""
PAPER = WangSize(
    samples=100, width=1000, steps=1000, ascend=20, seeds=10, test=2000, precision="tf32"
)


def ball(reading: Reading, radius: Any) -> Ball:
    """The attack's ball under an answer to `radius`."""
    relative = "signal" if reading["radius"] == "relative" else None
    return Ball(radius=radius, relative_to=relative, per="sample")


def training_attack(size: WangSize, reading: Reading, radius: Any) -> PGD:
    """PGD from the clean point, in steps of a fifth of the radius where there are 20."""
    return PGD(ball=ball(reading, radius), steps=size.ascend, step=4 / size.ascend)


def clusters(size: WangSize, signal: Any, dim: Any) -> Mixture:
    """The synthetic data."""
    return Mixture(samples=size.samples, dim=dim, signal=signal, flip=FLIP)


def experiment(
    size: WangSize,
    reading: Reading,
    *,
    data: DataModel,
    radius: Any,
    evaluation: Evaluation,
    **more,
) -> Experiment:
    """Rate 0.1, a tenth of it after half the steps, to the last step."""
    theory = reading["network"] == "hybrid"
    return Experiment(
        data=data,
        network=TwoLayer(width=size.width, preset="hybrid" if theory else "torch_default"),
        attack=training_attack(size, reading, radius),
        training=GradientDescent(
            rate=0.1,
            drop_every=size.steps // 2,
            stop_loss=0.0,
            max_steps=size.steps,
            first_attacked_step=1 if theory else 0,
        ),
        evaluation=evaluation,
        precision=size.precision,
        seeds=size.seeds,
        **more,
    )


def by_radius(result: xr.Dataset) -> xr.Dataset:
    """With the radius as an axis of numbers: it is in two attacks, so the axis only counts them."""
    name = "attack.ball.radius"
    shown = result.swap_dims(rho=name).drop_vars("rho").rename({name: "radius"})
    attributes = {"long_name": "radius of the attack in units of |mu|", "symbol": "rho"}
    if specification(result)["attack"]["ball"].get("relative_to") != "signal":
        attributes["long_name"] = "radius of the attack"
    return shown.assign_coords(radius=shown.radius.assign_attrs(attributes))
