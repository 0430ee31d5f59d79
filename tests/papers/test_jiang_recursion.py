"""Training predicted from inner products of tokens, against the trained network (papers/jiang.md 2.3, 7.1)."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from benign.papers.jiang.recursion import State, Tokens, predict, start
from benign.spec.axes import replace
from benign.training.descent import Batch
from benign.training.optimisers import SGD
from tests.reference import Frame, film, small_data, small_network, small_pgd, small_setup
from tests.reference import close as near
from tests.reference import start as fresh
from tests.says import says

STEPS = 50
# P = 2 + 4 * 2 = 10 distinct tokens of 12.
WIDTHS = {"narrow": 5, "wide": 25}


def close(actual: Tensor, expected: Tensor) -> None:
    near(actual, expected, 1e-10)


def setups(hidden: int = 5, **data: Any):
    """Two runs with their own signal and rate, trained so fast that the scores move."""
    network = small_network(hidden=hidden, score_std=0.25)
    return [
        small_setup(small_data(signal=signal, **data), network, rate=rate, max_steps=STEPS)
        for signal, rate in ((2.0, 0.4), (3.0, 0.3))
    ]


def trained(cells, make=start) -> tuple[list[Frame], list[State]]:
    """The steps of training, and those predicted from its start."""
    states = predict(make(fresh(cells)), STEPS)
    return film(fresh(cells)), list(states)


def all_tokens(batch: Batch) -> State:
    """The start with a row of T for every token, repeated or not."""
    state, params = start(batch), batch.params
    network: Any = batch.setup.network
    norm = params["output"].norm(dim=1)
    weights = network.queries(params), network.keys(params), network.values(params)[:, :, 0]
    return State.start(Tokens.all(batch.sample.x), batch.sample.y, *weights, norm, state.rate)


# Losses, scores, values, attention.


@pytest.mark.parametrize("hidden", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize(
    "data",
    [{"projected": True, "strong_noise_std": 1.0}, {"flip": 0.4, "directions": "random"}],
    ids=["projected", "unprojected and flipped"],
)
@pytest.mark.parametrize("make", [start, all_tokens], ids=["distinct", "all"])
def test_the_recursion_is_the_training(hidden: int, data: dict[str, Any], make):
    frames, states = trained(setups(hidden, **data), make)
    assert len(frames) == len(states) == STEPS + 1
    sample = frames[0].batch.sample
    assert (sample.y != sample.clean_y).any() == ("flip" in data)
    for frame, state in zip(frames, states, strict=True):
        seen: Any = frame.network.run(frame.params, frame.x)
        assert state.number == frame.number
        close(state.loss, frame.loss)
        close(state.outputs, frame.outputs)
        close(state.scores, seen.scores[:, :, 0])
        close(state.token_values, seen.values[:, :, 0])
        close(state.attention, seen.attention[:, :, 0])
    moved = (states[-1].scores - states[0].scores).abs().amax((1, 2, 3))
    assert (moved > 1).all(), "attention must have been learned"
    assert (states[-1].loss < 0.5 * states[0].loss).all()


def test_products_and_coefficients_are_those_of_the_weights():
    """H = Z Z^T, Q+ = Q + alpha K and K+ = K + beta Q, on noise with components along the signals."""
    frames, states = trained(setups())
    vectors = Tokens.distinct(frames[0].batch.sample).vectors
    both = [
        (vectors @ frame.network.queries(frame.params), vectors @ frame.network.keys(frame.params))
        for frame in frames
    ]
    for state, (now, later) in zip(states, pairwise(both)):  # noqa: B905  # pairs are one fewer
        (q, k), (next_q, next_k) = now, later
        z = torch.cat(now, 1)
        close(state.products, z @ z.transpose(1, 2))
        close(state.alpha @ k, next_q - q)
        close(state.beta @ q, next_k - k)


# The coefficients of the paper, for projected noise.


@pytest.fixture(scope="module")
def late() -> tuple[Frame, State]:
    """A step in the middle of training on projected noise."""
    frames, states = trained(setups(projected=True, samples=6))
    return frames[20], states[20]


def written_out(frame: Frame, run: int) -> dict[tuple, tuple[float, float]]:
    """alpha and beta of papers/jiang.md 2.3, sum by sum; tokens are named "+", "-" and (n, i)."""
    params, network = frame.params, frame.network
    x, y = frame.x[run], frame.y[run]
    samples, tokens, _ = x.shape
    wq, wk = network.queries(params)[run], network.keys(params)[run]
    v = network.values(params)[run, :, 0]
    rate = float(torch.as_tensor(frame.batch.setup.training.rate)[run])
    a, kappa = [], []
    for n in range(samples):
        attention = torch.softmax(x[n] @ wq @ wk.T @ x[n].T, 1)
        z = x[n] @ v
        a.append(attention * (z - (attention @ z)[:, None]))
        kappa.append(
            rate / (samples * tokens) * y[n] / (1 + torch.exp(y[n] * (attention @ z).mean()))
        )
    mu2 = x[0, 0] @ x[0, 0]
    noise = range(1, tokens)
    sign = {n: "+" if y[n] > 0 else "-" for n in range(samples)}
    found = {}
    for s in "+-":
        own = [n for n in range(samples) if sign[n] == s]
        both = mu2 * sum(kappa[n] * a[n][0, 0] for n in own)
        found[s, s] = both, both
        for n in own:
            for i in noise:
                found[s, (n, i)] = mu2 * kappa[n] * a[n][0, i], mu2 * kappa[n] * a[n][i, 0]
        for m in range(samples):
            for i in noise:
                pairs = [(n, j, x[m, i] @ x[n, j]) for n in own for j in noise]
                found[(m, i), s] = (
                    sum(kappa[n] * product * a[n][j, 0] for n, j, product in pairs),
                    sum(kappa[n] * product * a[n][0, j] for n, j, product in pairs),
                )
    for m in range(samples):
        for n in range(samples):
            for i in noise:
                for l in noise:  # noqa: E741
                    products = [(j, x[m, i] @ x[n, j]) for j in noise]
                    found[(m, i), (n, l)] = (
                        kappa[n] * sum(product * a[n][j, l] for j, product in products),
                        kappa[n] * sum(product * a[n][l, j] for j, product in products),
                    )
    return {pair: (float(alpha), float(beta)) for pair, (alpha, beta) in found.items()}


def row(name, tokens: int) -> int:
    """Where a token stands in T."""
    if isinstance(name, str):
        return "+-".index(name)
    n, i = name
    return 2 + n * (tokens - 1) + i - 1


@pytest.mark.parametrize("run", [0, 1])
def test_alpha_and_beta_are_the_papers(late: tuple[Frame, State], run: int):
    """2.3 (B.3, F.1); a pair that it does not name has a coefficient of zero."""
    frame, state = late
    alpha, beta = torch.zeros_like(state.alpha[run]), torch.zeros_like(state.beta[run])
    for (to, of), (one, other) in written_out(frame, run).items():
        place = row(to, frame.x.shape[2]), row(of, frame.x.shape[2])
        alpha[place], beta[place] = one, other
    close(state.alpha[run], alpha)
    close(state.beta[run], beta)


def test_sum_rules(late: tuple[Frame, State]):
    """F.12 and its like for noise rows: the coefficients on the tokens of one class add up to zero."""
    frame, state = late
    tokens = frame.x.shape[2]
    noise_class = (frame.y < 0).long()[:, :, None].expand(-1, -1, tokens - 1).flatten(1)
    classes = torch.cat([torch.arange(2).expand(len(frame.x), 2), noise_class], 1)
    for alpha, kind in zip(state.alpha, classes, strict=True):
        for s in (0, 1):
            sums = alpha[:, kind == s].sum(1)
            assert (sums.abs() <= 1e-12 * alpha.abs().max()).all()
    close(state.alpha[:, [0, 1], [0, 1]], state.beta[:, [0, 1], [0, 1]])


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"network": small_network(heads=2)}, ["`network.heads`", "1", "2"]),
        ({"network": small_network(attend="uniform")}, ["`network.attend`", "learned", "uniform"]),
        ({"network": small_network(train="values")}, ["`network.train`", "all", "values"]),
        ({"attack": small_pgd()}, ["`attack`", "None", "pgd"]),
        ({"drop_every": 5}, ["`training.drop_every`", "0", "5"]),
    ],
)
def test_what_the_recursion_does_not_cover_is_refused(change: dict[str, Any], parts: list[str]):
    with pytest.raises(ValueError, match=says(*parts)):
        start(fresh([small_setup(**change)]))


def test_the_recursion_of_another_training_method_is_refused():
    cell = replace(small_setup(), {("training",): SGD(rate=0.5, epochs=2, schedule="constant")})
    with pytest.raises(ValueError, match=says("`training`", "plain gradient descent", "sgd")):
        start(fresh([cell]))
