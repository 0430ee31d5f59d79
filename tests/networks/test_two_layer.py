"""The two-layer network of Wang et al.: gradients, presets, Algorithm 1, and the paper's identities.

Numbers like B.8 are those of the paper; papers/wang.md sections 1 and 2 list them.
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
from benign.attacks.pgd import PGD
from benign.data.model import Sample
from benign.losses import logistic_slope
from benign.networks.network import Params, Pass
from benign.networks.two_layer import TwoLayer, smoothed_leaky_relu, smoothed_leaky_relu_derivative
from benign.spec.base import SpecError
from benign.streams import Streams
from benign.training.descent import Batch, Status, Step, update
from benign.training.setup import stack
from tests.reference import (
    Frame,
    attacked,
    close,
    doubles,
    film,
    normal_cdf,
    normals,
    run_ids,
    small_data,
    small_pgd,
    small_setup,
)
from tests.reference import two_layer as slow
from tests.says import says

PHI: dict[str, dict[str, Any]] = {
    "relu": {"activation": "relu"},
    "leaky": {"activation": "leaky_relu", "slope": 0.3},
    "smooth": {"activation": "smoothed_leaky_relu", "slope": 0.4, "smoothness": 1.5},
}
SLOW_PHI: dict[str, slow.Activation] = {
    "relu": slow.relu,
    "leaky": slow.leaky_relu(0.3),
    "smooth": slow.smoothed_leaky_relu(0.4, 1.5),
}
PRESETS: dict[str, dict[str, Any]] = {
    "theory": {"preset": "theory", "init_std": 0.3},
    "vanishing": {"preset": "vanishing"},
    "hybrid": {"preset": "hybrid"},
    "torch_default": {"preset": "torch_default"},
}
each_phi = pytest.mark.parametrize("phi", PHI)
each_preset = pytest.mark.parametrize("preset", PRESETS)


def network(phi: str = "relu", preset: str = "theory", **fields: Any) -> TwoLayer:
    """A network of six neurons."""
    return TwoLayer(**{"width": 6, **PHI[phi], **PRESETS[preset], **fields})


def away_from_symmetry(params: Params, size: float = 0.3) -> Params:
    """The same with rows moved at random: at the symmetric start f and its gradient in x are zero."""
    inner = params["inner"] + size * normals(*params["inner"].shape, seed=5)
    return {**params, "inner": inner}


def frobenius(left: Tensor, right: Tensor) -> Tensor:
    """The inner product of two matrices, run by run."""
    return (left * right).sum((-2, -1))


def point_gradients(net: TwoLayer, params: Params, x: Tensor) -> Tensor:
    """grad_W f(x_i) of every point, [samples, runs, width, inputs]."""
    forward_pass = net.run(params, x)
    one = torch.eye(x.shape[1], dtype=x.dtype)
    return torch.stack(
        [forward_pass.params_gradient(row.expand(len(x), -1))["inner"] for row in one]
    )


# The activation.


@settings(max_examples=30)
@given(gamma=st.floats(0.05, 1.0), smoothness=st.floats(0.1, 20.0))
def test_the_smoothed_leaky_relu_is_the_papers(gamma: float, smoothness: float):
    end = 1 / smoothness
    at = doubles(-end, 0.0, end)
    values = doubles(-(1 + 3 * gamma) / (4 * smoothness), 0.0, (3 + gamma) / (4 * smoothness))
    close(smoothed_leaky_relu(at, gamma, smoothness), values)
    slopes = doubles(gamma, (1 + gamma) / 2, 1.0)
    close(smoothed_leaky_relu_derivative(at, gamma, smoothness), slopes)
    z = torch.linspace(-3 * end, 3 * end, 41, dtype=torch.float64)
    by_cases = slow.smoothed_leaky_relu(gamma, smoothness)
    mine = smoothed_leaky_relu(z, gamma, smoothness)
    close(mine, torch.stack([by_cases(each) for each in z]))
    # The smooth class: |phi'(z) z - phi(z)| <= c1 = (1 - gamma) / (4 H).
    bend = smoothed_leaky_relu_derivative(z, gamma, smoothness) * z - mine
    assert bend.abs().max() <= (1 - gamma) / (4 * smoothness) + 1e-12


@each_phi
def test_the_derivative_of_the_activation_is_autograds(phi: str):
    net = network(phi)
    z = normals(200).mul_(2).requires_grad_()
    values = net.activate(z)
    (slopes,) = torch.autograd.grad(values.sum(), z)
    close(net.derivative(z.detach()), slopes)
    if phi != "smooth":  # the non-smooth class: phi'(z) z = phi(z)
        close(slopes * z.detach(), values.detach())


def test_a_kink_takes_the_slope_below_it():
    zero = torch.zeros(1, dtype=torch.float64)
    assert network("relu").derivative(zero).item() == 0
    assert network("leaky").derivative(zero).item() == 0.3


# Gradients.


@each_phi
@each_preset
@pytest.mark.parametrize("tokens", [1, 3])
def test_gradients_are_those_of_autograd(phi: str, preset: str, tokens: int):
    net, data = network(phi, preset), small_data(tokens=tokens)
    params = net.initial_params(data, Streams(run_ids(2)), torch.float64)
    params = away_from_symmetry(params)
    x, c = normals(2, 5, tokens, 8), normals(2, 5, seed=1)
    mine, traced = net.run(params, x), Pass(net, params, x)
    close(mine.outputs, traced.outputs)
    close(mine.inputs_gradient(c), traced.inputs_gradient(c))
    gradient = mine.params_gradient(c)
    assert set(gradient) == set(net.trained(params))
    for name, part in traced.params_gradient(c).items():
        close(gradient[name], part)


@each_phi
@each_preset
def test_outputs_are_those_of_the_reference(phi: str, preset: str):
    net = network(phi, preset)
    params = net.initial_params(small_data(), Streams(run_ids(2)), torch.float64)
    params, x = away_from_symmetry(params), normals(2, 4, 3, 8)
    for run in range(2):
        weights = slow_weights(params, run)
        expected = [slow.output(weights, point, SLOW_PHI[phi]) for point in x[run]]
        close(net.forward(params, x)[run], torch.stack(expected))


# How the presets start.


@pytest.mark.parametrize("preset", ["theory", "vanishing", "hybrid"])
@each_phi
def test_a_symmetric_start_gives_zero(phi: str, preset: str):
    """f = 0 everywhere, loss log 2, G = 1/2; a_s = +-1/sqrt(m), first the positive half."""
    net = network(phi, preset, width=8)
    setup = small_setup(network=net, max_steps=0)
    (frame,) = film(batch_of(setup, 2))
    inner, outer = net.inner_weights(frame.params), frame.params["outer"]
    assert set(frame.params) == {"inner", "outer"}
    assert torch.equal(inner[:, :4], inner[:, 4:])
    signs = doubles(1, 1, 1, 1, -1, -1, -1, -1)
    close(outer, (signs / math.sqrt(8)).expand(2, 8))
    assert frame.outputs.abs().max() <= 1e-15
    close(frame.loss, doubles(math.log(2), math.log(2)))
    close(-logistic_slope(frame.y * frame.outputs).mean(1), doubles(0.5, 0.5))


def test_initial_rows_are_gaussian_of_the_given_size():
    data, streams = small_data(tokens=4, dim=100), Streams(run_ids(2))
    stds = doubles(0.2, 3.0)
    theory = network(width=200).model_copy(update={"init_std": stds})
    drawn = (
        theory.initial_params(data, streams, torch.float64)["inner"][:, :100] / stds[:, None, None]
    )
    hybrid = network(preset="hybrid", width=200).initial_params(data, streams, torch.float64)
    close(drawn, hybrid["inner"][:, :100] * math.sqrt(3 * 400))
    # 80,000 standard normals: five standard errors of mean and of mean square, false alarm 1e-6.
    assert abs(float(drawn.mean())) < 5 / math.sqrt(80_000)
    assert abs(float(drawn.square().mean()) - 1) < 5 * math.sqrt(2 / 80_000)


def test_torch_default_is_that_of_two_linear_layers():
    """Every part uniform within +-1/sqrt(fan_in), as `nn.Linear` draws it."""
    data, runs = small_data(tokens=2, dim=50), 100
    params = network(preset="torch_default", width=16).initial_params(
        data, Streams(run_ids(runs)), torch.float64
    )
    layers = (torch.nn.Linear(100, 16), torch.nn.Linear(16, 1))
    like = {"inner": layers[0].weight, "inner_bias": layers[0].bias}
    like |= {"outer": layers[1].weight[0], "outer_bias": layers[1].bias[0]}
    assert set(params) == set(like)
    for name, part in params.items():
        assert part.shape == (runs, *like[name].shape)
        bound = 1 / math.sqrt(100 if name.startswith("inner") else 16)
        assert part.abs().max() <= bound
        # (part/bound)^2 has mean 1/3, variance 4/45: five standard errors, false alarm 1e-6.
        error = abs(float((part / bound).square().mean()) - 1 / 3)
        assert error < 5 * math.sqrt(4 / 45 / part.numel())


# Algorithm 1.


def slow_weights(params: Params, run: int) -> slow.Weights:
    """The weights of one run, with biases of zero where there are none."""
    parts = {name: part[run] for name, part in params.items()}
    zeros = torch.zeros(len(parts["outer"]), dtype=torch.float64)
    return slow.Weights(**({"inner_bias": zeros, "outer_bias": zeros[0]} | parts))


def batch_of(setup: Any, runs: int, x: Tensor | None = None, y: Tensor | None = None) -> Batch:
    """Runs of one setup, on its own training points or on these."""
    batch = Batch.start(stack([setup] * runs, "cpu"), Streams(run_ids(runs)))
    if x is None or y is None:
        return batch
    return Batch(batch.setup, batch.streams, batch.index, Sample(x, y, y), batch.params)


def film_first_step(batch: Batch) -> Frame:
    """Step 0 on clean points, and its update."""
    x = batch.sample.x
    step = Step(0, batch, x, batch.setup.network.run(batch.params, x))
    frame = Frame(step, step.status())
    with torch.no_grad():
        update(batch, step.gradient())
    return frame


def check_against_reference(frames: list[Frame], phi: str, attack: slow.Attack | None) -> None:
    """Loss, points trained on and weights of every step of every run."""
    start = frames[0]
    rates: Any = start.batch.setup.training.rate
    trained = set(start.network.trained(start.params))
    for run, (points, labels) in enumerate(zip(start.x, start.y, strict=True)):
        path = slow.train(
            slow_weights(start.params, run),
            trained,
            points,
            labels,
            SLOW_PHI[phi],
            float(rates[run]),
            len(frames) - 1,
            attack,
        )
        for number, frame in enumerate(frames):
            close(frame.loss[run], torch.tensor(path.losses[number], dtype=torch.float64))
            close(frame.attacked[run], path.attacked[number])
            for name, part in frame.params.items():
                close(part[run], getattr(path.weights[number], name))
    assert float((start.loss - frames[-1].loss).min()) > 0.05


@each_phi
@each_preset
def test_clean_training_is_that_of_the_reference(phi: str, preset: str):
    setup = small_setup(small_data(), network(phi, preset), rate=0.3, max_steps=8)
    check_against_reference(film(batch_of(setup, 2)), phi, None)


@each_phi
@each_preset
def test_adversarial_training_is_that_of_the_reference(phi: str, preset: str):
    """Wang's Algorithm 1 from the symmetric start; `torch_default` is attacked from step 0 on."""
    attack = small_pgd(radius=0.4, per="sample", step=0.3)
    first = 0 if preset == "torch_default" else 1
    setup = small_setup(
        small_data(tokens=2),
        network(phi, preset),
        attack,
        rate=0.3,
        max_steps=6,
        first_attacked_step=first,
    )
    reference = slow.Attack(radius=0.4, steps=4, step=0.12, first=first)
    check_against_reference(film(batch_of(setup, 2)), phi, reference)


@pytest.fixture(params=PHI)
def frames(request) -> list[Frame]:
    """Algorithm 1 of the theory preset on Gaussian clusters of one token; two runs, ten steps."""
    return trained_on_clusters(network(request.param))


def trained_on_clusters(net: TwoLayer) -> list[Frame]:
    data = small_data(tokens=1, dim=12)
    setup = small_setup(
        data, net, small_pgd(0.3, "sample"), rate=0.4, max_steps=10, first_attacked_step=1
    )
    y = doubles(1, -1, -1, 1, 1).expand(2, 5)
    x = normals(2, 5, 1, 12, seed=3)
    x[..., 0] += 1.5 * y[:, :, None]
    return film(batch_of(setup, 2, x, y))


def moved(frame: Frame) -> tuple[Tensor, Tensor]:
    """g~ and y of a step: -l'(y f) on the points trained on."""
    return -logistic_slope(frame.y * frame.outputs), frame.y


# Identities of section 2.


def test_b8_the_tangent_kernel(frames: list[Frame]):
    """<grad f(x), grad f(x')> = <x, x'> (1/m) sum_s phi'(<w_s, x>) phi'(<w_s, x'>)."""
    frame = frames[-1]
    net, x = frame.network, normals(2, 6, 1, 12, seed=8)
    gradients = point_gradients(net, frame.params, x).flatten(2)
    kernel = torch.einsum("irk,jrk->rij", gradients, gradients)
    points = x.flatten(2)
    slopes = net.derivative(points @ frame.params["inner"].mT)
    inner_products = points @ points.mT
    close(kernel, inner_products * (slopes @ slopes.mT) / net.width)
    lengths = gradients.norm(dim=2).T
    assert (lengths <= points.norm(dim=2) * (1 + 1e-12)).all()


def test_the_increment_identity(frames: list[Frame]):
    """y f(x; W(t+1)) - y f(x; W(t)) = (eta/n) sum_i g~_i lambda_i(x) <y_i x~_i, y x>, any x and y."""
    net, x = frames[0].network, normals(2, 7, 1, 12, seed=9)
    label = doubles(1, -1, 1, 1, -1, 1, -1)
    points = x.flatten(2)
    for before, after in pairwise(frames):
        g, y = moved(before)
        old, new = (points @ frame.params["inner"].mT for frame in (before, after))
        ratio = (net.activate(new) - net.activate(old)) / (new - old)
        ratio = ratio.nan_to_num()  # a neuron that no point activates does not move: 0 / 0
        attacked = before.attacked.flatten(2)
        slopes = net.derivative(attacked @ before.params["inner"].mT)
        weights = ratio @ slopes.mT / net.width  # lambda_i(x), [runs, x, i]
        products = (label[:, None] * points) @ (y[:, :, None] * attacked).mT
        predicted = (0.4 / 5) * (weights * products * g[:, None, :]).sum(2)
        risen = net.forward(after.params, x) - net.forward(before.params, x)
        close(label * risen, predicted)


def test_eq_15_the_inner_product_with_a_fixed_direction(frames: list[Frame]):
    """<W(t), V> = <W(0), V> - eta sum_{s < t} <grad L(W(s)), V>, V with rows a_s mu/(r sqrt(m)).

    The gradients are autograd's; also <-grad, V> is at most |grad|, as |V| = 1.
    """
    net = frames[0].network
    mu = torch.eye(12, dtype=torch.float64)[0]
    direction = frames[0].params["outer"][:, :, None] * mu
    close(direction.flatten(1).norm(dim=1), doubles(1, 1))
    start = total = frobenius(frames[0].params["inner"], direction)
    for before, after in pairwise(frames):
        g, y = moved(before)
        gradient = Pass(net, before.params, before.attacked).params_gradient(-g * y / 5)["inner"]
        along = frobenius(gradient, direction)
        assert (-along <= gradient.flatten(1).norm(dim=1)).all()
        total = total - 0.4 * along
        close(frobenius(after.params["inner"], direction), total)
    assert (total - start > 0.1).all()


def test_b7_the_gradient_is_bounded_by_the_slopes(frames: list[Frame]):
    """|grad L|_F <= max_i |x~_i| G and G <= min(L, 1), at every step."""
    for frame in frames:
        g, y = moved(frame)
        gradient = frame.network.run(frame.params, frame.attacked).params_gradient(-g * y / 5)
        longest = frame.attacked.flatten(2).norm(dim=2).amax(1)
        assert (gradient["inner"].flatten(1).norm(dim=1) <= longest * g.mean(1)).all()
        assert (g.mean(1) <= frame.loss.clamp_max(1)).all()


@each_phi
def test_f_is_lipschitz_and_b6_bounds_its_curvature(phi: str):
    """|f(x) - f(x')| <= |W|_2 |x - x'|; B.6: the remainder of first order is at most
    H' |x|^2 |W - V|_2^2 / (2 sqrt(m)), with the activation's true constant H' = (1-gamma)H/2.
    """
    net, x = network(phi, width=20), normals(30, 1, 2, 9)
    outer = net.initial_params(small_data(tokens=1), Streams(run_ids(30)), torch.float64)["outer"]
    here, there = ({"inner": normals(30, 20, 18, seed=s), "outer": outer} for s in (1, 2))
    other = x + 0.5 * normals(30, 1, 2, 9, seed=3)
    spectral = torch.linalg.matrix_norm(here["inner"], ord=2)
    apart = (net.forward(here, x) - net.forward(here, other))[:, 0].abs()
    assert (apart <= spectral * (x - other).flatten(1).norm(dim=1)).all()
    if phi == "smooth":
        step = there["inner"] - here["inner"]
        slope = net.run(here, x).params_gradient(torch.ones(30, 1, dtype=x.dtype))["inner"]
        rest = (net.forward(there, x) - net.forward(here, x))[:, 0] - frobenius(slope, step)
        bend = (1 - 0.4) * 1.5 / 2
        size = x.flatten(1).square().sum(1) * torch.linalg.matrix_norm(step, ord=2).square()
        assert (rest.abs() <= bend * size / (2 * math.sqrt(20))).all()


@pytest.mark.parametrize("phi", ["relu", "leaky"])
def test_scaling_the_inputs_is_scaling_weights_and_rate(phi: str):
    """Points k x in a ball k alpha, from W0 with rate eta, are x and alpha from k W0 with k^2 eta."""
    k, data = 1.7, small_data()
    x, y = normals(2, 4, 3, 8), doubles(1, -1, 1, -1).expand(2, 4)

    def losses(points: Tensor, radius: float, init_std: float, rate: float) -> Tensor:
        net = network(phi, init_std=init_std)
        setup = small_setup(
            data, net, small_pgd(radius, "sample"), rate=rate, max_steps=11, first_attacked_step=1
        )
        return torch.stack([f.loss for f in film(batch_of(setup, 2, points, y))])

    close(losses(k * x, 0.2 * k, 0.1, 0.05), losses(x, 0.2, 0.1 * k, 0.05 * k**2))


@each_phi
def test_training_does_not_depend_on_the_coordinates(phi: str):
    """Points and first weights in an orthonormal basis of their span train alike (section 6)."""
    net, y = network(phi), doubles(1, -1, 1, -1, 1).expand(1, 5)
    wide, x = small_data(tokens=1, dim=40), normals(1, 5, 1, 40)
    x[..., 0] += y[:, :, None]
    setup = small_setup(wide, net, small_pgd(0.3, "sample"), rate=0.3, first_attacked_step=1)
    batch = batch_of(setup, 1, x, y)
    rows = torch.cat([x[0, :, 0], batch.params["inner"][0, :3]])
    basis = torch.linalg.qr(rows.T).Q  # 40 x 8
    small = small_setup(
        small_data(tokens=1, dim=8), net, setup.attack, rate=0.3, first_attacked_step=1
    )
    reduced = batch_of(small, 1, x @ basis, y)
    reduced.params["inner"].copy_(batch.params["inner"] @ basis)
    for full, few in zip(film(batch), film(reduced), strict=True):
        close(few.loss, full.loss)
        close(few.params["inner"] @ basis.T, full.params["inner"])
        close(few.attacked @ basis.T, full.attacked)


def test_2_5_one_step_is_the_averaged_classifier():
    """After one step from zero, risks are those of u = sum_i y_i x_i, given the training points.

    With s = <u, mu>/|u|: clean beta + (1 - 2 beta) Phi(-s), robust (1 - beta) Phi(alpha - s) +
    beta Phi(alpha + s). Within four standard errors: false alarm 6e-5 each.
    """
    dim, n, r, alpha, beta, count = 200, 30, 2.0, 0.4, 0.1, 20_000
    net = network("smooth", init_std=0.0, smoothness=0.2, width=4)
    data = small_data(samples=n, tokens=1, dim=dim)
    setup = small_setup(data, net, rate=0.1)
    labels = normals(1, n, seed=1).sign()
    x = normals(1, n, 1, dim, seed=2)
    x[..., 0] += r * labels[:, :, None]
    y = torch.where(torch.arange(n) < beta * n, -labels, labels)
    batch = batch_of(setup, 1, x, y)
    film_first_step(batch)
    u = (y[:, :, None] * x[:, :, 0]).sum(1)[0]
    close(
        batch.params["inner"][0],
        batch.params["outer"][0, :, None] * u * (0.1 / n / 2 * (1 + 0.4) / 2),
    )

    clean = normals(1, count, seed=3).sign()
    fresh = normals(1, count, 1, dim, seed=4)
    fresh[..., 0] += r * clean[:, :, None]
    noisy = torch.where(torch.arange(count) < beta * count, -clean, clean)
    attack = PGD(ball=bo.Ball(radius=alpha, per="sample"), steps=6, step=0.5)
    points = attacked(attack, net, batch.params, data, fresh, noisy)
    s = float(r * u[0] / u.norm())
    expected = {
        "clean": beta + (1 - 2 * beta) * normal_cdf(-s),
        "robust": (1 - beta) * normal_cdf(alpha - s) + beta * normal_cdf(alpha + s),
    }
    for name, tested in {"clean": fresh, "robust": points}.items():
        errors = (noisy * net.forward(batch.params, tested) <= 0).double().mean().item()
        risk = expected[name]
        assert abs(errors - risk) <= 4 * math.sqrt(risk * (1 - risk) / count), name


# Bad input.


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"width": 5}, ["`width`", "even", "`preset: theory`", "5", "6"]),
        ({"width": [4, 7]}, ["`width`", "8", "width=7"]),
        ({"init_std": None}, ["`init_std`", "`preset: theory`", "None"]),
        ({"preset": "hybrid"}, ["`init_std`", "`preset: theory`", "0.1", " out"]),
        ({"init_std": -1.0}, ["init_std", "greater than or equal to 0", "-1.0"]),
        ({"activation": "tanh"}, ["activation", "'relu'", "'leaky_relu'", "'tanh'"]),
        ({"preset": "paper"}, ["preset", "'theory'", "'hybrid'", "'paper'"]),
        ({"activation": "leaky_relu"}, ["`slope`", "`activation: leaky_relu`"]),
        ({"slope": 0.5}, ["`slope`", "`activation: relu`", "0.5", " out"]),
        ({**PHI["leaky"], "slope": 1.2}, ["`slope`", "1", "1.2"]),
        ({**PHI["leaky"], "slope": -0.2}, ["slope", "greater than or equal to 0", "-0.2"]),
        ({**PHI["smooth"], "slope": 0.0}, ["`slope`", "0", "0.0"]),
        ({**PHI["smooth"], "smoothness": None}, ["`smoothness`", "None"]),
        ({**PHI["leaky"], "smoothness": 2.0}, ["`smoothness`", "leaky_relu`", "2.0"]),
        ({**PHI["smooth"], "smoothness": 0.0}, ["smoothness", "greater than 0", "0.0"]),
    ],
)
def test_bad_input_is_refused_in_one_line(fields: dict[str, Any], parts: list[str]):
    with pytest.raises(SpecError, match=says(*parts)) as refused:
        TwoLayer(**{"width": 4, "init_std": 0.1, **fields})
    assert "\n" not in str(refused.value)


# End to end.


@pytest.mark.parametrize("attacked", [False, True])
def test_an_experiment_runs_and_is_stored(tmp_path: Path, attacked: bool):
    attack = PGD(ball=bo.Ball(radius=0.05, relative_to="signal", per="sample"), steps=3, step=0.5)
    experiment = bo.Experiment(
        data=bo.SignalNoise(
            samples=[4, 8], tokens=3, dim=10, noise_std=0.3, snr=[2.0, 4.0], balanced=True
        ),
        network=[
            TwoLayer(width=8, preset="torch_default"),
            TwoLayer(width=6, init_std=0.1, **PHI["smooth"]),
        ],
        attack=attack if attacked else None,
        training=bo.GradientDescent(rate=0.3, stop_loss=0.1, max_steps=400),
        evaluation=bo.Evaluation(samples=50, attack=attack if attacked else None),
        seeds=2,
    )
    result = experiment.run(tmp_path / "run")
    assert result.status.dims == ("samples", "snr", "network", "seed")
    assert (result.status == Status.CONVERGED).all()
    assert (result.train_accuracy == 1).all()
    assert (result.test_accuracy.sel(snr=4.0) > 0.9).all()
    assert ("robust_accuracy" in result) is attacked
    assert bo.open_result(tmp_path / "run").equals(result)


def test_width_and_size_of_the_start_may_be_axes(tmp_path: Path):
    result = bo.Experiment(
        data=small_data(),
        network=network(init_std=[0.01, 1.0], width=[4, 8]),
        training=bo.GradientDescent(rate=0.1, max_steps=5),
        evaluation=bo.Evaluation(samples=20),
        seeds=1,
    ).run(tmp_path / "run")
    assert result.train_loss.dims == ("width", "init_std", "seed")
    assert len(set(result.train_loss.values.flatten())) == 4
