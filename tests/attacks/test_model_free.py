"""Attacks that follow from how points are made: exact values on networks made by hand, and the balls they promise."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benign.attacks.attack import Attack, Target
from benign.attacks.balls import Ball, Balls
from benign.attacks.model_free import (
    AllPatch,
    CommonShift,
    Coupling,
    FeatureAttack,
    FeatureOrthogonal,
    FeatureSwap,
)
from benign.attacks.multi_norm import MultiNorm
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.data.feature_patches import FeaturePatches
from benign.data.model import DataModel
from benign.data.signal_noise import SignalNoise
from benign.losses import correct
from benign.networks.attention import AttentionPass
from benign.networks.linear import Linear
from benign.networks.network import Network
from benign.networks.patch_cnn import PatchCNN
from benign.spec.axes import stack
from benign.spec.base import SpecError
from benign.streams import RunId, Streams
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup
from tests.reference import close, margins, normals, run_ids, small_data, small_network
from tests.says import says

FIGURE_3: dict[str, Any] = {"tokens": 16, "dim": 100, "alpha": 2.0, "beta": 1.0, "noise_std": 0.1}
EPS = 1.2
PATCHES: dict[str, Any] = {"samples": 6, "tokens": 4, "dim": 9, "alpha": 2.0, "noise_std": 0.1}
ONE_FILTER = PatchCNN(width=1, classes=2, q=3, threshold=1.0, init_std=1.0)


def target(
    data: DataModel, network: Network, count: int = 6, ids: list[RunId] | None = None
) -> Target:
    """Fresh points of some runs, and the network as it starts."""
    streams = Streams(run_ids(2) if ids is None else ids)
    sample = data.sample(streams, "test/0", count, torch.float64)
    params = network.initial_params(data, streams, torch.float64)
    return Target(network, params, data, sample, streams.within("attack"))


def of_run(whole: Target, run: int) -> Target:
    """The same target for one of its runs."""
    params = {name: part[run : run + 1] for name, part in whole.params.items()}
    sample = whole.sample.select(torch.tensor([run]))
    return replace(whole, params=params, sample=sample, streams=whole.streams[[run]])


def accuracy(target: Target, points: Tensor) -> float:
    return float(correct(margins(target, points)).mean())


def feature_network(gamma: float, robust: bool, **fields: Any) -> Target:
    """m = 1 and w_i = gamma u_i, or gamma v_i, on Figure 3's data (Li section 3)."""
    data = FeaturePatches(samples=1, **(FIGURE_3 | fields))
    made = target(data, ONE_FILTER, 200)
    features = made.sample.latent["features"].clone()
    weights = gamma * (features[:, :2] if robust else features[:, 2:])
    return replace(made, params={"weights": weights[:, :, None]})


@pytest.mark.parametrize("gamma", [1.0, 10.0, 100.0])
def test_a_network_of_non_robust_features_falls_to_the_swap(gamma):
    """Proposition 3.1; after Delta it predicts y' itself, as Lemma D.14 has it."""
    made, attack = feature_network(gamma, robust=False), FeatureSwap(clip=EPS)
    points = attack.perturb(made)
    assert accuracy(made, made.x) == 1
    assert accuracy(made, points) == 0
    assert accuracy(made.relabelled(attack.rivals(made).double()), points) == 1


@pytest.mark.parametrize("gamma", [1.0, 10.0, 100.0])
def test_a_network_of_robust_features_withstands_the_swap_but_not_the_other(gamma):
    """papers/li.md 2.1: Proposition 3.2 fails at Figure 3's numbers, where 1 (2 - 1.2) < 16 * 1.2."""
    made = feature_network(gamma, robust=True)
    assert accuracy(made, made.x) == 1
    assert accuracy(made, FeatureSwap(clip=EPS).perturb(made)) == 1
    assert accuracy(made, AllPatch(clip=EPS).perturb(made)) == 0


def test_robust_features_withstand_both_where_they_are_strong_enough():
    """alpha = 30: 1 (30 - 1.2) > 16 * 1.2."""
    made = feature_network(100.0, robust=True, alpha=30.0)
    assert accuracy(made, AllPatch(clip=EPS).perturb(made)) == 1


def patches(classes: int = 3, **fields: Any) -> FeaturePatches:
    mixed: dict[str, Any] = {"beta": 1.0, "beta_spread": 0.5, "robust_patches": 2}
    fields = PATCHES | mixed | {"partition": "random", "classes": classes} | fields
    return FeaturePatches(**fields)


def cnn(classes: int = 3) -> PatchCNN:
    return PatchCNN(width=3, classes=classes, threshold=1.0, init_std=0.5)


@pytest.mark.parametrize("kind", [FeatureSwap, AllPatch])
@given(st.floats(0, 3), st.integers(0, 10**6))
@settings(max_examples=4)
def test_every_patch_moves_as_the_definition_says(kind, clip, seed):
    """Patch by patch, with clips below and above the strengths 0.5 to 1.5."""
    made, attack = target(patches(), cnn(), ids=run_ids(2, seed)), kind(clip=clip)
    moved, rivals, latent = attack.perturb(made) - made.x, attack.rivals(made), made.sample.latent
    for run in range(2):
        u, v = latent["features"][run, :3], latent["features"][run, 3:]
        for point in range(6):
            y, rival = int(made.y[run, point]), int(rivals[run, point])
            for patch in range(4):
                robust = bool(latent["robust"][run, point, patch])
                strength = float(latent["strength"][run, point, patch])
                if kind is AllPatch:
                    expected = clip * u[rival] - (clip * u[y] if robust else 0)
                else:
                    expected = clip * v[rival] - min(strength, clip) * v[y]
                    expected = 0 * expected if robust else expected
                torch.testing.assert_close(moved[run, point, patch], expected, rtol=0, atol=1e-14)
    assert float(moved.abs().max()) <= clip + 1e-14


def test_the_swap_is_that_of_the_paper_inside_the_ball():
    """beta_p <= eps: nothing of v_y is left but noise."""
    made = target(patches(noise_std=0.0), cnn())
    points = FeatureSwap(clip=2.0).perturb(made)
    own = made.sample.latent["features"][:, 3:].gather(
        1, made.y.long()[..., None].expand(-1, -1, 9)
    )
    left = torch.einsum("rnpd,rnd->rnp", points, own)
    assert float(left.abs().max()) < 1e-14


def test_rivals_are_uniform_on_the_other_classes():
    """10000 points of 4 classes: false alarm below 6 * 6e-5."""
    made = target(patches(classes=4, tokens=2), cnn(4), 5000)
    rivals = FeatureSwap(clip=1.0).rivals(made)
    steps = (rivals - made.y.long()) % 4
    counts = torch.bincount(steps.flatten(), minlength=4).double()
    assert counts[0] == 0
    deviation = (10000 * (1 / 3) * (2 / 3)) ** 0.5
    assert ((counts[1:] - 10000 / 3).abs() < 4 * deviation).all()
    assert not torch.equal(rivals[0], rivals[1])


@pytest.mark.parametrize("attack", [FeatureSwap(clip=0.7), AllPatch(clip=0.7)], ids=str)
def test_rivals_come_from_the_streams_of_the_run(attack: FeatureAttack):
    made, before = target(patches(), cnn()), torch.get_rng_state()
    points = attack.perturb(made)
    assert torch.equal(points, attack.perturb(made))
    assert torch.equal(torch.get_rng_state(), before)
    elsewhere = replace(made, streams=made.streams.within("elsewhere"))
    assert not torch.equal(points, attack.perturb(elsewhere))


def twins(data: SignalNoise, network: Network, count: int = 6) -> tuple[Target, Target]:
    """Points of class +1, and the same noise with the signal of class -1."""
    made = target(data, network, count)
    both = []
    for place, label in ((0, 1.0), (1, -1.0)):
        x = made.x.clone()
        x[:, :, 0] = made.sample.latent["signal"][:, None, place]
        y = torch.full_like(made.y, label)
        both.append(replace(made, sample=replace(made.sample, x=x, y=y, clean_y=y)))
    return both[0], both[1]


HIGH = {"signal": 4.0, "noise_std": 0.3, "projected": True, "tokens": 5}
LOW = {"signal": 1.0, "noise_std": 3.0, "projected": True, "tokens": 5}
MIXED = {"signal": 2.0, "noise_std": 1.2, "projected": True, "tokens": 5}
NOISES = pytest.mark.parametrize("fields", [HIGH, LOW, MIXED], ids=["high", "low", "mixed"])
CURVED = small_network(0.8, 0.8, heads=2)


def coupling(radius: float, meet: Any = "permutation", **fields: Any) -> Coupling:
    return Coupling(ball=Ball(radius=radius, **fields), meet=meet)


def r_perm(made: Target) -> Tensor:
    """papers/zhang.md 4, for projected noise."""
    norm = float(torch.as_tensor(made.data.signal_norm()))
    noise = made.x[:, :, 1:].norm(dim=-1).amin(2)
    return torch.minimum(torch.full_like(noise, norm / 2**0.5), (norm**2 + noise**2).sqrt() / 2)


def in_order(points: Tensor) -> Tensor:
    """The tokens of every point, by a projection."""
    order = (points @ normals(points.shape[3])).argsort(dim=2)
    return points.gather(2, order[..., None].expand_as(points))


def test_at_the_middle_of_the_signals_both_classes_are_one():
    positive, negative = twins(small_data(**HIGH), CURVED)
    attack = coupling(2**-0.5 * (1 + 1e-9), "signal", relative_to="signal")
    here, there = attack.perturb(positive), attack.perturb(negative)
    close(here, there, 1e-14)
    assert torch.equal(here[:, :, 1:], positive.x[:, :, 1:])
    less = coupling(0.7, "signal", relative_to="signal")
    assert float((less.perturb(positive) - less.perturb(negative)).abs().max()) > 0.01


@NOISES
def test_the_permutation_makes_both_classes_one_set_of_tokens(fields):
    """At any radius above R_perm, so that network (1) cannot separate the classes."""
    positive, negative = twins(small_data(**fields), CURVED)
    attack = coupling(float(r_perm(positive).max()) * (1 + 1e-9))
    here, there = attack.perturb(positive), attack.perturb(negative)
    close(positive.run(here).outputs, negative.run(there).outputs, 1e-12)
    close(in_order(here), in_order(there), 1e-12)


@NOISES
def test_the_permutation_costs_r_perm(fields):
    """And every token that moves moves no further; false if the choice of the noise token were another."""
    made = target(small_data(**fields), CURVED)
    moved = (coupling(100.0).perturb(made) - made.x).norm(dim=-1)
    close(moved.amax(2), r_perm(made))
    exchanged = r_perm(made) < float(torch.as_tensor(made.data.signal_norm())) / 2**0.5 - 1e-12
    assert torch.equal((moved > 0).sum(2), 1 + exchanged.long())
    expected = {4.0: {True}, 1.0: {False}, 2.0: {True, False}}[fields["signal"]]
    assert set(exchanged.flatten().tolist()) == expected


def test_with_isotropic_noise_the_longer_of_two_moves_counts():
    """claim_rules.md, thm3.perm_barrier: min_a max(|xi_a - mu_+|, |xi_a - mu_-|) / 2."""
    made = target(small_data(signal=4.0, noise_std=0.5, tokens=6), CURVED, 20)
    moved = (coupling(100.0).perturb(made) - made.x).norm(dim=-1).amax(2)
    signal, noise = made.sample.latent["signal"], made.x[:, :, 1:]
    apart = (noise[:, :, :, None] - signal[:, None, None]).norm(dim=-1)
    close(moved, apart.amax(3).amin(2) / 2)


@NOISES
def test_below_r_perm_the_nearest_token_still_separates_the_classes(fields):
    """The barrier is tight, and the attack honours smaller balls."""
    made = target(small_data(**fields), CURVED)

    def score(points: Tensor) -> Tensor:
        signal = made.sample.latent["signal"][:, None, None]
        nearest = (points[:, :, :, None] - signal).norm(dim=-1).amin(2)
        return made.y * (nearest[..., 1] - nearest[..., 0])

    barrier = float(r_perm(made).min())
    assert (score(coupling(0.999 * barrier).perturb(made)) > 0).all()
    below, above = (coupling(share * float(r_perm(made).max())) for share in (0.9, 1.001))
    assert (score(below.perturb(made)) > 1e-3).any()
    assert (score(above.perturb(made)).abs() < 1e-12).all()


@given(
    st.sampled_from([0, 1, 2, "inf"]),
    st.sampled_from(["token", "sample"]),
    st.sampled_from(["signal", "permutation"]),
    st.integers(0, 5),
    st.floats(0.1, 1),
)
@settings(max_examples=15)
def test_a_coupling_stays_in_its_ball(p, per, meet, whole, share):
    made = target(small_data(**MIXED), CURVED)
    ball = Ball(p=p, radius=float(whole) if p == 0 else whole * share, per=per)
    moved = Coupling(ball=ball, meet=meet).perturb(made) - made.x
    assert (ball.norm(moved) <= ball.radius * (1 + 1e-10)).all()


def test_the_norm_of_the_ball_decides_which_way_is_shorter():
    """Along axes the middle is at |mu|/2 in l_inf, nearer than any exchange with large noise; in l1 at |mu|."""
    made = target(small_data(signal=2.0, noise_std=9.0, tokens=4), CURVED)
    for ball, length in ((Ball(p=1, radius=100.0), 2.0), (Ball(p="inf", radius=100.0), 1.0)):
        moved = Coupling(ball=ball, meet="permutation").perturb(made) - made.x
        close(ball.norm(moved).amax((2, 3)), torch.full((2, 6), length, dtype=torch.float64))


def test_a_single_token_goes_to_the_middle():
    made = target(small_data(tokens=1), CURVED)
    assert torch.equal(coupling(9.0).perturb(made), coupling(9.0, "signal").perturb(made))


@pytest.mark.parametrize("fields", [{"attend": "uniform"}, {"exposed": "values"}], ids=str)
def test_a_common_shift_adds_the_coordinate_of_u(fields):
    """papers/claim_rules.md appE.l0: exactly c u_j, and the largest |u_j| against the label."""
    made = target(small_data(), small_network(0.8, 0.8, **fields))
    u = small_network(**fields).values(made.params)[..., 0]
    points = CommonShift(size=1.7).perturb(made)
    before, after = (made.run(each).outputs for each in (made.x, points))
    close(made.y * (after - before), (-1.7 * u.abs().amax(1))[:, None].expand(2, 6))


def test_a_common_shift_is_one_coordinate_of_all_tokens():
    made = target(small_data(), CURVED)
    moved = CommonShift(size=0.4).perturb(made) - made.x
    touched = moved.abs() > 1e-12
    assert (touched.sum(3) == 1).all()
    close(moved, moved[:, :, :1].expand_as(moved))
    close(moved.abs().amax(3), torch.full((2, 6, 3), 0.4, dtype=torch.float64))


def test_learned_attention_follows_the_shift_but_not_further_than_its_values():
    """c u_j is not exact there: f lies between c u_j + min v and c u_j + max v, and a long shift always wins."""
    network = small_network(1.5, 0.8)
    made = target(small_data(dim=6, tokens=4), network, 50)
    u = network.values(made.params)[..., 0]
    values = made.x @ u[:, None, :, None]
    for size in (0.5, 1e4):
        points = CommonShift(size=size).perturb(made)
        added = torch.einsum("rnd,rd->rn", (points - made.x)[:, :, 0], u)
        rest = made.run(points).outputs - added
        assert (rest <= values.amax((2, 3)) + 1e-9 * size).all()
        assert (rest >= values.amin((2, 3)) - 1e-9 * size).all()
    exact = made.run(made.x).outputs + added
    assert float((made.run(points).outputs - exact).abs().max()) > 0.1
    assert (margins(made, points) < -1e4 * u.abs().amax(1, keepdim=True) + values.abs().max()).all()


def linear(data: FeaturePatches) -> Target:
    """A linear network on patches, with labels -1 and +1."""
    made = target(data, Linear(init_std=1.0))
    y = 2 * (made.y > 0).double() - 1
    return replace(made, sample=replace(made.sample, y=y, clean_y=y))


@pytest.mark.parametrize(
    ("p", "dual", "directions"), [("inf", 1, "axes"), (2, 2, "axes"), (2, 2, "random")], ids=str
)
def test_off_the_features_a_linear_network_loses_the_dual_norm_of_the_rest(p, dual, directions):
    made = linear(patches(directions=directions))
    pgd = PGD(ball=Ball(p=p, radius=0.3), steps=7, step=0.2, keep="best")
    attack = FeatureOrthogonal(attack=pgd)
    attack.check_against(made.data)
    points = attack.perturb(made)
    u, features = made.params["u"], made.sample.latent["features"]
    rest = u - torch.einsum("rd,rfd,rfe->re", u, features, features)
    worst = margins(made, made.x) - 0.3 * rest.norm(dual, dim=1)[:, None]
    close(margins(made, points), worst)
    along = torch.einsum("rnpd,rfd->rnpf", points - made.x, features)
    assert float(along.abs().max()) < 1e-14
    assert (pgd.ball.norm(points - made.x) <= 0.3 * (1 + 1e-10)).all()


@pytest.mark.parametrize(
    "inner",
    [
        PGD(ball=Ball(p="inf", radius=0.4, per="sample"), restarts=2, steps=5),
        PGD(ball=Ball(p=2, radius=0.4), start="uniform", keep="best", steps=5),
        PGD(ball=Ball(p=1, radius=0.4), steps=5),
        OneStep(rate=5.0, clip=0.4, loss="margin"),
    ],
    ids=str,
)
def test_any_attack_can_be_confined(inner: Attack):
    made = target(patches(), cnn())
    points = FeatureOrthogonal(attack=inner).perturb(made)
    moved, features = points - made.x, made.sample.latent["features"]
    assert float((moved @ features[:, None].transpose(2, 3)).abs().max()) < 1e-14
    ball = inner.threat()
    assert isinstance(ball, Ball)
    assert (ball.norm(moved) <= 0.4 * (1 + 1e-10)).all()
    assert (margins(made, points) < margins(made, made.x)).any()
    free = inner.perturb(made)
    assert float((margins(made, free) - margins(made, points)).abs().max()) > 1e-3


def test_the_best_of_random_starts_is_the_best_off_the_features():
    """Starts move along the features as well; what that would do to the margin must not count."""
    made = target(patches(), cnn(), 50)
    pgd = PGD(ball=Ball(p="inf", radius=1.0), steps=1, step=0.01, restarts=4)
    points = FeatureOrthogonal(attack=pgd).perturb(made)
    assert (margins(made, points) <= margins(made, made.x) + 1e-12).all()
    assert (margins(made, points) < margins(made, made.x) - 0.1).any()


def test_several_sets_of_points_are_confined_too():
    made = target(patches(), cnn())
    inner = MultiNorm(balls=Balls(radius=0.4), combine="average", steps=3)
    points = FeatureOrthogonal(attack=inner).perturb(made)
    assert points.shape == (2, 18, 4, 9)
    moved = points - made.x.repeat(1, 3, 1, 1)
    along = moved @ made.sample.latent["features"][:, None].transpose(2, 3)
    assert float(along.abs().max()) < 1e-14
    assert (moved.flatten(2).norm(dim=2) > 0).any(1).all()


def test_nothing_is_left_to_attack_in_a_network_of_features():
    made = feature_network(10.0, robust=True)
    attack = FeatureOrthogonal(attack=PGD(ball=Ball(p="inf", radius=EPS), steps=3))
    assert torch.equal(attack.perturb(made), made.x)


def test_random_weights_leave_much_to_attack():
    """claim_rules.md, derived.init-residual: with sigma_0 = 1/sqrt(d), eps |P_perp w|_1 is about .8 eps sqrt(d)."""
    dim, runs = 900, 40
    data = FeaturePatches(samples=1, tokens=1, dim=dim, alpha=2.0, beta=1.0, noise_std=0.0)
    made = target(data, Linear(init_std=dim**-0.5), 1, run_ids(runs))
    made = made.relabelled(torch.ones_like(made.y))
    attack = FeatureOrthogonal(attack=PGD(ball=Ball(p="inf", radius=0.1), steps=1, step=1.0))
    lost = margins(made, made.x) - margins(made, attack.perturb(made))
    # |z| has mean sqrt(2/pi) and variance 1 - 2/pi; four standard errors of the mean over runs.
    expected = 0.1 * (dim - 4) * dim**-0.5 * (2 / torch.pi) ** 0.5
    error = 0.1 * dim**-0.5 * ((dim - 4) * (1 - 2 / torch.pi) / runs) ** 0.5
    assert abs(float(lost.mean()) - expected) < 4 * error
    assert expected == pytest.approx(0.8 * 0.1 * dim**0.5, rel=0.01)


EACH: list[tuple[list[Any], DataModel, Network]] = [
    ([FeatureSwap(clip=clip) for clip in (0.2, 2.0)], patches(), cnn()),
    ([AllPatch(clip=clip) for clip in (0.2, 2.0)], patches(), cnn()),
    ([coupling(radius) for radius in (0.3, 3.0)], small_data(**MIXED), CURVED),
    ([CommonShift(size=size) for size in (0.2, 2.0)], small_data(), CURVED),
    (
        [
            FeatureOrthogonal(attack=PGD(ball=Ball(radius=radius), start="uniform", steps=3))
            for radius in (0.2, 2.0)
        ],
        patches(),
        cnn(),
    ),
]


@pytest.mark.parametrize("case", EACH, ids=lambda case: case[0][0].kind)
def test_each_run_is_attacked_by_its_own_numbers_as_if_alone(case):
    attacks, data, network = case
    made, before = target(data, network), torch.get_rng_state()
    x = made.x.clone()
    together = stack(attacks, torch.DoubleTensor).perturb(made)
    for run, attack in enumerate(attacks):
        close(together[run : run + 1], attack.perturb(of_run(made, run)))
    assert torch.equal(made.x, x)
    assert torch.equal(torch.get_rng_state(), before)
    single = replace(
        made,
        params={name: part.float() for name, part in made.params.items()},
        sample=replace(
            made.sample,
            x=made.x.float(),
            y=made.y.float(),
            clean_y=made.y.float(),
            latent={
                name: part if part.dtype == torch.bool else part.float()
                for name, part in made.sample.latent.items()
            },
        ),
    )
    assert attacks[0].perturb(single).dtype == torch.float32


def test_an_attack_reports_the_ball_of_its_points():
    assert FeatureSwap(clip=0.3).threat() == Ball(p="inf", radius=0.3, per="sample")
    assert coupling(0.2).threat() == Ball(radius=0.2)
    assert CommonShift(size=5.0).threat() == Ball(p=0, radius=1.0)
    pgd = PGD(ball=Ball(p="inf", radius=0.1))
    assert FeatureOrthogonal(attack=pgd).threat() == pgd.ball
    assert FeatureOrthogonal(attack=pgd).passes() == pgd.passes()
    assert FeatureSwap(clip=0.3).passes() == coupling(0.2).passes() == 0


def test_the_passes_of_a_common_shift_are_counted(monkeypatch):
    passes = []
    run, pull = Target.run, AttentionPass.inputs_gradient
    monkeypatch.setattr(Target, "run", lambda *given: passes.append("run") or run(*given))
    monkeypatch.setattr(
        AttentionPass, "inputs_gradient", lambda *given: passes.append("pull") or pull(*given)
    )
    attack = CommonShift(size=1.0)
    attack.perturb(target(small_data(), CURVED))
    assert len(passes) == attack.passes()


SIGNAL, LINF = small_data(), FeatureOrthogonal(attack=PGD(ball=Ball(p="inf", radius=0.1)))


@pytest.mark.parametrize(
    ("attack", "data", "parts"),
    [
        (FeatureSwap(clip=1.0), SIGNAL, ["`feature_swap`", "`signal_noise`", "`feature_patch"]),
        (AllPatch(clip=1.0), SIGNAL, ["`all_patch`", "`signal_noise`", "`feature_patches`"]),
        (FeatureSwap(clip=1.0), patches(only="robust"), ["`data.only`", "'robust'", " out"]),
        (AllPatch(clip=1.0), patches(directions="random"), ["`data.directions`", "'random'"]),
        (coupling(1.0), patches(), ["`coupling`", "`feature_patches`", "`signal_noise`"]),
        (LINF, SIGNAL, ["`feature_orthogonal`", "`signal_noise`", "`feature_patches`"]),
        (LINF, patches(directions="random"), ["`data.directions`", "'random'", "l2 ball"]),
        (
            FeatureOrthogonal(attack=PGD(ball=Ball(radius=0.1, relative_to="signal"))),
            patches(),
            ["`ball.relative_to`", "`feature_patches`", "signal norm"],
        ),
    ],
    ids=str,
)
def test_data_without_the_needed_parts_are_refused_in_one_line(attack, data, parts):
    network = CURVED if data is SIGNAL else cnn()
    with pytest.raises(SpecError) as error:
        Setup(data=data, network=network, attack=attack, training=GradientDescent(rate=0.1))
    text = str(error.value)
    assert "\n" not in text
    assert all(word in text for word in parts), text


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda: FeatureSwap(clip=-1.0), ["clip", "greater than or equal to 0", "-1"]),
        (lambda: CommonShift(size=0.0), ["size", "greater than 0", "0.0"]),
        (lambda: coupling(1.0, "middle"), ["meet", "'middle'"]),
    ],
)
def test_bad_fields_are_named(build, parts):
    with pytest.raises(SpecError, match=says(*parts)):
        build()
