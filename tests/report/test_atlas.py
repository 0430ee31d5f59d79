"""What can be drawn of a result: which axes, which quantities, which curves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benign.experiment import Experiment
from benign.papers.registry import recipe, recipes
from benign.report.atlas import CHIEF, PAPER, Atlas, without_shared_parts
from benign.report.cells import finished_curve, packed_bytes, packed_curves, thinned
from benign.spec.axes import cells
from benign.sweep.folders import open_experiment, open_result
from benign.sweep.runner import Runner
from tests.report.made_up import fill
from tests.says import holds, says
from tests.tiny import tiny


@pytest.fixture(scope="module")
def atlas(three: Path) -> Atlas:
    return Atlas(open_result(three))


def test_the_two_longest_axes_make_the_map_and_the_rest_are_sliders(atlas: Atlas):
    assert (atlas.x, atlas.y) == ("samples", "snr")
    assert atlas.sliders == {"radius": ["0.1", "0.3"]}


def test_the_main_quantities_come_first(atlas: Atlas):
    names = [each.name for each in atlas.quantities]
    assert names[:3] == ["test_accuracy", "robust_accuracy", "robust_accuracy_certified"]
    assert "status" not in names
    assert "audit" not in names
    assert atlas.quantities[0].group == CHIEF
    assert "fresh clean points" in atlas.quantities[0].meaning


def test_a_slider_moves_the_map_and_a_click_finds_the_run(atlas: Atlas, three: Path):
    """The axes of the experiment descend; those of figures ascend."""
    result = open_result(three)
    for place, radius in enumerate([0.1, 0.3]):
        drawn = atlas.figure("robust_accuracy", {"radius": place})["data"][0]
        for row, snr in enumerate([0.5, 2.0, 8.0]):
            for column, samples in enumerate([2, 4]):
                where = {"samples": samples, "snr": snr, "radius": radius}
                mean = result.robust_accuracy.sel(where).mean().item()
                assert drawn["z"][row][column] == pytest.approx(mean, rel=1e-4)
    curve = atlas.curves(atlas.curve_groups[0], samples=1, snr=0, radius=1)["data"][-1]
    name = {"train clean loss": "train_clean_loss_curve", "train loss": "train_loss_curve"}
    run = result[name[curve["name"]]].sel(samples=4, snr=0.5, radius=0.3).mean("seed")
    shown = np.array(curve["y"], dtype=float)
    np.testing.assert_allclose(shown, run.values, rtol=1e-4)


def test_cells_of_a_specification_are_found_on_figures(atlas: Atlas, three: Path):
    shape = [atlas.result.sizes[dim] for dim in atlas.dims]
    for number, (where, _) in enumerate(cells(open_experiment(three))):
        at = np.unravel_index(atlas.cell_number(number), shape)
        for dim, i in zip(atlas.dims, at, strict=True):
            assert atlas.result[dim].values[i] == where[dim]


def test_curves_are_sorted_by_what_they_are_about(atlas: Atlas):
    titles = [group.title for group in atlas.curve_groups]
    assert titles == ["Loss", "Accuracy", "Attention", "Coordinates of the theory"]
    assert atlas.curve_groups[0].names == ("train_loss_curve", "train_clean_loss_curve")
    assert [group.alone for group in atlas.curve_groups] == [False, False, False, True]


def test_a_recipe_brings_the_maps_of_its_paper(jiang: Path):
    result = open_result(jiang / "jiang/fig1/smoke/default")
    atlas = Atlas(result, recipe("jiang/fig1"))
    paper = [each.title for each in atlas.quantities if each.group == PAPER]
    assert paper == ["test loss", "test loss, cut at 0.2", "test error"]
    figure = atlas.figure("paper 0")
    loss = result.test_loss.mean("seed").transpose("snr", "samples").values
    np.testing.assert_allclose(np.array(figure["data"][0]["z"]), loss, rtol=1e-4)
    assert any("N · SNR² = 1000" in trace.get("name", "") for trace in figure["data"])
    assert holds(figure["about"], "law", "paper")
    assert "law" not in atlas.figure("train_loss")["about"]


def test_what_was_never_reached_has_no_number(jiang: Path):
    result = open_result(jiang / "jiang/fig1/smoke/default")
    result["stage_1_end"][:] = -1
    result["stage_1_end"][0, 0, 0] = 7
    atlas = Atlas(result, recipe("jiang/fig1"))
    figure = atlas.figure("stage_1_end")
    numbers = {value for row in figure["data"][0]["z"] for value in row}
    assert numbers == {None, 7.0}
    assert "no value" in figure["about"]


def test_a_curve_ends_with_the_number_of_the_result(three: Path):
    """Of two seeds one ends early: it stays where it ended, and the mean does not jump."""
    result = open_result(three)
    steps = result["step"].values
    early, late = int(steps[1]), int(steps[3])
    curve = result["train_loss_curve"]
    curve[:] = np.where(steps <= late, 1.0, np.nan)
    curve[..., 0, :] = np.where(steps <= early, 1.0, np.nan)
    curve[..., 1, 3] = 0.2
    result["steps"][..., 0], result["steps"][..., 1] = early, late
    result["train_loss"][..., 0], result["train_loss"][..., 1] = 0.4, 0.2
    found = finished_curve(result, "train_loss_curve")
    mean = found.mean("seed")[0, 0, 0].values
    np.testing.assert_allclose(mean[:4], [1.0, 1.0, 0.7, 0.3])
    assert np.isnan(mean[4:]).all()
    thin = finished_curve(result, "train_loss_curve", [0, len(steps) - 1])
    np.testing.assert_allclose(thin.mean("seed")[0, 0, 0].values, [1.0, 0.3])


MAPS = sorted(name for name, each in recipes().items() if each.panels)


@pytest.mark.parametrize("name", ["wang/fig1", "wang/fig3", "zhang/fig1"])
def test_every_kind_of_map_of_a_paper_finds_its_axes(name: str, tmp_path: Path):
    """Also where a recipe gives an axis another name, as wang/fig3 does."""
    assert name in MAPS
    chosen = recipe(name)
    atlas = Atlas(open_result(fill(tmp_path, chosen.experiment("smoke"))), chosen)
    assert atlas.note == ""
    assert {atlas.x, atlas.y} <= set(atlas.dims)
    drawn = [atlas.figure(each.name) for each in atlas.quantities if each.group == PAPER]
    shape = atlas.result.sizes[atlas.y], atlas.result.sizes[atlas.x]
    assert {np.shape(figure["data"][0]["z"]) for figure in drawn} == {shape}


def test_maps_that_a_changed_axis_forbids_are_reported(tmp_path: Path):
    atlas = Atlas(fill_and_open(tmp_path, "data.snr=2.0"), recipe("jiang/fig1"))
    assert holds(atlas.note, "maps", "jiang/fig1", "axes", "samples")
    assert (atlas.x, atlas.y) == ("samples", None)
    assert len(atlas.figure("test_accuracy")["data"]) == 3  # a line and its band


def test_one_cell_has_no_figure(tmp_path: Path):
    atlas = Atlas(fill_and_open(tmp_path, "data.snr=2.0", "data.samples=4"))
    assert (atlas.x, atlas.y, atlas.sliders) == (None, None, {})
    assert atlas.cell_number(0) == 0
    with pytest.raises(ValueError, match=says("one cell", "axes")):
        atlas.figure("test_accuracy")


def test_a_sweep_that_has_not_begun_can_be_drawn(tmp_path: Path):
    Runner(tiny(), tmp_path)
    atlas = Atlas(open_result(tmp_path))
    cells = atlas.figure("test_accuracy")["data"][0]
    assert {value for row in cells["z"] for value in row} == {None}
    assert "not run" in cells["text"][0][0]
    assert atlas.quantities == []
    assert atlas.curve_groups == []


def test_fields_that_move_together_are_one_axis_with_their_names(tmp_path: Path):
    zipped = {"zipped": "pair", "values": [0.5, 2.0]}, {"zipped": "pair", "values": [0.1, 0.2]}
    fields = tiny().as_dict()
    fields["data"] |= {"snr": zipped[0], "noise_std": zipped[1]}
    fill(tmp_path, Experiment.from_dict(fields))
    atlas = Atlas(open_result(tmp_path))
    ticks = atlas.figure("test_accuracy")["layout"]["yaxis"]["ticktext"]
    assert atlas.y == "pair"
    assert sorted(ticks[1].split(", ")) == ["noise_std 0.2", "snr 2"]
    assert "dashed" not in atlas.figure("test_accuracy")["about"]  # there is no law of labels


def test_components_are_labelled_by_their_differences(tmp_path: Path):
    networks = [
        f"{{kind: attention, hidden: {size}, init: {{kind: torch_default}}}}" for size in (4, 8)
    ]
    fill(tmp_path, tiny("data.snr=2.0", f"network=[{', '.join(networks)}]"))
    atlas = Atlas(open_result(tmp_path))
    axis = atlas.figure("test_accuracy")["layout"]
    names = {*axis["xaxis"].get("ticktext", ()), *axis["yaxis"].get("ticktext", ())}
    assert names == {"2", "4", "attention(hidden=4)", "attention(hidden=8)"}
    assert without_shared_parts(["pgd(a)", "none"]) == ["pgd(a)", "none"]
    assert without_shared_parts(["f(a, b)", "f(a)"]) == ["f(a, b)", "f(a)"]


def test_packed_curves_are_what_they_were_to_four_digits(three: Path):
    atlas = Atlas(open_result(three))
    names = [name for group in atlas.curve_groups for name in group.names]
    packed = packed_curves(atlas.result, names, atlas.dims, 10**6)
    assert packed.names == tuple(names)
    assert packed.kinds == ("mean", "low", "high")
    run = atlas.result["train_loss_curve"].isel(samples=1, snr=2, radius=0)
    cell = int(np.ravel_multi_index((1, 2, 0), (2, 3, 2)))
    found = unpacked(packed_bytes(packed.numbers)).reshape(packed.numbers.shape)
    place = packed.names.index("train_loss_curve")
    for kind, reduced in enumerate((run.mean("seed"), run.min("seed"), run.max("seed"))):
        expected = reduced.isel(step=packed.points).values
        np.testing.assert_allclose(found[cell, place, kind], expected, rtol=2e-5)


def unpacked(content: bytes) -> np.ndarray:
    """As the script of a page does it."""
    high, middle, low = np.frombuffer(content, np.uint8).reshape(3, -1).astype(np.uint32)
    return (high << 24 | middle << 16 | low << 8).view(np.float32)


def test_a_small_budget_gives_fewer_points_then_fewer_curves(three: Path):
    atlas = Atlas(open_result(three))
    names = [name for group in atlas.curve_groups for name in group.names]
    sizes = {"cells": 12, "kinds": 3}
    steps = atlas.result.sizes["step"]
    fewer = packed_curves(atlas.result, names, atlas.dims, 12 * 3 * len(names) * 15)
    assert fewer.names == tuple(names)
    assert fewer.numbers.shape[-1] == min(15, steps)
    one = packed_curves(atlas.result, names, atlas.dims, sizes["cells"] * sizes["kinds"] * 15)
    assert one.names == tuple(names[:1])
    none = packed_curves(atlas.result, names, atlas.dims, 100)
    assert none.numbers.size == 0
    assert thinned(100, 5) == [0, 25, 50, 74, 99]


def fill_and_open(folder: Path, *changes: str) -> Any:
    return open_result(fill(folder, tiny(*changes)))
