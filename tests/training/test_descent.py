"""Gradient descent of the engine is that of the slow reference, step by step; how runs end."""

from collections.abc import Iterator
from itertools import pairwise
from math import inf, nan
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from benign.data.model import DataModel
from benign.networks.network import Network, Params
from benign.streams import Streams
from benign.training.descent import Status, update
from benign.training.setup import Setup
from tests.reference import (
    Frame,
    close,
    doubles,
    film,
    run_ids,
    slow_attack,
    small_data,
    small_network,
    small_pgd,
    small_setup,
    start,
)
from tests.reference.attention import Trajectory, train
from tests.registry import forgetting


def reference_of(frame: Frame, cell: Setup, run: int) -> Trajectory:
    """The reference's run from the weights and points of the engine's first step."""
    attack = None if cell.attack is None else slow_attack(cell.attack, cell.data)
    rules = cell.training
    return train(
        frame.full[run],
        frame.x[run],
        frame.y[run],
        rules.rate,
        rules.stop_loss,
        rules.most_steps(),
        attack,
    )


def check_against_reference(cells: list[Setup]) -> list[Frame]:
    """Every step of every run: loss, attacked points, weights, and W_V in full (S2)."""
    frames = film(start(cells))
    for run, cell in enumerate(cells):
        slow = reference_of(frames[0], cell, run)
        mine = [(frame, frame.runs.tolist().index(run)) for frame in frames if run in frame.runs]
        assert len(mine) == len(slow.losses)
        for (frame, row), loss, points, weights in zip(
            mine, slow.losses, slow.attacked, slow.weights, strict=True
        ):
            close(frame.loss[row], torch.tensor(loss, dtype=torch.float64))
            close(frame.attacked[row], points)
            full = frame.full[row]
            for ours, theirs in zip(full.trained(), weights.trained(), strict=True):
                close(ours, theirs)
    return frames


@pytest.mark.parametrize("heads", [1, 2])
def test_clean_training_is_that_of_the_reference(heads):
    network = small_network(heads=heads)
    data = small_data(flip=0.2, strong_noise_std=0.9)
    cells = [small_setup(data, network), small_setup(data, network, rate=4.0, stop_loss=0.4)]
    frames = check_against_reference(cells)
    assert float(frames[0].loss.min() - frames[-1].loss.min()) > 0.1


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("keep", ["last", "best"])
@pytest.mark.parametrize("loss", ["margin", "cross_entropy"])
@pytest.mark.parametrize("per", ["token", "sample"])
def test_adversarial_training_is_that_of_the_reference(per, loss, keep, heads):
    # Steps of 0.7 radii bounce between the walls of the ball, so that the last iterate is seldom
    # the best.
    attack = small_pgd(0.4, per, loss=loss, keep=keep, steps=3, step=0.7)
    network = small_network(0.5, 0.4, heads=heads)
    cell = small_setup(network=network, attack=attack, rate=4.0, max_steps=6)
    frames = check_against_reference([cell])
    assert float((frames[-1].attacked - frames[-1].x).norm()) > 0.1


def test_relative_radius_and_signal_to_noise_ratio_are_those_of_the_reference():
    data = small_data(snr=1.5, projected=True, directions="random")
    check_against_reference([small_setup(data, attack=small_pgd(0.2, "token", "signal"))])


def test_float32_follows_float64():
    attack = small_pgd()
    exact, rough = (
        film(start([small_setup(attack=attack, precision=precision)]))
        for precision in ("float64", "float32")
    )
    assert rough[0].params["weights"].dtype == torch.float32
    for a, b in zip(exact, rough, strict=True):
        close(b.loss.double(), a.loss, 1e-5)
        close(b.attacked.double(), a.attacked, 1e-4)


@pytest.fixture
def averaging() -> Iterator[Any]:
    """f(X) = <mean token, u>, perhaps with a bias, without closed forms; for one test only."""

    with forgetting():

        class Averaging(Network):
            biases: int = 0

            def initial_params(
                self, data: DataModel, streams: Streams, dtype: torch.dtype
            ) -> Params:
                sizes = {"u": data.dim, "b": self.biases}
                return {
                    name: torch.zeros(len(streams), size, dtype=dtype)
                    for name, size in sizes.items()
                }

            def forward(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples"]:
                return torch.einsum("rnd,rd->rn", x.mean(2), params["u"]) + params["b"].sum(1, True)

        yield Averaging


@pytest.mark.parametrize("attack", [None, small_pgd()], ids=["clean", "attacked"])
def test_a_network_without_closed_forms_is_trained_by_autograd(averaging, attack):
    """Without scores and with |w_O| = 1 the attention network is the averaging one (S5)."""
    attention = small_network(0.0, 0.0, output_norm=1.0)
    closed, traced = (
        film(start([small_setup(network=network, attack=attack)]))
        for network in (attention, averaging())
    )
    for a, b in zip(closed, traced, strict=True):
        close(b.loss, a.loss)
        close(b.attacked, a.attacked)
        u = attention.values(a.params)[:, :, 0]
        assert torch.allclose(b.params["u"], u, rtol=1e-10, atol=1e-14)
    assert traced[-1].params["u"].norm() > 0.1


def test_parameters_that_only_add_up_are_trained_too(averaging):
    """Autograd gives their gradient as one number repeated, which cannot be written to."""
    frames = film(start([small_setup(network=averaging(biases=2), rate=0.5)], run_ids(1, seed=1)))
    for now, after in pairwise(frames):
        pull = 0.5 * (now.y * torch.sigmoid(-now.y * now.outputs)).mean()
        close(after.params["b"], now.params["b"] + pull)


def statuses(*cells: Setup) -> Iterator[tuple[int, int, Status]]:
    """(run, step, status) of every run as it ends."""
    for frame in film(start(cells)):
        for run, status in zip(frame.runs.tolist(), frame.status.tolist(), strict=True):
            if status != Status.MISSING:
                yield run, frame.number, Status(status)


def test_runs_end_by_converging_by_the_cap_or_by_diverging():
    cells = [
        small_setup(rate=4.0, stop_loss=0.3),
        small_setup(rate=4.0, stop_loss=0.0),
        small_setup(rate=1e200),
        small_setup(stop_loss=100.0),
    ]
    ends = {run: (step, status) for run, step, status in statuses(*cells)}
    assert ends[1] == (12, Status.STEP_CAP)
    assert ends[3] == (0, Status.CONVERGED)
    assert ends[2][1] == Status.DIVERGED
    step, status = ends[0]
    assert status == Status.CONVERGED
    losses = [float(frame.loss[0]) for frame in film(start(cells[:1]))]
    assert len(losses) == step + 1 > 2
    assert losses[-1] <= 0.3 < min(losses[:-1])


def test_a_run_that_converges_at_the_cap_has_converged():
    losses = [float(frame.loss[0]) for frame in film(start([small_setup(rate=1.0)]))]
    cell = small_setup(rate=1.0, max_steps=5, stop_loss=(losses[4] + losses[5]) / 2)
    assert list(statuses(cell)) == [(0, 5, Status.CONVERGED)]


def test_a_cap_of_zero_measures_the_initial_weights():
    assert list(statuses(small_setup(max_steps=0))) == [(0, 0, Status.STEP_CAP)]


@pytest.mark.parametrize(("size", "loss"), [(1e308, 0.0), (-1e308, inf), (nan, nan)])
def test_outputs_that_are_not_finite_are_divergence_whatever_the_loss(size, loss):
    """An infinite margin of the right sign has loss zero."""
    network = small_network(0.0)
    batch = start([small_setup(small_data(projected=True, signal=6.0), network, stop_loss=1.0)])
    u = network.values(batch.params)[0, :, 0]
    u[:2] = doubles(size, -size)  # along mu_+ - mu_-
    u[2:] = 0
    frame = film(batch)[0]
    assert frame.status.tolist() == [Status.DIVERGED]
    assert frame.loss.tolist() == pytest.approx([loss], nan_ok=True)


def test_clean_loss_may_stop_an_attacked_run():
    rules = {"attack": small_pgd(0.3), "rate": 4.0, "stop_loss": 0.3, "max_steps": 40}
    attacked, clean = (
        film(start([small_setup(stop_on=stop_on, **rules)])) for stop_on in ("attacked", "clean")
    )
    assert len(clean) < len(attacked)

    def clean_loss(frame: Frame) -> float:
        margins = frame.y * frame.network.run(frame.params, frame.x).outputs
        return float(torch.log1p(torch.exp(-margins)).mean())

    assert clean_loss(clean[-1]) <= 0.3 < min(clean_loss(frame) for frame in clean[:-1])
    assert float(clean[-1].loss) > 0.3
    assert float(attacked[-1].loss) <= 0.3


def test_runs_leave_the_batch_when_they_end():
    cells = [small_setup(rate=4.0, stop_loss=stop) for stop in (0.3, 0.0, 0.5)]
    frames = film(start(cells, run_ids(1) * 3))
    sizes = [len(frame.runs) for frame in frames]
    assert sizes[0] == 3
    assert sizes[-1] == 1
    assert frames[-1].runs.tolist() == [1]
    gone = {run: step for run, step, _ in statuses(*cells)}
    assert gone[2] != gone[0]


def test_each_run_moves_by_its_own_rate():
    batch = start([small_setup(rate=rate) for rate in (0.1, 0.2)], run_ids(1) * 2)
    before = batch.params["weights"].clone()
    update(batch, {"weights": torch.ones_like(before)})
    moved = before - batch.params["weights"]
    close(moved[0], torch.full_like(moved[0], 0.1))
    close(moved[1], torch.full_like(moved[1], 0.2))
    assert torch.equal(before[0], before[1])


def test_the_rate_drops_after_so_many_steps():
    """Wang's experiments divide the rate by 10 after every 500 steps."""
    rules = {"rate": 0.5, "max_steps": 5}
    constant, dropped = (
        [frame.params["weights"] for frame in film(start([small_setup(**rules, **drop)]))]
        for drop in ({}, {"drop_every": 2, "drop_by": 10.0})
    )
    for step in range(3):
        assert torch.equal(dropped[step], constant[step])
    close(dropped[3] - dropped[2], (constant[3] - constant[2]) / 10)
    late = small_setup(**rules, drop_every=2, drop_by=10.0).training
    assert [late.rate_at(step) for step in range(6)] == [0.5, 0.5, 0.05, 0.05, 0.005, 0.005]


def test_the_first_steps_may_be_clean():
    """Wang's footnote 1: at step 0 the symmetric network has no gradient to attack along."""
    frames = film(start([small_setup(attack=small_pgd(), first_attacked_step=2, max_steps=3)]))
    for frame in frames:
        assert torch.equal(frame.attacked, frame.x) == (frame.number < 2)


def test_frozen_output_weights_do_not_move():
    frames = film(start([small_setup(attack=small_pgd())]))
    assert torch.equal(frames[0].params["output"], frames[-1].params["output"])
    assert not torch.equal(frames[0].params["weights"], frames[-1].params["weights"])
