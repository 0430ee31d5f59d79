"""Projected gradient ascent: inside the ball, strong, and honest where losses saturate."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benign.attacks.attack import Target
from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.attacks.space import PerturbationSpace, start_stream
from benign.data.feature_patches import FeaturePatches
from benign.data.model import DataModel, Sample
from benign.networks.attention import Attention, AttentionPass
from benign.networks.network import Params
from benign.spec.base import SpecError
from benign.streams import Streams
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup
from tests.reference import (
    NotedStreams,
    attacked,
    close,
    doubles,
    normals,
    run_ids,
    small_data,
    small_network,
    small_pgd,
)
from tests.registry import forgetting
from tests.says import says

PER = pytest.mark.parametrize("per", ["token", "sample"])
LOSS = pytest.mark.parametrize("loss", ["margin", "cross_entropy"])
KEEP = pytest.mark.parametrize("keep", ["last", "best"])
NORM = pytest.mark.parametrize("p", [1, 2, "inf"])
DUAL: dict[Any, float] = {1: torch.inf, 2: 2, "inf": 1}


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


def test_weights_points_and_labels_do_not_change():
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


def worst_margins(x: Tensor, y: Tensor, u: Tensor, radius: float, p: Any, per: str) -> Tensor:
    """y <xbar, u> - radius |u|_p*, where all tokens move as one; a shared ball divides its radius among them."""
    dual = torch.linalg.vector_norm(u, DUAL[p], dim=1, keepdim=True)
    share = 1.0 if per == "token" else {1: 1 / 3, 2: 3**-0.5, "inf": 1.0}[p]
    return y * (x.mean(2) * u[:, None]).sum(-1) - radius * share * dual


@PER
@NORM
def test_linear_networks_are_attacked_exactly(p, per):
    """Without scores f(X) = <xbar, u>: the steepest steps lead straight to the worst case."""
    case = Case(score_std=0.0, heads=1)
    u = case.network.values(case.params)[..., 0]
    attack = PGD(ball=Ball(p=p, radius=0.8, per=per))
    reached = case.margins(case.attack(attack))
    expected = worst_margins(case.x, case.y, u, 0.8, p, per)
    close(reached, expected, 1e-10)
    assert float((case.margins(case.x) - expected).min()) > 1e-3


def test_l1_steps_over_several_coordinates_stop_short_on_linear_networks():
    """Equal shares on k coordinates stay equal: what is gained is the mean of the k largest |u|, not the largest."""
    case = Case(score_std=0.0, heads=1)
    u = case.network.values(case.params)[..., 0].abs().sort(1, descending=True).values
    reached = case.margins(case.attack(PGD(ball=Ball(p=1, radius=0.8, coordinates=3), steps=40)))
    gained = (case.margins(case.x) - reached) / 0.8
    close(gained, u[:, :3].mean(1, keepdim=True).expand_as(gained))
    assert (gained < 0.99 * u[:, :1]).all()


@PER
@pytest.mark.parametrize("p", [0, 1, 2, "inf"])
@pytest.mark.parametrize("start", ["zero", "uniform"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_attack_stays_in_ball_and_box_and_hurts(p, per, start, dtype):
    case, box = Case(dtype), (-1.5, 1.5)
    case.x = case.x.clamp(*box)
    ball = Ball(p=p, radius=3 if p == 0 else 0.7, per=per, box=box)
    attack = PGD(ball=ball, start=start, steps=8, restarts=2, step=0.3)
    before = torch.get_rng_state()
    points = case.attack(attack)
    assert torch.equal(torch.get_rng_state(), before)
    slack = 1e-10 if dtype == torch.float64 else 1e-5
    norm = ball.norm(points.double() - case.x.double())
    assert float(norm.max()) <= ball.radius * (1 + slack)
    assert torch.equal(points, points.clamp(*box))
    assert (case.margins(points) < case.margins(case.x)).all()


@NORM
def test_a_point_may_have_a_radius_of_its_own(p):
    case = Case()
    ball = Ball(p=p, radius=0.1, relative_to="point", per="sample")
    delta = case.attack(PGD(ball=ball)) - case.x
    order = torch.inf if p == "inf" else p
    share = torch.linalg.vector_norm(delta, order, dim=(2, 3)) / torch.linalg.vector_norm(
        case.x, order, dim=(2, 3)
    )
    close(share, torch.full_like(share, 0.1), 1e-6)


def test_a_sparse_step_is_a_share_of_the_box_or_a_length():
    case = Case()
    for box, length in ((None, 0.25), ((-4.0, 4.0), 2.0)):
        ball = Ball(p=0, radius=2, box=box)
        delta = case.attack(PGD(ball=ball, steps=1, step=0.25)) - case.x
        assert (delta.count_nonzero(-1) == 2).all()
        moved = delta[delta != 0].abs()
        close(moved.max(), torch.tensor(length).double())


def test_a_uniform_start_is_drawn_from_the_attacks_streams_and_differs_by_restart():
    case = Case()
    streams = NotedStreams(run_ids(2))
    ball = Ball(radius=0.5)
    space = PerturbationSpace(
        Target(case.network, case.params, case.data, case.sample, streams), ball
    )
    starts = [space.begin(start_stream("uniform", restart)) for restart in (0, 1)]
    assert not torch.equal(*starts)
    expected = ball.uniform(
        Streams(run_ids(2)).within("start/1"), doubles(0.5, 0.5)[:, None, None, None], case.x
    )
    assert torch.equal(starts[1], expected)


@PER
@given(seed=st.integers(0, 10**6))
@settings(max_examples=4, deadline=None)
def test_restarts_only_help_and_keep_the_best(per, seed):
    case = Case(seed=seed, value_std=2.0)
    attack = small_pgd(1.5, per, steps=4, step=0.8, keep="best")
    margins = [
        case.margins(case.attack(attack.model_copy(update={"restarts": count})))
        for count in (1, 2, 4)
    ]
    for weaker, stronger in pairwise(margins):
        assert (stronger <= weaker).all()
    last = attack.model_copy(update={"restarts": 4, "keep": "last"})
    assert torch.equal(case.margins(case.attack(last)), margins[2])


@pytest.mark.parametrize("restarts", [1, 3])
def test_points_stop_when_they_are_wrong(restarts):
    """A stopped point is the first iterate that is classified wrongly; the others go on as before."""
    case = Case(value_std=1.0)
    sure = small_pgd(1.5, steps=12, step=0.1)
    iterates = [case.x]
    iterates += [case.attack(sure.model_copy(update={"steps": n})) for n in range(1, 13)]
    margins = torch.stack([case.margins(points) for points in iterates])
    wrong = (margins[:-1] <= 0).any(0)
    assert wrong.any()
    assert (margins[0] > 0).any()
    first = torch.where(wrong, (margins <= 0).double().argmax(0), 12)
    stopped = case.attack(sure.model_copy(update={"stop_when_wrong": True, "restarts": restarts}))
    if restarts > 1:
        assert (case.margins(stopped)[wrong] <= 0).all()
        return
    each = torch.stack(iterates)
    close(stopped, each.gather(0, first[None, :, :, None, None].expand(1, *case.x.shape).long())[0])


def test_an_attack_ends_when_all_points_are_wrong(monkeypatch):
    case, calls = Case(), []
    forward = Attention.attacked_pass
    monkeypatch.setattr(
        Attention, "attacked_pass", lambda *rest: (calls.append(1), forward(*rest))[1]
    )
    attack = small_pgd(stop_when_wrong=True, steps=9)
    denied = -case.network.run(case.params, case.x).outputs.sign()
    points = case.attack(attack, y=denied)
    assert torch.equal(points, case.x)
    assert len(calls) == 1


def saturated(dtype: torch.dtype) -> tuple[Case, Tensor]:
    """Networks without scores whose margins all exceed 120, and u."""
    case = Case(dtype, score_std=0.0, heads=1)
    signal = case.sample.latent["signal"]
    u = 300 * (signal[:, 0] - signal[:, 1]) + normals(2, 10).to(dtype)
    case.network.values(case.params)[..., 0] = u
    assert float(case.margins(case.x).min()) > 120
    return case, u


def test_the_gradient_of_the_cross_entropy_of_saturated_margins_is_zero_in_float32():
    case, _ = saturated(torch.float32)
    points = case.attack(small_pgd(1.0, loss="cross_entropy", steps=20, step=0.2))
    assert torch.equal(points, case.x), "the gradient has underflowed: the points should not move"


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)], ids=str
)
@PER
@NORM
def test_the_margin_loss_reaches_the_worst_case_of_saturated_margins(p, dtype, tolerance, per):
    """Cross-entropy in the same ball leaves every point where it is (float32)."""
    case, u = saturated(dtype)
    ball = Ball(p=p, radius=1.0, per=per)
    worst = worst_margins(case.x, case.y, u, 1.0, p, per)
    assert float((case.margins(case.x) - worst).min()) > 50
    close(case.margins(case.attack(PGD(ball=ball))), worst, tolerance)
    if dtype == torch.float32:
        assert torch.equal(case.attack(PGD(ball=ball, loss="cross_entropy")), case.x)


def test_margin_is_the_default_loss_and_zero_the_default_start():
    attack = PGD(ball=small_pgd().ball)
    assert (attack.loss, attack.start, attack.keep) == ("margin", "zero", "last")
    assert (attack.steps, attack.step) == (20, 0.2)


@KEEP
@pytest.mark.parametrize("restarts", [1, 3])
def test_the_estimate_counts_every_pass(keep, restarts, monkeypatch):
    case, attack, passes = Case(), small_pgd(keep=keep, steps=5, restarts=restarts), []
    forward, backward = Attention.attacked_pass, AttentionPass.inputs_gradient

    def run(*arguments):
        passes.append("forward")
        return forward(*arguments)

    def inputs_gradient(*arguments):
        passes.append("backward")
        return backward(*arguments)

    monkeypatch.setattr(Attention, "attacked_pass", run)
    monkeypatch.setattr(AttentionPass, "inputs_gradient", inputs_gradient)
    case.attack(attack)
    assert len(passes) == attack.passes()


@pytest.fixture
def no_signal() -> Iterator[DataModel]:
    """A data model that has no signal norm; registered for one test only."""

    with forgetting():

        class NoSignal(DataModel):
            def sample(
                self, streams: Streams, split: str, count: int, dtype: torch.dtype
            ) -> Sample: ...

        yield NoSignal(samples=2, tokens=1, dim=3)


def test_a_relative_radius_needs_data_with_a_signal(no_signal):
    with pytest.raises(SpecError, match=says("relative_to", "`no_signal`", "norm", "`radius`")):
        Setup(
            data=no_signal,
            network=small_network(),
            attack=small_pgd(0.1, relative_to="signal"),
            training=GradientDescent(rate=0.1),
        )


def test_a_ratio_of_logits_needs_three_classes():
    attack = small_pgd(loss="dlr")
    with pytest.raises(
        ValueError, match=says("`loss`", "'dlr'", "`signal_noise`", "2", "'margin'")
    ):
        attack.check_against(small_data())
    patches: dict[str, Any] = {
        "samples": 6,
        "tokens": 4,
        "dim": 9,
        "alpha": 2.0,
        "beta": 1.0,
        "noise_std": 0.1,
    }
    attack.check_against(FeaturePatches(**patches, classes=3))
    with pytest.raises(ValueError, match=says("`loss`", "'dlr'", "`feature_patches`", "2")):
        attack.check_against(FeaturePatches(**patches, classes=2))


@pytest.mark.parametrize("fields", [{"start": "uniform"}, {"restarts": 2}])
def test_a_random_start_in_an_unbounded_ball_is_refused(fields):
    with pytest.raises(SpecError, match=says("uniform", "p = 0", "`ball.box`")):
        PGD(ball=Ball(p=0, radius=2), **fields)
    assert PGD(ball=Ball(p=0, radius=2, box=(0, 1)), **fields)


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"steps": 0}, ["steps", "0", "greater than or equal to 1"]),
        ({"step": 0.0}, ["step", "0.0", "greater than 0"]),
        ({"step": True}, ["step", "True", "number"]),
        ({"loss": "hinge"}, ["loss", "hinge", "margin", "cross_entropy", "dlr"]),
        ({"start": "random"}, ["start", "random", "zero", "uniform"]),
        ({"restarts": 0}, ["restarts", "0", "greater than or equal to 1"]),
        ({"keep": "first"}, ["keep", "first", "last", "best"]),
        ({"losss": "margin"}, ["losss", "`loss`"]),
    ],
)
def test_bad_attacks_are_refused_with_field_value_and_remedy(fields, parts):
    with pytest.raises(SpecError) as error:
        small_pgd(**fields)
    assert all(word in str(error.value) for word in parts), str(error.value)
