"""The space a run is computed in: R^d itself, or the span in which all its points and weights stay."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from benign.attacks.attack import Attack
from benign.data.model import BLOCK, DataModel
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.networks.network import Network
from benign.reduction.exact import why_not_projected, why_not_sampled
from benign.reduction.reduced_attention import narrow_width
from benign.reduction.rows import TokenRows

Mode: TypeAlias = Literal["ambient", "projected", "sampled", "approximate"]
Wanted: TypeAlias = Literal["ambient", "projected", "sampled", "approximate", "auto"]


@dataclass(frozen=True)
class Space:
    """Where a run is computed.

    - `ambient`: in R^d.
    - `projected`: everything is drawn in R^d and seen in an orthonormal basis of the span: the same run.
    - `sampled`: the coordinates in such a basis are drawn, nothing of length d exists: the same law.
    - `approximate`: an attention network under attack without its width d_h, on request only.
    """

    mode: Mode
    dim: int
    """length of a token there"""
    drawn_dim: int
    """length of the vectors that tokens and weights are drawn as"""
    why: str
    hidden: int | None = None
    """width of queries and keys there, where it is not the network's own (papers/jiang.md 7.1)"""
    tokens: int = 0
    """then: how many dimensions the tokens span"""
    held: int = 0
    """then: how many test points have their tokens in that span"""
    shift: float = 0.0
    """with `approximate`: how far the attack moves a score at the start"""

    @property
    def text(self) -> str:
        wide = f" and {self.hidden:,} columns" if self.hidden else ""
        return f"{self.mode}, {self.dim:,} coordinates{wide}: {self.why}"


@dataclass(frozen=True)
class Tests:
    """What is asked of test points."""

    count: int
    attack: Attack | None
    together: bool
    """one network for all, exactly, where their tokens have to be in the span for it"""


def choose(
    wanted: Wanted, data: DataModel, network: Network, attack: Attack | None, tests: Tests
) -> Space:
    """The space of a run; ValueError with the reason where what is wanted would not be exact.

    `auto` takes the first exact of sampled, projected and ambient.
    """
    if wanted == "ambient":
        return _ambient(data, "as asked")
    against = {
        "sampled": why_not_sampled(data, network, attack, tests.attack),
        "projected": why_not_projected(network, attack, tests.attack),
    }
    if wanted == "approximate":
        return _approximate(data, network, attack, tests, against["sampled"])
    if wanted != "auto":
        if trouble := against[wanted]:
            exact = "ambient" if against["projected"] else "projected"
            raise ValueError(
                f"`coordinates` is {wanted}, which would not be exact: {trouble}; "
                f"`coordinates: {exact}` is exact"
            )
        of = _sampled if wanted == "sampled" else _projected
        return of(data, network, attack, tests)
    if not against["sampled"]:
        return _sampled(data, network, attack, tests)
    if not against["projected"]:
        return _projected(data, network, attack, tests, f"; not sampled: {against['sampled']}")
    return _ambient(data, str(against["projected"]))


def _ambient(data: DataModel, why: str) -> Space:
    return Space("ambient", data.dim, data.dim, why)


def _small(mode: Mode, data: DataModel, network: Network, besides: str) -> Space:
    """The span, unless it is no smaller than R^d."""
    assert isinstance(network, TokenRows)
    size = data.axis_count() + data.noise_count() + network.row_count(data)
    if size >= data.dim:
        return _no_smaller(mode, size, data)
    same = "the same law" if mode == "sampled" else "the same runs"
    why = f"{same} as in {data.dim:,}, by the span of training tokens, signals and initial weights"
    return Space(mode, size, size if mode == "sampled" else data.dim, why + besides)


def _no_smaller(mode: Mode, size: int, data: DataModel) -> Space:
    held = f"the span has {size:,} dimensions and `dim` is {data.dim:,}"
    return _ambient(data, f"{held}, so {mode} coordinates would save nothing")


def _sampled(data: DataModel, network: Network, attack: Attack | None, tests: Tests) -> Space:
    """The span of tokens and weights, or of tokens alone: for clean runs with more columns than tokens can use."""
    tokens = data.axis_count() + data.noise_count()
    if not (
        _clean(attack, tests) and isinstance(network, Attention) and network.hidden > 2 * tokens
    ):
        return _small("sampled", data, network, "")
    held = tests.count if tests.together else 0
    tokens = _tokens(data, held)
    if tokens >= data.dim:
        return _no_smaller("sampled", tokens, data)
    width = narrow_width(network, tokens)
    how = "together" if held else "one by one"
    why = f"the same law as with {data.dim:,} and {network.hidden:,}, by the span of tokens; test points {how}"
    return Space("sampled", tokens, tokens, why, width, tokens, held)


def _projected(
    data: DataModel, network: Network, attack: Attack | None, tests: Tests, besides: str = ""
) -> Space:
    """The span of tokens and weights, or of tokens alone: for clean attention networks."""
    if not (_clean(attack, tests) and isinstance(network, Attention)):
        return _small("projected", data, network, besides)
    tokens = _tokens(data, 0)
    if tokens >= data.dim:
        return _no_smaller("projected", tokens, data)
    width = narrow_width(network, tokens)
    why = (
        f"the same runs as with {data.dim:,} and {network.hidden:,}, by the span of tokens{besides}"
    )
    return Space("projected", tokens, data.dim, why, width, tokens)


def _clean(attack: Attack | None, tests: Tests) -> bool:
    return attack is None and tests.attack is None


def _approximate(
    data: DataModel, network: Network, attack: Attack | None, tests: Tests, trouble: str | None
) -> Space:
    if not isinstance(network, Attention):
        trouble = f"`network` is {network.kind}, which needs no approximation"
    if trouble:
        raise ValueError(
            f"`coordinates` is approximate, which is not possible: {trouble}; use `coordinates: auto`"
        )
    assert isinstance(network, Attention)
    tokens = _tokens(data, tests.count)
    width = narrow_width(network, tokens)
    size = tokens + network.heads * (2 * width + 1)
    if size >= data.dim:
        return _no_smaller("approximate", size, data)
    attacked = attack or tests.attack
    shift = score_shift(data, network, attacked) if attacked else 0.0
    why = (
        "exact, as nothing is attacked" if attacked is None else _doubt(data, network, width, shift)
    )
    return Space("approximate", size, size, why, width, tokens, tests.count, shift)


def _doubt(data: DataModel, network: Attention, width: int, shift: float) -> str:
    """How far to trust it: errors are of order d_h / d while the attack moves scores by less than about 1."""
    if width == network.hidden:
        return "exact, as all columns are kept"
    error = f"an error of order d_h / d = {network.hidden / data.dim:.1e}"
    if shift <= 1:
        return f"{error}: the attack moves scores by {shift:.2g}"
    return f"not {error} but an unknown one: the attack moves scores by {shift:.2g}, more than 1"


def score_shift(data: DataModel, network: Attention, attack: Attack) -> float:
    """How far an attack on one token moves a score at the start: tau |mu| sigma_h^2 sqrt(d d_h) (papers/jiang.md 7.3).

    The largest of several runs.
    """
    assert isinstance(network.init, GaussianInit)
    threat = attack.threat()
    radii = [ball.size(data) for ball in threat.each()] if threat else []
    spread = torch.as_tensor(network.init.score_std) ** 2 * math.sqrt(data.dim * network.hidden)
    shifts = [torch.as_tensor(radius * data.signal_norm()) * spread for radius in radii]
    return max((float(shift.max()) for shift in shifts), default=0.0)


def _tokens(data: DataModel, held: int) -> int:
    """Dimensions that training tokens and those of held test points span."""
    if held > BLOCK:
        raise ValueError(
            f"`evaluation.samples` is {held}, and all their tokens would be in the span: "
            f"use {BLOCK} or fewer, and more seeds"
        )
    each = data.noise_count() // data.samples
    return data.axis_count() + data.noise_count() + held * each
