"""Constants of O statements on results with known growth; formulas without eval."""

import json
import math

import numpy as np
import pytest
import xarray as xr

from benign.claims.constant import constant, evaluate, names_in
from benign.training.descent import Status
from tests.says import holds, says
from tests.tiny import tiny

DIMS = np.array([100.0, 200.0, 400.0, 800.0])
SIGNALS = np.array([1.0, 2.0, 4.0])
SEEDS = 6


def made(growth: float = 0.0, noise: float = 0.02, seeds: int = SEEDS) -> xr.Dataset:
    """steps = 3 dim^growth / (rate signal^2), times a seed's luck."""
    rng = np.random.default_rng(0)
    luck = np.exp(noise * rng.standard_normal((len(DIMS), len(SIGNALS), seeds)))
    steps = 3 * DIMS[:, None, None] ** growth / (0.5 * SIGNALS[:, None] ** 2) * luck
    dims = ("dim", "signal", "seed")
    coords = {"dim": DIMS, "signal": SIGNALS, "seed": np.arange(seeds)}
    status = np.full(steps.shape, Status.CONVERGED.value)
    attrs = {"experiment": json.dumps(tiny().as_dict())}  # its rate is 0.5
    return xr.Dataset({"steps": (dims, steps), "status": (dims, status)}, coords, attrs)


def test_a_true_statement_has_its_constant_and_stays_bounded():
    measured = constant(made(), "steps", "1 / (rate * signal**2)")
    assert measured.low.value < 3 < measured.high.value
    assert measured.high.value / measured.low.value < 1.05
    assert measured.bounded is True
    assert set(measured.along) == {"dim", "signal"}
    for each in measured.along.values():
        assert each.slope.low < 0 < each.slope.high
        assert max(each.highs) == pytest.approx(measured.high.value)
    assert "steps = Theta(1 / (rate * signal**2)): c = " in str(measured)
    assert "dim: bounded (dim^" in str(measured)


@pytest.mark.parametrize(
    ("growth", "kind", "bounded"),
    [
        (0.31, "O", False),
        (0.31, "Omega", True),
        (0.31, "Theta", False),
        (-0.31, "O", True),
        (-0.31, "Omega", False),
        (-0.31, "Theta", False),
    ],
)
def test_growth_is_found_where_the_statement_forbids_it(growth, kind, bounded):
    measured = constant(made(growth), "steps", "1 / (rate * signal**2)", kind=kind)
    assert measured.bounded is bounded
    assert measured.along["dim"].slope.value == pytest.approx(growth, abs=0.02)
    assert measured.along["signal"].bounded is True
    if not bounded:
        assert f"dim^{'0' if growth > 0 else '-0'}.3" in str(measured)
        assert "dim: bounded" not in str(measured)


def test_without_noise_the_slope_is_exact():
    measured = constant(made(0.31, noise=0.0), "steps", "3 / (rate * signal**2)", "O", axes=["dim"])
    assert tuple(measured.along["dim"].slope) == pytest.approx((0.31,) * 3, abs=1e-10)
    assert measured.high.value == pytest.approx(800**0.31, rel=1e-10)
    assert measured.along["dim"].lows == pytest.approx(DIMS**0.31, rel=1e-10)


def test_seeds_that_do_not_decide_say_so():
    one = constant(made(0.31, seeds=1), "steps", "1 / (rate * signal**2)")
    assert one.bounded is None
    assert "undecided" in str(one)
    noisy = constant(made(noise=2.0), "steps", "1 / (rate * signal**2)")
    assert noisy.bounded is None


def test_runs_without_a_number_are_left_out_and_counted():
    result = made(0.31, noise=0.0)
    result["steps"][0, 0, 0] = math.nan
    result["steps"][:, 1, 2] = math.nan
    result["status"][1, 1, 1] = Status.STEP_CAP
    measured = constant(result, "steps", "1 / (rate * signal**2)")
    assert (measured.left_out, measured.capped) == (5, 1)
    assert measured.along["dim"].slope.value == pytest.approx(0.31, abs=1e-10)
    assert holds(str(measured), "5 runs", "positive", "1 runs", "cap")


def test_wrong_statements_are_refused():
    with pytest.raises(ValueError, match=says("`colour`", "rate", "signal")):
        constant(made(), "steps", "colour")
    with pytest.raises(ValueError, match=says("`kind`", "O, ", "Omega", "Theta", "'o'")):
        constant(made(), "steps", "1", kind="o")
    with pytest.raises(ValueError, match=says("`axes`", "dim, signal", "'radius'")):
        constant(made(), "steps", "1", axes=["radius"])
    with pytest.raises(ValueError, match=says("`variable`", "steps", "'dim', 'signal'")):
        constant(made().mean("seed"), "steps", "1")
    with pytest.raises(ValueError, match=says("steps", "-1", "positive")):
        constant(made(), "steps", "-1")


def test_formulas_are_computed_as_python_would():
    values = {"n": 5.0, "d": np.array([2.0, 8.0])}
    for text in ["n * d**2", "1 / (n + d) - 3", "-n ** -0.5", "+d / 2"]:
        np.testing.assert_array_equal(evaluate(text, values), eval(text, {}, values))
    np.testing.assert_allclose(evaluate("max(d, n) + min(d, 3)", values), [7.0, 11.0])
    np.testing.assert_allclose(evaluate("exp(log(d)) * sqrt(4)", values), [4.0, 16.0])
    assert names_in("n * log(d)**n") == ["n", "d"]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "n.real",
        "n[0]",
        "lambda: 1",
        "n if n else 1",
        "(n := 3)",
        "'word'",
        "True",
        "n // 2",
        "n < 2",
        "abs(n)",
        "max(*n)",
        "log(n, base=2)",
        "log(n, 2)",
        "n +",
        "",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=says(repr(text))):
        evaluate(text, {"n": 1.0})


def test_a_power_cannot_hang():
    with pytest.raises(OverflowError):
        evaluate("9 ** 9 ** 9 ** 9", {})
