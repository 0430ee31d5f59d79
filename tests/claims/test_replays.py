"""Replays: the runs of a result and no others, with the weights they had, compared with their records."""

from pathlib import Path

import pytest
import torch
import xarray as xr

import benign as bo
from benign.claims import Evidence, Undecided
from benign.claims.identity import identity_batch, identity_steps, own_streams
from benign.experiment import Experiment
from benign.training.descent import Status
from tests.says import says
from tests.tiny import tiny


def evidence(experiment: Experiment, result: xr.Dataset) -> Evidence:
    return Evidence("smoke", {}, (result,), (experiment,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    tiny().run(path, keep_weights=True)
    return path


@pytest.fixture
def result(folder: Path) -> xr.Dataset:
    return tiny().result_in(folder)


def altered(result: xr.Dataset, name: str, value: float, **where: float) -> xr.Dataset:
    variable = result[name].copy()
    variable.loc[where] = value
    return result.assign({name: variable})


def test_final_weights_are_those_that_the_sweep_kept(folder: Path, result: xr.Dataset):
    experiment, count = tiny(), 0
    for replay in evidence(experiment, result).replays():
        for runs, batch in replay.ended():
            for place, run in enumerate(runs):
                where = {name: value for name, value in run.where.items() if name != "seed"}
                kept = bo.weights(folder, run.seed, **where)
                count += 1
                for name, part in kept.items():
                    torch.testing.assert_close(batch.params[name][place], part[0], atol=0, rtol=0)
    assert count == result.status.size


def test_replays_are_units_of_the_experiment(result: xr.Dataset):
    units = [tuple(run.key for run in unit.runs) for unit in tiny().units()]
    replays = evidence(tiny(), result).replays()
    assert [tuple(run.key for run in replay.runs) for replay in replays] == units


def test_large_units_are_split_as_the_cpu_splits_them(result: xr.Dataset, monkeypatch):
    monkeypatch.setattr("benign.claims.replays.batch_size", lambda cell, device: 3)
    replays = evidence(tiny(), result).replays()
    assert [len(each) for each in replays] == [3, 1, 3, 1]
    assert sum(len(runs) for each in replays for runs, _ in each.ended()) == 8


def test_cells_come_in_the_order_of_the_grid(result: xr.Dataset):
    made = evidence(tiny(), result)
    first = [each.runs[0].where for each in made.replays_by_cell()]
    grid = [(2, 0.5), (2, 2.0), (4, 0.5), (4, 2.0)]
    assert first == [{"samples": samples, "snr": snr, "seed": 0} for samples, snr in grid]
    one = made.replay(samples=4, snr=0.5)
    assert one == made.replays_by_cell()[2]
    assert one.seeds == [0, 1]
    assert one.of_seeds([1]).seeds == [1]


@pytest.mark.parametrize("where", [{"samples": 3, "snr": 0.5}, {"radius": 1.0}, {"samples": 4}, {}])
def test_one_cell_must_be_there(result: xr.Dataset, where: dict[str, float]):
    with pytest.raises(Undecided):
        evidence(tiny(), result).replay(0, **where)


@pytest.mark.parametrize(
    "status", [Status.MISSING, Status.FAILED, Status.OUT_OF_MEMORY, Status.DIVERGED]
)
def test_runs_without_sound_weights_are_left_out(result: xr.Dataset, status: Status):
    lost = altered(result, "status", status, samples=2, snr=2.0, seed=1)
    replays = evidence(tiny(), lost).replays()
    assert sum(map(len, replays)) == result.status.size - 1
    assert (2, 2.0, 1) not in [tuple(run.where.values()) for each in replays for run in each.runs]
    with pytest.raises(Undecided, match=says("1 of 2", "weights")):
        evidence(tiny(), lost).replay(samples=2, snr=2.0)


def test_fewer_seeds_are_fewer_runs(folder: Path):
    part = tiny("seeds=1")
    replays = evidence(part, part.result_in(folder)).replays()
    assert {run.seed for each in replays for run in each.runs} == {0}


@pytest.mark.parametrize("change", [-1, 1, 1000])
def test_another_number_of_steps_is_noticed(result: xr.Dataset, change: int):
    steps = float(result.steps.sel(samples=4, snr=0.5, seed=1)) + change
    made = evidence(tiny(), altered(result, "steps", steps, samples=4, snr=0.5, seed=1))
    with pytest.raises(Undecided, match=says("samples 4, snr 0.5, seed 1", f" {steps:g} steps")):
        list(made.replay(samples=4, snr=0.5).steps())


@pytest.mark.parametrize(
    ("precision", "change", "same"),
    [
        ("float32", 1e-3, True),
        ("float32", 0.05, False),
        ("float64", 1e-10, True),
        ("float64", 1e-6, False),
        ("float64", float("nan"), False),
    ],
)
def test_losses_agree_but_for_rounding(tmp_path: Path, precision: str, change: float, same: bool):
    experiment = tiny(f"precision={precision}")
    result = experiment.run(tmp_path)
    made = evidence(experiment, result.assign(train_loss=(1 + change) * result.train_loss))
    if same:
        assert list(made.replays()[0].steps())
    else:
        with pytest.raises(Undecided, match="loss"):
            list(made.replays()[0].steps())


def test_a_result_of_another_experiment_is_noticed(result: xr.Dataset):
    with pytest.raises(Undecided):
        [list(each.steps()) for each in evidence(tiny("root_seed=1"), result).replays()]


def test_mini_batches_are_compared_as_they_are_recorded(tmp_path: Path):
    training = "training={kind: sgd, rate: 0.2, epochs: 6, batch: 2, stop_loss: 0.5}"
    experiment = tiny(training, "data.samples=6")
    made = evidence(experiment, experiment.run(tmp_path))
    ends = [run for replay in made.replays() for runs, _ in replay.ended() for run in runs]
    assert len(ends) == made.result.status.size


def test_what_is_kept_by_replays_depends_on_runs_and_records(result: xr.Dataset):
    (first, *_), (again, *_) = (evidence(tiny(), result).replays() for _ in range(2))
    assert first == again
    assert hash(first) == hash(again)
    longer = result.assign(steps=result.steps + 1)
    (other, *_) = evidence(tiny(), longer).replays()
    assert first != other


def test_a_first_step_on_the_same_points_is_the_same_training(result: xr.Dataset):
    replay = evidence(tiny(), result).replay(samples=4, snr=0.5).of_seeds([0])
    *_, (last, _) = replay.steps()
    for step in replay.steps_after(replay.start().sample.x):
        if step.number == last.number:
            torch.testing.assert_close(step.loss, last.loss, rtol=1e-6, atol=0)
            return
    pytest.fail("it ended before")


def test_runs_of_an_identity_are_drawn_alone():
    cell = tiny("data.samples=4", "data.snr=0.5", "seeds=1")
    batch = identity_batch([cell] * 3)
    named, other = identity_batch([cell] * 3, "mine"), identity_batch([cell] * 3, "theirs")
    assert not torch.equal(batch.sample.x, named.sample.x)
    assert not torch.equal(named.sample.x, other.sample.x)
    few, more = (own_streams("mine", runs)("a").normal(5) for runs in (3, 4))
    assert torch.equal(few, more[:3])
    assert [step.number for step in identity_steps(batch)][:3] == [0, 1, 2]
