"""scripts/same_numbers.py: two trees are compared run by run, bit by bit."""

import importlib.util
from pathlib import Path

import numpy as np

spec = importlib.util.spec_from_file_location(
    "same_numbers", Path(__file__).parents[1] / "scripts" / "same_numbers.py"
)
assert spec
assert spec.loader
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)

RUN = (("snr", "1.0"), ("seed", "0"))


def frozen(value: float, **more: object) -> dict:
    array = np.asarray(value)
    return {"a/fig1": {RUN: {"loss": (array.dtype.str, array.shape, array.tobytes())}}, **more}


def test_equal_numbers_have_no_differences():
    assert script.differences(frozen(0.5), frozen(0.5)) == []


def test_one_bit_a_missing_recipe_run_variable_or_a_failure_is_a_difference():
    last_bit = float(np.nextafter(0.5, 1.0))
    [line] = script.differences(frozen(0.5), frozen(last_bit))
    assert all(word in line for word in ("a/fig1", "snr", "loss"))
    assert script.differences(frozen(0.5), {}) == ["a/fig1: only before"]
    assert script.differences(frozen(0.5), {"a/fig1": {}}) == ["a/fig1: other runs"]
    assert script.differences(frozen(0.5), {"a/fig1": {RUN: {}}})
    assert script.differences({"a/fig1": "Traceback"}, {"a/fig1": "Traceback"})
