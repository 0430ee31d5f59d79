"""The two audits as a person asks for them."""

from typing import Any

import numpy as np
import pytest
import xarray as xr

import benign as bo
from benign.cli.main import main
from benign.experiment import Experiment
from benign.plot.caption import origin
from benign.sweep.audits import AUDIT, attack_audit, rate_audit, slower, with_rate_audit
from benign.sweep.ends import doubts
from benign.training.optimisers import SGD, Training
from tests.reference import small_data, small_network, small_pgd
from tests.says import holds, says


def small(attack=None, **training) -> Experiment:
    return bo.Experiment(
        data=small_data(samples=[4, 6]),
        network=small_network(),
        attack=attack,
        training=bo.GradientDescent(
            **({"rate": 1.0, "stop_loss": 0.3, "max_steps": 40} | training)
        ),
        evaluation=bo.Evaluation(samples=30, attack=attack),
        seeds=2,
    )


def trained_by(training: Training) -> Experiment:
    return bo.Experiment(data=small_data(), network=small_network(), training=training)


def test_slower_runs_have_equal_time_and_draws():
    experiment = small(rate=[0.5, 1.0], drop_every=10)
    half = slower(experiment, 2)
    assert half.training.as_dict()["rate"] == [0.25, 0.5]
    training = half.training.as_dict()
    assert (training["max_steps"], training["drop_every"]) == (80, 20)
    assert half.pairing == "common"
    assert slower(small(first_attacked_step=1), 4).training.first_attacked_step == 4
    zipped = small(rate=bo.zipped("speed", [0.5, 1.0]))
    assert slower(zipped, 4).training.rate == bo.zipped("speed", [0.125, 0.25])


def test_slower_mini_batches_have_more_epochs():
    slowed = slower(trained_by(SGD(rate=0.5, epochs=6, warm_up=1.5)), 4).training
    assert slowed == SGD(rate=0.125, epochs=24, warm_up=6.0)


def test_a_method_whose_steps_cannot_be_made_more_is_refused():
    class Brief(Training):
        def most_steps(self) -> int:
            return 7

        def rate_at(self, step: Any) -> Any:
            return self.rate

        def update(self, params: Any, gradient: Any, moments: Any, step: float, count: int) -> None:
            raise NotImplementedError

    try:
        with pytest.raises(ValueError, match=says("`training`", "brief", "7", "14", "`in_steps`")):
            slower(trained_by(Brief(rate=1.0)), 2)
    finally:
        Training.choices().pop("brief")


def test_the_rate_audit_finds_what_depends_on_the_step(tmp_path):
    """A small rate follows gradient flow; one at the edge of stability does not."""
    calm = rate_audit(small(rate=0.05, max_steps=100), tmp_path / "calm")
    wild = rate_audit(small(rate=60.0, max_steps=12, stop_loss=0.0), tmp_path / "wild")
    of_calm, of_wild = (
        next(line for line in lines if line.startswith("test_loss")) for lines in (calm, wild)
    )
    assert "0 of 2 cells" in of_calm
    assert "2 of 2 cells" in of_wild
    assert calm[-1].startswith("converged runs:")
    assert sorted(path.name for path in (tmp_path / "calm").iterdir()) == [
        "rate_1",
        "rate_2",
        "rate_4",
    ]


def test_a_result_shows_which_cells_its_rate_audit_moved(tmp_path):
    """Cells that the audit did not try have no answer; without an audit nothing is added, and captions say so."""
    wild = small(rate=60.0, max_steps=12, stop_loss=0.0)
    result = wild.run(tmp_path)
    assert with_rate_audit(result, tmp_path) is result
    assert holds(origin(result).rpartition(").")[2].lower(), "step size", "not", "audit")
    fewer = Experiment.from_dict({**wild.as_dict(), "data": small_data(samples=[6]).as_dict()})
    rate_audit(fewer, tmp_path / AUDIT)
    audited = with_rate_audit(result, tmp_path)
    np.testing.assert_array_equal(audited.test_loss_moved.values, [np.nan, 1.0])
    assert holds(origin(audited), "quarter of the rate", "test loss", "1 of 1 cells", "cpu (")


def test_the_attack_audit_of_a_folder(tmp_path, capsys):
    result = small(small_pgd(0.2)).run(tmp_path / "run")
    lines = attack_audit(result)
    assert lines[0] == "4 runs with an attack"
    attacks = ("fresh points", "accuracy", "training attack", "evaluation attack")
    assert any(holds(line, *attacks) for line in lines)
    assert any(holds(line, "proven", "fresh points", "accuracy") for line in lines)
    assert main(["audit", str(tmp_path / "run")]) == 0
    *printed, stored = capsys.readouterr().out.splitlines()
    assert printed == lines
    assert holds(stored, "stored", "attacks.json")


def test_flags_are_counted():
    result = xr.Dataset({"audit": ("seed", [0.0, 5.0, 1.0, float("nan")])})
    [line] = doubts(result)  # no run is masked
    assert holds(line, "2 runs: training attack weaker on test points", "1 run: zero gradients")
    assert doubts(xr.Dataset()) == []
    [line] = attack_audit(xr.Dataset())
    assert holds(line, "no attack", "audit")


def test_the_command_audits_a_step_size(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(
        "data: {kind: signal_noise, tokens: 3, dim: 8, noise_std: 0.5, samples: 4, snr: 2}\n"
        "network: {kind: attention, hidden: 3, init: {kind: torch_default}}\n"
        "training: {rate: 0.1, max_steps: 20}\nevaluation: {samples: 20}\n"
    )
    assert main(["audit", "my.yaml"]) == 0
    printed = capsys.readouterr().out
    assert holds(printed, "cells", "seeds", "test_accuracy:")
    assert (tmp_path / "runs/my/audit/rate_4").is_dir()


def test_bad_targets_are_reported(capsys):
    assert main(["audit", "nothing/here"]) == 2
    assert holds(capsys.readouterr().err, "'nothing/here'", "jiang/fig1")


@pytest.mark.parametrize("field", ["robust_accuracy_certified", "audit"])
def test_a_result_explains_its_audit(tmp_path, field):
    result = small(small_pgd(0.2)).run(tmp_path / "run")
    assert result[field].attrs["long_name"]
    if field == "audit":
        assert "training_attack_weaker_on_test_points" in result.audit.attrs["flag_meanings"]
