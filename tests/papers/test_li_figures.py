"""The figures of Li and Li: what is drawn and told beside the runs."""

import re

import numpy as np
import pytest
import xarray as xr

from benign.experiment import Experiment
from benign.papers.li.alpha import least_alpha, limits
from benign.papers.li.setting import EPS
from benign.papers.li.theory import parts, robust_network_slack
from benign.papers.registry import recipe
from benign.spec.axes import cells
from benign.sweep.dataset import assemble
from benign.training.descent import Status


def made_up(name: str, **values: float) -> xr.Dataset:
    """A result of two seeds that ended, in which seed 1 has twice the values of seed 0."""
    fields = recipe(name).experiment("smoke").as_dict()
    result = assemble(Experiment.from_dict({**fields, "seeds": 2}), [])
    result["status"][...] = Status.STEP_CAP
    for variable, value in values.items():
        result[variable][...] = np.broadcast_to([value, 2 * value], result[variable].shape)
    return result


def test_no_classifier_is_robust_unless_classes_are_separated():
    bound = limits(made_up("li/alpha"), [2.0, 5.0]).isel(seed=0)
    assert float(bound.sel(alpha=2.0)) < 0.75
    assert float(bound.sel(alpha=5.0)) == 1


def test_the_second_mark_is_where_the_room_of_a_robust_network_is_one():
    _, cell = next(cells(recipe("li/alpha").experiment("paper")))
    data, network = parts(cell)
    alpha = least_alpha(data, network)
    others = data.tokens - data.robust_patches
    assert robust_network_slack(
        data.robust_patches, others, alpha, EPS, network.q
    ) == pytest.approx(1)
    assert alpha == pytest.approx(1.2 * (1 + 16 ** (1 / 3)))


@pytest.mark.parametrize("name", ["li/fig3", "li/alpha"])
def test_each_kind_of_training_is_held_against_its_own_theorem(name):
    chosen = recipe(name)
    assert chosen.conditions is not None
    for _, cell in cells(chosen.experiment("paper")):
        theorem = "4.3" if cell.attack.clip == 0 else "4.4"
        found = chosen.conditions(cell)
        assert found is not None
        assert theorem in str(found)


def test_the_summary_of_figure_3_tells_every_attack_apart():
    attacks = {
        "robust_accuracy": 0.01,
        "robust_accuracy_one_step": 0.02,
        "robust_accuracy_own_ascent": 0.03,
        "robust_accuracy_margin_ascent": 0.04,
        "robust_accuracy_loss_ascent": 0.05,
        "robust_accuracy_feature_swap": 0.06,
        "robust_accuracy_all_patch": 0.07,
    }
    told = recipe("li/fig3").summarise(made_up("li/fig3", **attacks, label_leak_on_noise=0.5))
    assert re.search(r"0\.045\D+sign-PGD\D+-F_y\D+0\.075\D+sign-PGD\D+cross-entropy", told)
    assert re.search(r"0\.09 \D*Delta\(X, y\)\D+0\.105\D+all-patch\D+0\.015\b", told)
    assert re.search(r"noise\D+class\D+0\.75\b", told)


def test_longer_training_is_a_reading():
    chosen = recipe("li/fig3")
    built = [
        chosen.experiment("paper", chosen.reading({"steps": steps})) for steps in ("1000", "5000")
    ]
    assert [each.training.most_steps() for each in built] == [1000, 5000]


def test_runs_from_before_the_ascents_are_drawn_without_them(tmp_path):
    result = made_up("li/fig3")
    result["test_accuracy_curve"][...] = 0.5
    old = result.drop_vars([name for name in result if "ascent" in str(name)])
    assert recipe("li/fig3").draw(old, tmp_path, "a caption")
