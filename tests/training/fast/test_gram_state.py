"""Clean training on carried products: the same runs as by two products with the tokens a step, for one."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float64
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benign.networks.attention import Attention, AttentionPass
from benign.networks.network import Network, Params
from benign.spec import axes
from benign.spec.registry import Component, guarantees, has_guarantee
from benign.training.descent import Batch, Step, descend
from benign.training.engine import train_runs
from benign.training.fast import gram_state
from benign.training.fast.gram_state import pays, plain_training
from benign.training.optimisers import SGD, AdamW, GradientDescent, MiniBatches, Training
from benign.training.setup import Setup
from tests import test_components as components
from tests.reference import (
    close,
    film,
    run_ids,
    small_data,
    small_network,
    small_pgd,
    small_setup,
    start,
    with_most_steps,
)

NETWORKS: dict[str, dict[str, Any]] = {
    "one head": {},
    "three heads": {"heads": 3},
    "more columns than tokens can use": {"hidden": 30, "heads": 2},
    "values alone": {"train": "values"},
    "scores alone": {"train": "scores"},
    "uniform attention": {"attend": "uniform"},
    "attention on the signal": {"attend": "signal", "heads": 2},
    "w_O of a given norm": {"output_norm": 0.7, "heads": 3},
}
EACH = pytest.mark.parametrize("name", NETWORKS)
SPACES = ["ambient", "projected", "sampled"]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are carried wherever that is possible, also where it does not pay."""
    monkeypatch.setattr(gram_state, "pays", lambda *sizes: True)


def runs_of(
    name: str = "one head", space: str = "ambient", stops: Sequence[float] = (0, 0, 0), **rules: Any
) -> list[Setup]:
    """Three runs of 200 steps, but for those that reach a loss at which they stop."""
    data = small_data(dim=60, flip=0.2, strong_noise_std=0.9)
    network = small_network(**NETWORKS[name])
    rules = {"max_steps": 200, **rules}
    cells = [
        small_setup(data, network, rate=rate, stop_loss=stop, **rules)
        for rate, stop in zip((1.0, 0.5, 0.8), stops, strict=True)
    ]
    return [axes.replace(cell, {("coordinates",): space}) for cell in cells]


def both(cells: list[Setup]) -> tuple[Batch, Batch]:
    """The runs with carried products, and by plain training."""
    with plain_training():
        plain = start(cells)
        assert plain.gram_state is None
    batch = start(cells)
    assert batch.gram_state is not None
    return batch, plain


@pytest.mark.parametrize(("name", "space"), list(zip(NETWORKS, cycle(SPACES))))
def test_whole_runs_are_those_of_plain_training(name, space, always):
    """Every metric, curve and test of runs that end at different steps.

    The draws are some without points of equal class and opposite labels in equal numbers: with attention on the
    signal their margins go to 0, where rounding decides accuracy.
    """
    cells = runs_of(name, space, stops=(0, 0.3, 0.62))
    mine = train_runs(cells, run_ids(3, seed=1))
    with plain_training():
        expected = train_runs(cells, run_ids(3, seed=1))
    assert mine.keys() == expected.keys()
    assert mine["steps"].max() == 200
    if name != "scores alone":
        assert len(set(mine["steps"].tolist())) > 1
    for variable, values in expected.items():
        exact = variable in ("status", "steps")
        tolerance = 0 if exact else 1e-10
        np.testing.assert_allclose(mine[variable], values, tolerance, tolerance, err_msg=variable)


@EACH
@pytest.mark.parametrize("space", SPACES)
def test_steps_whose_weights_are_not_read_are_those_of_plain_training(name, space, always):
    """Losses, then the weights and fresh points; rates differ by run and drop."""
    mine, plain = both(runs_of(name, space, max_steps=50, drop_every=20, drop_by=3.0))
    for (here, _), (there, _) in zip(descend(mine), descend(plain), strict=True):
        close(here.loss, there.loss, 1e-10)
        close(here.attacked_pass.outputs, there.attacked_pass.outputs, 1e-10)
    close(mine.params["weights"], plain.params["weights"], 1e-10)
    ours, theirs = (batch.run(batch.test_points("test/0", 5)).outputs for batch in (mine, plain))
    close(ours, theirs, 1e-10)


@pytest.mark.parametrize("every", [1, 3])
def test_weights_that_are_read_are_those_of_the_step(every, always):
    batches = both(runs_of("three heads", max_steps=20))
    weights: list[list[Tensor]] = [
        [
            step.batch.params["weights"].clone()
            for step, _ in descend(batch)
            if step.number % every == 0
        ]
        for batch in batches
    ]
    assert len(weights[0]) == 20 // every + 1
    for here, there in zip(*weights, strict=True):
        close(here, there, 1e-10)


def fifth(batch: Batch) -> Step:
    """The fifth step, no weights read so far."""
    return next(step for step, _ in descend(batch) if step.number == 5)


def test_a_carried_pass_is_an_ordinary_pass(always):
    """Its gradients are those of a pass of its own, also in the tokens, for which it needs the weights."""
    batch, _ = both(runs_of("three heads"))
    step = fifth(batch)
    c = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inputs = step.attacked_pass.inputs_gradient(c)
    ordinary = batch.setup.network.run(batch.params, batch.sample.x)
    close(step.attacked_pass.outputs, ordinary.outputs, 1e-12)
    close(inputs, ordinary.inputs_gradient(c), 1e-12)
    close(
        step.attacked_pass.params_gradient(c)["weights"],
        ordinary.params_gradient(c)["weights"],
        1e-12,
    )


def test_passes_keep_what_they_saw(always):
    batch, _ = both(runs_of())
    steps = descend(batch)
    output = next(steps)[0].attacked_pass
    assert isinstance(output, AttentionPass)
    before = output.queries.clone()
    for _ in range(3):
        next(steps)
    assert torch.equal(output.queries, before)


def test_weights_may_be_changed_on_the_way(always):
    """As by a user who cuts a part out of the network in the middle of a run."""
    batches = both(runs_of(max_steps=12))
    for batch in batches:
        for step, _ in descend(batch):
            if step.number == 6:
                step.batch.params["weights"][:, ::2] = 0
    mine, plain = (batch.params["weights"] for batch in batches)
    close(mine, plain, 1e-10)


def test_the_same_runs_twice_are_bitwise_equal(always):
    first, second = (train_runs(runs_of(max_steps=40), run_ids(3)) for _ in range(2))
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], err_msg=name)


def test_a_step_is_one_product_with_the_gram_matrix():
    """By count: of the two products with the tokens nothing is left, and nothing else is added."""
    cell = small_setup(small_data(dim=100, samples=8, tokens=8), small_network(hidden=20))
    runs, points, dim, columns = 3, 64, 100, 48
    counts = []
    for batch in both([cell] * runs):
        steps = descend(batch)
        # The first two steps also compute the products and the Gram matrix.
        deque(islice(steps, 2))
        with FlopCounterMode(display=False) as counter:
            deque(islice(steps, 1))
        counts.append(counter.get_total_flops() // 2)
    saved = 2 * points * dim * columns - points * points * columns
    assert counts[1] - counts[0] == runs * saved
    assert counts[0] < counts[1] / 2


@pytest.fixture
def louder() -> Iterator[Any]:
    """A network that sees points in a way of its own, though it inherits what `Attention` declares."""

    class LouderAttention(Attention):
        def training_pass(self, params: Any, x: Any, clean: Any) -> Any:
            return super().training_pass(params, 2 * x, clean)

    yield LouderAttention
    Component.families[Network].pop("louder_attention")


def test_products_are_carried_only_where_tokens_stay_and_all_see_them(always, louder):
    plain = small_network()
    assert start([small_setup(network=plain)]).gram_state is not None
    assert start([small_setup(network=small_network(exposed="values"))]).gram_state is None
    for first in (0, 3):
        attacked = small_setup(network=plain, attack=small_pgd(), first_attacked_step=first)
        assert start([attacked]).gram_state is None
    heirs = small_setup(network=louder(hidden=5, init=plain.init))
    assert start([heirs]).gram_state is None
    with plain_training():
        assert start([small_setup(network=plain)]).gram_state is None


@pytest.fixture
def heavy_ball() -> Iterator[Any]:
    """A full-batch method of a user's own: gradient descent that keeps half of its last move."""

    class HeavyBall(GradientDescent):
        def moments(self, params: Params) -> Params:
            return {name: torch.zeros_like(part) for name, part in params.items()}

        def update(
            self, params: Params, gradient: Params, moments: Params, step: float, count: int
        ) -> None:
            moved = {name: moments[name].mul_(0.5).add_(part) for name, part in gradient.items()}
            super().update(params, moved, moments, step, count)

    yield HeavyBall
    Component.families[Training].pop("heavy_ball")


METHODS: list[Training] = [row.component for row in components.TRAININGS]
METHODS += [
    SGD(rate=0.5, momentum=0.9, epochs=20, schedule="constant"),
    AdamW(rate=0.05, epochs=20, schedule="constant"),
]


def weights_after(training: Training, steps: int = 20) -> tuple[list[Tensor], bool]:
    """Weights after clean steps on all points, with the shortcut wherever it may be taken, and without."""
    cell = small_setup(small_data(dim=60, flip=0.2), small_network())
    capped = axes.replace(with_most_steps(training, steps), {("stop_loss",): 0.0})
    setup = axes.replace(cell, {("training",): capped})
    batch = start([setup])
    with plain_training():
        plain = start([setup])
        assert plain.gram_state is None
    weights = []
    for each in (batch, plain):
        assert each.batches_per_epoch == 1
        *_, (last, _) = descend(each)
        assert last.number == steps
        weights.append(last.batch.params["weights"])
    return weights, batch.gram_state is not None


def check_own_updates(training: Training) -> None:
    (carried, plain), shortcut = weights_after(training)
    close(carried, plain, 1e-10)
    assert shortcut == has_guarantee(training, "plain_update")


@pytest.mark.parametrize("training", METHODS, ids=lambda each: each.label())
def test_every_training_method_makes_its_own_updates(training, always):
    """The shortcut makes plain updates only: a method with another kind of update, such as momentum, must not take it.

    A new row of tests/test_components.py is tested here as well.
    """
    check_own_updates(training)


def test_a_method_of_ones_own_makes_its_own_updates(heavy_ball, always):
    """It inherits from `GradientDescent`, but not what that guarantees."""
    check_own_updates(heavy_ball(rate=0.5))


def test_a_wrong_promise_of_plain_updates_fails(heavy_ball, always):
    with pytest.raises(AssertionError):
        check_own_updates(guarantees("plain_update")(heavy_ball)(rate=0.5))


def test_mini_batches_are_not_plain_updates():
    assert not any(has_guarantee(each, "plain_update") for each in (MiniBatches, SGD, AdamW))
    assert has_guarantee(GradientDescent, "plain_update")


def test_shapes_decide():
    assert pays(320, 1024, 1040)  # jiang/fig1 with 20 points
    assert pays(320, 302, 1040)  # the same in the coordinates of its tokens
    assert pays(160, 152, 624)
    assert not pays(32, 32, 144)  # with 2 points: too little to save
    assert not pays(320, 200, 1040)
    assert not pays(12, 8, 16)


def last_outputs(batch: Batch) -> Float64[Tensor, "runs samples"]:
    *_, (last, _) = descend(batch)
    return last.attacked_pass.outputs.double()


def test_rounding_does_not_add_up(always):
    """Outputs after 300 float32 steps whose weights are not read are as close to float64 as those of plain training."""
    rough, plain = (
        last_outputs(batch) for batch in both(runs_of(max_steps=300, precision="float32"))
    )
    exact = last_outputs(start(runs_of(max_steps=300)))
    errors = [float((outputs - exact).norm() / exact.norm()) for outputs in (rough, plain)]
    assert errors[0] < max(1e-6, 5 * errors[1])


def test_frames_of_tests_read_the_weights_of_every_step(always):
    """Filmed runs, which most tests of training compare, take plain steps: reading the weights drops the products."""
    batch, _ = both(runs_of(max_steps=3))
    film(batch)
    assert batch.gram_state is not None
    assert "_gram" not in vars(batch.gram_state)
