"""Ascent in the coordinates of the weights: the same trajectories as in R^d, for less."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benign import kernels
from benign.attacks import apgd, gram
from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack, Target, replace_points
from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.gram import GramSpace, pays, plain_attacks, space_for
from benign.attacks.pgd import PGD
from benign.attacks.space import PerturbationSpace
from benign.data.mixture import Mixture
from benign.data.model import DataModel, Sample
from benign.networks import compiled
from benign.networks.attention import Attention, ProductsPass
from benign.networks.network import Network
from benign.networks.products import SeesProducts
from benign.networks.two_layer import TwoLayer
from benign.streams import Streams
from tests.reference import (
    close,
    film,
    margins,
    normals,
    run_ids,
    small_data,
    small_network,
    small_pgd,
    small_setup,
    start,
)
from tests.registry import forgetting

ROOT = Path(__file__).parents[2]
MIXTURE = Mixture(samples=6, dim=30, signal=3.0, balanced=True)
SMOOTH: dict[str, Any] = {"activation": "smoothed_leaky_relu", "slope": 0.3, "smoothness": 2.0}
NETWORKS: dict[str, tuple[Network, DataModel]] = {
    "one head": (small_network(score_std=0.4), small_data(dim=30)),
    "two heads": (small_network(score_std=0.4, heads=2), small_data(dim=30)),
    "uniform": (small_network(attend="uniform"), small_data(dim=30)),
    "signal": (small_network(attend="signal"), small_data(dim=30)),
    "theory": (TwoLayer(width=8, init_std=0.2, **SMOOTH), MIXTURE),
    "hybrid": (TwoLayer(width=8, preset="hybrid"), MIXTURE),
    "biases": (TwoLayer(width=7, preset="torch_default", **SMOOTH), MIXTURE),
}
EACH = pytest.mark.parametrize("name", NETWORKS)
PER = pytest.mark.parametrize("per", ["token", "sample"])


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products wherever they are possible, also where they do not pay."""
    monkeypatch.setattr(gram, "pays", lambda *sizes: True)


def target_of(name: str, dtype: torch.dtype = torch.float64, runs: int = 2) -> Target:
    """Points and a network after one step, since that of Wang starts at f = 0."""
    network, data = NETWORKS[name]
    streams = Streams(run_ids(runs))
    sample = data.sample(streams, "train", data.samples, dtype)
    params = network.initial_params(data, streams, dtype)
    for part, gradient in network.run(params, sample.x).params_gradient(sample.y).items():
        params[part] += 0.05 * gradient
    return Target(network, params, data, sample, streams)


def both(attack: Attack, target: Target) -> tuple[Tensor, Tensor]:
    """The attacked points by products, and in R^d."""
    threat = attack.threat()
    assert threat is not None
    ball = threat.each()[0]
    assert isinstance(space_for(target, ball, 10), GramSpace)
    points = attack.perturb(target)
    with plain_attacks():
        assert type(space_for(target, ball, 10)) is PerturbationSpace
        return points, attack.perturb(target)


PGDS: dict[str, tuple[str, dict[str, Any]]] = {
    "token": ("token", {}),
    "sample": ("sample", {}),
    "token, cross-entropy": ("token", {"loss": "cross_entropy"}),
    "sample, cross-entropy": ("sample", {"loss": "cross_entropy"}),
    "best": ("sample", {"keep": "best"}),
    "uniform": ("token", {"start": "uniform", "loss": "cross_entropy"}),
    "restarts": ("sample", {"restarts": 3}),
    "stopping": ("token", {"stop_when_wrong": True, "step": 0.1}),
}


@EACH
@pytest.mark.parametrize("kind", PGDS)
def test_pgd_goes_the_same_way(always, name, kind):
    per, fields = PGDS[kind]
    target = target_of(name)
    points, plain = both(small_pgd(0.8, per, steps=7, **fields), target)
    close(points - target.x, plain - target.x)


@EACH
@pytest.mark.parametrize(("per", "loss"), [("token", "margin"), ("sample", "cross_entropy")])
def test_apgd_has_the_same_iterates(always, name, per, loss, monkeypatch):
    """Every place, not only the worst: places of one ascent may be equally bad to the last digit."""
    target, iterates = target_of(name), []

    def noting(method: Callable) -> Callable:
        def noted(objective: Any, delta: Tensor) -> Any:
            iterates.append(objective.space.points(delta) - target.x)
            return method(objective, delta)

        return noted

    monkeypatch.setattr(apgd._Objective, "__call__", noting(apgd._Objective.__call__))
    attack = APGD(ball=Ball(radius=0.8, per=per), loss=loss, steps=9, restarts=2)
    points, plain = both(attack, target)
    by_products, in_space = torch.stack(iterates).chunk(2)
    assert len(by_products) == 20
    close(by_products[1:], in_space[1:])
    close(margins(target, points), margins(target, plain))


@EACH
def test_the_ensemble_attack_finds_the_same_margins(always, name):
    target = target_of(name)
    points, plain = both(
        EnsembleAttack(ball=Ball(radius=0.8), steps=6, also=small_pgd(0.8)), target
    )
    close(margins(target, points), margins(target, plain))


TRAININGS: list[tuple[str, Attack]] = [
    ("one head", small_pgd(0.6)),
    ("one head", small_pgd(0.6, "sample", keep="best", loss="cross_entropy")),
    ("two heads", small_pgd(0.6, start="uniform")),
    ("two heads", small_pgd(0.6, "sample", restarts=2)),
    ("hybrid", small_pgd(0.6, "sample")),
    ("biases", small_pgd(0.6, "sample", keep="best")),
]


@pytest.mark.parametrize(("name", "attack"), TRAININGS, ids=str)
def test_whole_trainings_are_the_same(always, name, attack):
    network, data = NETWORKS[name]
    cells = [small_setup(data, network, attack, rate=0.2, first_attacked_step=1)] * 2
    by_products = film(start(cells))
    with plain_attacks():
        in_space = film(start(cells))
    assert len(by_products) == len(in_space) == 13
    for here, there in zip(by_products, in_space, strict=True):
        close(here.attacked, there.attacked)
        for part in there.params:
            close(here.params[part], there.params[part])


@PER
def test_runs_of_different_radii_are_batched_as_they_are_alone(always, per):
    network, data = NETWORKS["two heads"]
    cells = [small_setup(data, network, small_pgd(radius, per)) for radius in (0.0, 0.3, 1.0)]
    together = film(start(cells))[-1]
    for run, cell in enumerate(cells):
        alone = film(start([cell], [run_ids(3)[run]]))[-1]
        close(together.params["weights"][run], alone.params["weights"][0])
        close(together.attacked[run], alone.attacked[0])


@EACH
@PER
@pytest.mark.parametrize("draw", [None, "start/1"])
def test_coordinates_are_those_of_the_perturbation(always, name, per, draw):
    """First perturbation, gradient, norm and steepest direction against those in R^d."""
    target, ball = target_of(name), Ball(radius=100.0, per=per)
    space, plain = space_for(target, ball, 10), PerturbationSpace(target, ball)
    assert isinstance(space, GramSpace)
    space.begin("start/0")  # nothing of an earlier ascent may be left
    first, expected = space.begin(draw), plain.begin(draw)
    assert torch.equal(space.points(first * 0), target.x)
    if draw is None:
        assert not first.any()
    else:
        close(space.points(first) - target.x, expected)
    here, there = space.run(first), plain.run(expected)
    close(here.outputs, there.outputs)
    gradient, slopes = here.inputs_gradient(target.y), there.inputs_gradient(target.y)
    close(space.points(gradient) - target.x, slopes)
    moved, sum_ = first * 0.7 + gradient, expected * 0.7 + slopes
    close(space.points(moved) - target.x, sum_)
    close(space.norm(moved), ball.norm(sum_))
    close(space.points(space.steepest(gradient)) - target.x, ball.steepest(slopes.clone()))


@PER
def test_points_without_a_gradient_or_with_radius_0_do_not_move(always, per):
    target = target_of("one head")
    attack = small_pgd(0.5, per)
    target = with_values(target, lambda values: values * torch.tensor([0.0, 1.0])[:, None, None])
    points, _ = both(attack, target)
    assert torch.equal(points[0], target.x[0])
    assert (points[1] != target.x[1]).any()
    assert torch.equal(both(small_pgd(0.0, per, keep="best"), target)[0], target.x)


def with_values(target: Target, change: Callable[[Tensor], Tensor]) -> Target:
    """The same target with another u = W_V w_O."""
    network, params = target.network, {name: part.clone() for name, part in target.params.items()}
    assert isinstance(network, Attention)
    values = network.values(params)
    values.copy_(change(values))
    return replace(target, params=params)


@PER
def test_short_columns_count_as_much_as_long_ones(always, per):
    """In float32, with u so short that its part of every gradient is below the rounding of other columns."""
    target = target_of("one head", torch.float32)
    short = with_values(target, lambda values: 1e-12 * values)
    points, plain = both(small_pgd(0.5, per), short)
    close(points - target.x, plain - target.x, 1e-5)
    close(points - target.x, small_pgd(0.5, per).perturb(target) - target.x, 1e-5)


@PER
def test_saturated_gradients_do_not_underflow(always, per):
    """In float32 the squares of half of these gradients are 0, and the gradients are not."""
    target = target_of("uniform", torch.float32)
    signals = target.sample.latent["signal"]
    target = with_values(target, lambda _: 34 * (signals[:, 0] - signals[:, 1])[..., None])
    assert float(margins(target, target.x).median()) > 40
    attack = small_pgd(0.1, per, loss="cross_entropy")
    points, plain = both(attack, target)
    close(points - target.x, plain - target.x, 1e-5)
    assert float(attack.ball.norm(points - target.x).min()) > 0.09


@pytest.mark.parametrize("condition", [1e3, 1e4])
@PER
def test_float32_keeps_its_digits_on_ill_conditioned_weights(always, condition, per):
    """Against float64 in R^d; singular values of W spread evenly in the logarithm, as a large signal spreads them."""
    target = target_of("two heads")
    used = slice(0, 22)
    left, _, right = torch.linalg.svd(target.params["weights"][..., used], full_matrices=False)
    sizes = torch.logspace(0, -torch.tensor(condition).log10().item(), 22, dtype=torch.float64)
    target.params["weights"][..., used] = 3 * left * sizes @ right
    attack = small_pgd(0.5, per, steps=10)
    _, expected = both(attack, target)
    rounded = Target(
        target.network,
        {name: part.float() for name, part in target.params.items()},
        target.data,
        target.data.sample(target.streams, "train", target.data.samples, torch.float32),
        target.streams,
    )
    points, _ = both(attack, rounded)
    close(points.double() - target.x, expected - target.x, 1e-5)
    assert float(attack.ball.norm(points.double() - rounded.x.double()).max()) < 0.5 * (1 + 1e-6)


@pytest.mark.parametrize("rate", [1e-5, 1e-3])
def test_float32_keeps_its_digits_where_neurons_of_a_pair_nearly_cancel(always, rate):
    """Wang's network after a first short step: the gradient is a small difference of its two halves."""
    network, data = NETWORKS["hybrid"]
    streams = Streams(run_ids(2))
    sample = data.sample(streams, "train", 6, torch.float32)
    params = network.initial_params(data, streams, torch.float32)
    params["inner"] += rate * network.run(params, sample.x).params_gradient(sample.y)["inner"]
    exact = {name: part.double() for name, part in params.items()}
    rounded = Target(network, params, data, sample, streams)
    points, _ = both(small_pgd(0.5), rounded)
    x, y = sample.x.double(), sample.y.double()
    _, expected = both(small_pgd(0.5), Target(network, exact, data, Sample(x, y, y, {}), streams))
    close(points.double() - x, expected - x, 1e-5)


@pytest.mark.parametrize("difference", [1e-3, 1e-4, 1e-5, 1e-6])
def test_where_columns_cancel_points_stay_finite_and_in_the_ball(always, difference):
    """Linear neurons with outer weights of sum 0: only the part of a gradient that differs between the w_s remains."""
    target = target_of("biases", torch.float32)
    params = dict(target.params)
    params["inner"] = params["inner"][:, :1] + difference * normals(2, 7, 30).float()
    params["inner_bias"] = torch.full((2, 7), 50.0)
    params["outer"] = torch.tensor([1.0, -1, 1, -1, 1, -1, 0]).expand(2, 7)
    points, _ = both(small_pgd(0.5, steps=10), replace(target, params=params))
    assert points.isfinite().all()
    assert float((points.double() - target.x.double()).norm(dim=-1).max()) < 0.5 * (1 + 1e-5)


TRAINED = [("one head", "token", {}), ("two heads", "sample", {"start": "uniform"})]
TRAINED += [("hybrid", "token", {"stop_when_wrong": True}), ("biases", "sample", {"keep": "best"})]


@pytest.mark.parametrize(("name", "per", "fields"), TRAINED, ids=str)
def test_training_runs_on_the_attacked_points(always, name, per, fields):
    """Also where the points were projected once more at the end, and their products with them."""
    target, attack = target_of(name), small_pgd(0.8, per, **fields)
    points, forward_pass = attack.training_pass(target)
    there = target.training_pass(points)
    close(points, attack.perturb(target))
    close(forward_pass.outputs, there.outputs)
    c = normals(*target.y.shape)
    for part, gradient in there.params_gradient(c).items():
        close(forward_pass.params_gradient(c)[part], gradient)
    close(forward_pass.inputs_gradient(c), there.inputs_gradient(c))


def test_training_multiplies_no_weights_again(always):
    """The pass on attacked points computes only the products between tokens."""
    target, attack = target_of("one head"), small_pgd(0.8)
    counts = []
    for work in (attack.perturb, attack.training_pass):
        with FlopCounterMode(display=False) as counter:
            work(target)
        counts.append(counter.get_total_flops())
    with FlopCounterMode(display=False) as counter:
        target.training_pass(target.x)
    weights = 2 * target.x.numel() * target.params["weights"].shape[2]
    assert counts[1] - counts[0] == counter.get_total_flops() - weights


def test_gradients_are_scaled_only_if_their_squares_would_underflow():
    def fits(*sizes: float, dtype: torch.dtype = torch.float32) -> bool:
        return gram._squares_fit(torch.tensor(sizes, dtype=dtype).reshape(1, 1, -1, 1))

    assert fits(0.0, 1e-14, 1e14)
    assert not fits(1.0, 1e-16)
    assert not fits(1.0, 1e16)
    assert fits(1e-100, 1e100, dtype=torch.float64)


@EACH
def test_a_pass_on_products_is_the_pass(name):
    target = target_of(name)
    network, params, x = target.network, target.params, target.x
    assert isinstance(network, SeesProducts)
    columns = network.weight_columns(params)
    assert columns is not None
    there, here = network.run(params, x), network.products_pass(params, x @ columns[:, None])
    close(here.outputs, there.outputs)
    c = normals(*target.y.shape)
    coefficients = here.inputs_gradient(c)
    close(coefficients @ columns[:, None].transpose(-1, -2), there.inputs_gradient(c))
    wide = torch.full((*coefficients.shape[:3], 2 * coefficients.shape[3]), 7.0).double()
    half = wide.chunk(2, -1)[0]
    close(here.inputs_gradient(c, out=half), coefficients)
    assert torch.equal(half, coefficients)
    assert (wide.chunk(2, -1)[1] == 7).all()


@pytest.mark.parametrize(
    ("name", "network", "ball"),
    [
        ("one head", None, Ball(p="inf", radius=0.5)),
        ("one head", None, Ball(p=1, radius=0.5)),
        ("one head", None, Ball(radius=0.5, box=(-2.0, 2.0))),
        ("one head", small_network(exposed="values"), Ball(radius=0.5)),
        ("one head", small_network(exposed="scores"), Ball(radius=0.5)),
        ("one head", TwoLayer(width=4, preset="hybrid"), Ball(radius=0.5, per="sample")),
    ],
    ids=["linf", "l1", "box", "values", "scores", "several tokens"],
)
def test_if_products_would_be_wrong_the_ascent_is_in_rd(always, name, network, ball):
    target = target_of(name)
    network = network or target.network
    params = network.initial_params(target.data, target.streams, torch.float64)
    target = Target(network, params, target.data, target.sample, target.streams)
    assert type(space_for(target, ball, 10)) is PerturbationSpace
    assert PGD(ball=ball, steps=2).perturb(target).isfinite().all()


def test_a_subclass_that_may_change_the_points_is_attacked_in_rd(always):
    with forgetting():

        class LengthenedAttention(Attention):
            def attacked_pass(self, params: Any, x: Tensor, clean: Tensor) -> Any:
                return super().attacked_pass(params, 2 * x, clean)

    target = target_of("one head")
    target = replace(target, network=LengthenedAttention.model_construct(**vars(target.network)))
    assert type(space_for(target, Ball(radius=0.5), 10)) is PerturbationSpace


def test_shapes_decide_which_space_is_cheaper():
    assert pays(352, 1024, 272, 20), "zhang/fig1"
    assert pays(320, 1024, 1040, 20), "jiang/fig1"
    assert pays(4000, 1024, 272, 50), "test points"
    assert not pays(352, 160, 272, 20), "more columns than dimensions"
    assert not pays(4, 1024, 272, 20), "the Gram matrix costs more than the ascent"
    assert not pays(352, 1024, 272, 1), "one step"
    assert not pays(40, 40, 16, 10), "nothing to save"
    small = target_of("one head")
    assert type(space_for(small, Ball(radius=0.5), 10)) is PerturbationSpace


def test_attacks_are_plain_only_inside(always):
    target, ball = target_of("one head"), Ball(radius=0.5)

    def fail_inside() -> None:
        with plain_attacks():
            with plain_attacks():
                pass
            assert type(space_for(target, ball, 10)) is PerturbationSpace
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail_inside()
    assert isinstance(space_for(target, ball, 10), GramSpace)


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, compiles: bool) -> None:
    """Fresh memory, and the steps that would be compiled, by the interpreter."""
    first = GramSpace.__init__

    def begun(self: GramSpace, *given: Any) -> None:
        first(self, *given)
        self.on_cpu = False
        self._inputs = None

    monkeypatch.setattr(GramSpace, "__init__", begun)
    monkeypatch.setattr(compiled, "_on", compiles)
    monkeypatch.setattr(compiled, "_compiled", lambda function: function)


@EACH
@PER
@pytest.mark.parametrize("compiles", [False, True])
def test_the_steps_of_a_gpu_give_the_same(name, per, compiles, always, monkeypatch):
    target, attack = target_of(name), small_pgd(0.4, per=per, steps=10, loss="cross_entropy")
    expected = attack.perturb(target)
    as_on_a_gpu(monkeypatch, compiles)
    close(attack.perturb(target), expected, 1e-10)


def test_a_long_step_along_a_vanishing_gradient_is_finite(always, monkeypatch):
    """In float32 the length of the step over the size of this gradient is not."""
    target, attack = target_of("one head", torch.float32), small_pgd(1e4, steps=1)
    expected = attack.perturb(target)
    exact_gradient = ProductsPass.inputs_gradient
    faint = 1e-36
    monkeypatch.setattr(
        ProductsPass, "inputs_gradient", lambda *given: faint * exact_gradient(*given)
    )
    as_on_a_gpu(monkeypatch, compiles=True)
    points = attack.perturb(target)
    assert points.isfinite().all()
    moved = attack.ball.norm(points - target.x)
    close(moved, attack.ball.norm(expected - target.x), 1e-5)


@pytest.mark.parametrize("start_at", ["zero", "uniform"])
def test_apgd_on_a_gpu_is_the_same(start_at, always, monkeypatch):
    target, ball = target_of("one head"), Ball(radius=0.4)
    attack = APGD(ball=ball, steps=10, start=start_at)
    expected = attack.perturb(target)
    as_on_a_gpu(monkeypatch, compiles=True)
    close(attack.perturb(target), expected, 1e-9)


@pytest.mark.gpu
def test_a_gpu_finds_the_same_points(always):
    compare_with_gpu()


@pytest.mark.gpu
def test_compiled_code_on_a_gpu_finds_the_same_points():
    """In a process of its own: torch cannot compile functions whose arguments are checked at every call."""
    lines = [
        "from benign.attacks import gram",
        "from benign.networks.compiled import compiling",
        "from tests.attacks.test_gram import compare_with_gpu",
        "gram.pays = lambda *sizes: True",
        "with compiling(True) as used:",
        "    compare_with_gpu()",
        "    assert used()",
    ]
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def compare_with_gpu() -> None:
    """Raise if PGD finds other points on a GPU than on the CPU."""
    target, attack = target_of("one head"), small_pgd(0.4, steps=10)
    params = {name: part.cuda() for name, part in target.params.items()}
    latent = {name: part.cuda() for name, part in target.sample.latent.items()}
    sample = Sample(target.x.cuda(), target.y.cuda(), target.sample.clean_y.cuda(), latent)
    on_gpu = replace(target, params=params, sample=sample, streams=Streams(run_ids(2), "cuda"))
    close(attack.perturb(on_gpu).cpu(), attack.perturb(target), 1e-9)


@pytest.mark.gpu
@pytest.mark.parametrize(("heads", "hidden", "tokens"), [(1, 32, 16), (2, 24, 5), (3, 5, 20)])
@PER
@pytest.mark.parametrize("draw", [None, "start/1"])
@pytest.mark.parametrize("loss", ["margin", "cross_entropy"])
def test_kernels_do_what_the_expressions_do(heads, hidden, tokens, per, draw, loss):
    """As far from float64 as the expressions in float32 are."""
    data = small_data(samples=9, tokens=tokens, dim=40)
    network = small_network(score_std=0.4, heads=heads, hidden=hidden)
    results = []
    for plain, dtype in ((False, torch.float32), (True, torch.float32), (True, torch.float64)):
        with kernels.plain_kernels() if plain else nullcontext():
            streams = Streams(run_ids(3), "cuda")
            sample = data.sample(streams, "train", 9, dtype)
            params = network.initial_params(data, streams, dtype)
            target = Target(network, params, data, sample, streams)
            columns = network.weight_columns(params)
            assert columns is not None
            space = GramSpace(target, Ball(radius=0.8, per=per), network, columns)
            assert space.fused is not plain
            results.append(path_of(space, draw, loss))
    fused, plain, exact = results
    for mine, other, right in zip(fused, plain, exact, strict=True):
        scale = right.abs().max()
        error, usual = ((part - right).abs().max() / scale for part in (mine, other))
        assert error <= 3 * usual + 5e-6


def path_of(space: GramSpace, draw: str | None, loss: Any) -> list[Tensor]:
    """Outputs and points of an ascent of three steps, the last ones with momentum."""
    begin = space.begin(draw)
    first, gradient = space.evaluate(begin, loss)
    once = space.momentum_step(begin, None, gradient, 0.5 * space.radius, 0.75)
    second, gradient = space.evaluate(once, loss)
    twice = space.momentum_step(once, begin, gradient, 2.5 * space.radius, 0.75)
    third, _ = space.evaluate(twice, loss)
    found = [first, second, third, space.points(once), space.points(twice)]
    return [part.double() for part in found]


@pytest.mark.gpu
def test_kernels_replace_the_chosen_points():
    points, others = (torch.rand(2, 3, 7, 5, 33, device="cuda") for _ in range(2))
    chosen = torch.rand(3, 7, device="cuda") < 0.5
    expected = torch.where(chosen[:, :, None, None], others, points)
    assert kernels.why_not(points) is None
    replace_points(points, others, chosen)
    assert torch.equal(points, expected)


def test_kernels_say_why_they_do_not_apply():
    assert "not on a CUDA device" in str(kernels.why_not(torch.zeros(1)))
