"""Random starts at the test: those of R^d in the span, with the length of the rest (papers/wang.md 6.4)."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack, Target
from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.pgd import PGD
from benign.data.feature_patches import FeaturePatches
from benign.data.mixture import Mixture
from benign.data.model import Sample
from benign.networks.linear import Linear
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.reduction.random_starts import WideTarget
from benign.spec import axes
from benign.streams import Streams
from benign.training.descent import Batch, descend
from benign.training.engine import train_runs
from benign.training.metrics.evaluation import measure
from benign.training.setup import Setup
from tests.reference import (
    Fields,
    close,
    run_ids,
    small_data,
    small_network,
    small_pgd,
    small_setup,
    start,
)

RUNS = 600
LEVEL = 1e-4
"""of one comparison of two samples: a false alarm in one of the 30 comparisons here once in 300 times"""
PATHS = 3


def attention(dim: int = 60, **fields: Any) -> Setup:
    return small_setup(small_data(dim=dim), small_network(score_std=0.6, **fields), max_steps=5)


def two_layer(dim: int = 60) -> Setup:
    data = Mixture(samples=6, dim=dim, signal=2.0, noise_std=0.5, flip=0.2)
    return small_setup(data, TwoLayer(width=8, init_std=0.2), max_steps=5, rate=0.3)


def three_tokens(dim: int = 60) -> Setup:
    """A neuron has a part for every token."""
    network = TwoLayer(width=6, init_std=0.3, activation="leaky_relu", slope=0.2)
    return small_setup(small_data(dim=dim), network, max_steps=5, rate=0.3)


def patch_cnn(dim: int = 60) -> Setup:
    sizes: Fields = {"samples": 5, "tokens": 3, "dim": dim, "noise_std": 0.2}
    data = FeaturePatches(**sizes, alpha=1.5, beta=0.5)
    return small_setup(data, PatchCNN(width=3, threshold=0.5, init_std=0.3), max_steps=5)


def linear(dim: int = 60) -> Setup:
    return small_setup(small_data(dim=dim, flip=0.2), Linear(init_std=0.1), max_steps=5)


def exposed(dim: int = 60) -> Setup:
    """One path of the network sees the clean tokens."""
    return attention(dim, exposed="scores")


SETUPS: dict[str, Callable[..., Setup]] = {
    each.__name__: each for each in (attention, exposed, two_layer, three_tokens, patch_cnn, linear)
}
ATTACKS: dict[str, Attack] = {
    "pgd": small_pgd(0.5, start="uniform"),
    "pgd, per sample": small_pgd(0.5, per="sample", start="uniform", loss="cross_entropy"),
    "pgd, best of three": small_pgd(0.5, restarts=3, stop_when_wrong=True),
    "apgd": APGD(ball=Ball(radius=0.5, per="sample"), steps=8, start="uniform"),
    "apgd, restarts": APGD(ball=Ball(radius=0.2, relative_to="signal"), steps=8, restarts=2),
}


def batch_of(setup: Setup, mode: str, runs: int, seed: int = 0) -> Batch:
    """Runs after training, in these coordinates."""
    tested = {("evaluation", "attack"): ATTACKS["pgd"]}  # so that the span holds the weights
    cell = axes.replace(setup, {("coordinates",): mode} | tested)
    batch = start([cell] * runs, run_ids(runs, seed))
    assert (batch.dim is None) == (mode == "ambient")
    assert mode == "ambient" or batch.setup.data.dim < 60
    for _ in descend(batch):
        pass
    return batch


@torch.no_grad()
def attacked(batch: Batch, attack: Attack, points: int = 4) -> Tensor:
    """Outputs on attacked fresh points."""
    target = batch.widened_for(attack, batch.target(batch.test_points("test/0", points), "attack"))
    return target.run(attack.perturb(target)).outputs


def cases() -> list[tuple[str, str]]:
    """All attacks on all networks; data without a signal norm has no radius relative to it."""
    pairs = [(name, attack) for name in SETUPS for attack in ATTACKS]
    return [pair for pair in pairs if pair != ("patch_cnn", "apgd, restarts")]


# The same ascent


@pytest.mark.parametrize(("name", "attack"), cases())
def test_projected_starts_are_those_of_the_whole_space(name, attack):
    """Path by path: what an attack reaches in R^d it reaches in the span."""
    setup, test_attack = SETUPS[name](), ATTACKS[attack]
    ambient, projected = (batch_of(setup, mode, PATHS) for mode in ("ambient", "projected"))
    close(attacked(projected, test_attack), attacked(ambient, test_attack))
    there, here = measure(ambient, test_attack), measure(projected, test_attack)
    for each in there:
        torch.testing.assert_close(here[each], there[each], rtol=1e-9, atol=1e-11, equal_nan=True)


def forgotten(self: WideTarget, ball: Ball, radius: Tensor, part: str) -> Tensor:
    """The starts in the coordinates of the span, without the length of the rest."""
    delta = UNIFORM(self, ball, radius, part)
    delta[..., -1] = 0
    return delta


def own_ball(self: WideTarget, ball: Ball, radius: Tensor, part: str) -> Tensor:
    """Starts uniform in the ball of the span."""
    delta = Target.uniform(self, ball, radius, part)
    delta[..., -1] = 0
    return delta


def at_the_surface(self: WideTarget, ball: Ball, radius: Tensor, part: str) -> Tensor:
    delta = UNIFORM(self, ball, radius, part)
    return delta * radius / ball.norm(delta)


UNIFORM = WideTarget.uniform


@pytest.mark.parametrize("wrong", [forgotten, own_ball, at_the_surface])
def test_other_starts_change_the_ascent(wrong, monkeypatch):
    setup, test_attack = attention(), ATTACKS["pgd"]
    ambient, projected = (batch_of(setup, mode, PATHS) for mode in ("ambient", "projected"))
    monkeypatch.setattr(WideTarget, "uniform", wrong)
    there, here = attacked(ambient, test_attack), attacked(projected, test_attack)
    assert (there - here).abs().max() > 1e-4 * there.abs().max()


def test_a_whole_run_is_the_same():
    """Flipped labels, and training points that are tested; by one short step in a large ball, so that starts count."""
    test_attack = small_pgd(12.0, start="uniform", steps=1, step=0.01)
    data = small_data(samples=20, dim=100, flip=0.2)
    given = small_setup(data, Linear(), small_pgd(0.2), max_steps=5, test_attack=test_attack)
    there, here = (
        train_runs([axes.replace(given, {("coordinates",): mode})], run_ids(1))
        for mode in ("ambient", "projected")
    )
    assert 0 < there["robust_noisy_error"][0] < 1
    assert 0 < there["train_robust_accuracy_judged"][0] < 1
    for name in there:
        assert here[name] == pytest.approx(there[name], rel=1e-9, abs=1e-11, nan_ok=True), name


# The same law


def drops(batch: Batch, attack: PGD) -> dict[str, Tensor]:
    """By how much an attack moves the output of a point, over what a linear function would move; one number a run."""
    test = batch.test_points("test/0", 2)
    target = batch.widened_for(attack, batch.target(test, "attack"))
    clean = target.run(target.x)
    slope = torch.ones_like(clean.outputs)
    steepest = attack.ball.dual_norm(clean.inputs_gradient(slope)).sum((2, 3))
    moved = target.run(attack.perturb(target)).outputs - clean.outputs
    share = moved / (steepest * attack.ball.radii(target.data, target.x)[:, :, 0, 0])
    share = share.nan_to_num()  # no neuron is active at some points
    return {"first": share[:, 0].abs(), "second": share[:, 1], "moved": moved[:, 0]}


def compared(name: str, attack: PGD) -> float:
    """The least chance, by the test of Kolmogorov and Smirnov, over what is compared of 600 runs each."""
    setup = SETUPS[name](dim=40)
    with torch.no_grad():
        there, here = (
            drops(batch_of(setup, mode, RUNS, seed), attack)
            for seed, mode in enumerate(("ambient", "sampled"))
        )
    tests: list[Any] = [stats.ks_2samp(there[each], here[each]) for each in there]
    return min(float(test.pvalue) for test in tests)


PER_TOKEN = small_pgd(0.5, start="uniform", steps=3, step=0.3)
PER_SAMPLE = small_pgd(0.5, per="sample", start="uniform", steps=3, step=0.3)
LAWS = [
    (name, attack)
    for name in ("attention", "two_layer", "three_tokens", "linear")
    for attack in (PER_TOKEN, PER_SAMPLE)
]


@pytest.mark.parametrize(("name", "attack"), LAWS)
def test_sampled_starts_have_the_law_of_the_whole_space(name, attack):
    assert compared(name, attack) > LEVEL


@pytest.mark.parametrize("wrong", [forgotten, own_ball])
@pytest.mark.parametrize("attack", [PER_TOKEN, PER_SAMPLE])
def test_other_starts_have_another_law(wrong, attack, monkeypatch):
    """The power of the test above."""
    monkeypatch.setattr(WideTarget, "uniform", wrong)
    assert compared("linear", attack) < LEVEL


@pytest.mark.parametrize("per", ["token", "sample"])
@pytest.mark.parametrize("dim", [8, 30, 10**12])
def test_starts_fill_the_ball(dim, per):
    """(|delta| / radius)^size is uniform, and a coordinate in the span is that of a random direction of R^dim."""
    tokens, ball = 3, Ball(radius=1.0, per=per)
    x = torch.zeros(4, 1000, tokens, 6, dtype=torch.float64)
    sample, streams = Sample(x, x[:, :, 0, 0], x[:, :, 0, 0]), Streams(run_ids(4))
    target = WideTarget(Linear(), {}, small_data(dim=6), sample, streams, dim, None)
    radius = torch.tensor([0.5, 1.0, 2.0, 1e-3], dtype=torch.float64)[:, None, None, None]
    delta = target.uniform(ball, radius, "start/0") / radius
    size = dim if per == "token" else tokens * dim
    share = ball.norm(delta)
    assert share.max() <= 1 + 1e-14
    if dim < 1000:
        assert stats.kstest((share**size).flatten(), stats.uniform.cdf).pvalue > LEVEL
    else:
        assert share.min() > 1 - 1e-10
    assert (delta[..., -1] > 0).all()
    square = (delta[:, :, 0, 2] / share[:, :, 0, 0]).square().flatten()
    assert stats.kstest(square, stats.beta(0.5, (size - 1) / 2).cdf).pvalue > LEVEL
    rest = (delta[:, :, 1, -1] / share.expand(-1, -1, tokens, -1)[:, :, 1, 0]).square().flatten()
    assert stats.kstest(rest, stats.beta((dim - 5) / 2, (size - dim + 5) / 2).cdf).pvalue > LEVEL


@pytest.mark.parametrize("name", SETUPS)
def test_a_dimension_that_no_array_has(name):
    """Single precision, from the start of the run to its audit."""
    setup = SETUPS[name](dim=10**12)
    stds = {"noise_std", "init_std", "score_std", "value_std"}
    small = {path: 1e-6 for path, _, _ in axes.walk(setup) if path[-1] in stds}
    changes: Any = {("coordinates",): "sampled", ("precision",): "float32"}
    changes[("evaluation", "attack")] = ATTACKS["pgd, per sample"]
    found = train_runs([axes.replace(setup, small | changes)], run_ids(1))
    assert 0 <= found["robust_accuracy"][0] <= found["test_accuracy"][0] <= 1


# Where it is used


@pytest.mark.parametrize("mode", ["projected", "sampled"])
def test_which_attacks_get_the_coordinate(mode):
    batch = batch_of(attention(), mode, 2)
    target = batch.target(batch.sample, "attack")
    for attack in (small_pgd(), EnsembleAttack(ball=Ball(radius=0.5)), APGD(ball=Ball(radius=0.5))):
        assert batch.widened_for(attack, target) is target
    kept = batch.select(torch.tensor([False, True]))
    wide = kept.widened_for(ATTACKS["pgd"], kept.target(kept.sample, "attack"))
    assert isinstance(wide, WideTarget)
    assert wide.x.shape[-1] == wide.data.dim == target.data.dim + 1
    assert wide.dim == 60
    ambient = batch_of(attention(), "ambient", 1)
    plain = ambient.target(ambient.sample, "attack")
    assert ambient.widened_for(ATTACKS["pgd"], plain) is plain


@pytest.mark.parametrize("name", SETUPS)
def test_no_weight_is_at_the_coordinate(name):
    batch = batch_of(SETUPS[name](), "sampled", 2)
    target = batch.target(batch.test_points("test/0", 3), "attack")
    wide = batch.widened_for(ATTACKS["pgd"], target)
    moved = wide.x.clone()
    moved[..., -1] = 7.0
    outputs = target.run(target.x).outputs
    close(wide.run(moved).outputs, outputs)
    weights = torch.ones_like(outputs)
    gradient = wide.run(moved).inputs_gradient(weights)
    assert gradient[..., -1].abs().max() == 0
    close(gradient[..., :-1], target.run(target.x).inputs_gradient(weights))
