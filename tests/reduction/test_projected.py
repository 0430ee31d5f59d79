"""Projected coordinates are the same runs: they agree with R^d to rounding."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from benign.data.feature_patches import FeaturePatches
from benign.data.mixture import Mixture
from benign.networks.initial import TorchDefault
from benign.networks.linear import Linear
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.reduction import modes
from benign.reduction.test_points import View, view_of_span
from benign.spec import axes
from benign.training.descent import Batch, Step, attacked_step, descend
from benign.training.metrics import metrics_for, running_metrics_for
from benign.training.metrics.evaluation import measure
from benign.training.metrics.values import growth
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

STEPS = 200
FEW = 25
"""steps of attacked runs in the first tier; `make test-slow` takes all 200"""
RUNS = 2
PGD_10 = small_pgd(steps=10, step=0.2)


def attention(**fields: Any) -> Setup:
    data = small_data(dim=90, **fields.pop("data", {}))
    return small_setup(data, small_network(**fields), max_steps=STEPS)


def two_layer(data: Any = None, **fields: Any) -> Setup:
    sizes: Fields = {"samples": 6, "dim": 90, "signal": 2.0, "noise_std": 0.5, "flip": 0.2}
    points = data or Mixture(**(sizes | fields.pop("mixture", {})))
    preset = fields.get("preset", "theory")
    std: Fields = {"init_std": 0.05} if preset == "theory" else {}
    network = TwoLayer(**({"width": 8, "preset": preset} | std | fields))
    return small_setup(points, network, max_steps=STEPS, rate=0.1, first_attacked_step=1)


def patch_cnn(**fields: Any) -> Setup:
    sizes: Fields = {
        "samples": 5,
        "tokens": 3,
        "dim": 90,
        "alpha": 1.5,
        "beta": 0.5,
        "noise_std": 0.2,
    }
    network = PatchCNN(width=3, threshold=0.5, init_std=0.1)
    return small_setup(FeaturePatches(**(sizes | fields)), network, max_steps=STEPS, rate=0.2)


def linear(**fields: Any) -> Setup:
    data = small_data(dim=90, directions="random", **fields)
    return small_setup(data, Linear(init_std=0.1), max_steps=STEPS)


RUNS_OF: dict[str, Setup] = {
    "attention": attention(),
    "attention, 2 heads, strong noise, snr": attention(
        heads=2, data={"snr": 0.4, "strong_noise_std": 0.9, "directions": "random"}
    ),
    "attention, uniform weights": attention(init=TorchDefault()),
    "attention, scores alone": attention(train="scores", data={"projected": True, "flip": 0.3}),
    "two layers": two_layer(),
    "two layers, quartic cluster": two_layer(mixture={"cluster": "quartic"}),
    "two layers, half space": two_layer(mixture={"flip_mode": "half_space"}),
    "two layers, all trained": two_layer(preset="torch_default", mixture={"direction": "random"}),
    "two layers, vanishing start": two_layer(preset="vanishing"),
    "two layers, three tokens": two_layer(small_data(dim=90), activation="leaky_relu", slope=0.1),
    "patch cnn": patch_cnn(directions="random"),
    "patch cnn, projected noise": patch_cnn(projected=True, alpha_spread=0.3),
    "linear": linear(),
    "linear from zero": linear(projected=True),
}
ATTACKED = {
    "attention": PGD_10,
    "attention, 2 heads, strong noise, snr": small_pgd(0.2, relative_to="signal", steps=10),
    "attention, scores alone": small_pgd(per="sample", steps=10),
    "two layers": PGD_10,
    "two layers, quartic cluster": PGD_10,
    "two layers, vanishing start": PGD_10,
    "two layers, all trained": small_pgd(0.5, loss="cross_entropy", steps=10),
    "two layers, three tokens": small_pgd(per="sample", steps=10),
    "patch cnn": PGD_10,
    "linear": PGD_10,
}


def both(setup: Setup, attack: Any) -> tuple[Batch, Batch]:
    """The same runs in R^d and in the span."""
    # Without an attack only the span of the tokens would be used: tests/reduction/test_reduced_width.py.
    test_attack = attack or PGD_10
    setup = axes.replace(setup, {("attack",): attack, ("evaluation", "attack"): test_attack})
    cells = [[axes.replace(setup, {("coordinates",): mode})] * RUNS for mode in MODES]
    ambient, projected = (start(each, run_ids(RUNS)) for each in cells)
    assert projected.setup.data.dim < ambient.setup.data.dim == 90
    return ambient, projected


MODES = ("ambient", "projected")


def steps_of(ambient: Batch, projected: Batch) -> Iterator[tuple[Step, Step]]:
    for (one, _), (other, _) in zip(descend(ambient), descend(projected), strict=True):
        yield one, other


def products(step: Step) -> Tensor:
    """Inner products of all weights that meet tokens, now."""
    params = step.batch.params
    name = next(name for name in ("weights", "inner", "u") if name in params)
    dim = step.batch.setup.data.dim
    axis = 1 if "output" in params else -1
    rows = params[name].movedim(axis, -1).reshape(len(step.batch), -1, dim)
    return rows @ rows.transpose(1, 2)


def inside(step: Step) -> Tensor:
    """Scores, preactivations or outputs on the clean points."""
    clean: Any = step.clean_pass
    for name in ("scores", "preactivations"):
        if hasattr(clean, name):
            return getattr(clean, name)
    return clean.outputs


@pytest.mark.parametrize("name", RUNS_OF)
def test_projected_is_ambient(name):
    """Over 200 steps to 1e-10: losses, scores, inner products of weights, every probe, and fresh points."""
    agree(RUNS_OF[name], None)


@pytest.mark.parametrize("name", ATTACKED)
def test_projected_is_ambient_under_attack(name):
    agree(shorter(RUNS_OF[name]), ATTACKED[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKED)
def test_projected_stays_ambient_under_attack(name):
    agree(RUNS_OF[name], ATTACKED[name])


def shorter(setup: Setup) -> Setup:
    return axes.replace(setup, {("training", "max_steps"): FEW})


def agree(setup: Setup, attack: Any) -> None:
    """From step 1 on: a symmetric start has f = 0 up to rounding, of which the sign is measured."""
    ambient, projected = both(setup, attack)
    probes, tallies = metrics_for(ambient.setup), running_metrics_for(ambient.setup)
    states: list[Any] = [[None] * len(tallies)] * 2
    weights_inside = []
    for one, other in steps_of(ambient, projected):
        close(other.loss, one.loss)
        close(inside(other), inside(one))
        weights_inside.append(inside(one))
        if one.number % 25 == 0:
            measured = [[probe.function(step) for probe in probes] for step in (one, other)]
            if products(one).any():  # a vanishing start has none
                close(products(other), products(one))
            for probe, there, here in zip(probes, *measured, strict=True):
                assert one.number == 0 or alike(probe.name, here, there)
        if one.number == 0:
            continue
        states = [
            [tally.function(state, step) for tally, state in zip(tallies, known, strict=True)]
            for known, step in zip(states, (one, other), strict=True)
        ]
    for tally, there, here in zip(tallies, *states, strict=True):
        assert alike(tally.name, here, there)
    assert len(weights_inside) == setup.training.most_steps() + 1
    assert (weights_inside[-1] - weights_inside[0]).abs().max() > 1e-3, "nothing was learned"
    fresh_points_agree(ambient, projected, attack or PGD_10)


def alike(name: str, found: Tensor, expected: Tensor) -> bool:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11, equal_nan=True, msg=name)
    return True


@torch.no_grad()
def fresh_points_agree(ambient: Batch, projected: Batch, attack: Any) -> None:
    """Clean and attacked predictions on the same draws, and all that is measured."""
    outputs = []
    for batch in (ambient, projected):
        test = batch.test_points("test/0", 20)
        clean = batch.setup.network.run(batch.params, test.x).outputs
        target = batch.target(test, "attack")
        outputs.append((clean, target.run(attack.perturb(target)).outputs))
    for one, other in zip(*outputs, strict=True):
        close(other, one)
    assert not torch.allclose(*outputs[0], rtol=1e-3)
    there, here = measure(ambient, attack), measure(projected, attack)
    assert there.keys() == here.keys()
    for name in there:
        assert alike(name, here[name], there[name])


PARTS = {
    "signals": (0, 1, 1, 1),
    "tokens": (1, 0, 1, 1),
    "W_Q": (1, 1, 0, 1),
    "W_K": (1, 1, 1, 0),
}


@pytest.mark.parametrize("part", PARTS)
def test_leaving_out_a_part_of_the_span_shows(part, monkeypatch):
    """papers/jiang.md 7.2: the negative control of the test above. The loss moves by more than 1e-3."""
    signals, tokens, queries, keys = PARTS[part]

    def partial(data: Any, sample: Any, rows: Tensor) -> View:
        rows = torch.cat([rows[:, :5] * queries, rows[:, 5:10] * keys, rows[:, 10:]], 1)
        latent = {"signal": sample.latent["signal"] * signals}
        return view_of_span(data, replace(sample, x=sample.x * tokens, latent=latent), rows)

    monkeypatch.setattr(modes, "view_of_span", partial)
    setup = attention(score_std=0.6, data={"directions": "random"})
    ambient, projected = both(shorter(setup), small_pgd(0.6))
    *_, (one, other) = steps_of(ambient, projected)
    assert ((one.loss - other.loss).abs() / one.loss).max() > 1e-3


def test_leaving_out_the_weights_of_two_layers_shows(monkeypatch):
    def partial(data: Any, sample: Any, rows: Tensor) -> View:
        return view_of_span(data, sample, rows * 0)

    monkeypatch.setattr(modes, "view_of_span", partial)
    ambient, projected = both(shorter(two_layer(init_std=0.5)), small_pgd())
    *_, (one, other) = steps_of(ambient, projected)
    assert ((one.loss - other.loss).abs() / one.loss).max() > 1e-3


def test_orthogonal_signals_are_the_first_axes():
    """As in the reduced data model, and as in sampled coordinates; also where the basis would turn them round."""
    for case, name in (("linear", "signal"), ("patch cnn", "features")):
        vectors = both(RUNS_OF[case], None)[1].sample.latent[name]
        lengths = torch.linalg.vector_norm(vectors, dim=2)
        close(vectors, torch.eye(*vectors.shape[1:]).double() * lengths[:, :, None])


def test_views_of_the_remaining_runs_are_selected():
    _, batch = both(linear(), None)
    kept = batch.select(torch.tensor([False, True]))
    whole, one = batch.test_points("test/3", 7), kept.test_points("test/3", 7)
    close(one.x, whole.x[1:], 0)
    close(one.latent["signal"], whole.latent["signal"][1:], 0)
    assert not torch.equal(whole.x[0], whole.x[1])


def test_single_precision_is_the_same_to_rounding():
    setup = axes.replace(attention(), {("precision",): "float32", ("training", "max_steps"): 20})
    *_, (one, other) = steps_of(*both(setup, PGD_10))
    assert other.loss.dtype == torch.float32
    close(other.loss, one.loss, 1e-4)


def test_growth_counts_from_the_start_also_after_a_run_has_left():
    """u(0) cannot be drawn again in small coordinates: the batch keeps it."""
    found = []
    for batch in both(attention(heads=2), None):
        for step, _ in descend(batch):
            if step.number == 3:
                left = step.batch.select(torch.tensor([False, True]))
                found.append(growth(attacked_step(left, 3)).noise)
                break
    close(found[1], found[0])
