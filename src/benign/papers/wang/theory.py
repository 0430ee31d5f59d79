"""Assumption 1 of Wang et al. with its extra parts (A) and (B), and Theorem 3.1 (papers/wang.md 2.1, 2.2 and 5).

Symbols: n samples in d dimensions, r = |mu|, attack radius alpha = rho r, width m, step size eta, omega the standard
deviation of an initial weight, beta the share of flipped labels.
One constant C stands in every condition; with C = 1 a ratio is the largest C that the condition allows.

All lengths are in units of the noise: dividing x, mu and alpha by its standard deviation changes nothing else. A
standard Gaussian has psi_2 norm 1.63, Definition 2.1 asks for 1: that moves constants only.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from benign.claims.conditions import (
    Condition,
    Conditions,
    Moderate,
    one_cell,
    radius_share,
    signal_norm,
    smallest_whole,
)
from benign.data.mixture import Mixture
from benign.networks.two_layer import TwoLayer
from benign.spec.base import Positive, Spec
from benign.training.optimisers import gradient_descent_at_one_rate
from benign.training.setup import Setup

SIGNALS = (1e-8, 1e8)
"""where r is looked for; at the upper end every ratio has reached its limit"""
RISING = ("(A1)", "(A2)", "(B2)", "item 3")
"""conditions whose slack grows with r, also when d is always the smallest that (1) allows"""


class WangConstants(Spec):
    """What Assumption 1 leaves open."""

    const: Moderate = 1.0
    """C"""
    failure: Annotated[Positive, Field(lt=0.5)] = 0.1
    """probability delta of an atypical draw, less than 1/2"""

    def __str__(self) -> str:
        return f"C = {self.const:g}, delta = {self.failure:g}"


ALL_ONE = WangConstants()


@dataclass(frozen=True, kw_only=True)
class WangNumbers:
    """The quantities that Assumption 1 bounds, in units of the noise."""

    samples: int
    dim: int
    signal: float
    """r = |mu|"""
    radius: float
    """rho = alpha / |mu|"""
    flip: float
    """beta"""
    width: int
    """m"""
    init_std: float
    """omega"""
    rate: float
    """eta"""
    smooth: bool = False
    """a smooth activation, not ReLU or its kin"""

    @staticmethod
    def of(setup: Setup) -> "WangNumbers":
        """Return the numbers of a cell."""
        data, network = parts(setup)
        unit, start = data.noise_std, network.init_std
        if start is None:  # the limit, or of PyTorch's size
            start = 0.0 if network.preset == "vanishing" else 1 / math.sqrt(3 * data.dim)
        return WangNumbers(
            samples=data.samples,
            dim=data.dim,
            signal=signal_norm(setup) / unit,
            radius=radius_share(setup),
            flip=data.flip,
            width=network.width,
            init_std=start * unit,
            rate=setup.training.rate * unit**2,
            smooth=network.activation == "smoothed_leaky_relu",
        )


def parts(setup: Setup) -> tuple[Mixture, TwoLayer]:
    """Return data and network of a cell. Raise ValueError if Theorem 3.1 is about others."""
    data, network = one_cell(setup).data, setup.network
    if not isinstance(data, Mixture) or not isinstance(network, TwoLayer):
        raise ValueError(
            f"`data` ({data.kind}) and `network` ({network.kind}) must be mixture and two_layer: "
            "the theorem of Wang is about those"
        )
    return data, network


def conditions(
    numbers: WangNumbers | Setup, given: WangConstants = ALL_ONE, robust: bool = False
) -> Conditions:
    """Return Assumption 1 item by item, with (A) for a smooth activation and (B) for ReLU and its kin.

    The last row is what item 3 of Theorem 3.1 (robust error) needs as well; informational unless `robust`.
    """
    n = numbers if isinstance(numbers, WangNumbers) else WangNumbers.of(numbers)
    c, d, r = given.const, n.dim, n.signal
    start = n.init_std * math.sqrt(n.width * d)
    rows = [
        Condition.at_least("(1a)", "d >= C r^2 n", d, c * r**2 * n.samples),
        Condition.at_least("(1b)", "d >= C n^2 (log(n/delta) + alpha^2)", d, _noise_dim(n, given)),
        Condition.at_most("(2)", "beta <= 1 / C", n.flip, 1 / c),
        Condition.at_most("(3)", "omega sqrt(m d) <= eta", start, n.rate),
        Condition.at_most("(4)", "eta <= 1 / (C d^2)", n.rate, largest_rate(d, given)),
        Condition.at_least("(5)", "n >= C log(m/delta)", n.samples, c * _log(n.width, given)),
        Condition.at_most("(6)", "alpha <= r", n.radius, 1.0),
        *(_smooth(n, given) if n.smooth else _non_smooth(n, given)),
        _item_3(n, given) if robust else _item_3(n, given).informational(),
    ]
    if not isinstance(numbers, WangNumbers):
        rows.insert(0, Condition.setting(_departures(numbers)))
    kind = "smooth" if n.smooth else "non-smooth"
    return Conditions(f"Wang Theorem 3.1, {kind} ({given})", tuple(rows))


def needed_dim(n: WangNumbers, given: WangConstants) -> float:
    """Return the smallest d of Assumption 1 (1), which does not depend on the `dim` of the numbers."""
    return max(given.const * n.signal**2 * n.samples, _noise_dim(n, given))


def smallest_signal(n: WangNumbers, given: WangConstants, dim: int | None, robust: bool) -> float:
    """Return the smallest r at which the items of Assumption 1 that rise with it hold, at the given or smallest d.

    Found by bisection of `SIGNALS`; its upper end if no r is large enough.
    """

    def fits(signal: float) -> bool:
        here = replace(n, signal=signal)
        here = replace(here, dim=dim or smallest_whole(needed_dim(here, given)))
        rows = conditions(here, given, robust)
        return all(row.holds for row in rows if row.required and row.name in RISING)

    low, high = SIGNALS
    if not fits(high):
        return high
    while high > low * (1 + 1e-12):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def largest_rate(dim: float, given: WangConstants) -> float:
    """Return the largest eta of Assumption 1 (4)."""
    return 1 / (given.const * float(dim) ** 2)


def _noise_dim(n: WangNumbers, c: WangConstants) -> float:
    attack = (n.radius * n.signal) ** 2
    return c.const * float(n.samples) ** 2 * (_log(n.samples, c) + attack)


def _smooth(n: WangNumbers, c: WangConstants) -> list[Condition]:
    log = c.const * _log(n.samples, c)
    return [
        Condition.at_most("(A1)", "d <= r^4 / C", n.dim, n.signal**4 / c.const),
        Condition.at_least("(A2)", "r^2 >= C log(n/delta)", n.signal**2, log),
    ]


def _non_smooth(n: WangNumbers, c: WangConstants) -> list[Condition]:
    log, share = _log(n.samples, c), n.dim / n.samples
    slow = math.sqrt(share * _log(n.width * share, c))
    statement = "r^2 >= C max(sqrt((d/n) log(m d / (n delta))), log(n/delta))"
    return [
        Condition.at_least("(B1)", "m >= C log(n/delta)", n.width, c.const * log),
        Condition.at_least("(B2)", statement, n.signal**2, c.const * max(slow, log)),
    ]


def _item_3(n: WangNumbers, c: WangConstants) -> Condition:
    bound = n.signal * math.sqrt(n.samples / n.dim) / c.const
    return Condition.at_most("item 3", "rho <= r sqrt(n/d) / C", n.radius, bound)


def _log(count: float, c: WangConstants) -> float:
    return math.log(count / c.failure)


def _departures(setup: Setup) -> list[str]:
    """Return how a cell differs from the setting of Theorem 3.1."""
    (data, network), training = parts(setup), setup.training
    differences = {
        "labels flipped in blocks": data.flip > 0 and data.flip_mode == "blocks",
        "a fixed number of flips": data.flip > 0 and data.flip_mode == "fixed_count",
        "classes balanced": data.balanced,
        "both layers trained": network.preset == "torch_default",
        "attacked from the first step on": setup.attack is not None and not training.first_attacked_step,
        "not gradient descent at a constant rate": not gradient_descent_at_one_rate(training),
    }  # fmt: skip
    return [name for name, departs in differences.items() if departs]
