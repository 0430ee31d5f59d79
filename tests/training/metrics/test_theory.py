"""The theory's coordinates, recomputed from full matrices, and what the papers say of them."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benign.attacks.attack import Attack
from benign.attacks.one_step import OneStep
from benign.data.feature_patches import FeaturePatches
from benign.data.mixture import Mixture
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.spec.axes import replace
from benign.training.descent import Step, attacked_step, descend
from benign.training.engine import train_runs
from benign.training.metrics import METRICS, metrics_for, running_metrics_for
from benign.training.metrics.features import correlations, own
from benign.training.metrics.scores import (
    balance,
    coefficients,
    key_vectors,
    query_vectors,
    reverse_gaps,
    score_gaps,
)
from benign.training.metrics.two_layer import active_pairs
from benign.training.metrics.values import growth, initial_value_vectors, scalarised_values
from benign.training.optimisers import SGD
from benign.training.setup import Setup
from tests.reference import (
    by_head,
    close,
    film,
    full_weights,
    run_ids,
    small_data,
    small_network,
    small_pgd,
    small_setup,
    start,
)
from tests.says import says


def measured(name: str, step: Step) -> float:
    return float(METRICS[name].function(step)[0])


# Attention: Zhang and Jiang ---------------------------------------------------------------------

ATTENTION: dict[str, dict[str, Any]] = {
    "clean": {},
    "two heads": {"network": small_network(heads=2)},
    "attacked": {"attack": small_pgd(0.4), "network": small_network(heads=2)},
    "whole points": {"attack": small_pgd(0.4, "sample"), "data": small_data(flip=0.4)},
    "values exposed": {"attack": small_pgd(0.4), "network": small_network(exposed="values")},
    "scores exposed": {"attack": small_pgd(0.4), "network": small_network(exposed="scores")},
    "scores frozen": {"network": small_network(train="values")},
    "uniform": {"network": small_network(attend="uniform")},
}


@pytest.mark.parametrize("case", ATTENTION)
def test_coordinates_are_products_of_tokens_with_the_full_matrices(case):
    batch = start([small_setup(**ATTENTION[case], max_steps=2)] * 2, run_ids(2))
    first: Any = None
    for step, _ in descend(batch):
        network: Any = step.batch.setup.network
        params, sample = step.batch.params, step.batch.sample
        query, key = query_vectors(step), key_vectors(step)
        value, moved = scalarised_values(step), growth(step)
        first = first or (value.signal.clone(), value.noise.clone())
        data, streams = step.batch.setup.data, step.batch.streams
        for run in range(2):
            norm = float(params["output"][run].square().sum())
            for head in range(network.heads):
                matrices = by_head(network, network.queries(params))[run, head]
                keys = by_head(network, network.keys(params))[run, head]
                u = network.value_matrix(params, data, streams, head)[run] @ params["output"][run]
                for s, signal in enumerate(sample.latent["signal"][run]):
                    close(query.signal[run, s, head], signal @ matrices)
                    close(key.signal[run, s, head], signal @ keys)
                    close(value.signal[run, s, head], signal @ u, 1e-9)
                for n, point in enumerate(sample.x[run]):
                    for i, token in enumerate(point[1:]):
                        close(query.noise[run, n, i, head], token @ matrices)
                        close(key.noise[run, n, i, head], token @ keys)
                        close(value.noise[run, n, i, head], token @ u, 1e-8)
            for now, then, gamma in zip(value, first, moved, strict=True):
                expected = (now[run] - then[run]) / norm
                torch.testing.assert_close(gamma[run], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", ATTENTION)
def test_coefficients_give_the_next_queries_and_keys_exactly(case):
    """papers/zhang.md 2.3, with the keys and queries of the tokens that the scores saw."""
    moving = case not in ("scores frozen", "uniform")
    cells = [small_setup(**ATTENTION[case], rate=rate, max_steps=3) for rate in (0.8, 1.6)]
    before: Any = None
    for step, _ in descend(start(cells)):
        network: Any = step.batch.setup.network
        now = [
            torch.cat([p.flatten(1, -3) for p in of(step)], 1)
            for of in (query_vectors, key_vectors)
        ]
        if before:
            for then, change, moved in zip(before[0], before[1], now, strict=True):
                torch.testing.assert_close(moved - then, change, rtol=1e-9, atol=1e-13)
                assert bool(change.abs().max() > 1e-3) == moving
        scored = step.batch.sample.x if network.exposed == "values" else step.attacked
        params = step.batch.params
        columns = network.keys(params), network.queries(params)
        changes = []
        for part, matrix in zip(coefficients(step), columns, strict=True):
            vectors = torch.einsum("rnjd,rhdk->rnjhk", scored, by_head(network, matrix))
            flat = torch.cat([p.flatten(1, -4) for p in part], 1)
            changes.append(torch.einsum("rphnj,rnjhk->rphk", flat, vectors))
        before = [each.clone() for each in now], changes
    assert before is not None


def test_coefficients_are_refused_where_momentum_moves_the_weights_too():
    training = SGD(rate=0.5, epochs=2, schedule="constant")
    cell = replace(small_setup(), {("training",): training})
    step, _ = next(descend(start([cell])))
    with pytest.raises(ValueError, match=says("`training`", "sgd", "`plain_update`")):
        coefficients(step)


def test_clean_coefficients_obey_the_sum_rules_of_both_papers():
    """alpha_ss = beta_ss, and what a row gains it loses (Jiang F.12); noise orthogonal to the signals."""
    data = small_data(samples=6, projected=True, balanced=True)
    for step, _ in descend(start([small_setup(data, max_steps=3)])):
        alpha, beta = coefficients(step)
        y = step.batch.sample.y[0]
        for s, label in enumerate((1, -1)):
            own_class = y == label
            share = alpha.signal[0, s, 0, own_class]
            close(share[:, 0].sum(), beta.signal[0, s, 0, own_class, 0].sum())
            assert abs(float(share.sum())) < 1e-15 + 1e-12 * float(share.abs().sum())
            assert float(alpha.signal[0, s, 0, ~own_class].abs().max()) < 1e-15
        assert float(alpha.noise.sum(-1).abs().max()) < 1e-14


def test_growth_follows_the_update_of_the_papers():
    """gamma_{V,+} and gamma_{V,-} of papers/zhang.md 2.4, from attention and slopes of the loss alone."""
    data = small_data(samples=6, projected=True)
    expected = [0.0, 0.0]
    for step, _ in descend(start([small_setup(data, max_steps=5)])):
        found = growth(step).signal[0, :, 0].tolist()
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-14)
        output: Any = step.attacked_pass
        for n, y in enumerate(step.batch.sample.y[0].tolist()):
            slope = 1 / (1 + math.exp(float(step.margins[0, n])))
            received = float(output.attention[0, n, 0, :, 0].sum())
            expected[int(y < 0)] += y * 0.5 / (6 * 3) * 2.0**2 * slope * received
    assert max(map(abs, expected)) > 0.1


def test_initial_values_are_drawn_again_if_step_0_was_not_computed():
    cells = [small_setup(network=small_network(heads=2), stop_loss=stop) for stop in (0.0, 0.6)]
    first = start(cells).params
    sizes = set()
    for step, _ in descend(start(cells)):
        if step.number in (0, 3):
            continue  # the values are first read at step 1
        network: Any = step.batch.setup.network
        close(initial_value_vectors(step), network.values(first)[step.batch.index])
        sizes.add(len(step.batch))
    assert sizes == {1, 2}, "a run should have left"


def test_score_gaps_are_differences_of_the_scores_of_one_point():
    setup = small_setup(small_data(tokens=4), small_network(heads=2), small_pgd(0.3))
    for step, _ in descend(start([setup])):
        query, key = query_vectors(step), key_vectors(step)
        gaps, reverse = score_gaps(step), reverse_gaps(step)
        for n, y in enumerate(step.batch.sample.clean_y[0]):
            s = int(y < 0)
            for h in range(2):
                rows = [query.signal[0, s, h], *query.noise[0, n, :, h]]
                keys = [key.signal[0, s, h], *key.noise[0, n, :, h]]
                scores = torch.stack([torch.stack([q @ k for k in keys]) for q in rows])
                found = torch.cat([gaps.signal[0, n, h][None], gaps.noise[0, n, h]])
                close(found, scores[:, :1] - scores[:, 1:])
                found = torch.cat([reverse.signal[0, n, h][None], reverse.noise[0, n, h]])
                close(found, scores[:, 1:2] - scores[:, [0, 2, 3]])
        return


def test_one_token_leaves_only_the_metrics_of_the_signal():
    setup = small_setup(small_data(tokens=1), small_network(heads=2), small_pgd(0.2))
    names = {metric.name for metric in [*metrics_for(setup), *running_metrics_for(setup)]}
    assert {"signal_score_min", "growth_positive_signal", "stage_3_end"} <= names
    assert not {"signal_gap_min", "noise_key_norm", "growth_noise_max", "stage_1_end"} & names
    result = train_runs([setup], run_ids(1))
    assert all(np.isfinite(result[name]).all() for name in names)


def benign(rate: float, attack: Attack | None = None) -> Setup:
    """A run of the benign regime, from values of the size of Lemma 11."""
    return small_setup(
        small_data(samples=10, tokens=2, dim=60, signal=6.0, noise_std=0.06, projected=True),
        small_network(0.05, 0.02, output_norm=1.0),
        attack,
        rate=rate,
        stop_loss=0.2,
        max_steps=4000,
    )


@pytest.mark.parametrize("attack", [None, small_pgd(0.2, steps=2)], ids=["clean", "attacked"])
def test_stages_end_in_order_and_twice_as_late_at_half_the_rate(attack):
    """T1 <= T2 <= T3 and all in proportion to 1 / rate (papers/zhang.md, program stage markers)."""
    rates = 0.004, 0.002
    both = train_runs([benign(rate, attack) for rate in rates], run_ids(1) * 2)
    times = np.array([both[f"stage_{number}_end"] for number in (1, 2, 3)])
    assert (times > 0).all()
    assert (np.diff(times, axis=0) > 0).all(), times
    assert (both["stage_3_end"] == both["steps"]).all()
    # A first step is a whole number: a time of t steps is known to 1 part in t.
    np.testing.assert_allclose(times[:, 1] / times[:, 0], 2, atol=2.5 / times[:, 0].min() + 0.02)


# Two layers: Wang -------------------------------------------------------------------------------


def wang_setup(attack: Attack | None, preset: str = "theory", **parts: Any) -> Setup:
    data = Mixture(samples=7, dim=9, signal=2.0, flip=0.3, direction="random")
    std = 0.3 if preset == "theory" else None
    network = TwoLayer(width=6, preset=preset, init_std=std)  # type: ignore[arg-type]
    return small_setup(
        parts.pop("data", data),
        network,
        attack,
        rate=0.3,
        max_steps=6,
        first_attacked_step=1,
        **parts,
    )


def pairs(step: Step, radius: float) -> list[list[bool]]:
    """Which neurons are active on the ball around each point, and of the label's sign."""
    params, sample = step.batch.params, step.batch.sample
    rows, outer = params["inner"][0], params["outer"][0]
    bias = params.get("inner_bias", torch.zeros_like(params["outer"]))[0]
    reach = radius if step.number > 0 else 0.0
    return [
        [
            float(w @ x[0] + b - reach * w.norm()) > 0 and float(a * y) > 0
            for w, a, b in zip(rows, outer, bias, strict=True)
        ]
        for x, y in zip(sample.x[0], sample.y[0], strict=True)
    ]


def slopes(step: Step) -> list[float]:
    return [1 / (1 + math.exp(m)) for m in step.margins[0].tolist()]


def of_one_sign(step: Step) -> int:
    return sum(
        int(float(a * y) > 0) for a in step.batch.params["outer"][0] for y in step.batch.sample.y[0]
    )


def outside(step: Step) -> float:
    """By least squares on the clean points, one attacked point at a time."""
    clean = step.batch.sample.x[0, :, 0].T
    distances = []
    for x in step.attacked[0, :, 0]:
        nearest = clean @ torch.linalg.lstsq(clean, x[:, None]).solution[:, 0]
        distances.append(float((x - nearest).norm()))
    return max(distances)


def least_signal(step: Step) -> float:
    sample = step.batch.sample
    mu = sample.latent["signal"][0, 0]
    return min(
        float(y * (mu @ x[0]) / (mu @ mu))
        for x, y, clean in zip(step.attacked[0], sample.y[0], sample.clean_y[0], strict=True)
        if y == clean
    )


WANG: dict[str, Callable[[Step, float], float]] = {
    "mean_loss_slope": lambda step, _: sum(slopes(step)) / 7,
    "loss_ratio": lambda step, _: max(slopes(step)) / min(slopes(step)),
    "active_share": lambda step, r: sum(map(sum, pairs(step, r))) / of_one_sign(step),
    "active_neurons_min": lambda step, r: min(map(sum, pairs(step, r))) / 6,
    "active_points_min": lambda step, r: min(map(sum, zip(*pairs(step, r), strict=True))) / 7,
    "span_distance": lambda step, _: outside(step),
    "signal_in_attacked": lambda step, _: least_signal(step),
    "weight_norm": lambda step, _: math.sqrt(float(step.batch.params["inner"].square().sum())),
    "spectral_norm": lambda step, _: float(torch.linalg.svdvals(step.batch.params["inner"][0])[0]),
}


def lost(steps: list[list[list[bool]]]) -> float:
    count = 0
    for then, now in pairwise(steps):
        for i in range(7):
            count += sum(then[i][s] and not now[i][s] for s in range(6))
    return count / 42


WANG_RUNNING: dict[str, Callable[[list[list[list[bool]]]], float]] = {"activation_lost": lost}

WANG_RUNS: dict[str, tuple[Attack | None, float, str]] = {
    "clean": (None, 0.0, "theory"),
    "ball": (small_pgd(0.4, "sample"), 0.4, "theory"),
    "relative ball": (small_pgd(0.2, "sample", "signal"), 0.4, "theory"),
    "one step": (OneStep(rate=1.0, clip=0.2), 0.0, "theory"),
    "torch": (small_pgd(0.4, "sample"), 0.4, "torch_default"),
}


@pytest.mark.parametrize("case", WANG_RUNS)
def test_metrics_of_two_layer_networks_are_what_their_definitions_say(case):
    attack, radius, preset = WANG_RUNS[case]
    setup = wang_setup(attack, preset)
    names = WANG.keys() & {metric.name for metric in metrics_for(setup)}
    absent = {"span_distance", "signal_in_attacked"} if attack is None else set()
    assert names == WANG.keys() - absent
    active = []
    for step, _ in descend(start([setup], run_ids(1, seed=3))):
        for name in names:
            expected = WANG[name](step, radius)
            assert measured(name, step) == pytest.approx(expected, rel=1e-10, abs=1e-13), name
        active.append(pairs(step, radius))
    result = train_runs([setup], run_ids(1, seed=3))
    assert result["activation_lost"][0] == pytest.approx(lost(active), rel=1e-10, abs=1e-14)


def test_a_ball_around_every_token_lowers_a_neuron_by_the_sum_of_its_tokens():
    """A pair is active where the neuron is positive on the worst point of all tokens' balls."""
    setup = wang_setup(small_pgd(0.3), data=small_data(samples=8, signal=1.0, dim=4))
    for step, _ in descend(start([setup])):
        params, sample = step.batch.params, step.batch.sample
        rows = params["inner"][0].unflatten(1, (3, 4))
        radius = 0.3 if step.number > 0 else 0.0
        worst = sample.x[0][:, None] - radius * rows / rows.norm(dim=2, keepdim=True)
        positive = (worst * rows).sum((2, 3)) > 0
        assert torch.equal(
            active_pairs(step)[0], positive & (sample.y[0][:, None] * params["outer"][0] > 0)
        )


def test_activations_are_lost_at_a_large_radius_only():
    """Wang B.26 holds for small steps; a wide ball at step 1 takes pairs away."""
    kept, shrunk = (
        train_runs([wang_setup(attack)], run_ids(1))["activation_lost"][0]
        for attack in (small_pgd(1e-3, "sample", steps=2), small_pgd(1.5, "sample", steps=2))
    )
    assert shrunk > kept


def test_no_clean_label_leaves_no_number():
    setup = wang_setup(small_pgd(0.1, "sample"))
    step = next(iter(descend(start([setup] * 2))))[0]
    step.batch.sample.y[1] = -step.batch.sample.clean_y[1]
    found = METRICS["signal_in_attacked"].function(step)
    assert found.isnan().tolist() == [False, True]


def test_a_diverged_run_does_not_stop_the_metrics_of_others():
    step = next(iter(descend(start([wang_setup(None)] * 2))))[0]
    step.batch.params["inner"][0, 0, 0] = torch.nan
    assert METRICS["spectral_norm"].function(step).isnan().tolist() == [True, False]


# Patches: Li ------------------------------------------------------------------------------------


def li_setup(**fields: Any) -> Setup:
    sizes: dict[str, Any] = {"samples": 6, "tokens": 4, "dim": 9, "classes": 3}
    law: dict[str, Any] = {"alpha": 2.0, "beta": 1.0, "beta_spread": 0.3, "noise_std": 0.1}
    law |= {"directions": "random", "partition": "random"}
    data = FeaturePatches(**(sizes | law | fields))
    network = PatchCNN(width=5, classes=3, q=3, threshold=1.0, init_std=0.5)
    return small_setup(data, network, OneStep(rate=1.0, clip=0.3), rate=0.1, max_steps=3)


def feature_products(step: Step, kind: int, *, same: bool) -> list[list[float]]:
    """For every class i, <w_ir, f_j> of all r with j = i, or with all j != i."""
    weights, features = step.batch.params["weights"][0], step.batch.sample.latent["features"][0]
    return [
        [
            float(w @ features[3 * kind + j])
            for w in weights[i]
            for j in range(3)
            if (i == j) == same
        ]
        for i in range(3)
    ]


def noise_of(step: Step) -> list[Tensor]:
    """xi_p = x_p less its feature, patch by patch."""
    sample, found = step.batch.sample, []
    only = step.batch.setup.data.only  # type: ignore[attr-defined]
    for n, label in enumerate(sample.y[0].tolist()):
        for p, x in enumerate(sample.x[0, n]):
            robust = bool(sample.latent["robust"][0, n, p])
            feature = sample.latent["features"][0, int(label) + (0 if robust else 3)]
            shown = only in ("both", "robust" if robust else "non_robust")
            found.append(x - (sample.latent["strength"][0, n, p] if shown else 0) * feature)
    return found


def off_features(step: Step, vector: Tensor) -> Tensor:
    for feature in step.batch.sample.latent["features"][0]:
        vector = vector - (vector @ feature) * feature
    return vector


def largest_with_noise(step: Step, noise: list[Tensor]) -> float:
    weights = step.batch.params["weights"][0].flatten(0, 1)
    return max(abs(float(w @ xi)) for w in weights for xi in noise)


LI: dict[str, Callable[[Step], float]] = {
    "robust_feature_learned": lambda s: sum(map(max, feature_products(s, 0, same=True))) / 3,
    "non_robust_feature_learned": lambda s: sum(map(max, feature_products(s, 1, same=True))) / 3,
    "other_robust_features_learned": lambda s: max(map(max, feature_products(s, 0, same=False))),
    "other_non_robust_features_learned": lambda s: max(
        map(max, feature_products(s, 1, same=False))
    ),
    "noise_correlation": lambda s: largest_with_noise(s, noise_of(s)),
    "noise_correlation_off_features": lambda s: largest_with_noise(
        s, [off_features(s, xi) for xi in noise_of(s)]
    ),
    "weights_off_features": lambda s: math.sqrt(
        sum(
            float(off_features(s, w).square().sum())
            for w in s.batch.params["weights"][0].flatten(0, 1)
        )
    ),
}


@pytest.mark.parametrize("only", ["both", "robust", "non_robust"])
def test_metrics_of_patch_networks_are_what_their_definitions_say(only):
    setup = li_setup(only=only)
    assert LI.keys() <= {metric.name for metric in metrics_for(setup)}
    for step, _ in descend(start([setup])):
        for name, direct in LI.items():
            assert measured(name, step) == pytest.approx(direct(step), rel=1e-10), name
        found = correlations(step)
        for kind, products in enumerate(found):
            direct = torch.tensor(feature_products(step, kind, same=True), dtype=torch.float64)
            close(own(products)[0], direct)


def test_weights_off_the_features_never_move_without_noise():
    """Li Lemma D.2, exact for standard training."""
    setup = li_setup(noise_std=0.0)
    setup = small_setup(setup.data, setup.network, rate=0.5, max_steps=10)
    curve = train_runs([setup], run_ids(1))["weights_off_features_curve"][0]
    np.testing.assert_allclose(curve, curve[0], rtol=1e-12)


def test_balance_is_the_difference_of_the_gram_matrices():
    """papers/zhang.md S4, head by head from the full matrices."""
    frame = film(start([small_setup(network=small_network(heads=2))] * 2))[4]
    found = balance(attacked_step(frame.batch, 4))
    weights = full_weights(frame.network, frame.batch.params, frame.batch.setup.data, frame.streams)
    for run, each in enumerate(weights):
        parts = [q.T @ q - k.T @ k for q, k in zip(each.query, each.key, strict=True)]
        close(found[run], torch.stack(parts).norm())
