"""Exact identities of the network and of gradient descent on it.

The sources are papers/zhang.md 1.5 and 2.3, and papers/jiang.md 2.3. Attention, values and
coefficients are formed here from the weights, not by the engine's pass.
"""

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from benign.streams import RunId
from tests.reference import (
    Frame,
    attacked,
    by_head,
    close,
    film,
    normals,
    run_ids,
    small_data,
    small_network,
    small_pgd,
    small_setup,
    start,
)


@dataclass
class Parts:
    """What the formulas of papers/zhang.md 2 are made of, at one step, on the points trained on."""

    query: Tensor  # W_Q [runs, heads, dim, hidden]
    key: Tensor
    u: Tensor  # [runs, heads, dim]
    points: Tensor  # [runs, samples, tokens, dim]
    attention: Tensor  # A [runs, samples, heads, tokens, tokens]
    values: Tensor  # z [runs, samples, heads, tokens]
    f: Tensor  # [runs, samples]
    slope: Tensor  # l'(y f) [runs, samples]
    c: Tensor  # (eta / N M) y sigma(-y f) [runs, samples]
    G: Tensor  # A_lj (z_j - (A z)_l) [runs, samples, heads, tokens, tokens]
    s: Tensor  # column sums of A [runs, samples, heads, tokens]


def parts(frame: Frame) -> Parts:
    network, params, points = frame.network, frame.params, frame.attacked
    query = by_head(network, network.queries(params))
    key = by_head(network, network.keys(params))
    u = network.values(params).transpose(1, 2)
    scores = torch.einsum("rnld,rhde,rhce,rnjc->rnhlj", points, query, key, points)
    weights = torch.exp(scores)
    attention = weights / weights.sum(-1, keepdim=True)
    values = torch.einsum("rnjd,rhd->rnhj", points, u)
    rows = torch.einsum("rnhlj,rnhj->rnhl", attention, values)
    f = rows.mean(-1).sum(-1)
    slope = -1 / (1 + torch.exp(frame.y * f))
    rate = torch.as_tensor(frame.batch.setup.training.rate)[:, None]
    c = -rate * frame.y * slope / (points.shape[1] * points.shape[2])
    G = attention * (values[..., None, :] - rows[..., None])
    return Parts(query, key, u, points, attention, values, f, slope, c, G, attention.sum(-2))


def steps(*cells, ids=None) -> list[Frame]:
    frames = film(start(cells, ids))
    assert len(frames) > 2, "a trajectory of at least two steps"
    return frames


@pytest.mark.parametrize("attack", [None, small_pgd()], ids=["clean", "attacked"])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_order_of_tokens_does_not_matter(heads, attack):
    """papers/zhang.md S1."""
    batch = start([small_setup(network=small_network(heads=heads), attack=attack)])
    network, params, x, y = batch.setup.network, batch.params, batch.sample.x, batch.sample.y
    order = [2, 0, 1]
    plain, mixed = network.run(params, x), network.run(params, x[:, :, order])
    close(mixed.outputs, plain.outputs)
    close(mixed.params_gradient(y)["weights"], plain.params_gradient(y)["weights"])
    close(mixed.inputs_gradient(y), plain.inputs_gradient(y)[:, :, order])
    if attack:
        moved = attacked(attack, network, params, batch.setup.data, x, y)
        moved_mixed = attacked(attack, network, params, batch.setup.data, x[:, :, order], y)
        close(moved_mixed, moved[:, :, order])


@pytest.mark.parametrize("per", ["token", "sample"])
@pytest.mark.parametrize("units", ["length", "signal"])
def test_scale_symmetry_over_an_adversarial_trajectory(per, units):
    """papers/zhang.md S3: (X, tau, eta, W) -> (c X, c tau, eta / c^2, W / c) changes nothing."""
    scales = [1.0, 3.7, 0.02]
    cells = [
        small_setup(
            data=small_data(signal=2 * c, noise_std=0.5 * c, strong_noise_std=0.8 * c),
            network=small_network(0.4 / c, 0.4 / c, heads=2),
            attack=small_pgd(*((0.4 * c, per) if units == "length" else (0.2, per, "signal"))),
            rate=0.5 / c**2,
        )
        for c in scales
    ]
    frames = steps(*cells, ids=[RunId(1, 0, "")] * 3)
    size = torch.tensor(scales, dtype=torch.float64)[:, None, None, None]
    assert float(frames[0].loss[0] - frames[-1].loss[0]) > 0.1
    for frame in frames:
        here = parts(frame)
        for run in (1, 2):
            close(frame.loss[run], frame.loss[0])
            close(frame.outputs[run], frame.outputs[0])
            close(here.attention[run], here.attention[0])
            close((frame.attacked / size)[run], frame.attacked[0])


@pytest.mark.parametrize("attack", [None, small_pgd()], ids=["clean", "attacked"])
def test_balancedness_changes_at_second_order_only(attack):
    """papers/zhang.md S4: W_Q^T W_Q - W_K^T W_K changes by eta^2 (g_Q^T g_Q - g_K^T g_K)."""
    frames = steps(small_setup(network=small_network(heads=2), attack=attack, rate=1.0))

    def gram(matrix: Tensor) -> Tensor:
        return matrix.transpose(-1, -2) @ matrix

    for now, after in pairwise(frames):
        a, b = parts(now), parts(after)
        step_q, step_k = b.query - a.query, b.key - a.key
        change = gram(b.query) - gram(b.key) - gram(a.query) + gram(a.key)
        close(change, gram(step_q) - gram(step_k), 1e-8)  # differences of numbers 100 times larger
        close(
            gram(b.query) - gram(b.key), gram(a.query) - gram(a.key) + gram(step_q) - gram(step_k)
        )


def linear_steps(attack=None, tokens=3) -> list[Frame]:
    """papers/zhang.md S5: two runs without scores."""
    network = small_network(score_std=0.0, value_std=0.5, heads=2)
    cells = [
        small_setup(small_data(tokens=tokens, signal=signal), network, attack, rate=rate)
        for signal, rate in ((2.0, 0.5), (1.0, 2.0))
    ]
    return steps(*cells)


@pytest.mark.parametrize("attack", [None, small_pgd()], ids=["clean", "attacked"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_without_scores_attention_stays_exactly_uniform(attack, tokens):
    for frame in linear_steps(attack, tokens):
        assert not frame.network.queries(frame.params).any()
        assert not frame.network.keys(frame.params).any()
        attention = frame.network.run(frame.params, frame.attacked).attention
        assert torch.equal(attention, torch.full_like(attention, 1 / tokens))
        u = frame.network.values(frame.params).sum(2)
        close(frame.outputs, torch.einsum("rnd,rd->rn", frame.attacked.mean(2), u))


@pytest.mark.parametrize("loss", ["margin", "cross_entropy"])
@pytest.mark.parametrize("per", ["token", "sample"])
def test_without_scores_pgd_reaches_the_closed_form_worst_case(loss, per):
    """The least y f is y <xbar, u> - tau |u|; with one ball a point, - tau |u| / sqrt(M)."""
    attack = small_pgd(0.7, per, loss=loss, steps=6, step=0.2)
    for frame in linear_steps(attack):
        u = frame.network.values(frame.params).sum(2)
        reach = 0.7 * u.norm(dim=1, keepdim=True) / (1 if per == "token" else 3**0.5)
        clean = torch.einsum("rnd,rd->rn", frame.x.mean(2), u)
        close(frame.y * frame.outputs, frame.y * clean - reach)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("radius", [0.0, 0.5])
def test_updates_along_any_fixed_direction(radius, heads):
    """papers/zhang.md 2.3, for directions that have nothing to do with the data."""
    cell = small_setup(network=small_network(heads=heads), attack=small_pgd(radius), rate=0.7)
    frames = steps(cell, small_setup(cell.data, cell.network, small_pgd(2 * radius), rate=0.3))
    x, z = normals(6, 8, seed=1), normals(6, 8, seed=2)
    output = frames[0].params["output"].square().sum(1)[:, None, None]
    for now, after in pairwise(frames):
        a, b = parts(now), parts(after)
        overlap = torch.einsum("xd,rnjd->xrnj", x, a.points)

        values = torch.einsum("rn,rnhj,xrnj->rhx", a.c, a.s, overlap) * output
        close((b.u - a.u) @ x.T, values)

        keys = torch.einsum("rnjd,rhde->rnhje", a.points, a.key)
        alpha = torch.einsum("rn,xrnl,rnhlj->xrnhj", a.c, overlap, a.G)
        step_q = torch.einsum("xrnhj,rnhje->xrhe", alpha, keys)
        q, q_after = (torch.einsum("xd,rhde->xrhe", x, p.query) for p in (a, b))
        close(q_after - q, step_q)

        queries = torch.einsum("rnld,rhde->rnhle", a.points, a.query)
        overlap_z = torch.einsum("xd,rnjd->xrnj", z, a.points)
        beta = torch.einsum("rn,xrnj,rnhlj->xrnhl", a.c, overlap_z, a.G)
        step_k = torch.einsum("xrnhl,rnhle->xrhe", beta, queries)
        k, k_after = (torch.einsum("xd,rhde->xrhe", z, p.key) for p in (a, b))
        close(k_after - k, step_k)

        inner = (step_q * k + q * step_k + step_q * step_k).sum(-1)
        close((q_after * k_after).sum(-1) - (q * k).sum(-1), inner)
        norm = (2 * step_q * q + step_q.square()).sum(-1)
        close(q_after.square().sum(-1) - q.square().sum(-1), norm)


class Coordinates:
    """A clean run with a strong noise token and noise off both signals (papers/jiang.md 2.3)."""

    samples, tokens, rate = 6, 4, 0.4

    def __init__(self):
        data = small_data(
            samples=self.samples,
            tokens=self.tokens,
            dim=12,
            strong_noise_std=1.0,
            projected=True,
            balanced=True,
            directions="random",
        )
        frames = steps(small_setup(data, small_network(hidden=7), rate=self.rate))
        every = [parts(frame) for frame in frames]
        self.pairs = list(pairwise(every))
        self.x, self.y = frames[0].x[0], frames[0].y[0]
        self.output = float(frames[0].params["output"].square().sum())
        signal = frames[0].batch.sample.latent["signal"][0]
        self.T = torch.cat([signal, self.x[:, 1:].flatten(0, 1)])
        """the distinct tokens: mu_+, mu_-, then every noise token of every point"""
        self.size = float(signal[0] @ signal[0])

    def place(self, n: int, token: int) -> int:
        """Row of T that holds a token of a point; token 0 is the signal of its class."""
        if token == 0:
            return 0 if self.y[n] > 0 else 1
        return 2 + n * (self.tokens - 1) + token - 1

    def selection(self, n: int) -> Tensor:
        """E_n: X_n = E_n T."""
        E = torch.zeros(self.tokens, len(self.T), dtype=torch.float64)
        for token in range(self.tokens):
            E[token, self.place(n, token)] = 1
        return E

    def coefficients(self, here: Parts) -> tuple[Tensor, Tensor, Tensor]:
        """alpha = -eta Gamma B, beta = -eta Gamma B^T, and Gamma c."""
        gamma, size = self.T @ self.T.T, len(self.T)
        B, c = torch.zeros(size, size).double(), torch.zeros(size).double()
        for n in range(self.samples):
            E, weight = self.selection(n), self.y[n] * here.slope[0, n] / self.samples / self.tokens
            B += weight * E.T @ here.G[0, n, 0] @ E
            c += weight * E.T @ here.s[0, n, 0]
        return -self.rate * gamma @ B, -self.rate * gamma @ B.T, gamma @ c


@pytest.fixture(scope="module")
def jiang() -> Coordinates:
    return Coordinates()


def test_tokens_are_those_of_the_points(jiang):
    for n in range(jiang.samples):
        close(jiang.selection(n) @ jiang.T, jiang.x[n])
    assert float((jiang.T[:2] @ jiang.T[2:].T).abs().max()) < 1e-13
    assert set(jiang.y.tolist()) == {1.0, -1.0}


def test_signals_and_noise_are_learnt_by_the_sums_of_attention(jiang):
    """(B.2): gamma and rho, the coordinates of u in units of |w_O|^2."""
    share = jiang.rate / (jiang.samples * jiang.tokens)
    noise = jiang.x[:, 1:]
    overlap = torch.einsum("nid,mjd->nimj", noise, noise)
    for now, after in jiang.pairs:
        moved = jiang.T @ (after.u - now.u)[0, 0] / jiang.output
        slope, s = now.slope[0], now.s[0, :, 0]
        gamma_plus = -share * jiang.size * (slope * s[:, 0])[jiang.y > 0].sum()
        gamma_minus = share * jiang.size * (slope * s[:, 0])[jiang.y < 0].sum()
        close(moved[:2], torch.stack([gamma_plus, gamma_minus]))
        assert gamma_plus > 0 > gamma_minus
        rho = -share * torch.einsum("m,nimj,mj->ni", jiang.y * slope, overlap, s[:, 1:])
        close(moved[2:], rho.flatten())


def test_matrix_form(jiang):
    T = jiang.T
    for now, after in jiang.pairs:
        alpha, beta, pull = jiang.coefficients(now)
        Q, K, u = T @ now.query[0, 0], T @ now.key[0, 0], T @ now.u[0, 0]
        close(T @ after.query[0, 0] - Q, alpha @ K)
        close(T @ after.key[0, 0] - K, beta @ Q)
        close(T @ after.u[0, 0] - u, -jiang.rate * jiang.output * pull)


def test_recursion_of_inner_products(jiang):
    """(B.3, F.2): S = Q K^T, H_QQ = Q Q^T and H_KK = K K^T, followed without the weights."""
    first = jiang.pairs[0][0]
    Q, K = jiang.T @ first.query[0, 0], jiang.T @ first.key[0, 0]
    S, QQ, KK = Q @ K.T, Q @ Q.T, K @ K.T
    for now, after in jiang.pairs:
        a, b, _ = jiang.coefficients(now)
        S, QQ, KK = (
            S + a @ KK + QQ @ b.T + a @ S.T @ b.T,
            QQ + a @ S.T + S @ a.T + a @ KK @ a.T,
            KK + b @ S + S.T @ b.T + b @ QQ @ b.T,
        )
        Q, K = jiang.T @ after.query[0, 0], jiang.T @ after.key[0, 0]
        for followed, direct in ((S, Q @ K.T), (QQ, Q @ Q.T), (KK, K @ K.T)):
            close(followed, direct)


def test_coefficients_one_by_one(jiang):
    """(B.3/F.1): every alpha and beta as the paper writes it, and zero where the paper has none."""
    T, noise = jiang.T, range(1, jiang.tokens)
    for now, _ in jiang.pairs:
        kappa, a = now.c[0], now.G[0, :, 0]
        alpha, beta = torch.zeros(2, len(T), len(T)).double()
        for n in range(jiang.samples):
            s = jiang.place(n, 0)
            alpha[s, s] += jiang.size * kappa[n] * a[n, 0, 0]
            beta[s, s] += jiang.size * kappa[n] * a[n, 0, 0]
            for i in noise:
                alpha[s, jiang.place(n, i)] = jiang.size * kappa[n] * a[n, 0, i]
                beta[s, jiang.place(n, i)] = jiang.size * kappa[n] * a[n, i, 0]
            for row in range(2, len(T)):
                overlap = jiang.x[n, 1:] @ T[row]
                alpha[row, s] += kappa[n] * overlap @ a[n, 1:, 0]
                beta[row, s] += kappa[n] * overlap @ a[n, 0, 1:]
                for i in noise:
                    alpha[row, jiang.place(n, i)] = kappa[n] * overlap @ a[n, 1:, i]
                    beta[row, jiang.place(n, i)] = kappa[n] * overlap @ a[n, i, 1:]
        for written, matrix in zip((alpha, beta), jiang.coefficients(now), strict=False):
            close(matrix, written)


def test_sum_rules(jiang):
    """F.12: the rows of alpha over the tokens of one class sum to zero; alpha_ss = beta_ss."""
    for now, _ in jiang.pairs:
        alpha, beta, _ = jiang.coefficients(now)
        close(alpha.diagonal()[:2], beta.diagonal()[:2])
        for s, sign in enumerate((1, -1)):
            members = [n for n in range(jiang.samples) if jiang.y[n] == sign]
            noise = [jiang.place(n, i) for n in members for i in range(1, jiang.tokens)]
            sums = alpha[:, s] + alpha[:, noise].sum(1)
            assert float(sums.abs().max()) < 1e-12 * float(alpha.abs().max())


@pytest.mark.parametrize("heads", [1, 2])
def test_bounds_that_always_hold(heads):
    """papers/jiang.md 1.2 and Lemma D.1, papers/zhang.md Lemmas 14 and 15, on 20 runs."""
    networks = [small_network(score, 1.0, heads=heads) for score in (0.1, 0.5)]
    cells = [
        small_setup(network=networks[run % 2], attack=small_pgd(), rate=2.0) for run in range(20)
    ]
    for frame in steps(*cells, ids=run_ids(20)):
        here = parts(frame)
        largest = here.values.abs().amax(-1).sum(-1)
        assert (here.f.abs() <= largest * (1 + 1e-12)).all()
        m, slope = largest.amax(1, keepdim=True), -here.slope
        assert (1 / (1 + torch.exp(m)) <= slope * (1 + 1e-12)).all()
        assert (slope <= (1 + 1e-12) / (1 + torch.exp(-m))).all()
        assert ((slope - 0.5).abs() <= here.f.abs() / 4 + 1e-15).all()
        scores = torch.einsum(
            "rnld,rhde,rhce,rnjc->rnhlj", here.points, here.query, here.key, here.points
        )
        h = scores.abs().amax((-1, -2), keepdim=True)
        others = here.points.shape[2] - 1
        assert (here.attention >= (1 - 1e-12) / (1 + others * torch.exp(2 * h))).all()
        assert (here.attention <= (1 + 1e-12) / (1 + others * torch.exp(-2 * h))).all()


def test_signal_scores_grow_where_the_signal_is_worth_most():
    """papers/jiang.md 2.3: V_+ >= V_{n,i} of all n of a class gives alpha_ss >= 0."""
    data = small_data(projected=True, balanced=True, samples=6)
    counts = {True: 0, False: 0}
    for frame in steps(*[small_setup(data)] * 20, ids=run_ids(20)):
        here = parts(frame)
        own = frame.y[:, :, None] * here.values[:, :, 0]
        gain = here.c * here.G[:, :, 0, 0, 0]
        for sign in (1, -1):
            members = frame.y == sign
            dominant = ((own[:, :, :1] >= own[:, :, 1:]).all(-1) | ~members).all(1)
            alpha = (gain * members).sum(1)
            assert (alpha[dominant] >= 0).all()
            for each in dominant.tolist():
                counts[each] += 1
    assert min(counts.values()) > 10, "the hypothesis must hold at some steps and fail at others"
