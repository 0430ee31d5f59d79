"""The modes of `coordinates`: R^d itself, or the span in which all points and weights of a run stay.

Each mode is a class that says why it would not be exact (`why_not`), what a batch starts with (`start`), the data
model and network in its coordinates (`reduced`) and the memory for getting there (`cost`). `choose` picks one.

A run stays in the span of training tokens, signals and initial weights if data, network and attacks do not depend on
the choice of an orthonormal basis (papers/jiang.md 7.2, papers/wang.md 6.1 and 6.4).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import torch
from torch.nn.functional import pad

from benign.attacks.attack import Attack
from benign.attacks.balls import Ball
from benign.data.model import BLOCK, DataModel, Sample
from benign.networks.network import Network, Params
from benign.reduction.protocols import ReducibleWidth, TokenRows
from benign.reduction.sampled import GivenNormals, standard_rows
from benign.reduction.test_points import (
    JointTestPoints,
    LiftedTestPoints,
    PerPointTestPoints,
    TestPoints,
    view_of_span,
)
from benign.spec.registry import has_guarantee
from benign.streams import Streams

Mode: TypeAlias = Literal["ambient", "projected", "sampled", "approximate"]
Wanted: TypeAlias = Literal["ambient", "projected", "sampled", "approximate", "auto"]


@dataclass(frozen=True)
class Tests:
    """How a run is tested."""

    count: int
    attack: Attack | None
    together: bool
    """whether all test points are tested on one network; if that needs their tokens in the span, they are added"""


@dataclass(frozen=True)
class Start:
    """Data, weights and test points of a batch of runs at the start, in its coordinates."""

    data: DataModel
    sample: Sample
    """the training points"""
    params: Params
    """the initial weights"""
    network: Network
    test_points: TestPoints
    """the source of test points"""


@dataclass(frozen=True)
class Space(ABC):
    """The space in which a run is computed; a mode is a subclass."""

    mode: ClassVar[Mode]

    dim: int
    """dimension of a token in this space"""
    drawn_dim: int
    """dimension of a token when it is drawn"""
    why: str
    """reason for the choice, for `benign show`"""

    @staticmethod
    @abstractmethod
    def why_not(
        data: DataModel, network: Network, attack: Attack | None, test_attack: Attack | None
    ) -> str | None:
        """Return why the mode would not be exact, with field, value and remedy, or None if it is exact."""

    @abstractmethod
    def start(
        self, data: DataModel, network: Network, streams: Streams, dtype: torch.dtype
    ) -> Start:
        """Draw the training points and the initial weights of every run."""

    def reduced(self, data: DataModel, network: Network) -> tuple[DataModel, Network]:
        """Return the data model and the network in the coordinates of the run."""
        return data.reduced(self.dim), network

    def cost(self, data: DataModel, network: Network, points: int, weights: int) -> int:
        """Return how many numbers of a run are in memory for its coordinates: rows, basis, and points as drawn.

        data, network: those of R^d.
        points: points in a pass.
        weights: weights of the reduced network.
        """
        # Rows and basis are two matrices in float64.
        return 4 * self.drawn_dim * self.dim + points * data.tokens * self.drawn_dim

    @property
    def size(self) -> str:
        return f"{self.dim:,} coordinates"

    @property
    def tested(self) -> str:
        """How the fresh points of a run are tested."""
        return "all fresh points on the run's one network"

    @property
    def text(self) -> str:
        return f"{self.mode}, {self.size}: {self.why}"


class Ambient(Space):
    """R^d."""

    mode: ClassVar[Mode] = "ambient"

    @staticmethod
    def of(data: DataModel, why: str) -> "Ambient":
        return Ambient(data.dim, data.dim, why)

    @staticmethod
    def why_not(
        data: DataModel, network: Network, attack: Attack | None, test_attack: Attack | None
    ) -> None:
        return None

    def start(
        self, data: DataModel, network: Network, streams: Streams, dtype: torch.dtype
    ) -> Start:
        sample = data.sample(streams, "train", data.samples, dtype)
        params = network.initial_params(data, streams, dtype)
        return Start(data, sample, params, network, TestPoints())

    def reduced(self, data: DataModel, network: Network) -> tuple[DataModel, Network]:
        return data, network

    def cost(self, data: DataModel, network: Network, points: int, weights: int) -> int:
        return 0


class Projected(Space):
    """Everything is drawn in R^d and then written in an orthonormal basis of the span: the same run."""

    mode: ClassVar[Mode] = "projected"

    @staticmethod
    def why_not(
        data: DataModel, network: Network, attack: Attack | None, test_attack: Attack | None
    ) -> str | None:
        if not isinstance(network, TokenRows):
            return (
                f"`network` ({network.kind}) does not declare its weights as vectors of token space"
            )
        problem = _attack_problem("attack", attack, training=True)
        return problem or _attack_problem("evaluation.attack", test_attack, training=False)

    @staticmethod
    def of(
        data: DataModel, network: Network, attack: Attack | None, tests: Tests, besides: str = ""
    ) -> Space:
        """Return the smallest span, or R^d if that is no larger."""
        if attack is None and tests.attack is None and isinstance(network, ReducibleWidth):
            return ProjectedTokens.of_tokens(data, network, besides)
        size = _aligned(_span(data, network))
        why = f"the same runs as in {data.dim:,}, by {_WHOLE_SPAN}{besides}"
        return _if_smaller(Projected(size, data.dim, why), data)

    def start(
        self, data: DataModel, network: Network, streams: Streams, dtype: torch.dtype
    ) -> Start:
        ambient = Ambient.of(data, "").start(data, network, streams, dtype)
        assert isinstance(network, TokenRows)
        rows = network.initial_rows(ambient.params, data)
        view = view_of_span(data, ambient.sample, rows[:, : network.row_count(data)])
        view = view.padded(self.dim)
        params = network.with_rows(ambient.params, view.of(rows))
        return Start(data.reduced(self.dim), view.of_sample(ambient.sample), params, network, view)


class Sampled(Space):
    """The coordinates in a basis of the span are drawn, without any vector of R^d: the same law."""

    mode: ClassVar[Mode] = "sampled"

    @staticmethod
    def why_not(
        data: DataModel, network: Network, attack: Attack | None, test_attack: Attack | None
    ) -> str | None:
        problem = Projected.why_not(data, network, attack, test_attack)
        if problem:
            return problem
        assert isinstance(network, TokenRows)
        return data.why_not_gaussian() or network.why_not_gaussian()

    @staticmethod
    def of(data: DataModel, network: Network, attack: Attack | None, tests: Tests) -> Space:
        """Return the smallest span, or R^d if that is no larger."""
        tokens, size = _token_span(data, 0), _span(data, network)
        clean = attack is None and tests.attack is None
        # The span of tokens alone pays if the network has more columns than the tokens can use, or fills R^d.
        if (
            clean
            and isinstance(network, ReducibleWidth)
            and (network.width_reduction().width > 2 * tokens or size >= data.dim)
        ):
            return SampledTokens.of_tokens(data, network, tests)
        return _if_smaller(
            Sampled(size, size, f"the same law as in {data.dim:,}, by {_WHOLE_SPAN}"), data
        )

    def start(
        self, data: DataModel, network: Network, streams: Streams, dtype: torch.dtype
    ) -> Start:
        """Draw noise and rows of weights by `standard_rows`, everything else by the reduced model and the network."""
        assert isinstance(network, TokenRows)
        small, axes, tokens = data.reduced(self.dim), data.axis_count(), data.noise_count()
        rows = standard_rows(streams, self.dim - axes, axes, data.dim)
        replaced = GivenNormals(streams, "train/noise", rows[:, :tokens])
        sample = small.sample(replaced, "train", data.samples, dtype)
        params = network.initial_params(small, streams, dtype)
        if network.row_count(data):
            weights = rows[:, tokens:] * network.row_std(params, data)[:, :, None]
            params = network.with_rows(params, weights.to(dtype))
        return Start(small, sample, params, network, TestPoints())


# Networks whose width can be reduced too (papers/jiang.md 7.1): the span of tokens alone.


@dataclass(frozen=True)
class ReducedWidth(Space):
    """Coordinates in which the width of the network is reduced as well."""

    hidden: int
    """width of the network there"""

    @property
    def size(self) -> str:
        return f"{super().size} and {self.hidden:,} columns"

    def reduced(self, data: DataModel, network: Network) -> tuple[DataModel, Network]:
        assert isinstance(network, ReducibleWidth)
        return data.reduced(self.dim), network.width_reduction().reduced(self.hidden)


class ProjectedTokens(ReducedWidth):
    """Projected on the span of the tokens, for clean runs; test points are tested on the whole weights in R^d."""

    mode: ClassVar[Mode] = "projected"
    why_not = staticmethod(Projected.why_not)

    @staticmethod
    def of_tokens(data: DataModel, network: ReducibleWidth, besides: str) -> Space:
        tokens, width = _token_span(data, 0), network.width_reduction()
        why = f"the same runs as with {data.dim:,} and {width.width:,}, by the span of tokens{besides}"
        return _if_smaller(ProjectedTokens(tokens, data.dim, why, width.width_met(tokens)), data)

    def start(
        self, data: DataModel, network: Network, streams: Streams, dtype: torch.dtype
    ) -> Start:
        ambient = Ambient.of(data, "").start(data, network, streams, dtype)
        assert isinstance(network, ReducibleWidth)
        sample, whole = ambient.sample, ambient.params
        view = view_of_span(data, sample, sample.x.new_zeros(len(sample.x), 0, data.dim))
        narrow, params, frame = network.width_reduction().restricted(whole, view.basis)
        test_points = LiftedTestPoints(view, network, whole, frame)
        return Start(data.reduced(self.dim), view.of_sample(sample), params, narrow, test_points)

    def cost(self, data: DataModel, network: Network, points: int, weights: int) -> int:
        """Add the whole weights, on which test points are tested."""
        return super().cost(data, network, points, weights) + network.cost(data).weights


@dataclass(frozen=True)
class SampledTokens(ReducedWidth):
    """Sampled on the span of the tokens, for clean runs: no tensor has the size d or the width of the network."""

    mode: ClassVar[Mode] = "sampled"
    why_not = staticmethod(Sampled.why_not)

    tokens: int
    """dimension of the span of the tokens"""
    joint_tests: int
    """number of test points whose tokens are in that span; if 0, each test point draws its own part of the weights"""

    @property
    def tested(self) -> str:
        if self.joint_tests:
            return super().tested
        return "each fresh point on a network of its own with this training run"

    @staticmethod
    def of_tokens(data: DataModel, network: ReducibleWidth, tests: Tests) -> Space:
        joint_tests = tests.count if tests.together else 0
        tokens, width = _token_span(data, joint_tests), network.width_reduction()
        together = "together" if joint_tests else "one by one"
        why = (
            f"the same law as with {data.dim:,} and {width.width:,}, by the span of tokens; "
            f"test points {together}"
        )
        space = SampledTokens(tokens, tokens, why, width.width_met(tokens), tokens, joint_tests)
        return _if_smaller(space, data)

    def start(
        self, data: DataModel, network: Network, streams: Streams, dtype: torch.dtype
    ) -> Start:
        assert isinstance(network, ReducibleWidth)
        (small, narrow), axes = self.reduced(data, network), data.axis_count()
        rows = standard_rows(streams, self.tokens - axes, axes, data.dim)
        rows = pad(rows, (0, self.dim - self.tokens))
        train, test = rows.split(
            [data.noise_count(), self.tokens - axes - data.noise_count()], dim=1
        )
        replaced = GivenNormals(streams, "train/noise", train)
        sample = small.sample(replaced, "train", data.samples, dtype)
        params = self._params(data, network, streams, dtype)
        if self.joint_tests:
            replaced = GivenNormals(streams, "test/0/noise", test)
            test_sample = small.sample(replaced, "test/0", self.joint_tests, dtype)
            return Start(small, sample, params, narrow, JointTestPoints(test_sample))
        test_points = PerPointTestPoints(data.dim, network, params)
        return Start(small, sample, params, narrow, test_points)

    def _params(
        self, data: DataModel, network: ReducibleWidth, streams: Streams, dtype: torch.dtype
    ) -> Params:
        return network.width_reduction().initial_params(self.tokens, data, streams, dtype)

    def cost(self, data: DataModel, network: Network, points: int, weights: int) -> int:
        """Add the weights that each test point draws."""
        assert isinstance(network, ReducibleWidth)
        own = 0 if self.joint_tests else points * network.width_reduction().point_numbers(data)
        return super().cost(data, network, points, weights) + own


@dataclass(frozen=True)
class Approximate(SampledTokens):
    """Sampled without the whole width also under attack, only on request: not exact if columns are left out."""

    mode: ClassVar[Mode] = "approximate"

    shift: float
    """how far the attack moves a score at the start"""

    @staticmethod
    def why_not(
        data: DataModel, network: Network, attack: Attack | None, test_attack: Attack | None
    ) -> str | None:
        """Return why the mode is not possible, or None."""
        if not isinstance(network, ReducibleWidth):
            return f"`network` is {network.kind}, which needs no approximation"
        return Sampled.why_not(data, network, attack, test_attack)

    @staticmethod
    def of(data: DataModel, network: Network, attack: Attack | None, tests: Tests) -> Space:
        assert isinstance(network, ReducibleWidth)
        tokens, whole = _token_span(data, tests.count), network.width_reduction()
        width = whole.width_met(tokens)
        narrow = whole.reduced(width)
        assert isinstance(narrow, TokenRows)
        size, attacked = tokens + narrow.row_count(data), attack or tests.attack
        shift = score_shift(data, network, attacked) if attacked else 0.0
        if attacked is None:
            why = "exact, as nothing is attacked"
        elif width == whole.width:
            why = "exact, as all columns are kept"
        else:
            why = _error_text(whole.width, data.dim, shift)
        return _if_smaller(Approximate(size, size, why, width, tokens, tests.count, shift), data)

    def _params(
        self, data: DataModel, network: ReducibleWidth, streams: Streams, dtype: torch.dtype
    ) -> Params:
        params = super()._params(data, network, streams, dtype)
        return network.width_reduction().closed_params(params, data, streams)


def choose(
    wanted: Wanted, data: DataModel, network: Network, attack: Attack | None, tests: Tests
) -> Space:
    """Return the space of a run. Raise ValueError, with the reason, if the wanted mode would not be exact.

    `auto` takes the first exact of sampled, projected and ambient.
    """
    if wanted == "ambient":
        return Ambient.of(data, "as requested")
    parts = data, network, attack, tests.attack
    if wanted == "approximate":
        if problem := Approximate.why_not(*parts):
            raise ValueError(
                f"`coordinates` is approximate, which is not possible: {problem}; use `coordinates: auto`"
            )
        return Approximate.of(data, network, attack, tests)
    not_sampled, not_projected = Sampled.why_not(*parts), Projected.why_not(*parts)
    if wanted == "auto":
        if not not_sampled:
            return Sampled.of(data, network, attack, tests)
        if not not_projected:
            return Projected.of(data, network, attack, tests, f"; not sampled: {not_sampled}")
        return Ambient.of(data, not_projected)
    if problem := not_sampled if wanted == "sampled" else not_projected:
        exact = "ambient" if not_projected else "projected"
        raise ValueError(
            f"`coordinates` is {wanted}, which would not be exact: {problem}; "
            f"`coordinates: {exact}` is exact"
        )
    mode = Sampled if wanted == "sampled" else Projected
    return mode.of(data, network, attack, tests)


_WHOLE_SPAN = "the span of training tokens, signals and initial weights"


def _span(data: DataModel, network: Network) -> int:
    """Return the dimension of the span of training tokens, signals and initial weights."""
    assert isinstance(network, TokenRows)
    return data.axis_count() + data.noise_count() + network.row_count(data)


def _aligned(size: int) -> int:
    """Return the size of a large span with up to seven coordinates that are always zero, which align its matrices."""
    # On an H200 the Gram matrix of 1,000 vectors takes 10 us in 1,101 dimensions and 6.4 in 1,104.
    return size if size < 256 else -(-size // 8) * 8


def _token_span(data: DataModel, joint_tests: int) -> int:
    """Return the dimension of the span of training tokens, signals and the tokens of `joint_tests` test points."""
    if joint_tests > BLOCK:
        raise ValueError(
            f"`evaluation.samples` is {joint_tests}, and all their tokens would be in the span: "
            f"use {BLOCK} or fewer, and more seeds"
        )
    by_point = data.noise_count() // data.samples
    return data.axis_count() + data.noise_count() + joint_tests * by_point


def _if_smaller(space: Space, data: DataModel) -> Space:
    if space.dim < data.dim:
        return space
    size = f"the span has {space.dim:,} dimensions and `dim` is {data.dim:,}"
    return Ambient.of(data, f"{size}, so {space.mode} coordinates would save nothing")


def _error_text(hidden: int, dim: int, shift: float) -> str:
    """Return the order of the error: d_h / d while the attack moves scores by less than about 1, else unknown."""
    error = f"an error of order d_h / d = {hidden / dim:.1e}"
    if shift <= 1:
        return f"{error}: the attack moves scores by {shift:.2g}"
    return f"not {error} but an unknown one: the attack moves scores by {shift:.2g}, more than 1"


def score_shift(data: DataModel, network: ReducibleWidth, attack: Attack) -> float:
    """Return how far an attack on one token moves a score at the start, the largest of several runs.

    It is tau |mu| sigma_h^2 sqrt(d d_h) (papers/jiang.md 7.3).
    """
    threat = attack.threat()
    radii = [ball.size(data) for ball in threat.each()] if threat else []
    spread = network.width_reduction().score_spread(data.dim)
    shifts = [torch.as_tensor(radius * data.signal_norm()) * spread for radius in radii]
    return max((float(shift.max()) for shift in shifts), default=0.0)


# Attacks that leave the span, or depend on the basis.


def starts_at_random(attack: Attack) -> bool:
    """Return whether an ascent of the attack starts at a random point of its ball."""
    return getattr(attack, "start", "zero") != "zero" or getattr(attack, "restarts", 1) > 1


def _attack_problem(field: str, attack: Attack | None, *, training: bool) -> str | None:
    if attack is None:
        return None
    if not has_guarantee(attack, "rotation_invariant"):
        choices = Attack.choices().items()
        kinds = ", ".join(
            kind for kind, known in choices if has_guarantee(known, "rotation_invariant")
        )
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
    problems = [_ball_problem(field, ball) for ball in (threat.each() if threat else [])]
    problems.append(
        _attack_problem(f"{field}.also", getattr(attack, "also", None), training=training)
    )
    return next(filter(None, problems), None)


def _ball_problem(field: str, ball: Ball) -> str | None:
    if ball.p != 2:
        return (
            f"`{field}.ball.p` is {ball.p}, and only l2 balls are alike in every basis: use `p: 2`"
        )
    if ball.box is not None:
        return f"`{field}.ball.box` is {[*ball.box]}, which belongs to one basis: leave it out"
    if not ball.is_round:  # a kind of ball to come
        return (
            f"`{field}.ball` is not a whole l2 ball, and only such a ball is alike in every basis"
        )
    if ball.relative_to == "point":
        return (
            f"`{field}.ball.relative_to` is 'point', and test points are longer than their part in the span: "
            "measure the radius by the signal or in the data's units"
        )
    return None
