"""What recipes say of results of which a part is missing or failed: they count only runs that ended properly."""

import re
from functools import cache

import numpy as np
import pytest
import xarray as xr

from benign.experiment import Experiment
from benign.papers.registry import recipe, recipes
from benign.plot import style
from benign.sweep.dataset import assemble
from benign.training.descent import Status


@pytest.fixture(autouse=True)
def svg_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One format tells what is drawn; tests/papers/test_recipes.py writes all."""
    render = style._render
    monkeypatch.setattr(
        style, "_render", lambda of, kind: render(of, kind) if kind == "svg" else b""
    )


@cache
def empty(name: str) -> xr.Dataset:
    """The result of a recipe with two seeds before any run has ended."""
    fields = recipe(name).experiment("smoke").as_dict()
    return assemble(Experiment.from_dict({**fields, "seeds": 2}), [])


def half(name: str) -> xr.Dataset:
    """The same after one seed converged, with all values 0.5, and the other failed."""
    result = empty(name).copy(deep=True)
    result["status"][..., 0], result["status"][..., 1] = Status.CONVERGED, Status.FAILED
    for variable in set(map(str, result.data_vars)) - {"status"}:
        at = {"seed": 0}
        result[variable][at] = np.full_like(result[variable][at], 0.5)
    return result


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_speaks_of_partial_results(name):
    for result in (empty(name), half(name)):
        assert "[nan" not in recipe(name).summarise(result)


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_draws_partial_results_and_says_what_is_missing(name, tmp_path):
    assert recipe(name).draw(half(name), tmp_path, "a caption")
    files = recipe(name).draw(empty(name), tmp_path, "a caption")
    svg = next(file for file in files if file.suffix == ".svg")
    assert re.search(r"\bno\b.*\bvalue|0 of 3 rows", svg.read_text(encoding="utf-8"))


def test_failed_runs_are_neither_slow_nor_fast():
    told = recipe("zhang/inside").summarise(half("zhang/inside"))
    assert re.search(r"\b1, steps 0\.5\b", told)
    assert "steps nan" in recipe("zhang/inside").summarise(empty("zhang/inside"))


def test_shares_are_of_runs_that_ended():
    told = recipe("jiang/inside").summarise(half("jiang/inside"))
    ended = half("jiang/inside").status.size // 2
    assert f"{ended} of {ended} runs" in told
    told = recipe("wang/fig2").summarise(half("wang/fig2"))
    assert re.search(r"robust test error 0\.500\b.*\b1 runs", told)
    assert "0 of 1 runs" in told
    told = recipe("wang/fig2").summarise(empty("wang/fig2"))
    assert re.search(r"robust test error\D+\bno run", told)
