"""Li's recursions and closed forms, against the trained network and simulations (papers/li.md 2.3 to 2.8)."""

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from benign.attacks.one_step import OneStep
from benign.data.feature_patches import FeaturePatches
from benign.networks.patch_cnn import PatchCNN
from benign.papers.li.recursion import (
    Features,
    Problem,
    attacked_recursion,
    feature_recursion,
    phase_times,
    saturation,
    tensor_power,
)
from benign.spec.axes import replace
from benign.streams import RunId
from benign.training.descent import Batch, descend
from benign.training.optimisers import SGD
from benign.training.setup import Setup
from tests.reference import close, doubles, normals, small_data, small_network, small_setup, start
from tests.reference import patch_cnn as slow
from tests.says import says

Fields = dict[str, Any]


def patches(classes: int = 3, **fields: Any) -> FeaturePatches:
    """One point a class, without noise."""
    sizes: Fields = {"samples": classes, "tokens": 5, "dim": 9, "robust_patches": 2}
    law: Fields = {"noise_std": 0.0, "balanced": True, "classes": classes, "directions": "random"}
    return FeaturePatches(**(sizes | law | fields))


def coefficients(batch: Batch) -> Features:
    features = batch.sample.latent["features"]
    return Features.of(Problem.of(batch.setup), batch.params["weights"].clone(), features)


# Lemma 5.1 and D.4.


@pytest.fixture(scope="module")
def standard() -> tuple[Batch, list[Features], list[Tensor], list[Tensor]]:
    """A batch at its start; then, step by step, the recursion and the trained losses and weights."""
    network = PatchCNN(width=4, classes=3, threshold=0.5, init_std=0.15)
    strengths: list[Fields] = [{"alpha": 1.2, "beta": 0.7}, {"alpha": 0.8, "beta": 0.9}]
    cells = [
        small_setup(patches(**each), network, rate=rate, max_steps=300)
        for each, rate in zip(strengths, (0.2, 0.4), strict=True)
    ]
    states = list(feature_recursion(coefficients(start(cells)), 300))
    seen = [(step.loss, step.batch.params["weights"].clone()) for step, _ in descend(start(cells))]
    return start(cells), states, [each[0] for each in seen], [each[1] for each in seen]


def test_lemma_d4_the_recursion_is_the_training(standard):
    batch, states, losses, weights = standard
    assert len(states) == len(losses) == 301
    features = batch.sample.latent["features"]
    for state, trained_loss, filters in zip(states, losses, weights, strict=True):
        trained = Features.of(state.problem, filters, features)
        close(state.robust, trained.robust)
        close(state.non_robust, trained.non_robust)
        close(state.losses.mean(1), trained_loss)
    assert [state.number for state in states] == list(range(301))
    assert (losses[-1] < 0.1 * losses[0]).all()


def test_lemma_d2_the_part_off_the_features_is_frozen(standard):
    batch, _, _, weights = standard
    features = batch.sample.latent["features"]

    def off(filters: Tensor) -> Tensor:
        along = torch.einsum("rimd,rfd->rimf", filters, features)
        return filters - torch.einsum("rimf,rfd->rimd", along, features)

    close(off(weights[-1]), off(weights[0]), 1e-13)


def test_the_recursion_is_the_slow_one():
    """With strengths by class, four classes and q = 4, against sums written out one by one."""
    strengths: Fields = {
        "alpha_by_class": (1.0, 1.5, 0.5, 2.0),
        "beta_by_class": (0.5, 1, 0.7, 0.2),
    }
    network = PatchCNN(width=3, classes=4, q=4, threshold=0.6, init_std=0.4)
    batch = start([small_setup(patches(4, **strengths), network, rate=0.3)])
    states = list(feature_recursion(coefficients(batch), 3))
    now = slow.Correlations(states[0].robust[0], states[0].non_robust[0])
    points = [
        slow.Patches(y, [strengths["alpha_by_class"][y]] * 2, [strengths["beta_by_class"][y]] * 3)
        for y in range(4)
    ]
    for state in states[1:]:
        now = slow.next_correlations(now, points, slow.Activation(4, 0.6), 0.3)
        close(state.robust[0], now.robust)
        close(state.non_robust[0], now.non_robust)
    for i in range(4):
        assert (state.A[0, i] == state.robust[0, i, :, i]).all()
        assert (state.B[0, i] == state.non_robust[0, i, :, i]).all()


def test_other_data_or_networks_are_refused():
    with pytest.raises(ValueError, match=says("`data`", "`network`", "signal_noise", "attention")):
        Problem.of(small_setup(small_data(), small_network()))


def test_another_training_method_is_refused():
    cell = small_setup(
        patches(alpha=1.2, beta=0.7), PatchCNN(width=4, classes=3, threshold=0.5, init_std=0.1)
    )
    sgd = replace(cell, {("training",): SGD(rate=0.5, epochs=2, schedule="constant")})
    with pytest.raises(ValueError, match=says("`training`", "constant rate", "sgd", "drop_every")):
        Problem.of(sgd)


# Lemma 5.2 and D.22.

RATES = doubles(1.0, 3.0, 10.0, 30.0)
CLIP = 1.2
STEPS = 800


def figure3(attack: OneStep | None = None, steps: int = STEPS) -> Setup:
    """Figure 3 without noise, with one point a class and fewer filters in fewer dimensions.

    The features are axes (Definition 2.1): the clip of another direction is not along it.
    """
    sizes: Fields = {"tokens": 16, "robust_patches": 1, "dim": 20, "directions": "axes"}
    data = patches(2, **sizes, alpha=2.0, beta=1.0)
    network = PatchCNN(width=20, threshold=1.0, init_std=0.01)
    return small_setup(data, network, attack, rate=0.1, max_steps=steps)


def figure3_batch() -> Batch:
    """The same run under four attacks."""
    cells = [figure3(OneStep(rate=float(rate), clip=CLIP)) for rate in RATES]
    return start(cells, [RunId(0, 0, "")] * len(cells))


Curves = dict[str, Tensor]


def curves(problem: Problem, steps: list[tuple[Tensor, Tensor, Tensor]]) -> Curves:
    """max_r A and B [steps, runs, classes], the loss [steps, runs] and the saturation."""
    A, B, losses = (torch.stack(part) for part in zip(*steps, strict=True))
    full = torch.stack([saturation(problem, each, RATES) for each in B])
    return {"A": A.amax(3), "B": B.amax(3), "loss": losses, "saturation": full}


@pytest.fixture(scope="module")
def attacked() -> dict[str, Curves]:
    batch = figure3_batch()
    begin, problem = coefficients(batch), Problem.of(batch.setup)
    predicted = [
        (state.A, state.B, state.losses.mean(1))
        for state in attacked_recursion(begin, RATES, CLIP, STEPS)
    ]
    trained = []
    for step, _ in descend(batch):
        now = coefficients(step.batch)
        trained.append((now.A, now.B, step.loss))
    return {"predicted": curves(problem, predicted), "trained": curves(problem, trained)}


each_kind = pytest.mark.parametrize("kind", ["predicted", "trained"])


def first(condition: Tensor) -> Tensor:
    """The first step at which a condition holds; each must hold once."""
    assert condition.any(0).all()
    return condition.int().argmax(0)


@each_kind
def test_lemma_52_non_robust_features_stop_at_the_plateau(attacked, kind: str):
    full = attacked[kind]["saturation"][-1]
    assert ((full > 0.9) & (full < 1.0)).all()


@each_kind
def test_lemma_52_the_plateau_falls_with_the_root_of_the_attack(attacked, kind: str):
    """B* grows like eta~^(-1/q) with one leading filter, not like the printed 1 / eta~."""
    heights = attacked[kind]["B"][-1].mean(1).log()
    slope = torch.linalg.lstsq(
        torch.stack([RATES.log(), torch.ones(4).double()], 1), heights[:, None]
    ).solution[0]
    assert abs(slope.item() + 1 / 3) < 0.02


@each_kind
def test_lemma_52_first_b_saturates_then_a_overtakes(attacked, kind: str):
    """And a stronger attack makes the robust feature wait longer."""
    seen = attacked[kind]
    saturated = first(seen["saturation"] > 0.5)
    overtaken = STEPS + 1 - first((seen["A"] <= seen["B"]).flip(0))  # for good
    assert (overtaken <= STEPS).all()
    assert (saturated < overtaken).all()
    at = saturated[None]
    assert (seen["A"].gather(0, at) < 0.5 * seen["B"].gather(0, at)).all()
    assert (overtaken.diff(dim=0) > 0).all()


def test_lemma_52_the_recursion_follows_the_network(attacked):
    """What it leaves out (other classes, the other feature, the part off the features) is small here."""
    predicted, trained = attacked["predicted"], attacked["trained"]
    close(predicted["B"], trained["B"], 0.01)
    close(predicted["loss"], trained["loss"], 0.1)
    weak = RATES <= 3
    close(predicted["A"][:, weak], trained["A"][:, weak], 0.015)
    close(predicted["A"][-1], trained["A"][-1], 0.1)


@settings(max_examples=20)
@given(
    classes=st.integers(2, 5),
    q=st.integers(3, 5),
    share=st.floats(0.0, 3.0),
    seed=st.integers(0, 999),
)
def test_lemma_52_in_its_polynomial_part(classes: int, q: int, share: float, seed: int):
    """The formula of D.22 with the constants of papers/li.md 2.5, for small coefficients."""
    problem, clip = Problem(1.5, 0.7, 2, 7, q, 0.9, 0.2), 0.8
    robust, non_robust = normals(2, 1, classes, 6, classes, seed=seed) * 1e-3
    begin = Features(problem, robust, non_robust)
    size = share / saturation(problem, begin.B, 1.0).max().item()  # an attack that can be felt
    now, then = attacked_recursion(begin, size, clip, 1)
    for own, moved, strength, count in ((now.A, then.A, 1.5, 2), (now.B, then.B, 0.7, 7)):
        change = _lemma(own, strength, count, q, 0.9, 0.2, size, clip)
        # Coefficients of 1e-3 are rounded at 1e-19, and the probability is not quite 1/k.
        assert (moved - own - change).abs().max() <= 1e-4 * change.abs().max() + 1e-18


def _lemma(own, strength, count, q, rho, rate, attack_rate, clip) -> Tensor:
    """rate (k-1)/(k^2 rho^(q-1)) A^(q-1) n s^q (1 - min{eps/s, eta~ s^(q-2) sum A^q / rho^(q-1)})^q."""
    classes, positive = own.shape[1], own.clamp_min(0)
    push = attack_rate * strength ** (q - 2) / rho ** (q - 1) * (positive**q).sum(2, keepdim=True)
    left = (1 - push.clamp_max(clip / strength)).clamp_min(0)
    theta = rate * (classes - 1) / (classes**2 * rho ** (q - 1))
    return theta * positive ** (q - 1) * count * strength**q * left**q


def test_saturation_counts_positive_filters_only():
    problem = Problem(1.0, doubles(2.0, 0.5), 1, 1, 3, 0.5, 0.1)
    B = torch.stack([doubles(0.1, -5.0, 0.2), doubles(-1.0, 0.3, 0.0)]).expand(2, 2, 3)
    expected = torch.stack([doubles(0.009, 0.027) * each / 0.25 for each in (2 * 7.0, 0.5 * 9.0)])
    close(saturation(problem, B, doubles(7.0, 9.0)), expected)


# Lemma B.2.


def simulate(x: float, y: float, ratio: float, q: int, target: float, rate: float):
    """Steps until x reaches the target, and y there."""
    steps = 0
    while x < target:
        x, y = x + rate * x ** (q - 1), y + ratio * rate * y ** (q - 1)
        steps += 1
    return steps, y


def test_lemma_b2_the_numbers_of_papers_li_24():
    start_values = 0.0206, 0.0255, 8 / 15, 3, 1.0, 0.375
    time, y = tensor_power(*start_values)
    assert (round(time.item()), round(y.item(), 4)) == (127, 0.0722)
    steps, end = simulate(*start_values)
    assert (steps, round(end, 4)) == (131, 0.0756)


@settings(max_examples=20)
@given(
    q=st.integers(3, 4),
    y0=st.floats(0.1, 0.3),
    lead=st.floats(1.2, 3.0),
    ratio=st.floats(0.2, 2.0),
    target=st.floats(0.7, 1.5),
)
def test_lemma_b2_is_the_limit_of_small_steps(q, y0, lead, ratio, target):
    x0 = lead * y0 * ratio ** (1 / (q - 2))
    assume(x0 < 0.5 * target)
    rate = 2e-3 * target ** (2 - q)
    time, y = tensor_power(x0, y0, ratio, q, target, rate)
    steps, end = simulate(x0, y0, ratio, q, target, rate)
    assert abs(steps / time.item() - 1) < 0.03
    assert abs(end / y.item() - 1) < 0.03


def test_lemma_b2_on_the_failing_side_y_diverges_before():
    x0, y0, ratio, rate = 0.02, 0.05, 1.0, 0.01
    assert tensor_power(x0, y0, ratio, 3, 1.0, rate).y == math.inf
    assert simulate(y0, 0, 0, 3, 1e3, ratio * rate)[0] < simulate(x0, 0, 0, 3, 1.0, rate)[0]


def test_a_power_below_three_is_refused():
    with pytest.raises(ValueError, match=says("`q`", "3", "2")):
        tensor_power(0.1, 0.1, 1.0, 2, 1.0, 0.1)


# 2.8, the times of the phases.


def grown(x: float, strength: float, count: int, problem: Problem, classes: int, size, clip) -> int:
    """Steps of one filter by D.22 as 2.8 simplifies it: full growth until clipped, then with s - eps."""
    rho, q, steps = float(problem.rho), problem.q, 0
    while x < rho / strength:
        clipped = size * strength ** (q - 1) * x**q / rho ** (q - 1) >= min(clip, strength)
        left = strength - clip if clipped and size else strength
        if left <= 0:
            break
        step = float(problem.rate) * (classes - 1) / (classes**2 * rho ** (q - 1))
        x += step * count * left**q * x ** (q - 1)
        steps += 1
    return steps


@pytest.mark.parametrize("q", [3, 4])
@pytest.mark.parametrize(("size", "clip"), [(0.0, 0.0), (5.0, 1.2), (5.0, 0.5), (0.01, 1.2)])
def test_phase_times_are_those_of_the_simplified_recursion(q: int, size: float, clip: float):
    """A small rate, so that the steps are many; within 1 %."""
    problem = Problem(2.0, doubles(0.9)[:, None].expand(1, 3), 2, 9, q, 0.8, 5e-4)
    robust, non_robust = (normals(1, 3, 4, 3, seed=seed) * 0.05 + 0.1 for seed in (1, 2))
    begin = Features(problem, robust, non_robust)
    times = phase_times(begin, size, clip)
    for i in range(3):
        for time, own, strength, count in (
            (times.robust, begin.A, 2.0, 2),
            (times.non_robust, begin.B, 0.9, 9),
        ):
            steps = grown(float(own[0, i].max()), strength, count, problem, 3, size, clip)
            assert steps > 100
            assert abs(time[0, i].item() / steps - 1) < 0.01


def test_phase_times_say_when_the_network_learns(attacked):
    """To 20 % for the non-robust feature and, under the weaker attacks, the robust one."""
    times = phase_times(coefficients(figure3_batch()), RATES, CLIP)
    trained = attacked["trained"]
    assert ((first(trained["saturation"] > 0.5) / times.non_robust - 1).abs() < 0.2).all()
    learned = first(trained["A"] > 0.5) / times.robust - 1
    assert (learned[RATES <= 10].abs() < 0.2).all(), learned


def test_a_filter_that_points_away_never_learns():
    problem = Problem(2.0, 1.0, 1, 3, 3, 1.0, 0.1)
    away = -normals(1, 2, 3, 2).abs()
    assert (phase_times(Features(problem, away, -away), 3.0, 1.2).robust == math.inf).all()
