"""The setting of Zhang's synthetic experiments (papers/zhang.md section 5), and how their curves are read."""

import math

import numpy as np
import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.data.signal_noise import SignalNoise
from benign.networks.attention import Attention

LEVEL = 0.75
"""accuracy halfway between chance and certainty"""
RADIUS = 0.05
"""tau / |mu| of figures 1 and 2"""
NOISE_LENGTH = math.sqrt(0.4 * 1024)
"""sigma_p sqrt(d) of a noise token of figures 1 and 2, also where d is another"""


def noisy_signals(dim: int, **more) -> SignalNoise:
    """As in figures 1 and 2: isotropic noise of variance 0.4, M = 16, by default reading."""
    return SignalNoise(
        **({"tokens": 16, "dim": dim, "noise_std": math.sqrt(0.4), "balanced": True} | more)
    )


def pgd(radius: float | list[float], steps: int = 20, step: float = 0.2) -> PGD:
    """The attack of the paper's experiments."""
    return PGD(ball=Ball(radius=radius, relative_to="signal"), steps=steps, step=step)


def changed(net: Attention, **fields) -> Attention:
    """The network with other fields, which may be axes."""
    return Attention(**{name: value for name, value in net if name != "kind"} | fields)


def held(result: xr.Dataset, name: str, end: str | None = None) -> xr.DataArray:
    """A curve along training on which a run that has ended stays at its last value (of `end`, if it has another name).

    Without that the mean over seeds would jump whenever a run leaves it. It stops soon after the last run has.
    """
    curve = result[f"{name}_curve"]
    curve = curve.where(curve.step <= result.steps, result[end or name])
    last = float(result.steps.max())
    return curve.isel(step=slice(None, 1 + int(np.searchsorted(curve.step, last))))
