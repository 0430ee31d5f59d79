"""Figures 3 and 4 of Jiang: the formula of the time, what is drawn, and how made-up runs are summarised."""

import numpy as np
import pytest
import xarray as xr

from benign.papers.jiang import figures
from benign.papers.jiang.figures import FIG3, FIG4
from benign.papers.jiang.theory import JiangNumbers, parts, steps_derived
from benign.papers.recipes import Recipe
from benign.sweep.dataset import assemble
from benign.training.descent import Status
from tests.says import holds


def made_up(recipe: Recipe, **values: float) -> xr.Dataset:
    """A result at paper scale in which every run converged with these values."""
    result = assemble(recipe.experiment("paper", recipe.reading({"w_O": "divided"})), [])
    result["status"][:] = Status.CONVERGED
    for name, value in values.items():
        result[name] = xr.full_like(result[name], value)
    return result


@pytest.mark.parametrize(("recipe", "theorem", "steps"), [(FIG3, "4.1", 2458), (FIG4, "4.2", 3750)])
def test_the_formula_of_the_time_is_that_of_the_specification(recipe, theorem, steps):
    """papers/jiang.md 4.3: with w_O divided by 16, 2 / (eta eps mu^2 |w_O|^2) and N / (eta eps sigma~^2 d |w_O|^2)."""
    cell = recipe.experiment("paper", recipe.reading({"w_O": "divided"}))
    assert steps_derived(JiangNumbers.of(cell), theorem, 1.0) == pytest.approx(steps, rel=1e-3)
    assert f"= {steps}" in recipe.summarise(made_up(recipe))


def test_the_summary_holds_the_formula_with_the_attention_that_is_left():
    result = made_up(FIG4, attention_on_strong_noise=0.5, attention_on_signal=0.1, steps=20.0)
    summary = FIG4.summarise(result)
    formula = "N / (eta eps C_p^2 sigma_p^2 d |w_O|^2) = 3750, 15000"
    assert holds(summary, "14 of 14 runs", "0.01", "20.0 [20.0, 20.0]", formula)
    benign = FIG3.summarise(made_up(FIG3, attention_on_signal=0.5, attention_on_strong_noise=0.1))
    assert holds(benign, "= 2458, 9830", "attention^2")


def test_lengths_of_tokens_are_the_papers_at_every_scale():
    for scale in ("smoke", "quick", "paper"):
        data, _ = parts(FIG3.experiment(scale))
        assert data.strong_noise_std is not None
        assert data.strong_noise_std**2 * data.dim == pytest.approx(2048)
        assert data.strong_noise_std / data.noise_std == pytest.approx(20)


def test_the_signal_wins_in_figure_3_and_the_strong_noise_in_figure_4(tmp_path):
    """Scores, attention and values alike, in a small run of each; and every one of them is drawn."""
    for recipe, winner in ((FIG3, 0), (FIG4, 1)):
        result = recipe.experiment("smoke").run(tmp_path / recipe.name)
        for group in (figures.ATTENTION, figures.VALUES):
            first, second = (result[name].item() for name in group.values())
            assert (first > second) is (winner == 0)
        rows = np.reshape([result[name].item() for name in figures.SCORES.values()], (2, 2))
        assert (rows.argmax(1) == winner).all()
        _, svg, _ = recipe.draw(result, tmp_path, "a caption")
        drawn = svg.read_text(encoding="utf-8")
        assert all(name in drawn for name in (*figures.SCORES, *figures.ATTENTION, "T by formula"))
