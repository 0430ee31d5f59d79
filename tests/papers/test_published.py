"""Published numbers: small, honest about how they were made, drawn like a run's."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import benign as bo
from benign.cli.main import main
from benign.papers import published
from benign.papers.published import FOLDER, LARGEST_FOLDER, Made, call_of, figures
from benign.papers.registry import claims, recipes
from benign.papers.requests import RequestOptions, requests_of
from benign.sweep import figure_file
from benign.sweep.dataset import assemble
from benign.sweep.plan import NUMERICS

KNOWN = figures()
FILES = sorted(FOLDER.iterdir())


def test_the_files_stay_small():
    sizes = [file.stat().st_size for file in FILES]
    assert {file.name for file in FILES} == {f"{name}.json.gz" for name in KNOWN}
    assert max(sizes) <= figure_file.LARGEST == 300_000
    assert sum(sizes) <= LARGEST_FOLDER == 10_000_000


@pytest.mark.parametrize("name", KNOWN)
def test_every_figure_is_found_and_says_how_it_was_made(name: str):
    made, numbers = KNOWN[name], published.numbers(name)
    assert made.target in recipes()
    assert 1 <= made.numerics <= NUMERICS
    assert made.command.startswith(f"benign run {made.target} --scale {made.scale}")
    assert set(made.claims) <= claims().keys()
    if not len(numbers):
        with pytest.raises(ValueError, match="only the picture was stored"):
            eval(call_of(name, made), {"bo": bo})
        return
    found = eval(call_of(name, made), {"bo": bo})
    assert found.identical(numbers.assign_attrs(found.attrs))
    assert found.attrs["recipe"].startswith(f"{made.target} at {made.scale} scale")
    assert found.attrs["numerics"] == made.numerics
    assert found.attrs["command"] == made.command
    assert found.attrs["runs"] == sum(made.runs.values())
    assert found.attrs["seeds"] >= 1
    means, names = found.attrs["content"] == "means over seeds", set(map(str, found))
    assert ("seed" in found.dims) != means
    if means:
        assert {f"{n}_standard_error" for n in names if not n.endswith("_error")} <= names


def test_names_and_axes_are_those_of_a_run():
    ours = bo.published("zhang/fig1")
    like = assemble(bo.recipe("zhang/fig1").experiment("paper"), [])
    assert {n for n in map(str, ours) if not n.endswith("_standard_error")} <= set(like)
    for axis in ("samples", "snr"):
        assert ours[axis].identical(like[axis])
    assert ours.test_loss.attrs["units"] == like.test_loss.attrs["units"]


def test_a_reading_chooses_among_the_figures_of_a_recipe():
    log, linear = bo.published("zhang/fig1", snr_grid="log"), bo.published("zhang/fig1")
    assert not np.array_equal(log.snr, linear.snr)
    assert log.attrs["reading"] == ["snr_grid=log"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bo.published("zhang/fig99"), ["zhang/fig99", "zhang/fig1", "li/fig3"]),
        (
            lambda: bo.published("zhang/fig1", noise="std"),
            ['bo.published("zhang/fig1")', 'snr_grid="log"'],
        ),
    ],
    ids=["no figure", "no reading"],
)
def test_a_figure_that_is_not_there_names_those_that_are(call, words):
    with pytest.raises(ValueError, match="published") as caught:
        call()
    assert all(word in str(caught.value) for word in words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    [request] = requests_of("jiang/fig1", RequestOptions("smoke", seeds=2, out=place / "results"))
    request.experiment.run(request.folder, made=request.made)
    return request.folder


def test_an_export_is_the_result_and_says_how_it_was_made(folder: Path, tmp_path: Path, capsys):
    file = tmp_path / "ours.json.gz"
    assert main(["export", str(folder), str(file)]) == 0
    assert capsys.readouterr().out.startswith("24 of 24 runs of ")
    assert main(["export", str(folder), str(file)]) == 2, "an existing file stays"
    ours, result = bo.published(file), bo.open_result(folder)
    assert {name: ours.attrs[name] for name in result.attrs} == result.attrs
    assert ours.attrs["content"] == "runs"
    assert ours.attrs["command"] == "benign run jiang/fig1 --scale smoke --seeds 2"
    assert "jiang/fig1.boundary_1000" in ours.attrs["claims"]
    for name in set(result) - set(ours.attrs["left_out"]):
        expected = result[name].sel(step=ours.step) if "step" in result[name].dims else result[name]
        np.testing.assert_allclose(ours[name].values, expected.values, rtol=5.001e-4)
    assert len(bo.to_dataframe(ours)) == 24


def test_a_published_figure_is_drawn_over_a_fresh_run(folder: Path):
    """The same function draws both, and one's law goes over the other's map."""
    ours, fresh = bo.published("jiang/fig1"), bo.open_result(folder)
    law = bo.boundary(fresh.test_loss, level=0.2, law="samples * snr**p")
    for result in (ours, fresh):
        panel = bo.plot.Panel(result.test_loss, "samples", "snr", "test loss", boundary=law)
        figure = bo.plot.phase_figure([panel], title="both", caption="")
        drawn = figure.axes[0].collections[0].get_array()
        mean = result.test_loss.mean("seed") if "seed" in result.dims else result.test_loss
        assert np.sort(np.asarray(drawn).ravel()) == pytest.approx(np.sort(mean.values.ravel()))
    both = xr.concat([ours.test_loss, fresh.test_loss.mean("seed")], "whose", join="outer")
    assert both.sizes["whose"] == 2


@pytest.mark.parametrize(
    "wrong", [{"reading": "x"}, {"numerics": "6"}, {"runs": [1]}, {"seeds": {}}]
)
def test_a_file_that_lies_about_its_fields_is_refused(wrong: dict, tmp_path: Path):
    made = {"target": "a/b", "scale": "", "reading": {}, "command": "", "numerics": 1}
    file = tmp_path / "theirs.json.gz"
    for fields in ({**made, **wrong}, {"target": "a/b"}):
        figure_file.write(file, figure_file.encode(xr.Dataset(), fields))
        with pytest.raises(figure_file.FigureFileError, match="does not say how it was made"):
            bo.published(file)
    newer = {**made, "a field of a newer version": 1}
    figure_file.write(file, figure_file.encode(xr.Dataset(), newer))
    assert json.loads(json.dumps(Made.of(newer).as_dict())) == {
        "target": "a/b",
        "reading": {},
        "numerics": 1,
    }
    assert bo.published(file).attrs["target"] == "a/b"
