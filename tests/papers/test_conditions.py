"""Conditions of the theorems against the tables of the specifications, and experiments inside them."""

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benign.attacks.balls import Balls
from benign.attacks.multi_norm import MultiNorm
from benign.claims.conditions import Condition, Conditions, one_cell, smallest_whole
from benign.data.mixture import Mixture
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import TorchDefault
from benign.networks.two_layer import TwoLayer
from benign.papers.inside import Inside, inside_theorem
from benign.papers.jiang import theory as jiang
from benign.papers.registry import recipe
from benign.papers.wang import theory as wang
from benign.papers.zhang import theory as zhang
from benign.spec import axes
from benign.spec.base import SpecError
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup
from tests.reference import small_data, small_network, small_pgd, small_setup
from tests.says import holds, says


def prints(value: float, printed: str) -> None:
    """That a number is the printed one, to half a unit of its last digit."""
    unit = 10.0 ** int(Decimal(printed).as_tuple().exponent)
    assert value == pytest.approx(float(printed), abs=0.501 * unit)


def inside(paper: str, **chosen: Any) -> Any:
    """`inside_theorem`, whose experiment has fields that depend on the paper."""
    return inside_theorem(paper, **chosen)


# What a condition is.


def test_the_ratio_is_the_slack_on_either_side():
    at_least = Condition.at_least("(1)", "d >= 8", 4.0, 8.0)
    at_most = Condition.at_most("(2)", "eta <= 2", 8.0, 2.0)
    assert (at_least.ratio, at_most.ratio) == (0.5, 0.25)
    assert not at_least.holds
    assert not at_most.holds
    assert Condition.at_most("(2)", "eta <= 2", 2.0, 2.0).holds
    assert Condition.at_most("(2)", "beta <= 2", 0.0, 2.0).ratio == math.inf


@pytest.mark.parametrize("value", [10.0, 40.0])
def test_an_equation_is_missed_on_both_sides(value: float):
    assert Condition.equal("(10)", "C_p = 20", value, 20.0).ratio == 0.5
    assert Condition.equal("(10)", "C_p = 20", 20.0 * (1 + 1e-15), 20.0).holds


def test_the_largest_miss_comes_first_and_all_fit_in_one_line():
    rows = (
        Condition.at_least("(1)", "d >= 8", 4.0, 8.0),
        Condition.at_least("(2)", "N >= 20", 2.0, 20.0),
        Condition.at_least("proof", "N >= 400", 2.0, 400.0).informational(),
        Condition.any_constant("(4)", "M of order 1", 16.0),
    )
    asked = Conditions("a theorem", rows)
    assert [row.name for row in asked.failing] == ["(2)", "(1)"]
    assert asked["(1)"].value == 4.0
    with pytest.raises(ValueError, match="a theorem") as error:
        asked.require()
    message = str(error.value)
    first, second = message[: message.index("(1)")], message[message.index("(1)") :]
    assert holds(first, "(2)", "N >= 20", "2.00", "20.0", "10.0")
    assert holds(second, "d >= 8", "4.00", "8.00", "2.00")
    assert "\n" not in message
    left = asked.without("(1)", "(2)")
    left.require()
    assert left.hold
    assert not asked.hold
    with pytest.raises(KeyError, match=says("(7)", "(2)")):
        asked["(7)"]


def test_a_table_says_the_numbers_on_both_sides_and_the_verdict():
    rows = (
        Condition.setting(["flipped labels"]),
        Condition.at_least("(1)", "d >= 8", 4.0, 8.0),
        Condition.any_constant("(4)", "M of order 1", 16.0),
        Condition.at_least("proof", "N >= 400", 2.0, 400.0).informational(),
    )
    lines = Conditions("a theorem", rows).text().splitlines()
    assert lines[0] == "a theorem"
    assert lines[2].split() == ["(1)", "d", ">=", "8", "4.00", "8.00", "0.500", "fails"]
    assert "16.0" in lines[3].split()
    assert holds(lines[4], "0.00500", "fails")
    assert holds(lines[5], "setting", "flipped labels")
    assert holds(lines[6], "outside", "setting, (1)")
    left = Conditions("a theorem", rows).without("setting", "(1)").text().splitlines()
    assert holds(left[-1], "inside", "setting, (1)")


@pytest.mark.parametrize(("bound", "whole"), [(4e6, 4000000), (4e6 * (1 + 1e-15), 4000000),
                                              (4e6 + 0.01, 4000001), (1.6e13, 16 * 10**12)])  # fmt: skip
def test_rounding_up_forgives_rounding_errors(bound: float, whole: int):
    assert smallest_whole(bound) == whole


# Jiang: papers/jiang.md section 6.


def jiang_figure(signal: float, samples: int = 20) -> Setup:
    """A cell of figure 1."""
    return Setup(
        data=SignalNoise(
            samples=samples, tokens=16, dim=1024, signal=signal, noise_std=0.2, strong_noise_std=4.0
        ),
        network=Attention(hidden=512, init=TorchDefault(divide_by=16)),
        training=GradientDescent(rate=0.1, stop_loss=0.01),
    )


JIANG_TABLE = [
    (6.4, "4.0e6", "1.6e13", "1.08e-3", "5.7e-2", ("3.4e-6", "1.4e-5")),
    (45.25, "1.0e10", "4.0e16", "2.2e-5", "8.0e-3", ("6.7e-8", "2.8e-7")),
    (100.0, "2.4e11", "9.5e17", "4.4e-6", "3.6e-3", ("1.4e-8", "5.8e-8")),
]


@pytest.mark.parametrize(("signal", "hidden", "dim", "rate", "value_std", "window"), JIANG_TABLE)
def test_jiang_figure_1_against_the_table(
    signal: float, hidden: str, dim: str, rate: str, value_std: str, window: tuple
):
    found = jiang.conditions(jiang_figure(signal))
    bounds = {"(1)": hidden, "(2)": "2.05e9", "(6)": rate, "(7)": value_std, "(10)": "20"}
    bounds |= {"(8) low": window[0], "(8) high": window[1], "proof": "6.1e6", "classes": "48"}
    for name, bound in bounds.items():
        prints(found[name].bound, bound)
    prints(jiang.needed_dim(20, found["(1)"].bound, 0.01, jiang.ALL_ONE), dim)
    actual = {"(1)": "512", "(2)": "1024", "(3)": "20", "(4)": "16", "(6)": "0.1"}
    actual |= {"(7)": "1.13e-3", "(8) low": "1.27e-6", "(9)": "0.01", "(10)": "20"}
    for name, value in actual.items():
        prints(found[name].value, value)


def test_and_its_ratios():
    """7.8e3 and 2e7 too narrow, 93 to 2.3e4 times too fast, sigma_V and C_p right."""
    for signal, narrow, fast in [
        (6.4, "7.8e3", "93"),
        (45.25, "2e7", "4.6e3"),
        (100.0, "", "2.3e4"),
    ]:
        found = jiang.conditions(jiang_figure(signal))
        prints(1 / found["(6)"].ratio, fast)
        if narrow:
            prints(1 / found["(1)"].ratio, narrow)
        assert found["(7)"].holds
        assert found["(10)"].holds
        assert found["(9)"].holds
        assert not found["(2)"].holds
        assert not found.hold
    for signal, low, high in [(6.4, False, True), (45.25, True, False), (100.0, True, False)]:
        found = jiang.conditions(jiang_figure(signal))
        assert (found["(8) low"].holds, found["(8) high"].holds) == (low, high)


@pytest.mark.parametrize(
    ("power", "loss", "holds"), [(1, "0.14", True), (2, "0.021", True), (3, "0.003", False)]
)
def test_powers_of_the_logarithm(power: float, loss: str, holds: bool):
    found = jiang.conditions(jiang_figure(6.4), given=jiang.JiangConstants(log_power=power))
    prints(found["(9)"].bound, loss)
    assert found["(9)"].holds == holds
    assert found["(3)"].bound == pytest.approx(math.log(1024) ** power)
    assert found["(3)"].holds == (power == 1)
    prints(found["eps, log d"].bound, "0.14")
    prints(found["N, log d"].bound, "6.9")


@pytest.mark.parametrize(("samples", "edges"), [(20, (10.4, 21.4)), (2, (14.0, 26.7))])
def test_the_window_of_initial_scores_is_narrow(samples: int, edges: tuple):
    def fits(signal: float) -> bool:
        found = jiang.conditions(jiang_figure(signal, samples))
        return found["(8) low"].holds and found["(8) high"].holds

    for edge, inwards in zip(edges, (1, -1), strict=True):
        assert fits(edge * (1 + 0.01 * inwards))
        assert not fits(edge * (1 - 0.01 * inwards))


APPENDIX = [
    (
        "4.1",
        16,
        25.0,
        "3.8e10",
        "2.6e9",
        "9.8e16",
        "5.0e-5",
        ("2.3e-7", "8.9e-7"),
        "1953",
        "3.84e5",
    ),
    ("4.2", 10, 15.0, "1.9e9", "1.0e9", "1.9e15", "1.4e-4", ("7.3e-7", "2.7e-6"), "4.4e2", "4"),
]


@pytest.mark.parametrize(
    ("theorem", "samples", "signal", "hidden", "own", "dim", "rate", "window", "race", "proof"), APPENDIX
)  # fmt: skip
def test_jiang_appendix_a(
    theorem: Any, samples: int, signal: float, hidden: str, own: str, dim: str, rate: str,
    window: tuple, race: str, proof: str,
):  # fmt: skip
    cell = Setup(
        data=SignalNoise(
            samples=samples, tokens=4, dim=2048, signal=signal, noise_std=0.05, strong_noise_std=1.0
        ),
        network=Attention(hidden=1024, value_dim=256, init=TorchDefault(divide_by=16)),
        training=GradientDescent(rate=0.1, stop_loss=0.01),
    )
    found = jiang.conditions(cell, theorem)
    prints(found["(1)"].bound, hidden)
    prints(found["(2)"].bound, own)
    prints(jiang.needed_dim(samples, found["(1)"].bound, 0.01, jiang.ALL_ONE), dim)
    prints(found["(6)"].bound, rate)
    prints(found["(8) low"].bound, window[0])
    prints(found["(8) high"].bound, window[1])
    prints(found["(8) low"].value, "6.4e-7")
    assert found["(8) low"].holds == (theorem == "4.1")
    assert found["(10)"].ratio == 0.5
    prints(found["proof"].value, race)
    prints(found["proof"].bound, proof)
    assert not found["proof"].holds


def test_the_explicit_constants_of_the_proofs():
    assert jiang.benign_constant(4, jiang.strong_noise_factor(4)) == pytest.approx(1500 * 4**3)
    prints(jiang.benign_constant(16, 20.0), "6.1e6")
    # "only |mu| <= 9 at N = 2 or <= 2.8 at N = 20" are harmful by the proof
    for samples, edge in ((2, 9.0), (20, 2.8)):
        below, above = (
            jiang.conditions(jiang_figure(mu, samples), "4.2")["proof"].holds
            for mu in (edge, edge + 0.1)
        )
        assert below
        assert not above


def test_constants_move_every_bound_their_way():
    """const and polylog narrow all conditions with a tilde, alone or together; (8) and (10) hide nothing."""
    plain = jiang.conditions(jiang_figure(20.0))
    for constants in ({"const": 6.0}, {"polylog": 6.0}, {"const": 2.0, "polylog": 3.0}):
        found = jiang.conditions(jiang_figure(20.0), given=jiang.JiangConstants(**constants))
        for name in ("(1)", "(2)", "(6)", "(7)"):
            assert found[name].ratio == pytest.approx(plain[name].ratio / 6, rel=1e-10)
        for name in ("(8) low", "(8) high", "(10)", "regime"):
            assert found[name].ratio == plain[name].ratio
    const = jiang.conditions(jiang_figure(20.0), given=jiang.JiangConstants(const=6.0))
    assert const["(3)"].ratio == pytest.approx(plain["(3)"].ratio / 6)
    assert const["(9)"].ratio == pytest.approx(plain["(9)"].ratio / 6)
    regime = jiang.JiangConstants(regime=5.0)
    cases: list[tuple[Any, float]] = [("4.1", 1 / 5), ("4.2", 5.0)]
    for theorem, ratio in cases:
        here = jiang.conditions(jiang_figure(20.0), theorem, regime)["regime"].ratio
        assert here == pytest.approx(
            ratio * jiang.conditions(jiang_figure(20.0), theorem)["regime"].ratio
        )


@settings(max_examples=25)
@given(st.floats(0.01, 100), st.floats(0.1, 10), st.floats(0.01, 10))
def test_ratios_do_not_depend_on_the_unit_of_length(unit: float, snr: float, rate: float):
    """papers/jiang.md 1.5: tokens by s, weights by 1/s, rate by 1/s^2 is the same run."""
    sizes: Any = {"samples": 10, "tokens": 3, "dim": 500, "hidden": 40, "snr": snr, "loss": 0.05}
    lengths: Any = {"noise_std": 0.3, "strong_noise_std": 2.0, "score_std": 0.01, "value_std": 0.02}
    powers = {"noise_std": 1, "strong_noise_std": 1, "score_std": -1, "value_std": -1}
    scaled = {name: value * unit ** powers[name] for name, value in lengths.items()}
    here = jiang.JiangNumbers(**sizes, **lengths, output_norm=0.7, rate=rate, radius=0.1)
    there = jiang.JiangNumbers(**sizes, **scaled, output_norm=0.7, rate=rate / unit**2, radius=0.1)
    for check in (jiang.conditions, zhang.conditions):
        for first, second in zip(check(here), check(there), strict=True):
            assert first.ratio == pytest.approx(second.ratio, rel=1e-10)


# Zhang: papers/zhang.md section 3.


def zhang_figure(snr: float, samples: int = 22) -> Setup:
    return Setup(
        data=SignalNoise(samples=samples, tokens=16, dim=1024, snr=snr, noise_std=math.sqrt(0.4)),
        network=Attention(hidden=128, init=TorchDefault(divide_by=16)),
        attack=small_pgd(0.05, relative_to="signal"),
        training=GradientDescent(rate=0.1, stop_loss=0.01),
    )


def test_zhang_figure_1_against_the_numbers_of_the_text():
    mild, strong = (zhang.conditions(zhang_figure(snr)) for snr in (0.5, 16.0))
    prints(mild["(1) d"].bound, "6e8")
    prints(strong["(1) d_h"].bound, "3e11")
    prints(1 / mild["(4)"].ratio, "5e2")
    prints(1 / strong["(4)"].ratio, "1e5")
    prints(math.sqrt(mild["(5) low"].value), "1.13e-3")
    prints(1 / math.sqrt(strong["(5) high"].ratio), "1e1")
    prints(mild["proof"].bound, "15360")
    prints(strong["radius"].bound, "0.206")
    for snr, inside in ((0.5, True), (1.0, True), (4.0, False)):
        found = zhang.conditions(zhang_figure(snr))
        assert (found["(5) low"].holds and found["(5) high"].holds) == inside


def test_zhang_has_a_smaller_start_of_values_than_jiang():
    cell = zhang_figure(2.0)
    first, second = jiang.conditions(cell)["(7)"], zhang.conditions(cell)["(5) V"]
    assert second.bound == pytest.approx(first.bound / 32)
    assert "sqrt(d)" in second.statement


def test_zhang_cases_differ_in_regime_and_radius():
    weak, strong = (zhang.conditions(zhang_figure(4.0), case) for case in (1, 2))
    assert strong["regime"].bound == pytest.approx(100 * weak["regime"].bound)
    assert weak["radius"].holds
    assert not strong["radius low"].holds
    assert strong["radius high"].holds
    assert strong["radius low"].bound == weak["radius"].bound
    prints(strong["uniform"].bound, "0.0442")
    assert not strong["uniform"].holds
    assert not strong["uniform"].required
    wide = zhang.conditions(zhang_figure(4.0), 2, jiang.JiangConstants(const=2.0))
    assert wide["radius low"].bound == pytest.approx(2 * weak["radius"].bound)
    assert wide["radius high"].bound == 0.5


@pytest.mark.parametrize(("tokens", "edge"), [(2, 0.0081), (16, 0.00013)])
def test_lemma_18_allows_only_tiny_radii(tokens: int, edge: float):
    """Without noise the bracket is positive up to r of about 1 / (30 M^2)."""
    start: Any = {"strong_noise_std": 1e-6, "score_std": 1.0, "value_std": 1.0, "output_norm": 1.0}
    sizes: Any = {"samples": 100, "tokens": tokens, "dim": 10**6, "hidden": 10}

    def gain(radius: float) -> bool:
        n = jiang.JiangNumbers(
            **sizes, **start, snr=1e4, noise_std=1e-6, rate=1.0, loss=0.1, radius=radius
        )
        return zhang.conditions(n)["Lemma 18"].holds

    assert gain(0.97 * edge)
    assert not gain(1.03 * edge)


def test_lemma_18_term_by_term():
    n = jiang.JiangNumbers(
        samples=10, tokens=3, dim=400, hidden=20, snr=2.0, noise_std=0.5, strong_noise_std=0.5,
        score_std=1.0, value_std=1.0, output_norm=1.0, rate=1.0, loss=0.1, radius=0.1,
    )  # fmt: skip
    mu, tau = 20.0, 2.0
    slack = mu * tau + 2 * 0.5 * tau * math.sqrt(2 * math.log(4 * 10 * 3 / 0.01)) + tau**2
    cost = 10 * (1 + 30 * 9) * slack + 60 * 9 * 0.5**2 * 400
    assert zhang.bracket(n, jiang.ALL_ONE) == pytest.approx((10 * 18.0**2, cost), rel=1e-12)


def test_the_laws_of_the_number_of_steps():
    """papers/jiang.md 3 and papers/zhang.md 3, with constant 1; |mu|^2 = 400, sigma_p^2 d = 100."""
    n = jiang.JiangNumbers(
        samples=10, tokens=3, dim=400, hidden=20, snr=2.0, noise_std=0.5, strong_noise_std=0.5,
        score_std=1.0, value_std=1.0, output_norm=0.5, rate=0.2, loss=0.1,
    )  # fmt: skip
    focused = 1 / (0.2 * 0.1 * 400 * 0.25)
    assert jiang.theorem_steps(n, "4.1") == pytest.approx(focused)
    assert jiang.theorem_steps(n, "4.2") == pytest.approx(10 / (0.2 * 0.1 * 100 * 0.25))
    assert zhang.theorem_steps(n, 1) == pytest.approx(focused)
    assert zhang.theorem_steps(n, 2) == pytest.approx(3 * focused)


# Wang: papers/wang.md section 5.

WANG_TABLE = {
    "(1a)": "10 .4 .1 180 7.2 1.8",
    "(1b)": ".0145 .014 .0126 .26 .251 .228",
    "(2)": "10 10 10 10 10 10",
    "(3)": "183 183 183 183 183 183",
    "(4)": "1e-5 1e-5 1e-5 3e-8 3e-8 3e-8",
    "(5)": "10.9 10.9 10.9 10.9 10.9 10.9",
    "(A1)": ".001 .63 10 6e-5 .035 .56",
    "(A2)": ".14 3.6 14 .14 3.6 14",
    "(B1)": "145 145 145 145 145 145",
    "(B2)": ".093 2.3 9.3 .02 .49 2.0",
}
WANG_CELLS = [(dim, r) for dim in (1000, 18000) for r in (1.0, 5.0, 10.0)]


def wang_figure(dim: int, r: float, unit: float = 1.0, **network: Any) -> Setup:
    """A cell of figure 1 with the start of the hybrid reading; `unit` scales all lengths."""
    return Setup(
        data=Mixture(samples=100, dim=dim, signal=r * unit, flip=0.1, noise_std=unit),
        network=TwoLayer(width=1000, init_std=1 / math.sqrt(3 * dim) / unit, **network),
        attack=small_pgd(0.1, "sample", "signal"),
        training=GradientDescent(rate=0.1 / unit**2, first_attacked_step=1),
    )


SMOOTH: Any = {"activation": "smoothed_leaky_relu", "slope": 0.5, "smoothness": 2.0}


@pytest.mark.parametrize("column", range(6))
def test_wang_figure_1_against_the_table(column: int):
    """With C = 1 a ratio is the largest C that a condition admits."""
    dim, r = WANG_CELLS[column]
    relu = wang.conditions(wang_figure(dim, r))
    smooth = wang.conditions(wang_figure(dim, r, **SMOOTH))
    for name, printed in WANG_TABLE.items():
        ratio = (smooth if name.startswith("(A") else relu)[name].ratio
        prints(1 / ratio if name == "(3)" else ratio, printed.split()[column])
    assert {row.name for row in smooth} ^ {row.name for row in relu} == {
        "(A1)",
        "(A2)",
        "(B1)",
        "(B2)",
    }
    assert not relu.hold
    assert not smooth.hold
    assert relu["setting"].holds


def test_no_cell_of_figure_1_satisfies_condition_1():
    """At the largest delta the best C over the grid is 0.34."""
    grid = [wang_figure(dim, r) for dim in range(1000, 18001, 1000) for r in range(1, 11)]
    found = [wang.conditions(cell, wang.WangConstants(failure=0.499)) for cell in grid]
    prints(max(min(each["(1a)"].ratio, each["(1b)"].ratio) for each in found), "0.34")


def test_the_smaller_part_of_condition_b2():
    """log(n / delta) rules where d is not much larger than n."""
    found = wang.conditions(wang_figure(100, 2.0))
    assert found["(B2)"].bound == pytest.approx(math.log(1000))


def test_wang_constant_moves_every_bound():
    plain = wang.conditions(wang_figure(1000, 5.0), wang.WangConstants())
    found = wang.conditions(wang_figure(1000, 5.0), wang.WangConstants(const=4.0))
    for name in ("(1a)", "(1b)", "(2)", "(4)", "(5)", "(B1)", "(B2)", "item 3"):
        assert found[name].ratio == pytest.approx(plain[name].ratio / 4, rel=1e-12)
    for name in ("(3)", "(6)"):
        assert found[name].ratio == plain[name].ratio


@settings(max_examples=20)
@given(st.floats(0.05, 20), st.floats(0.5, 20))
def test_wang_ratios_do_not_depend_on_the_unit_of_length(unit: float, r: float):
    here, there = (wang.conditions(wang_figure(500, r, scale)) for scale in (1.0, unit))
    for first, second in zip(here, there, strict=True):
        assert first.ratio == pytest.approx(second.ratio, rel=1e-10)


# What is not the theorem's setting, and what has no conditions at all.


def test_the_papers_own_experiments_are_outside_their_theorems():
    for name, check in (("jiang/fig1", jiang.conditions), ("zhang/fig1", zhang.conditions)):
        for _, cell in list(axes.cells(recipe(name).experiment("paper")))[::40]:
            found = check(cell)
            assert not found.hold
            assert "not projected" in found["setting"].statement
    for _, cell in axes.cells(recipe("wang/fig2").experiment("paper")):
        found = wang.conditions(cell)
        assert "both layers" in found["setting"].statement
        assert "first step" in found["setting"].statement
        assert found["(3)"].value == pytest.approx(math.sqrt(1000 / 3))


DEPARTURES = [
    ("labels", {"data": small_data(projected=True, flip=0.1)}),
    ("heads", {"network": small_network(heads=2)}),
    ("attention", {"network": small_network(attend="uniform")}),
    ("frozen", {"network": small_network(train="values")}),
    ("attacked", {"network": small_network(exposed="values")}),
    ("constant rate", {"drop_every": 3}),
]


@pytest.mark.parametrize(("departure", "fields"), DEPARTURES)
def test_departures_from_the_setting(departure: str, fields: Any):
    cell = small_setup(**({"data": small_data(projected=True), "stop_loss": 0.1} | fields))
    for found in (jiang.conditions(cell), zhang.conditions(cell)):
        statement = found["setting"].statement
        assert [each for each, _ in DEPARTURES if each in statement] == [departure]
        assert found["setting"] in found.failing


def test_departures_by_the_attack():
    data = small_data(projected=True, strong_noise_std=2.0)
    plain: Any = {"data": data, "stop_loss": 0.1}
    attacked = small_setup(attack=small_pgd(), stop_on="clean", **plain)
    assert jiang.conditions(small_setup(**plain))["setting"].holds
    message = jiang.conditions(attacked)["setting"].statement
    assert holds(message, "attack", "clean loss")
    message = zhang.conditions(small_setup(attack=small_pgd(per="sample"), **plain))[
        "setting"
    ].statement
    assert holds(message, "strong noise token", "ball")
    cell = small_setup(attack=small_pgd(0.3), data=small_data(projected=True), stop_loss=0.1)
    assert zhang.conditions(cell)["setting"].holds
    assert zhang.conditions(cell)["radius"].value == pytest.approx(0.15)


def test_what_has_no_conditions_is_refused():
    grid = small_setup(data=small_data(signal=[1.0, 2.0]), stop_loss=0.1)
    with pytest.raises(ValueError, match=says("`signal`", "one cell", "benign.spec.axes.cells")):
        jiang.conditions(grid)
    assert one_cell(small_setup()) == small_setup()
    with pytest.raises(
        ValueError, match=says("`data`", "mixture", "`network`", "signal_noise", "attention")
    ):
        zhang.conditions(wang_figure(100, 1.0))
    with pytest.raises(
        ValueError, match=says("`data`", "signal_noise", "`network`", "mixture", "two_layer")
    ):
        wang.conditions(jiang_figure(1.0))
    with pytest.raises(ValueError, match=says("`training.stop_loss`", "eps", "0.0")):
        jiang.conditions(small_setup())
    with pytest.raises(ValueError, match=says("`data.signal`", "0", "0.0")):
        jiang.conditions(small_setup(data=small_data(signal=0.0), stop_loss=0.1))
    several = MultiNorm(balls=Balls(radius=0.1))
    with pytest.raises(ValueError, match=says("`attack`", "multi_norm", "l2 ball")):
        zhang.conditions(small_setup(attack=several, stop_loss=0.1))


# Experiments inside a theorem.


def sizes(found: Any) -> tuple[float, float]:
    """d_h and d of an attention experiment."""
    return found.experiment.network.hidden, found.experiment.data.dim


JIANG_SIZES = [
    (20, 0.01, 1.0, 4e6, 1.6e13, "2e5"),
    (20, 0.1, 1.0, 4e4, 1.6e9, "2e3"),
    (10, 0.1, 1.0, 1e4, 1e8, None),
    (2, 0.1, 1.0, 400, 1.6e5, None),
    (20, 0.1, math.sqrt(50), 1e8, 4e12, None),
    (20, 0.01, 10.0, 4e10, 1.6e17, "2e7"),
    (20, 0.1, 0.5, 6.4e5, 2.56e10, None),
]


@pytest.mark.parametrize(("samples", "loss", "snr", "hidden", "dim", "steps"), JIANG_SIZES)
def test_jiang_smallest_experiments(
    samples: int, loss: float, snr: float, hidden: float, dim: float, steps: str | None
):
    found = inside("jiang", samples=samples, loss=loss, snr=snr)
    assert sizes(found) == (pytest.approx(hidden, rel=1e-9), pytest.approx(dim, rel=1e-9))
    assert found.conditions.hold
    if steps:
        prints(found.steps, steps)
    assert found.experiment.training.rate == pytest.approx(1 / max(1, snr**2) / math.sqrt(hidden))
    assert found.experiment.data.noise_std**2 * dim == pytest.approx(1)


def test_exact_whole_sizes():
    """1.6e13 is a whole number; rounding must not make it 16000000000001."""
    found = inside("jiang", samples=20, loss=0.01, snr=1.0)
    assert sizes(found) == (4_000_000, 16_000_000_000_000)


def test_the_explicit_benign_constant_needs_1e20_dimensions():
    found = inside("jiang", samples=20, loss=0.01, regime=96000.0)
    prints(found.experiment.data.snr, "69")
    prints(sizes(found)[0], "9e13")
    prints(sizes(found)[1], "4e20")
    assert found.conditions["proof"].holds
    assert inside("jiang", theorem="4.2", regime=4.0).conditions["proof"].holds


def test_the_fewest_samples_for_a_logarithm():
    found = inside("jiang", samples=None, loss=0.01, snr=1.0, log_power=1)
    assert found.experiment.data.samples == 33
    prints(sizes(found)[1], "1e14")
    with pytest.raises(ValueError, match=says("(3)", "N >= polylog d", "32.0", "32.3")):
        inside("jiang", samples=32, loss=0.01, snr=1.0, log_power=1)
    few = inside("jiang", samples=None, snr=0.25)
    assert few.experiment.data.samples == 16


def test_the_cheapest_ratio_of_each_theorem():
    """1 if the regime allows it, else its edge."""
    for chosen, race, snr in [
        ({"paper": "jiang"}, 1, 1.0),
        ({"paper": "jiang", "regime": 500.0}, 500, 5.0),
        ({"paper": "jiang", "theorem": "4.2"}, 1, math.sqrt(1 / 20)),
        ({"paper": "jiang", "theorem": "4.2", "regime": 40.0}, 40, 1.0),
        ({"paper": "zhang"}, 1, 1.0),
        ({"paper": "zhang", "case": 2, "loss": 0.01}, 100, math.sqrt(5)),
    ]:
        found = inside(**chosen)
        assert found.experiment.data.snr == pytest.approx(snr)
        assert found.conditions["regime"].bound == pytest.approx(race)


def test_zhang_experiments_have_the_attack_of_their_case():
    weak, strong = (inside("zhang", samples=22, loss=0.01, case=case) for case in (1, 2))
    edge = 1 / math.log(22**2 * 1e4)
    for found, case in ((weak, 1), (strong, 2)):
        radius = found.experiment.attack.ball.radius
        assert (radius <= edge * (1 + 1e-9)) == (case == 1)
        assert found.experiment.attack.ball.per == "token"
        assert found.experiment.data.strong_noise_std is None
        assert found.conditions["(5) V"].ratio == pytest.approx(1)
    unit = 1 / (strong.experiment.training.rate * 0.01 * strong.experiment.data.snr**2)
    assert strong.steps == pytest.approx(4 * unit)
    assert inside("zhang", radius=0).experiment.attack is None


WANG_SIZES = [
    (20, 1, "6.9 2.3e3", "6.3 2.3e3"),
    (20, 2, "10 5.0e3", "11.2 5.2e3"),
    (50, 2, "17.4 4.6e4", "15.3 4.3e4"),
    (100, 1, "17.8 1.0e5", "10.6 8.0e4"),
    (100, 2, "27.6 2.9e5", "19.5 2.1e5"),
    (100, 5, "55.4 1.9e6", "54.2 1.8e6"),
    (100, 10, "103 1.1e7", "149 2.3e7"),
    (200, 10, "202 1.7e8", "216 1.9e8"),
]


@pytest.mark.parametrize("activation", ["smooth", "relu"])
@pytest.mark.parametrize(("samples", "const", "smooth", "relu"), WANG_SIZES)
def test_wang_smallest_experiments(
    samples: int, const: float, smooth: str, relu: str, activation: str
):
    """The presets T1 to T4 are rows 1, 3, 6 and 7."""
    found = inside("wang", samples=samples, const=const, activation=activation)
    r, dim = (smooth if activation == "smooth" else relu).split()
    prints(found.experiment.data.signal, r)
    prints(found.experiment.data.dim, dim)
    network = found.experiment.network
    assert (network.activation == "relu") == (activation == "relu")
    assert found.conditions["(3)"].ratio == pytest.approx(1000)
    assert found.conditions["(4)"].ratio == pytest.approx(1)
    assert found.experiment.training.first_attacked_step == 1


@pytest.mark.parametrize(("const", "largest"), [(2.0, 0.35), (5.0, 0.089), (10.0, 0.032)])
def test_item_3_allows_radii_up_to_a_power_of_the_constant(const: float, largest: float):
    """rho <= C^-3/2; at small n (1b) adds nothing in the limit of large r."""
    chosen: Any = {"samples": 100, "const": const, "robust": True}
    if const**3 * 100 * largest**4 < 1:
        found = inside("wang", radius=0.97 * largest, **chosen)
        assert found.conditions["item 3"].holds
        assert found.conditions["item 3"].required
    with pytest.raises(ValueError, match=says("item 3", "rho <= r sqrt(n/d) / C")):
        inside("wang", radius=1.03 * largest, **chosen)


def test_a_relaxed_rate_is_reported_not_required():
    found = inside("wang", samples=100, const=5, relaxed=2.0)
    assert found.experiment.training.rate == pytest.approx(200 / found.experiment.data.dim)
    assert not found.conditions["(4)"].holds
    assert found.conditions.hold
    assert any(holds(line, "inside", "(4)") for line in found.text().splitlines())
    found = inside("jiang", relaxed=10.0)
    assert found.conditions["(6)"].ratio == pytest.approx(0.1)
    found = inside("zhang", relaxed=10.0)
    assert found.conditions["(4)"].ratio == pytest.approx(0.1)
    assert found.steps == pytest.approx(inside("zhang").steps / 10)


def test_the_text_of_an_experiment():
    lines = inside("jiang", samples=20, loss=0.01, snr=1.0).text().splitlines()
    assert holds(lines[0], "Jiang Theorem 4.1", "constants 1", "log factors 1", "polylog d = 1")
    assert any(line.split()[-4:] == ["1.60e+13", "1.60e+13", "1.00", "holds"] for line in lines)
    assert lines[-2] == "inside"
    assert holds(lines[-1], "2.00e+05 steps", "1.28e+07")


@pytest.mark.parametrize(
    ("paper", "chosen", "parts"),
    [
        ("jiang", {"dim": 1024}, ["(2)", "1024", "1.60e+09", "1.56e+06"]),
        ("jiang", {"hidden": 100}, ["(1) d_h", " 100 ", "40000", "400"]),
        ("jiang", {"rate": 0.1}, ["(6)", "0.100", "0.00500", "20.0"]),
        ("jiang", {"value_std": 0.1}, ["(7)", "1.41"]),
        ("jiang", {"score_std": 0.1}, ["(8) high", "118"]),
        ("jiang", {"snr": 0.1}, ["regime N SNR^2 >= c", "0.200", "1.00", "5.00"]),
        ("jiang", {"snr": 1.0, "theorem": "4.2"}, ["regime N SNR^2 <= c", "20.0", "1.00"]),
        ("jiang", {"loss": 0.01, "log_power": 3}, ["(3)", "1405", "(9)", "281"]),
        ("zhang", {"radius": 0.9}, ["radius tau <= ", "0.900", "0.0944", "9.54"]),
        ("zhang", {"radius": 0.01, "case": 2}, ["radius low tau >= ", "0.01"]),
        ("wang", {"const": 3}, ["(5) n >= C log(m/delta)", "20.0", "27.6", "1.38"]),
        ("wang", {"samples": 100, "const": 10, "flip": 0.2}, ["(2) beta <= 1 / C", "0.200", "0.1"]),
        ("wang", {"signal": 3.0}, ["(B2) r^2", "9.00", "38.7", "4.30"]),
        ("wang", {"dim": 1000}, ["(1b)", "1000"]),
        ("wang", {"radius": 1.5}, ["(6) alpha <= r", "1.50", "1.00"]),
    ],
)  # fmt: skip
def test_what_is_impossible_says_why_and_by_how_much(paper: str, chosen: Any, parts: list[str]):
    with pytest.raises(ValueError, match=says(*parts)) as error:
        inside(paper, **chosen)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("chosen", "parts"),
    [
        ({"lss": 0.1}, ["lss", "`loss`"]),
        ({"loss": 0}, ["loss", "greater than 0"]),
        ({"snr": float("nan")}, ["snr", "nan"]),
        ({"theorem": "5"}, ["theorem", "'4.1'", "'4.2'", "'5'"]),
        ({"failure": 1.0}, ["failure", "less than 1", "1.0"]),
        ({"loss": 1e-9}, ["dim", "less than or equal to"]),
        ({"tokens": 1}, ["`strong_noise_std`", "`tokens`", "2", "1"]),
    ],
)
def test_choices_that_make_no_sense(chosen: Any, parts: list[str]):
    with pytest.raises(SpecError, match=says(*parts)):
        inside("jiang", **chosen)


def test_only_papers_with_conditions():
    with pytest.raises(ValueError, match=says("`paper`", "jiang", "zhang", "wang", "'li'")):
        inside("li")


# Whatever is chosen, the experiment is inside, and a tenth smaller it is not.

ATTENTION = {
    "samples": st.integers(6, 200),
    "tokens": st.integers(2, 16),
    "loss": st.floats(1e-3, 0.2),
    "const": st.floats(0.2, 5),
    "polylog": st.floats(1, 30),
    "regime": st.floats(0.1, 100),
    "failure": st.floats(1e-3, 0.5),
}


def shrunk(found: Inside) -> Experiment:
    """The same experiment in a dimension smaller by a tenth."""
    return axes.replace(found.experiment, {("data", "dim"): int(0.9 * found.experiment.data.dim)})


def check_smallest(found: Inside, check: Any) -> None:
    cell = one_cell(found.experiment)
    assert found.conditions == check(cell)
    assert all(row.holds for row in check(cell) if row.required)
    failing = {row.name for row in check(shrunk(found)).failing}
    assert failing & {"(2)", "(1) d", "(1a)", "(1b)"}
    plain = json.loads(json.dumps(found.experiment.as_dict()))
    assert Experiment.from_dict(plain) == found.experiment


@settings(max_examples=30)
@given(chosen=st.fixed_dictionaries(ATTENTION), theorem=st.sampled_from(["4.1", "4.2"]))
def test_jiang_smallest_is_smallest(chosen: Any, theorem: Any):
    found = inside("jiang", theorem=theorem, **chosen)
    constants = jiang.JiangConstants(
        **{k: chosen[k] for k in ("const", "polylog", "regime", "failure")}
    )
    check_smallest(found, lambda cell: jiang.conditions(cell, theorem, constants))
    hidden, dim = sizes(found)
    with pytest.raises(ValueError, match=r"\(1\)"):
        inside("jiang", theorem=theorem, hidden=int(0.9 * hidden), dim=dim, **chosen)


@settings(max_examples=30)
@given(
    chosen=st.fixed_dictionaries(ATTENTION | {"const": st.floats(0.2, 1)}),
    case=st.sampled_from([1, 2]),
)
def test_zhang_smallest_is_smallest(chosen: Any, case: Any):
    found = inside("zhang", case=case, **chosen)
    constants = jiang.JiangConstants(
        **{k: chosen[k] for k in ("const", "polylog", "regime", "failure")}
    )
    check_smallest(found, lambda cell: zhang.conditions(cell, case, constants))


@settings(max_examples=20)
@given(
    samples=st.integers(40, 300),
    const=st.floats(0.5, 3),
    radius=st.floats(0, 0.3),
    failure=st.floats(0.01, 0.4),
    width=st.sampled_from([100, 1000]),
    activation=st.sampled_from(["relu", "smooth"]),
)
def test_wang_smallest_is_smallest(activation: str, const: float, failure: float, **chosen: Any):
    given: Any = {"activation": activation, "const": const, "failure": failure} | chosen
    found = inside("wang", **given)
    constants = wang.WangConstants(const=const, failure=failure)
    check_smallest(found, lambda cell: wang.conditions(cell, constants))
    smaller = 0.99 * found.experiment.data.signal
    with pytest.raises(ValueError, match=r"\((A|B)\d\) "):
        inside("wang", signal=smaller, **given)
