"""Li & Li's network: activation, gradients, training against the reference, and exact lemmas.

Numbers like D.4 are those of the paper; papers/li.md sections 1 and 2 list them.
"""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import benign as bo
from benign.data.feature_patches import FeaturePatches
from benign.data.model import DataModel, Sample
from benign.losses import loss_slope, own_slope
from benign.networks import patch_cnn
from benign.networks.network import Params, Pass
from benign.networks.patch_cnn import (
    PatchCNN,
    PatchCNNPass,
    class_sums,
    grouped,
    select_rows,
    slopes,
    smoothed_relu,
    smoothed_relu_derivative,
    weighted_slopes,
)
from benign.spec.base import SpecError
from benign.streams import Streams
from benign.training.descent import Batch, Status
from benign.training.setup import Setup, stack
from tests.reference import (
    Frame,
    close,
    doubles,
    film,
    normals,
    run_ids,
    small_data,
    small_pgd,
    small_setup,
)
from tests.reference import patch_cnn as slow
from tests.says import says

OUTPUTS: dict[str, dict[str, Any]] = {
    "two classes": {"classes": 2},
    "four classes": {"classes": 4},
    "difference": {"classes": 2, "outputs": "difference"},
}
each_kind = pytest.mark.parametrize("kind", OUTPUTS)
each_q = pytest.mark.parametrize("q", [2, 3, 4])


def network(kind: str = "two classes", **fields: Any) -> PatchCNN:
    """Three filters a class; preactivations of random points fall on all parts of psi."""
    return PatchCNN(**{"width": 3, "threshold": 0.7, "init_std": 0.4, **OUTPUTS[kind], **fields})


def batch_on(setups: list[Setup], x: Tensor, y: Tensor) -> Batch:
    """These runs on given points, which are the same in every run."""
    batch = Batch.start(stack(setups, "cpu"), Streams(run_ids(len(setups))))
    x, y = (part.expand(len(setups), *part.shape) for part in (x, y))
    sample = Sample(x, y, y)
    return Batch(batch.setup, batch.streams, batch.index, sample, batch.params)


# The activation.


@settings(max_examples=30)
@given(q=st.integers(2, 6), rho=st.floats(0.01, 50.0))
def test_the_activation_is_the_papers(q: int, rho: float):
    """Value and slope at 0 and rho and just next to them; all cases; convex and smooth."""
    at = doubles(-rho, 0.0, rho, 3 * rho)
    close(smoothed_relu(at, q, rho), doubles(0.0, 0.0, rho / q, (2 + 1 / q) * rho))
    assert smoothed_relu_derivative(at, q, rho).tolist() == [0, 0, 1, 1]
    near = 1e-9 * rho
    for point in (0.0, rho):
        sides = doubles(point - near, point + near)
        slopes = smoothed_relu_derivative(sides, q, rho)
        # Both are continuous: psi has slope at most 1, and psi' at most (q - 1) / rho.
        assert smoothed_relu(sides, q, rho).diff().abs().item() <= 2.1 * near
        assert slopes.diff().abs().item() <= 2.1e-9 * (q - 1)
    z = torch.linspace(-rho, 2 * rho, 61, dtype=torch.float64)
    by_cases = slow.Activation(q, rho)
    close(smoothed_relu(z, q, rho), torch.stack([by_cases(each) for each in z]))
    slopes = smoothed_relu_derivative(z, q, rho)
    close(slopes, doubles(*[by_cases.slope(float(each)) for each in z]))
    steps = slopes.diff()
    assert (steps >= 0).all()
    assert (steps <= (q - 1) / rho * z.diff() * (1 + 1e-9)).all()


@settings(max_examples=30)
@given(q=st.integers(2, 6), rho=st.floats(0.1, 5.0), seed=st.integers(0, 1000))
def test_the_derivative_of_the_activation_is_autograds(q: int, rho: float, seed: int):
    z = normals(50, seed=seed).mul_(2 * rho)
    z = torch.cat([z, doubles(0.0, rho)]).requires_grad_()
    (slopes,) = torch.autograd.grad(smoothed_relu(z, q, rho).sum(), z)
    close(smoothed_relu_derivative(z.detach(), q, rho), slopes)


@each_q
def test_far_from_zero_the_activation_is_linear_and_finite(q: int):
    z = doubles(-1e200, 1e200)
    assert smoothed_relu(z, q, 0.5).tolist() == [0, 1e200]
    assert smoothed_relu_derivative(z, q, 0.5).tolist() == [0, 1]


def test_every_run_has_its_own_threshold():
    net = network().model_copy(update={"threshold": doubles(0.2, 3.0)})
    z = normals(2, 4, 5).mul_(2)
    for run, rho in enumerate((0.2, 3.0)):
        close(net.activate(z)[run], smoothed_relu(z[run], 3, rho))


@settings(max_examples=30)
@given(q=st.integers(2, 6), rho=st.floats(0.1, 5.0), seed=st.integers(0, 1000))
def test_a_pass_sums_the_activation_and_weights_its_slopes(q: int, rho: float, seed: int):
    """What it computes from z / rho, on all three parts, is the activation and its derivative; z stays as it is."""
    z, c = normals(2, 3, 4, 2, 5, seed=seed).mul_(2 * rho), normals(2, 3, 2, seed=seed + 1)
    z[0, 0, :3, 0, 0] = doubles(-1e30, 0.0, rho)
    scaled, slope = z / rho, smoothed_relu_derivative(z, q, rho)
    before = scaled.clone()
    close(rho * class_sums(scaled, q), smoothed_relu(z, q, rho).sum((2, 4)))
    close(slopes(scaled, q), slope)
    close(weighted_slopes(scaled, c, q), slope * c[:, :, None, :, None])
    assert torch.equal(scaled, before)


# Outputs and gradients.


@each_kind
@each_q
@pytest.mark.parametrize("tokens", [1, 3])
def test_gradients_are_those_of_autograd(kind: str, q: int, tokens: int):
    net = network(kind, q=q)
    params = net.initial_params(small_data(), Streams(run_ids(2)), torch.float64)
    x = normals(2, 5, tokens, 8)
    mine, traced = net.run(params, x), Pass(net, params, x)
    assert isinstance(mine, PatchCNNPass)
    z = mine.preactivations
    assert ((z > 0) & (z < 0.7)).any()
    assert (z > 0.7).any()
    assert (z < 0).any()
    c = normals(*mine.outputs.shape, seed=1)
    close(mine.outputs, traced.outputs)
    close(mine.inputs_gradient(c), traced.inputs_gradient(c))
    close(mine.params_gradient(c)["weights"], traced.params_gradient(c)["weights"])


@each_kind
@each_q
def test_outputs_are_those_of_the_reference(kind: str, q: int):
    net = network(kind, q=q)
    params = net.initial_params(small_data(), Streams(run_ids(2)), torch.float64)
    x = normals(2, 4, 3, 8)
    for run, weights in enumerate(params["weights"]):
        by_class = [slow.outputs(weights, point, slow.Activation(q, 0.7)) for point in x[run]]
        expected = torch.stack(by_class)
        if kind == "difference":
            expected = expected[:, 1] - expected[:, 0]
        close(net.forward(params, x)[run], expected)


@each_kind
@pytest.mark.parametrize("runs_a_piece", [1, 2, 3])
def test_a_pass_in_pieces_is_the_pass(kind: str, runs_a_piece: int, monkeypatch):
    """Pieces of a few runs, of which the last may be smaller, each run with its own threshold."""
    net = network(kind).model_copy(update={"threshold": doubles(0.3, 0.7, 2.0)})
    params = net.initial_params(small_data(), Streams(run_ids(3)), torch.float64)
    x = normals(3, 5, 4, 8)
    monkeypatch.setattr(patch_cnn, "PIECE", runs_a_piece * 5 * 4 * 3 * net.classes)
    mine, traced = net.run(params, x), Pass(net, params, x)
    assert [len(part) for part in net.pieces(x)[0]] == {1: [1, 1, 1], 2: [2, 1], 3: [3]}[
        runs_a_piece
    ]
    c = normals(*mine.outputs.shape, seed=1)
    close(mine.outputs, traced.outputs)
    close(mine.preactivations, torch.einsum("rnpd,rjmd->rnpjm", x, params["weights"]))
    close(mine.inputs_gradient(c), traced.inputs_gradient(c))
    close(mine.params_gradient(c)["weights"], traced.params_gradient(c)["weights"])


@each_kind
@each_q
@pytest.mark.parametrize("runs_a_piece", [1, 2])
def test_the_gradient_of_the_own_output_is_autograds(
    kind: str, q: int, runs_a_piece: int, monkeypatch
):
    """Classes of different sizes, and one that has no points in the last run."""
    net = network(kind, q=q).model_copy(update={"threshold": doubles(0.3, 0.7, 2.0)})
    params = net.initial_params(small_data(), Streams(run_ids(3)), torch.float64)
    x, y = normals(3, 5, 4, 8), torch.arange(15.0).reshape(3, 5).double() * 7 % 3 % net.classes
    y[2] = 1.0
    if kind == "difference":
        y = 2 * y - 1
    monkeypatch.setattr(patch_cnn, "PIECE", runs_a_piece * 5 * 4 * 3 * net.classes)
    traced = Pass(net, params, x)
    close(net.own_gradient(params, x, x, y), traced.inputs_gradient(own_slope(traced.outputs, y)))


def test_a_subclass_with_another_pass_has_its_own_gradient():
    class HalvedPatches(PatchCNN):
        def run(self, params: Params, x: Tensor) -> PatchCNNPass:
            return super().run(params, x / 2)

    net = HalvedPatches(width=3, threshold=0.7, init_std=0.4)
    params = net.initial_params(small_data(), Streams(run_ids(2)), torch.float64)
    x, y = normals(2, 5, 4, 8), torch.ones(2, 5, dtype=torch.float64)
    here = net.run(params, x)
    close(net.own_gradient(params, x, x, y), here.inputs_gradient(own_slope(here.outputs, y)))


@given(labels=st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=3))
def test_every_sample_is_in_the_group_of_its_class(labels: list[list[int]]):
    y = torch.tensor(labels, dtype=torch.float64)
    samples, places = grouped(y, 3)
    size = max(run.count(label) for run in labels for label in range(3))
    assert samples.shape == (len(labels), 3 * size)
    assert torch.equal(places // size, y.long())
    assert torch.equal(samples.gather(1, places), torch.arange(5).expand_as(places))


def test_rows_are_selected_from_their_own_run_and_back():
    rows, y = normals(2, 5, 3, 4), torch.tensor([[0.0, 1, 0, 2, 0], [2.0, 2, 1, 0, 2]])
    samples, places = grouped(y, 3)
    by_class = select_rows(rows, samples)
    assert torch.equal(by_class[1, 2 * 3], rows[1, 0])
    back = torch.empty_like(rows)
    assert torch.equal(select_rows(by_class, places, out=back), rows)
    assert torch.equal(back, rows)


def test_a_pass_leaves_weights_and_points_alone():
    net, x = network("four classes"), normals(2, 4, 3, 8)
    params = net.initial_params(small_data(), Streams(run_ids(2)), torch.float64)
    before, points = params["weights"].clone(), x.clone()
    here, c = net.run(params, x), normals(2, 4, 4, seed=1)
    first = here.params_gradient(c)["weights"].clone()
    here.inputs_gradient(c)
    net.own_gradient(params, x, x, torch.ones(2, 4, dtype=torch.float64))
    assert torch.equal(here.params_gradient(c)["weights"], first)
    assert torch.equal(params["weights"], before)
    assert torch.equal(x, points)


def test_initial_filters_are_gaussian_of_the_given_size():
    stds = doubles(0.01, 2.0)
    net = network("four classes", width=50).model_copy(update={"init_std": stds})
    params = net.initial_params(small_data(dim=100), Streams(run_ids(2)), torch.float64)
    assert params["weights"].shape == (2, 4, 50, 100)
    assert net.trained(params) == ("weights",)
    drawn = params["weights"] / stds[:, None, None, None]
    # 40,000 standard normals: five standard errors of mean and of mean square, false alarm 1e-6.
    assert abs(float(drawn.mean())) < 5 / math.sqrt(40_000)
    assert abs(float(drawn.square().mean()) - 1) < 5 * math.sqrt(2 / 40_000)


# Gradient descent.


def check_against_reference(batch: Batch, q: int, attack: slow.Attack | None) -> None:
    """Loss, points trained on and weights of every step of every run."""
    frames = film(batch)
    start = frames[0]
    rates: Any = start.batch.setup.training.rate
    for run, (points, labels) in enumerate(zip(start.x, start.y, strict=True)):
        two = start.network.outputs == "difference"
        classes = [int(label > 0) if two else int(label) for label in labels]
        psi = slow.Activation(q, float(start.network.threshold[run]))
        weights, steps = start.params["weights"][run], len(frames) - 1
        path = slow.train(weights, points, classes, psi, float(rates[run]), steps, attack)
        for number, frame in enumerate(frames):
            close(frame.loss[run], torch.tensor(path.losses[number], dtype=torch.float64))
            close(frame.attacked[run], path.attacked[number])
            close(frame.params["weights"][run], path.weights[number])
    assert float((start.loss - frames[-1].loss).min()) > 0.05


@pytest.fixture(params=OUTPUTS)
def kind_and_points(request) -> tuple[str, Tensor, Tensor]:
    """Six random points of three patches with labels of the right kind."""
    x = normals(6, 3, 8, seed=4)
    if request.param == "difference":
        return request.param, x, doubles(1, -1, -1, 1, 1, -1)
    return request.param, x, torch.arange(6.0).double() % OUTPUTS[request.param]["classes"]


def labelled_for(net: PatchCNN, samples: int = 4, dim: int = 8) -> DataModel:
    """Data with the kind of labels the network learns; its points are given by hand."""
    if net.output_count() is None:
        return small_data(samples=samples, dim=dim)
    strengths: dict[str, Any] = {"alpha": 1.0, "beta": 1.0, "noise_std": 0.1}
    return FeaturePatches(samples=samples, tokens=3, dim=dim, classes=net.classes, **strengths)


@pytest.mark.parametrize("q", [2, 3])
def test_clean_training_is_that_of_the_reference(kind_and_points, q: int):
    kind, x, y = kind_and_points
    nets = [network(kind, q=q, threshold=rho) for rho in (0.5, 1.5)]
    setups = [
        small_setup(labelled_for(net, samples=6), net, rate=rate, max_steps=8)
        for net, rate in zip(nets, (0.1, 0.2), strict=True)
    ]
    check_against_reference(batch_on(setups, x, y), q, None)


@pytest.mark.parametrize("q", [2, 3])
def test_adversarial_training_is_that_of_the_reference(kind_and_points, q: int):
    kind, x, y = kind_and_points
    attack = small_pgd(radius=0.4, per="sample", steps=3, step=0.6)
    net = network(kind, q=q)
    setup = small_setup(labelled_for(net, samples=6), net, attack, rate=0.2, max_steps=5)
    check_against_reference(batch_on([setup], x, y), q, slow.Attack(0.4, steps=3, step=0.24))


@pytest.mark.parametrize("attacked", [False, True])
def test_the_difference_trains_as_its_two_classes_do(attacked: bool):
    """The logistic loss of F_1 - F_0 with y = +-1 is the cross-entropy of classes 0 and 1."""
    attack = small_pgd(per="sample") if attacked else None
    sign = doubles(1, -1, -1, 1)
    by_kind = [
        film(batch_on([small_setup(labelled_for(net), net, attack)], normals(4, 3, 8), y))
        for net, y in (
            (network("difference"), sign),
            (network("two classes"), (sign + 1) / 2),
        )
    ]
    for one, two in zip(*by_kind, strict=True):
        close(one.loss, two.loss)
        close(one.attacked, two.attacked)
        close(one.params["weights"], two.params["weights"])


# Lemmas that are exact (papers/li.md 2.3 and 2.5), on features built by hand.

CLASSES, DIM = 3, 12
RATE, RHO = 0.6, 0.8
POINTS = [
    slow.Patches(0, [1.0], [0.8, 0.6]),
    slow.Patches(0, [1.3, 1.1], [0.7]),
    slow.Patches(1, [2.0, 0.4], [0.5]),
    slow.Patches(1, [1.5], [0.5, 0.9]),
    slow.Patches(2, [1.2], [1.1, 0.3]),
    slow.Patches(2, [1.0], [1.2, 0.2]),
]


@pytest.fixture(scope="module")
def features() -> tuple[Tensor, Tensor]:
    """Orthonormal u_0, ..., u_{k-1} and v_0, ..., v_{k-1} in general position, as rows."""
    basis = torch.linalg.qr(normals(DIM, 2 * CLASSES, seed=11)).Q.T
    return basis[:CLASSES], basis[CLASSES:]


def noise_free(features: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    u, v = features
    x = [
        torch.stack([*(a * u[p.label] for a in p.alphas), *(b * v[p.label] for b in p.betas)])
        for p in POINTS
    ]
    return torch.stack(x), doubles(*[p.label for p in POINTS])


def train_on(features: tuple[Tensor, Tensor], q: int, attack: Any = None) -> list[Frame]:
    """From a small start to the linear part of psi."""
    net = PatchCNN(width=3, classes=CLASSES, q=q, threshold=RHO, init_std=0.3)
    data = labelled_for(net, samples=len(POINTS), dim=DIM)
    setup = small_setup(data, net, attack, rate=RATE, max_steps=30 if attack else 200)
    return film(batch_on([setup], *noise_free(features)))


@pytest.fixture(scope="module", params=[3, 4])
def q_and_frames(request, features: tuple[Tensor, Tensor]) -> tuple[int, list[Frame]]:
    """Clean training with this degree."""
    return request.param, train_on(features, request.param)


def correlations(frame: Frame, features: tuple[Tensor, Tensor]) -> slow.Correlations:
    weights = frame.params["weights"][0]
    return slow.Correlations(*(weights @ part.T for part in features))


def test_lemma_d4_the_recursion_of_the_correlations(q_and_frames, features):
    """A, B, C, D of the trained network are those of Lemma 5.1/D.4 iterated from the start.

    Every class has two points, so the mean over the points is the lemma's (1/k) E_class.
    """
    q, frames = q_and_frames
    predicted = correlations(frames[0], features)
    for frame in frames[1:]:
        predicted = slow.next_correlations(predicted, POINTS, slow.Activation(q, RHO), RATE)
        trained = correlations(frame, features)
        close(trained.robust, predicted.robust)
        close(trained.non_robust, predicted.non_robust)
    for part in (predicted.robust, predicted.non_robust):
        assert part.max() > 1.5 * RHO, "training should have left the polynomial part"
    assert frames[-1].loss.item() < 0.1 * frames[0].loss.item()


def test_lemma_d2_the_part_off_the_features_never_moves(q_and_frames, features):
    _, frames = q_and_frames
    basis = torch.cat(features)
    first, last = (frame.params["weights"][0] for frame in (frames[0], frames[-1]))
    close(last - last @ basis.T @ basis, first - first @ basis.T @ basis)
    assert (last - first).norm() > 1


def test_lemma_d7_foreign_features_are_not_learned(q_and_frames, features):
    """Positive C and D never rise; those that are not positive stay."""
    _, frames = q_and_frames
    foreign = ~torch.eye(CLASSES, dtype=torch.bool)[:, None, :].expand(-1, 3, -1)
    for before, after in pairwise(frames):
        old, new = (correlations(frame, features) for frame in (before, after))
        for part in ("robust", "non_robust"):
            here = getattr(old, part)[foreign]
            rise = getattr(new, part)[foreign] - here
            assert (rise <= 1e-12).all()
            assert (rise[here <= 0].abs() <= 1e-12).all()


def test_lemma_d18_one_adversarial_step_along_any_feature(features: tuple[Tensor, Tensor]):
    """<w_ir, f> rises by eta mean (1[y=i] - logit_i) sum_p psi'(<w_ir, x~_p>) <x~_p, f>."""
    frames = train_on(features, 3, small_pgd(0.3, "sample"))
    basis = torch.cat(features)
    for before, after in pairwise(frames):
        weights, points = before.params["weights"][0], before.attacked[0]
        slopes = smoothed_relu_derivative(torch.einsum("ird,npd->nirp", weights, points), 3, RHO)
        pull = -loss_slope(before.outputs, before.y)[0]  # 1[y=i] - logit_i
        projections = torch.einsum("nirp,npd,fd->nirf", slopes, points, basis)
        expected = RATE * torch.einsum("ni,nirf->irf", pull, projections) / len(points)
        close((after.params["weights"][0] - weights) @ basis.T, expected)


# Specifications and experiments.


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"q": 1}, ["`q`", "2", "100", "3"]),
        ({"q": 101}, ["`q`", "2", "100", "101"]),
        ({"q": 2.5}, ["q", "integer", "2.5"]),
        ({"classes": 1}, ["`classes`", "2", "1", "`outputs: difference`"]),
        ({"classes": 3, "outputs": "difference"}, ["`classes`", "2", "3", "`outputs"]),
        ({"threshold": 0.0}, ["threshold", "greater than 0", "0.0"]),
        ({"init_std": 0.0}, ["init_std", "greater than 0", "0.0"]),
        ({"q": [3, 1]}, ["`q`", "2", "100", "q=1"]),
    ],
)
def test_bad_fields_are_refused_with_a_remedy(fields: dict[str, Any], parts: list[str]):
    with pytest.raises(SpecError, match=says(*parts)):
        network(**fields)


@pytest.mark.parametrize("attacked", [False, True])
def test_an_experiment_runs_and_is_stored(tmp_path: Path, attacked: bool):
    ball = bo.Ball(radius=0.05, relative_to="signal", per="sample")
    attack = bo.PGD(ball=ball, steps=3, step=0.5) if attacked else None
    experiment = bo.Experiment(
        data=bo.SignalNoise(
            samples=[4, 8], tokens=3, dim=10, noise_std=0.3, snr=[2.0, 4.0], balanced=True
        ),
        network=PatchCNN(width=6, outputs="difference", threshold=[0.5, 1.0], init_std=0.2),
        attack=attack,
        training=bo.GradientDescent(rate=0.2, stop_loss=0.2, max_steps=1000),
        evaluation=bo.Evaluation(samples=50, attack=attack),
        seeds=2,
    )
    result = experiment.run(tmp_path / "run")
    assert result.status.dims == ("samples", "snr", "threshold", "seed")
    assert (result.status == Status.CONVERGED).all()
    assert (result.train_accuracy == 1).all()
    assert result.test_accuracy.sel(snr=4.0).mean() > 0.9
    assert ("robust_accuracy" in result) is attacked
    assert bo.open_result(tmp_path / "run").equals(result)
    assert bo.open_experiment(tmp_path / "run") == experiment


def test_every_number_of_the_network_may_be_an_axis(tmp_path: Path):
    result = bo.Experiment(
        data=small_data(),
        network=network("difference", width=[2, 4], q=[2, 3], init_std=[0.1, 1.0]),
        training=bo.GradientDescent(rate=0.1, max_steps=5),
        evaluation=bo.Evaluation(samples=20),
        seeds=1,
    ).run(tmp_path / "run")
    assert result.train_loss.dims == ("width", "q", "init_std", "seed")
    assert len(set(result.train_loss.values.flatten())) == 8
