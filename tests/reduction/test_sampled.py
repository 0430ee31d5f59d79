"""Sampled coordinates have the law of R^d, and nothing in them has the length d."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from scipy.stats import ks_2samp
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benign.data.feature_patches import FeaturePatches
from benign.data.mixture import Mixture
from benign.networks.linear import Linear
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.reduction import modes
from benign.reduction.sampled import GivenNormals, standard_rows
from benign.reduction.test_points import vector_names
from benign.spec import axes
from benign.streams import Streams
from benign.training.descent import Batch, descend
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
from tests.says import says

RUNS = 600
LEVEL = 1e-4
"""of one comparison of two samples of 600: a false alarm in one of the 100 comparisons here once in 100 times"""
ATTACK = small_pgd(0.4, steps=3)


def attention(**fields: Any) -> Setup:
    fields = {"dim": 40, "flip": 0.2} | fields
    return small_setup(
        small_data(**fields), small_network(heads=2, hidden=3, score_std=0.4), ATTACK, max_steps=8
    )


def two_layer(dim: int = 24, **fields: Any) -> Setup:
    sizes: Fields = {
        "samples": 4,
        "dim": dim,
        "signal": 1.5,
        "noise_std": 0.6,
        "direction": "random",
    }
    start_at: Fields = fields.pop("start", {"init_std": 0.3})
    network = TwoLayer(width=8, **start_at)
    data = Mixture(**(sizes | fields))
    return small_setup(data, network, ATTACK, max_steps=8, rate=0.3, first_attacked_step=1)


def patch_cnn(dim: int = 36, **fields: Any) -> Setup:
    sizes = {"samples": 4, "tokens": 3, "dim": dim, "alpha": 1.5, "beta": 0.5, "noise_std": 0.3}
    network = PatchCNN(width=2, threshold=0.5, init_std=0.3)
    return small_setup(FeaturePatches(**(sizes | fields)), network, ATTACK, max_steps=8)


def linear(dim: int = 24, **fields: Any) -> Setup:
    return small_setup(small_data(dim=dim, **fields), Linear(init_std=0.3), ATTACK, max_steps=8)


SETUPS: dict[str, Setup] = {
    "attention": attention(directions="random"),
    "attention, projected noise": attention(projected=True, strong_noise_std=0.9, snr=0.5),
    "two layers": two_layer(),
    "two layers, hybrid": two_layer(start={"preset": "hybrid"}),
    "two layers, vanishing start": two_layer(start={"preset": "vanishing"}),
    "two layers, half space": two_layer(flip_mode="half_space", flip=0.3),
    "two layers, signal half space": two_layer(
        flip_mode="half_space", half_space="signal", flip=0.3
    ),
    "patch cnn": patch_cnn(directions="random", alpha_spread=0.3),
    "patch cnn, projected noise": patch_cnn(projected=True, partition="random"),
    "linear": linear(),
}


def batch_of(setup: Setup, mode: str, runs: int = RUNS) -> Batch:
    """Independent draws in every mode: the streams have other seeds."""
    cell = axes.replace(setup, {("coordinates",): mode})
    return start([cell] * runs, run_ids(runs, seed=1 + (mode == "sampled")))


@torch.no_grad()
def numbers(batch: Batch) -> dict[str, Tensor]:
    """One number a run of everything a reader would look at, after training."""
    *_, (step, _) = descend(batch)
    test = batch.test_points("test/0", 3)
    clean: Any = batch.setup.network.run(batch.params, test.x)
    target = batch.target(test, "attack")
    moved = target.run(ATTACK.perturb(target)).outputs - clean.outputs
    weights = next(batch.params[name] for name in ("weights", "inner", "u") if name in batch.params)
    tokens, data = batch.sample.x.flatten(1, 2), batch.setup.data
    vectors = [batch.sample.latent[name] for name in vector_names(data, batch.sample)]
    along = torch.einsum("rd,rvd->rv", data.noise_tokens(batch.sample)[:, 0], torch.cat(vectors, 1))
    found = {
        "train loss": step.loss,
        "token product": (tokens[:, 1] * tokens[:, -1]).sum(1),
        "token length": tokens[:, 2].square().sum(1),
        "token along signal": along[:, 0].round(decimals=9),
        "token along last vector": along[:, -1].round(decimals=9),
        "weights": weights.flatten(1).square().sum(1),
        "test output": clean.outputs.flatten(1)[:, 0],
        "attacked drop": moved.flatten(1)[:, 1],
    }
    for name in ("scores", "values", "preactivations"):
        if hasattr(clean, name):
            found[f"test {name}"] = getattr(clean, name).flatten(1)[:, 1]
            found[f"test {name}, largest"] = getattr(clean, name).flatten(1).abs().amax(1)
    return found


def compared(setup: Setup) -> dict[str, float]:
    """The chance of a distance as large, by the two-sample test of Kolmogorov and Smirnov."""
    there, here = (numbers(batch_of(setup, mode)) for mode in ("ambient", "sampled"))
    tests: dict[str, Any] = {name: ks_2samp(there[name], here[name]) for name in there}
    return {name: float(test.pvalue) for name, test in tests.items()}


@pytest.mark.parametrize("name", SETUPS)
def test_sampled_has_the_law_of_ambient(name):
    chances = compared(SETUPS[name])
    assert min(chances.values()) > LEVEL, chances


def without_perpendicular(streams: Streams, rows: int, axes: int, dim: int) -> Tensor:
    """Weights that lie in the span of signals and training tokens."""
    found = standard_rows(streams, rows, axes, dim)
    tokens = rows - 14  # of `attention`: 2 heads with 3 queries, 3 keys and a value
    found[:, tokens:, axes + tokens :] = 0
    return found


def without_signal(streams: Streams, rows: int, axes: int, dim: int) -> Tensor:
    """Nothing along the signals."""
    found = standard_rows(streams, rows, axes, dim)
    found[:, :, :axes] = 0
    return found


def of_another_dimension(streams: Streams, rows: int, axes: int, dim: int) -> Tensor:
    return standard_rows(streams, rows, axes, dim + 15)


CONTROLS: dict[Callable, Sequence[str]] = {
    without_perpendicular: ("test scores, largest", "test values, largest", "attacked drop"),
    without_signal: ("weights", "token along signal"),
    of_another_dimension: ("token length", "weights"),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_a_wrong_law_is_detected(control, monkeypatch):
    """The power of the test above: the same comparison with something left out."""
    monkeypatch.setattr(modes, "standard_rows", control)
    chances = compared(SETUPS["attention"])
    assert max(chances[name] for name in CONTROLS[control]) < LEVEL, chances


class Sizes(TorchDispatchMode):
    """Notes the shape of every tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[str, tuple[int, ...], int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(each, Tensor):
                self.shapes.append((str(func), tuple(each.shape), each.nbytes))
        return made


def scaled(setup: Setup) -> Setup:
    """Two steps with noise and weights of length 1, so that no run diverges or converges, whatever `dim`."""
    stds = {"noise_std", "init_std", "score_std", "value_std"}
    changes = {path: setup.data.dim**-0.5 for path, _, _ in axes.walk(setup) if path[-1] in stds}
    return axes.replace(setup, changes | {("training", "max_steps"): 2})


@pytest.mark.parametrize("build", [attention, two_layer, patch_cnn, linear])
def test_no_tensor_has_the_size_of_the_dimension(build):
    """From the start to the test of a run, every tensor of every operation is of the same shape and size."""
    shapes_by_dim = {}
    for dim in (2 * 10**3, 10**6, 10**9, 10**12):
        cell = scaled(build(dim=dim))
        with Sizes() as sizes, torch.no_grad():
            batch = batch_of(cell, "sampled", 2)
            list(descend(batch))
            found = measure(batch, ATTACK)
        shapes_by_dim[dim] = sizes.shapes
        assert all(value.isfinite().all() for name, value in found.items() if "noisy" not in name)
    assert len(shapes_by_dim[10**6]) > 100
    assert all(shapes == shapes_by_dim[10**6] for shapes in shapes_by_dim.values())
    assert max(bytes for _, _, bytes in shapes_by_dim[10**6]) < 10**6


def test_the_dimension_moves_lengths_alone():
    """Common random numbers: at another dimension the normals are the same, so every |x|^2 grows by its freedom."""
    small, large = (
        start([axes.replace(linear(dim=dim, projected=True), {("coordinates",): "sampled"})])
        for dim in (10**9, 4 * 10**9)
    )
    tokens = [batch.sample.x[0, :, 1:].flatten(0, 1)[:, 2:] for batch in (small, large)]
    close(tokens[0].tril(-1), tokens[1].tril(-1), 0)
    close(2 * tokens[0].diagonal(), tokens[1].diagonal(), 1e-3)
    close(tokens[1].diagonal().square(), torch.full((8,), 4e9 * 0.25), 1e-3)
    assert torch.equal(small.test_points("test/0", 5).x, large.test_points("test/0", 5).x)


def test_a_run_does_not_depend_on_its_batch():
    cells = [
        axes.replace(attention(signal=size), {("coordinates",): "sampled"}) for size in (1.0, 3.0)
    ]
    together, alone = start(cells, run_ids(2)), start(cells[1:], run_ids(2)[1:])
    close(together.sample.x[1:], alone.sample.x, 0)
    for name, part in alone.params.items():
        close(together.params[name][1:], part, 0)
    close(
        together.select(torch.tensor([False, True])).test_points("test/0", 4).x,
        alone.test_points("test/0", 4).x,
        0,
    )


def test_given_normals_replace_one_stream():
    streams = Streams(run_ids(2))
    given = torch.arange(12.0, dtype=torch.float64).reshape(2, 2, 3)
    replaced = GivenNormals(streams, "train/noise", given)
    drawn = replaced("train/noise").normal(3, 2, dtype=torch.float32)
    assert drawn.dtype == torch.float32
    assert drawn.flatten().tolist() == list(range(12))
    drawn.zero_()
    assert given[0, 0, 1] == 1, "what was given is not changed"
    assert torch.equal(replaced("test/noise").normal(4), streams("test/noise").normal(4))
    assert torch.equal(replaced("train/noise").uniform(4), streams("train/noise").uniform(4))


@pytest.mark.parametrize(
    "draw", [lambda streams: streams.within("train"), lambda streams: streams[:1]]
)
def test_parts_of_streams_with_given_normals_are_refused(draw):
    """They would draw ordinary normals."""
    given = GivenNormals(Streams(run_ids(2)), "train/noise", torch.zeros(2, 3))
    with pytest.raises(ValueError, match=says("'train/noise'", "`coordinates: projected`")):
        draw(given)


def test_standard_rows_have_the_dimension_of_the_whole_space():
    """E |row|^2 = dim, with standard deviation sqrt(2 dim): within 4 standard errors (chance 1 in 16 000)."""
    runs, rows, dim = 4000, 5, 12
    found = standard_rows(Streams(run_ids(runs)), rows, 3, dim)
    assert found.shape == (runs, rows, rows + 3)
    lengths = found.square().sum(2).mean(1)
    assert abs(float(lengths.mean()) - dim) < 4 * (2 * dim / (runs * rows)) ** 0.5
    assert found[:, 0, 4:].abs().max() == 0
