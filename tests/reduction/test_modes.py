"""The space of a run: refused modes, the choice of `auto`, cost, and a whole experiment."""

from typing import Any

import pytest
import torch

import benign as bo
from benign.attacks.apgd import APGD
from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.data.feature_patches import FeaturePatches
from benign.data.mixture import Mixture
from benign.data.noisy_copies import NoisyCopies
from benign.networks.initial import TorchDefault
from benign.networks.linear import Linear
from benign.networks.network import Network
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.spec import axes
from benign.spec.base import SpecError
from benign.sweep.estimate import estimate
from benign.training import machine
from benign.training import setup as setups
from benign.training.engine import run_bytes, train_runs
from benign.training.machine import check_memory
from benign.training.setup import Setup
from tests.reference import Fields, run_ids, small_data, small_network, small_pgd, small_setup
from tests.says import holds, says

LARGE = 10**9
SPAN = 2 + 4 * 2 + 11
"""two signals, two noise tokens of four points, W_Q and W_K of 5 columns each, and u"""


def setup(coordinates: str = "sampled", **fields: Any) -> Setup:
    """`small_setup` in R^(10^9), read again so that it is checked."""
    parts = {"data": small_data(dim=LARGE), "network": small_network()} | fields
    given = small_setup(**parts).as_dict() | {"coordinates": coordinates}
    return Setup.from_dict(given)


class Opaque(Network):
    """Says nothing of its weights."""

    def initial_params(self, data, streams, dtype):
        return {"u": streams("init").normal(data.dim, dtype=dtype)}

    def forward(self, params, x):
        return torch.einsum("rnmd,rd->rn", x, params["u"])


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "linf": ({"attack": PGD(ball=Ball(p="inf", radius=0.1))}, ["`attack.ball.p`", "inf", "`p: 2`"]),
    "l1": ({"attack": APGD(ball=Ball(p=1, radius=0.1))}, ["`attack.ball.p`", "1", "`p: 2`"]),
    "box": ({"attack": PGD(ball=Ball(radius=0.1, box=(0.0, 1.0)))}, ["`attack.ball.box`", "[0.0, 1.0]"]),
    "relative": (
        {"attack": PGD(ball=Ball(radius=0.1, relative_to="point"))},
        ["`attack.ball.relative_to`", "'point'"],
    ),
    "one step": ({"attack": OneStep(rate=1.0, clip=0.1)}, ["`attack`", "one_step", "pgd"]),
    "uniform start": ({"attack": small_pgd(start="uniform")}, ["`attack`", "pgd", "random", "`start: zero`"]),
    "restarts": ({"attack": small_pgd(restarts=2)}, ["`attack`", "pgd", "random", "`restarts: 1`"]),
    "strong": ({"attack": EnsembleAttack(ball=Ball(radius=0.1))}, ["`attack`", "strong", "random"]),
    "also": (
        {"attack": EnsembleAttack(ball=Ball(radius=0.1), restarts=1, also=small_pgd(start="uniform"))},
        ["`attack.also`", "pgd", "random"],
    ),
    "evaluation": (
        {"test_attack": PGD(ball=Ball(p="inf", radius=0.1))},
        ["`evaluation.attack.ball.p`", "inf"],
    ),
    "network": ({"network": Opaque()}, ["`network`", "opaque", "weights"]),
}  # fmt: skip
NOT_GAUSSIAN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "uniform init": ({"network": small_network(init=TorchDefault())}, ["`network.init`", "torch_default"]),
    "preset": (
        {"network": TwoLayer(width=4, preset="torch_default"), "data": Mixture(samples=4, dim=LARGE, signal=1.0)},
        ["`network.preset`", "torch_default", "`hybrid`"],
    ),
    "cluster": (
        {"network": Linear(), "data": Mixture(samples=4, dim=LARGE, signal=1.0, cluster="quartic")},
        ["`data.cluster`", "quartic", "`gaussian`"],
    ),
    "copies": (
        {"data": NoisyCopies(
                tokens=3, samples=4, copies=2, dim=LARGE, snr=1.0, noise_std=0.5, injected_std=0.1
            )},
        ["`data`", "noisy_copies", "independent"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("coordinates", ["projected", "sampled"])
@pytest.mark.parametrize("name", REFUSED)
def test_modes_that_would_not_be_exact_are_refused(name, coordinates):
    fields, reason = REFUSED[name]
    parts = "`coordinates`", coordinates, *reason, "`coordinates: ambient`"
    with pytest.raises(SpecError, match=says(*parts)):
        setup(coordinates, **fields)
    space = setup("auto", **fields).space
    assert (space.mode, space.dim) == ("ambient", LARGE)


@pytest.mark.parametrize("name", NOT_GAUSSIAN)
def test_data_and_weights_that_are_not_gaussian_are_not_sampled(name):
    fields, reason = NOT_GAUSSIAN[name]
    with pytest.raises(SpecError, match=says(*reason, "`coordinates: projected`")):
        setup("sampled", **fields)
    space = setup("auto", **fields).space
    assert (space.mode, space.drawn_dim) == ("projected", LARGE)
    assert space.dim == setup("projected", **fields).space.dim
    assert holds(space.text, "projected", "sampled", *reason)


@pytest.mark.parametrize(
    "fields",
    [
        {"attack": small_pgd(per="sample", keep="best")},
        {"attack": APGD(ball=Ball(radius=0.1, relative_to="signal"))},
        {"attack": small_pgd(), "test_attack": small_pgd(start="uniform", restarts=3)},
        {"test_attack": EnsembleAttack(ball=Ball(radius=0.3))},
        {"network": small_network(attend="uniform", exposed="values")},
    ],
)
def test_auto_chooses_an_exact_mode(fields):
    space = setup("auto", **fields).space
    assert (space.mode, space.dim, space.drawn_dim) == ("sampled", SPAN, SPAN)
    assert space == setup("sampled", **fields).space
    assert holds(space.text, f"sampled, {SPAN} coordinates", "1,000,000,000")


@pytest.mark.parametrize(
    ("data", "network", "span"),
    [
        (small_data(dim=LARGE), small_network(heads=2), 2 + 8 + 22),
        (Mixture(samples=4, dim=LARGE, signal=1.0), TwoLayer(width=6, init_std=0.1), 1 + 4 + 3),
        (Mixture(samples=4, dim=LARGE, signal=1.0), TwoLayer(width=6, preset="vanishing"), 1 + 4),
        (Mixture(samples=4, dim=LARGE, signal=1.0), Linear(), 1 + 4 + 1),
        (small_data(dim=LARGE), TwoLayer(width=6, preset="hybrid"), 2 + 8 + 9),
        (
            FeaturePatches(samples=4, tokens=3, dim=LARGE, alpha=1.0, beta=1.0, noise_std=0.1),
            PatchCNN(width=3, threshold=1.0, init_std=0.1),
            4 + 12 + 6,
        ),
    ],
)
def test_the_span_is_counted(data, network, span):
    """papers/jiang.md 7.2: P + heads (2 d_h + 1); papers/wang.md 6.1: n + m/2 + 1."""
    reduced = setup(data=data, network=network).reduced()
    assert reduced.data.dim == span
    assert reduced.space.mode == "ambient"


@pytest.mark.parametrize("coordinates", ["projected", "sampled", "auto"])
@pytest.mark.parametrize("dim", [SPAN - 1, SPAN])
def test_a_space_no_larger_than_the_span_is_kept(coordinates, dim):
    attacked: Fields = {"data": small_data(dim=dim), "attack": small_pgd(0.1)}
    kept = setup(coordinates, **attacked)
    assert (kept.space.mode, kept.space.dim) == ("ambient", dim)
    assert holds(kept.space.text, f"{SPAN} dimensions", "`dim`", str(dim))
    assert kept.reduced() is kept
    assert train_runs([kept], run_ids(1))["train_loss"] == pytest.approx(
        train_runs([setup("ambient", **attacked)], run_ids(1))["train_loss"], abs=0
    )


def test_the_default_is_ambient_and_moves_no_key():
    plain = small_setup()
    assert plain.space.mode == "ambient"
    assert "coordinates" not in plain.identity()
    choices = "'ambient'", "'projected'", "'sampled'", "'approximate'", "'auto'"
    with pytest.raises(SpecError, match=says("coordinates", *choices, "'smallest'")):
        setup("smallest")


@pytest.mark.parametrize("dim", [0, -3, float("nan")])
def test_no_dimension_is_refused(dim):
    with pytest.raises(SpecError, match="dim"):
        small_data(dim=dim)


def test_the_space_is_chosen_once_and_anew_by_a_copy(monkeypatch):
    given = setup("sampled")
    copies = [
        given.model_copy(update={"coordinates": "ambient"}, deep=deep) for deep in (False, True)
    ]
    assert [each.space.dim for each in copies] == [LARGE, LARGE]
    monkeypatch.setattr(setups, "choose", None)  # it was chosen when the setup was checked
    assert given.space.dim == SPAN
    assert run_bytes(given) < 2**20


def test_memory_is_that_of_the_small_coordinates(monkeypatch):
    monkeypatch.setattr(machine, "memory_of", lambda device: 2**34)
    sampled, ambient = setup("sampled"), setup("ambient")
    check_memory([sampled], "cpu")
    assert run_bytes(sampled) < 2**20
    with pytest.raises(ValueError, match=says("GiB", "dim", "`coordinates: sampled`")):
        check_memory([ambient], "cpu")
    with pytest.raises(ValueError, match=says("GiB", "dim")) as caught:
        check_memory([setup("auto", network=Opaque())], "cpu")
    assert "`coordinates" not in str(caught.value)
    fields, reason = NOT_GAUSSIAN["uniform init"]
    for coordinates in (
        "ambient",
        "projected",
    ):  # projected draws in R^(10^9), which does not fit either
        with pytest.raises(ValueError, match=says("`coordinates: sampled`", *reason)):
            check_memory([setup(coordinates, **fields)], "cpu")
    projected = [setup("projected", data=small_data(dim=dim)) for dim in (1000, 2000)]
    assert 1.9 < run_bytes(projected[1]) / run_bytes(projected[0]) < 2


def test_estimates_are_those_of_the_small_coordinates():
    seconds = {}
    for coordinates, dim in (
        ("sampled", 10**6),
        ("projected", 10**6),
        ("ambient", 10**6),
        ("sampled", LARGE),
    ):
        given = setup(coordinates, data=small_data(dim=dim)).as_dict()
        cost = estimate(bo.Experiment.from_dict(given).units(), "cpu")
        seconds[coordinates, dim] = cost.least_seconds, cost.bytes
    assert seconds["sampled", 10**6] == seconds["sampled", LARGE]
    assert seconds["sampled", 10**6][0] < seconds["projected", 10**6][0] / 50
    assert seconds["sampled", 10**6][1] < seconds["ambient", 10**6][1] / 100


def test_an_experiment_of_dimension_1e12_runs_resumes_and_replays(tmp_path):
    """An experiment at d = 1e12 runs, resumes and replays."""
    experiment = bo.Experiment(
        data=small_data(dim=10**12, snr=[0.5, 2.0], noise_std=1e-6),
        network=small_network(1e-6, 1e-6),
        attack=small_pgd(0.1, relative_to="signal"),
        training=bo.GradientDescent(rate=0.3, max_steps=6),
        evaluation=bo.Evaluation(samples=20),
        precision="float64",
        coordinates="auto",
        seeds=2,
    )
    result = experiment.run(tmp_path)
    assert result.robust_accuracy.notnull().all()
    assert (result.status == 2).all()
    replay = experiment.replay(snr=2.0, seed=1)
    assert replay.train.x.shape == (1, 4, 3, SPAN)
    assert replay.test(5).x.shape == (1, 5, 3, SPAN)
    lengths = replay.test(5).x[0, :, 0].norm(dim=1)
    torch.testing.assert_close(lengths, torch.full((5,), 2.0, dtype=torch.float64))
    known = result.train_loss.sel(snr=2.0, seed=1).item()
    assert float(replay.last.loss) == pytest.approx(known, rel=1e-10)


def test_replayed_points_are_those_of_the_evaluation():
    """Projected: the first test points, in the coordinates of the span."""
    given = setup("projected", data=small_data(dim=40)).as_dict()
    projected = bo.Experiment.from_dict(given).replay()
    ambient = bo.Experiment.from_dict(given | {"coordinates": "ambient"}).replay()
    outputs = [each.last.batch.run(each.test(7)).outputs for each in (ambient, projected)]
    torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-12)


def test_runs_of_several_numbers_share_a_batch():
    """Signals and radii of the runs stay their own in small coordinates."""
    cells = [
        axes.replace(setup("projected", data=small_data(dim=40, snr=0.3), attack=small_pgd(0.1, relative_to="signal")),
                     {("data", "snr"): snr})
        for snr in (0.3, 0.6)
    ]  # fmt: skip
    together = train_runs(cells, run_ids(2))
    for place, cell in enumerate(cells):
        ambient = axes.replace(cell, {("coordinates",): "ambient"})
        alone = train_runs([ambient], run_ids(2)[place : place + 1])
        for name in ("train_loss", "robust_accuracy", "test_margin_mean", "value_positive_signal"):
            assert together[name][place] == pytest.approx(alone[name][0], rel=1e-9)
