"""Projected gradient ascent: inside the ball, strong, and honest where losses saturate."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benign.attacks.pgd import PGD
from benign.data.model import DataModel, Sample
from benign.networks.attention import Attention, AttentionPass
from benign.networks.network import Params
from benign.spec import Component, SpecError
from benign.streams import Streams
from benign.training.setup import GradientDescent, Setup
from tests.reference import (
    attacked,
    close,
    doubles,
    normals,
    run_ids,
    small_data,
    small_network,
    small_pgd,
)

PER = pytest.mark.parametrize("per", ["token", "sample"])
LOSS = pytest.mark.parametrize("loss", ["margin", "cross_entropy"])
KEEP = pytest.mark.parametrize("keep", ["last", "best"])


class Case:
    """Random networks with curved outputs, one a run, and their points."""

    def __init__(
        self, dtype: torch.dtype = torch.float64, runs: int = 2, seed: int = 0, **fields: Any
    ):
        self.data = small_data(dim=10, samples=5, projected=True)
        self.network = small_network(**({"score_std": 0.6, "value_std": 0.6, "heads": 2} | fields))
        streams = Streams(run_ids(runs, seed))
        self.sample: Sample = self.data.sample(streams, "train", 5, dtype)
        self.x, self.y = self.sample.x, self.sample.y
        self.params: Params = self.network.initial_params(self.data, streams, dtype)

    def attack(self, attack: PGD, **fields: Any) -> Tensor:
        fields = {"x": self.x, "y": self.y, "data": self.data} | fields
        return attacked(attack, self.network, self.params, **fields)

    def margins(self, points: Tensor) -> Tensor:
        return self.y * self.network.run(self.params, points).outputs


def excess(points: Tensor, x: Tensor, radius: float, per: str) -> float:
    """Largest distance over the radius, less one."""
    delta = points.double() - x.double()
    size = delta.norm(dim=-1) if per == "token" else delta.flatten(2).norm(dim=-1)
    return float(size.max()) / radius - 1


@given(st.integers(0, 10**6), st.floats(0.05, 3), st.floats(0.05, 2), st.integers(1, 6))
@settings(max_examples=8)
def test_attacked_points_stay_in_the_ball(seed, radius, step, steps):
    for per in ("token", "sample"):
        for keep in ("last", "best"):
            attack = small_pgd(radius, per, step=step, steps=steps, keep=keep)
            for dtype, slack in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
                case = Case(dtype, seed=seed)
                points = case.attack(attack)
                assert points.dtype == dtype
                assert points.isfinite().all()
                assert excess(points, case.x, radius, per) <= slack


@PER
@KEEP
def test_radius_zero_returns_the_points(per, keep):
    case = Case()
    assert torch.equal(case.attack(small_pgd(0.0, per, keep=keep)), case.x)


@PER
@LOSS
def test_an_attack_makes_every_point_harder(per, loss):
    case = Case()
    before = case.margins(case.x)
    after = case.margins(case.attack(small_pgd(0.3, per, loss=loss, keep="best", steps=10)))
    assert (after < before).all()


@PER
@LOSS
@given(seed=st.integers(0, 10**6))
@settings(max_examples=10)
def test_best_is_no_worse_than_the_start_the_last_or_any_iterate(per, loss, seed):
    case = Case(seed=seed, value_std=2.0)
    attack = small_pgd(1.5, per, loss=loss, steps=6, step=1.1)
    best = case.margins(case.attack(attack.model_copy(update={"keep": "best"})))
    iterates = [case.x]
    iterates += [case.attack(attack.model_copy(update={"steps": steps})) for steps in range(1, 7)]
    every = torch.stack([case.margins(points) for points in iterates])
    assert (best <= every.min(0).values + 1e-12).all()
    close(best, every.min(0).values)


def test_last_and_best_differ_where_the_last_step_overshoots():
    case = Case(value_std=2.0)
    last, best = (
        case.attack(small_pgd(1.5, steps=6, step=1.1, keep=keep)) for keep in ("last", "best")
    )
    assert (case.margins(best) < case.margins(last) - 1e-6).any()


def test_tokens_without_gradient_do_not_move():
    """A token that holds no attention and asks for none: with u = 0 nothing can be gained."""
    case = Case()
    case.network.values(case.params)[0] = 0
    points = case.attack(small_pgd(0.5))
    assert torch.equal(points[0], case.x[0])
    assert points.isfinite().all()
    assert excess(points[1:], case.x[1:], 0.5, "token") > -1e-6


def test_weights_points_and_labels_are_left_alone():
    case = Case()
    weights, x, y = case.params["weights"].clone(), case.x.clone(), case.y.clone()
    case.attack(small_pgd(keep="best"))
    assert torch.equal(case.params["weights"], weights)
    assert torch.equal(case.x, x)
    assert torch.equal(case.y, y)


def test_the_attack_follows_the_labels_it_is_given():
    case = Case()
    attack = small_pgd(0.3, steps=8)
    down, up = case.attack(attack), case.attack(attack, y=-case.y)
    assert (case.margins(down) < case.margins(case.x)).all()
    assert (case.margins(up) > case.margins(case.x)).all()


@PER
def test_more_steps_are_stronger_without_scores(per):
    """With uniform attention the way to the worst point is straight (papers/zhang.md S5)."""
    case = Case(score_std=0.0)
    margins = [
        case.margins(case.attack(small_pgd(0.8, per, steps=n, step=0.2))) for n in range(1, 8)
    ]
    for weaker, stronger in pairwise(margins[:5]):
        assert (stronger < weaker - 1e-3).all()
    for reached in margins[5:]:
        close(reached, margins[4])


@PER
def test_a_relative_radius_is_the_radius_times_the_signal(per):
    case = Case()
    relative = case.attack(small_pgd(0.15, per, "signal"))
    close(relative, case.attack(small_pgd(0.15 * 2.0, per)))


def test_each_run_has_its_own_radius():
    case, attack = Case(runs=3), small_pgd(0.4)
    radii = doubles(0.0, 0.2, 0.4)
    stacked = attack.model_copy(update={"ball": attack.ball.model_copy(update={"radius": radii})})
    together = case.attack(stacked)
    assert torch.equal(together[0], case.x[0])
    close(together[1], case.attack(small_pgd(0.2))[1])
    close(together[2], case.attack(small_pgd(0.4))[2])


def saturated(dtype: torch.dtype) -> tuple[Case, Tensor]:
    """Networks without scores whose margins all exceed 120, and u."""
    case = Case(dtype, score_std=0.0, heads=1)
    signal = case.sample.latent["signal"]
    u = 300 * (signal[:, 0] - signal[:, 1]) + normals(2, 10).to(dtype)
    case.network.values(case.params)[..., 0] = u
    assert float(case.margins(case.x).min()) > 120
    return case, u


def test_cross_entropy_does_not_see_saturated_margins_in_float32():
    case, _ = saturated(torch.float32)
    points = case.attack(small_pgd(1.0, loss="cross_entropy", steps=20, step=0.2))
    assert torch.equal(points, case.x), "the gradient has underflowed: the points should not move"


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)], ids=str
)
@PER
def test_the_margin_loss_reaches_the_worst_case_of_saturated_margins(dtype, tolerance, per):
    case, u = saturated(dtype)
    attacked = case.margins(case.attack(small_pgd(1.0, per, steps=20, step=0.2)))
    reach = u.norm(dim=1, keepdim=True) / (1 if per == "token" else 3**0.5)
    worst = case.margins(case.x) - reach
    assert float(worst.max()) < float(case.margins(case.x).min()) - 100
    close(attacked, worst, tolerance)


def test_margin_is_the_default_loss_and_zero_the_default_start():
    attack = PGD(ball=small_pgd().ball)
    assert (attack.loss, attack.start, attack.keep) == ("margin", "zero", "last")
    assert (attack.steps, attack.step) == (20, 0.2)


@KEEP
def test_the_estimate_counts_every_pass(keep, monkeypatch):
    case, attack, passes = Case(), small_pgd(keep=keep, steps=5), []
    forward, backward = Attention.run, AttentionPass.inputs_gradient

    def run(*arguments):
        passes.append("forward")
        return forward(*arguments)

    def inputs_gradient(*arguments):
        passes.append("backward")
        return backward(*arguments)

    monkeypatch.setattr(Attention, "run", run)
    monkeypatch.setattr(AttentionPass, "inputs_gradient", inputs_gradient)
    case.attack(attack)
    assert len(passes) == attack.passes()


@pytest.fixture
def no_signal() -> Iterator[DataModel]:
    """A data model that has no signal norm; registered for one test only."""

    class NoSignal(DataModel):
        def sample(
            self, streams: Streams, split: str, count: int, dtype: torch.dtype
        ) -> Sample: ...

    yield NoSignal(samples=2, tokens=1, dim=3)
    Component.families[DataModel].pop("no_signal")


def test_a_relative_radius_needs_data_with_a_signal(no_signal):
    with pytest.raises(
        SpecError, match=r"relative_to.*`no_signal` has no signal norm: .*give `radius`"
    ):
        Setup(
            data=no_signal,
            network=small_network(),
            attack=small_pgd(0.1, relative_to="signal"),
            training=GradientDescent(rate=0.1),
        )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"steps": 0}, ["steps", "0", "greater than or equal to 1"]),
        ({"step": 0.0}, ["step", "0.0", "greater than 0"]),
        ({"step": True}, ["step", "True", "number"]),
        ({"loss": "hinge"}, ["loss", "hinge", "margin", "cross_entropy"]),
        ({"keep": "first"}, ["keep", "first", "last", "best"]),
        ({"losss": "margin"}, ["losss", "did you mean `loss`"]),
    ],
)
def test_bad_attacks_are_refused_with_field_value_and_remedy(fields, told):
    with pytest.raises(SpecError) as error:
        small_pgd(**fields)
    assert all(word in str(error.value) for word in told), str(error.value)
