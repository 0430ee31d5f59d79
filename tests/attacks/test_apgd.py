"""APGD: exact where the worst case is known, as strong as a reference where it is not."""

import importlib
import importlib.util
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benign.attacks.apgd import APGD, _checkpoints, _Objective
from benign.attacks.attack import Attack, Target
from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.pgd import PGD
from benign.data.model import DataModel, Sample
from benign.networks.linear import Linear
from benign.networks.network import Network
from benign.spec.base import SpecError
from benign.streams import RunId, Streams
from benign.training.descent import descend
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup
from tests.reference import (
    attacked,
    close,
    run_ids,
    small_data,
    small_network,
    small_setup,
    start,
)
from tests.says import says

NORMS = pytest.mark.parametrize(("p", "dual"), [(1, math.inf), (2, 2), ("inf", 1)])
PER = pytest.mark.parametrize("per", ["token", "sample"])


@NORMS
@PER
@pytest.mark.parametrize("begin", ["zero", "uniform"])
def test_on_a_linear_network_it_finds_the_worst_case(p, dual, per, begin):
    """papers/zhang.md S5: y f falls by the radius times the dual norm of the gradient."""
    network, data = Linear(init_std=1.0), small_data(dim=20, tokens=4, samples=6)
    batch = start([small_setup(data, network)] * 2)
    x, y, u = batch.sample.x, batch.sample.y, batch.params["u"]
    gradient = (u / 4)[:, None].expand(-1, 4, -1)
    norms = (
        gradient.norm(dual, dim=2).sum(1)
        if per == "token"
        else gradient.flatten(1).norm(dual, dim=1)
    )
    attack = APGD(ball=Ball(p=p, radius=0.7, per=per), start=begin, steps=30)
    points = attacked(attack, network, batch.params, data, x, y)
    found = y * (network.forward(batch.params, x) - network.forward(batch.params, points))
    # Only one l1 vertex is the worst case, and an ascent from elsewhere need not end on it.
    tolerance = 1e-10 if begin == "zero" or p != 1 else 1e-3
    assert (found / (0.7 * norms[:, None]) - 1).abs().max() < tolerance


@NORMS
@PER
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_stay_in_ball_and_box(p, dual, per, dtype):
    data, network = small_data(samples=5), small_network(heads=2)
    streams = Streams(run_ids(2))
    sample = data.sample(streams, "train", 5, dtype)
    params = network.initial_params(data, streams, dtype)
    x = sample.x.clamp(-1, 1)
    ball = Ball(p=p, radius=0.6, per=per, box=(-1.0, 1.0))
    points = attacked(APGD(ball=ball, steps=12, restarts=2), network, params, data, x, sample.y)
    slack = 1e-5 if dtype == torch.float32 else 1e-10
    assert (ball.norm(points - x) <= 0.6 * (1 + slack)).all()
    assert points.min() >= -1
    assert points.max() <= 1
    before = sample.y * network.forward(params, x)
    assert (sample.y * network.forward(params, points) < before).all()


@NORMS
def test_a_run_alone_is_the_run_in_a_batch_and_no_global_state_is_touched(p, dual):
    data, network = small_data(samples=5), small_network()
    streams = Streams(run_ids(3))
    sample = data.sample(streams, "train", 5, torch.float64)
    params = network.initial_params(data, streams, torch.float64)
    attack = APGD(ball=Ball(p=p, radius=0.4), steps=10, restarts=2)
    state = torch.get_rng_state()
    together = attacked(attack, network, params, data, sample.x, sample.y)
    assert torch.equal(torch.get_rng_state(), state)
    alone = Target(
        network,
        {name: part[2:] for name, part in params.items()},
        data,
        Sample(sample.x[2:], sample.y[2:], sample.y[2:]),
        Streams(run_ids(3)[2:]),
    )
    torch.testing.assert_close(attack.perturb(alone), together[2:], rtol=1e-9, atol=1e-9)


def test_more_restarts_never_hurt_the_attack():
    data, network = small_data(samples=8), small_network(1.2, 1.2, heads=2)
    batch = start([small_setup(data, network)])
    margins = []
    for restarts in (1, 4):
        attack = APGD(ball=Ball(radius=1.0), steps=10, restarts=restarts)
        points = attacked(attack, network, batch.params, data, batch.sample.x, batch.sample.y)
        margins.append(batch.sample.y * network.forward(batch.params, points))
    assert (margins[1] <= margins[0]).all()


class NotedStarts(Target):
    """A target that notes which random starts it was asked for."""

    asked: list[str]

    def uniform(self, ball: Ball, radius: Tensor, part: str) -> Tensor:
        self.asked.append(part)
        return super().uniform(ball, radius, part)


@pytest.mark.parametrize("kind", [PGD, APGD])
@pytest.mark.parametrize("begin", ["zero", "uniform"])
def test_every_ascent_has_another_start(kind, begin):
    batch = start([small_setup()])
    NotedStarts.asked = []
    target = NotedStarts(
        batch.setup.network, batch.params, batch.setup.data, batch.sample, batch.streams
    )
    kind(ball=Ball(radius=1.0), steps=2, start=begin, restarts=3).perturb(target)
    assert NotedStarts.asked == [f"start/{restart}" for restart in range(begin == "zero", 3)]


def test_it_trains():
    """As a training attack it is at least as hard as PGD of the same steps, within a little."""
    losses = {}
    for attack in (None, APGD(ball=Ball(radius=0.3), steps=8)):
        batch = start([small_setup(attack=attack, rate=1.0)])
        *_, (step, _) = descend(batch)
        losses[attack is None] = float(step.loss)
    assert losses[True] < losses[False] < math.log(2)


def test_checkpoints_are_those_of_the_paper():
    """Croce and Hein section 3.2: p_1 = 0.22, p_{j+1} = p_j + max(p_j - p_{j-1} - 0.03, 0.06), w_j = ceil(p_j N)."""
    found = [number for number, _ in _checkpoints(100)]
    assert found == [22, 41, 57, 70, 80, 87, 93, 99]
    assert sum(since for _, since in _checkpoints(100)) == 99


def slow_iterates(value_at: Callable[[Tensor], Tensor], x: Tensor, radius: float) -> list[Tensor]:
    """Algorithm 1 of Croce and Hein in an l2 ball, for one point and 20 steps: every iterate."""

    def evaluate(delta: Tensor) -> tuple[Tensor, float, Tensor]:
        delta = delta.clone().requires_grad_()
        value = value_at(x + delta)
        (gradient,) = torch.autograd.grad(value, delta)
        return delta.detach(), value.item(), gradient / gradient.norm()

    def project(delta: Tensor) -> Tensor:
        return delta * min(1.0, radius / float(delta.norm()))

    here = best = evaluate(torch.zeros_like(x))
    places, before, marks = [here[0]], here[0], dict(_checkpoints(20))
    step, rises, last_step, last_best = 2 * radius, 0, 2 * radius, here[1]
    for number in range(1, 21):
        new = project(here[0] + step * here[2])
        if number > 1:
            new = project(here[0] + 0.75 * (new - here[0]) + 0.25 * (here[0] - before))
        before, old = here[0], here[1]
        here = evaluate(new)
        places.append(new)
        rises += here[1] > old
        best = max(best, here, key=lambda place: place[1])
        if number in marks:
            same = step == last_step and best[1] <= last_best
            stuck = rises < 0.75 * marks[number] or same
            last_step, last_best, rises = step, best[1], 0
            if stuck:
                step, here, before = step / 2, best, best[0]
    return places


def test_every_iterate_is_that_of_a_slow_reference(monkeypatch):
    data, network = small_data(samples=3), small_network(1.5, 1.5, heads=2)
    batch = start([small_setup(data, network)])
    x, y, places = batch.sample.x, batch.sample.y, []

    def noting(method: Callable) -> Callable:
        def noted(objective: _Objective, delta: Tensor) -> Any:
            places.append(delta.clone())
            return method(objective, delta)

        return noted

    monkeypatch.setattr(_Objective, "__call__", noting(_Objective.__call__))
    attack = APGD(ball=Ball(radius=1.5, per="sample"), steps=20)
    attacked(attack, network, batch.params, data, x, y)
    for index in range(3):

        def value_at(point: Tensor, index: int = index) -> Tensor:
            return -y[0, index] * network.forward(batch.params, point[None, None])[0, 0]

        slow = slow_iterates(value_at, x[0, index], 1.5)
        close(torch.stack(places)[:, 0, index], torch.stack(slow))


def test_bad_fields_are_named():
    with pytest.raises(SpecError, match=says("`ball.p`", "1, 2", "inf", "`apgd`", "0")):
        APGD(ball=Ball(p=0, radius=2.0))
    with pytest.raises(SpecError, match=says("`loss`", "'dlr'", "three classes", "2")):
        Setup(
            data=small_data(),
            network=small_network(),
            attack=APGD(ball=Ball(radius=0.1), loss="dlr"),
            training=GradientDescent(rate=0.1),
        )


# Strength compared with a reference implementation, on a classifier of images trained here.

SIDE = 14
Reference = Callable[..., Tensor]


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    """APGD of adversarial-library, without the parts of that package that need more than torch."""
    spec = importlib.util.find_spec("adv_lib")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("adv-lib is not installed: make test installs it")
    root = next(iter(spec.submodule_search_locations))
    hollow = {
        "adv_lib": root,
        "adv_lib.attacks": f"{root}/attacks",
        "adv_lib.utils": f"{root}/utils",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, place in hollow.items():
            module = types.ModuleType(name)
            module.__path__ = [place]
            patch.setitem(sys.modules, name, module)
        yield importlib.import_module("adv_lib.attacks.auto_pgd").apgd


def images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ten smooth patterns of varying contrast, with noise, in [0, 1]."""
    fixed, drawn = torch.Generator().manual_seed(7), torch.Generator().manual_seed(seed)
    coarse = torch.randn(10, 1, 5, 5, generator=fixed)
    patterns = nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bicubic")[:, 0]
    y = torch.randint(10, (count,), generator=drawn)
    contrast = 0.14 + 0.04 * torch.randn(count, 1, 1, generator=drawn)
    noise = 0.1 * torch.randn(count, SIDE, SIDE, generator=drawn)
    return (0.5 + contrast * patterns[y] + noise).clamp(0, 1), y


@pytest.fixture(scope="module")
def classifier() -> nn.Module:
    """A small convolutional network, trained for a while against one-step attacks."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Unflatten(1, (1, SIDE)),
            nn.Conv2d(1, 12, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24 * 16, 10),
        )
    rule = torch.optim.Adam(model.parameters(), 3e-3)
    x, y = images(1500, 1)
    for _ in range(6):
        for points, labels in zip(x.split(100), y.split(100), strict=True):
            traced = points.clone().requires_grad_()
            loss = nn.functional.cross_entropy(model(traced), labels)
            (gradient,) = torch.autograd.grad(loss, traced)
            rule.zero_grad()
            moved = (points + 0.08 * gradient.sign()).clamp(0, 1)
            nn.functional.cross_entropy(model(moved), labels).backward()
            rule.step()
    return model.eval().requires_grad_(False)


class Wrapped(Network):
    """A module of images as a network of one run."""

    def initial_params(self, data: Any, streams: Any, dtype: Any) -> dict[str, Tensor]:
        return {}

    def forward(self, params: Any, x: Tensor) -> Tensor:
        return MODEL[0](x[0])[None]

    def output_count(self) -> int:
        return 10


class Pictures(DataModel):
    """The images above as a data model of one run."""

    def sample(self, streams: Any, split: str, count: int, dtype: torch.dtype) -> Sample:
        x, y = images(count, seed=2)
        labels = y[None].to(dtype)
        return Sample(x[None].to(dtype), labels, labels)

    def label_count(self) -> int:
        return 10


MODEL: list[nn.Module] = []


def accuracy(attack: Attack, model: nn.Module, x: Tensor, y: Tensor) -> float:
    MODEL[:] = [model]
    data = Pictures(samples=len(x), tokens=SIDE, dim=SIDE)
    streams = Streams([RunId(0, 0, "")])
    sample = data.sample(streams, "test", len(x), torch.float32)
    target = Target(Wrapped(), {}, data, sample, streams)
    with torch.no_grad():
        points = attack.perturb(target)[0]
        return float((model(points).argmax(1) == y).float().mean())


@pytest.mark.parametrize(
    ("p", "radius", "loss", "theirs"),
    [
        ("inf", 0.08, "cross_entropy", "ce"),
        (2, 0.8, "cross_entropy", "ce"),
        (1, 4.0, "cross_entropy", "ce"),
        ("inf", 0.08, "dlr", "dlr"),
        (2, 0.8, "dlr", "dlr"),
        pytest.param(1, 4.0, "dlr", "dlr", marks=pytest.mark.slow),
    ],
)
def test_it_is_as_strong_as_a_reference(classifier, reference, p, radius, loss, theirs):
    """At equal iterations, at most half a point weaker; where starts matter more, on more images."""
    x, y = images(1200 if p == 1 else 400, 2)
    ball = Ball(p=p, radius=radius, per="sample", box=(0.0, 1.0))
    ours = accuracy(APGD(ball=ball, steps=40, loss=loss, start="uniform"), classifier, x, y)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        points = reference(classifier, x, y, radius, float(p), n_iter=40, loss_function=theirs)
    theirs = float((classifier(points).argmax(1) == y).float().mean())
    assert 0.02 < theirs < 0.9, "an attack that neither always nor never succeeds"
    assert ours <= theirs + 0.005
    if p != 1:
        fixed = accuracy(
            PGD(ball=ball, steps=40, step=0.2, loss=loss, keep="best"), classifier, x, y
        )
        assert fixed <= theirs + 0.005
    if loss == "dlr":
        assert accuracy(EnsembleAttack(ball=ball, steps=40, restarts=1), classifier, x, y) <= theirs
