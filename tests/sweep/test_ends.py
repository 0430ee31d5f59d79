"""Masked runs: found by the training loss, counted and worded the same everywhere, however runs were computed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import benign as bo
from benign.claims import Claims, Direction, Evidence, at_least, judge, mean
from benign.cli.main import main
from benign.experiment import Experiment
from benign.plot.variables import caption_of
from benign.report.atlas import Atlas
from benign.report.folder import ResultFolder
from benign.report.live.drawing import load_sweep
from benign.report.live.monitor import StoreReader
from benign.sweep.audits import ATTACKS, attack_audit, attack_cells
from benign.sweep.dataset import masked, masked_share
from benign.sweep.ends import BY_LOSS, REASONS, doubts, masked_count, masked_text
from benign.sweep.plan import NUMERICS
from benign.sweep.status_text import result_text
from benign.training.metrics.audit import MASKING
from tests.says import holds

ROOT = Path(__file__).parents[2]
BALL = bo.Ball(radius=0.8)
FEEBLE = bo.PGD(ball=BALL, steps=1, step=1e-3)
STRONG = bo.PGD(ball=BALL, steps=20)
TEXT = "2 of 4 audited runs (50 %), in 1 of 2 cells"
"""masked runs of a sweep with half of its runs trained by the feeble attack"""


def small(**fields) -> Experiment:
    """Two cells: trained by an attack that does not move, and by a sound one; every point stays right."""
    parts = {
        "data": bo.Mixture(samples=6, dim=8, signal=2.0, noise_std=0.05),
        "network": bo.Linear(),
        "attack": [FEEBLE, STRONG],
        "training": bo.GradientDescent(rate=0.5, stop_loss=0.02, max_steps=400),
        "evaluation": bo.Evaluation(samples=20, attack=bo.PGD(ball=BALL, steps=30)),
        "seeds": 2,
    }
    return Experiment(**(parts | fields))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("masked") / "run"
    small().run(path)
    return path


@pytest.fixture
def result(folder) -> xr.Dataset:
    return bo.open_result(folder)


def test_the_planted_runs_are_right_under_both_attacks_and_their_loss_is_three_times_larger(result):
    """The accuracy shows nothing: only the training loss does."""
    for name in ("train_robust_accuracy", "train_robust_accuracy_judged", "robust_accuracy"):
        assert (result[name] == 1).all()
    feeble = result.isel(attack=0)
    trained = feeble.train_robust_loss - feeble.train_loss_raised
    assert (feeble.train_robust_loss > 3 * trained).all()
    np.testing.assert_allclose(trained, feeble.train_loss, rtol=0.05)


def test_the_dataset_flags_them(result):
    assert masked(result).values.tolist() == [[True, True], [False, False]]
    assert masked_share(result).values.tolist() == [1.0, 0.0]
    assert masked_count(result) == TEXT


def test_captions_count_them(result):
    assert holds(caption_of(result), TEXT, "raises their training loss by more than 10 %")
    assert "asked" not in caption_of(result.isel(attack=1))


def test_cells_and_pages_of_a_report_count_them(folder):
    opened = ResultFolder.open(folder)
    [notice] = [each for each in opened.notices if "Masked runs" in each]
    assert holds(notice, TEXT, "benign audit")
    assert opened.atlas.endings.values.tolist() == [
        "2 seeds: converged; 2 masked",
        "2 seeds: converged",
    ]


def test_the_live_page_counts_them(folder):
    loaded = load_sweep(StoreReader(folder))
    assert TEXT in loaded.doubts
    assert any(TEXT in line for line in loaded.troubles)


def test_benign_audit_prints_and_stores_the_rise_of_the_loss_by_cell(folder, capsys):
    assert main(["audit", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert holds(printed, TEXT, "training loss: ", "times as large in a run", "2 of 2")
    stored = json.loads((folder / ATTACKS).read_text())
    assert stored["numerics"] == NUMERICS
    assert (stored["audited"], stored["masked"]) == (4, 2)
    feeble, strong = stored["cells"]
    assert (feeble["masked"], feeble["audited"], strong["masked"]) == (2, 2, 0)
    assert feeble["raised"] > 2 * feeble["train_loss"]
    assert feeble["largest_ratio"] > 3
    assert strong["largest_ratio"] is None
    assert main(["store", "check", str(folder)]) == 0


def test_benign_audit_of_a_folder_that_may_only_be_read(folder, monkeypatch, capsys):
    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("benign.sweep.audits.replacing", denied)
    assert main(["audit", str(folder)]) == 0
    assert holds(capsys.readouterr().err, "not stored", "Permission denied")


def test_benign_run_says_it(folder, capsys, tmp_path):
    (tmp_path / "my.yaml").write_text(small().to_yaml())
    assert main(["run", str(tmp_path / "my.yaml"), "--out", str(folder)]) == 0
    assert TEXT in capsys.readouterr().out


def test_the_table_of_a_result_has_their_share(result):
    head, *rows = result_text(result).splitlines()[1:]
    assert "masked runs" in head
    assert [row.split()[-2:] for row in rows] == [["100", "%"], ["0", "%"]]
    assert "masked" not in result_text(result.assign(audit=0 * result["audit"]))


def test_a_verdict_is_open_because_of_them(result):
    """A slope of robust numbers, which attacks bound on neither side."""
    claims = Claims("me")

    @claims.add("thm1", "Theorem 1", at_least(-0.5), robust=Direction.MIXED)
    def gain(evidence):
        """The attack that trained does not matter."""
        accuracy = evidence.result.robust_accuracy.isel(dim=0)
        return mean("gain", accuracy.isel(attack=0) - accuracy.isel(attack=1))

    (claim,) = claims
    # No network has a certificate here: a masked run may have an accuracy of 0.
    bare = result.drop_vars("robust_accuracy_certified").expand_dims("dim")
    verdict = judge(claim, Evidence("quick", {}, (bare,), (small(),)))
    assert verdict.word == "inconclusive"
    assert holds(verdict.reason, "masked", TEXT)
    sound = bare.assign(audit=0 * bare["audit"])
    assert judge(claim, Evidence("quick", {}, (sound,), (small(),))).word == "unbroken"


def test_every_flag_that_masks_has_its_reason():
    assert sum(REASONS) == MASKING


def test_the_reason_is_that_of_the_flags():
    def sentence(*codes: float) -> str:
        return masked_text(xr.Dataset({"audit": ("seed", list(codes))}))

    assert holds(sentence(2, 0), "1 of 2 audited runs (50 %), in 1 of 1 cell;", REASONS[2])
    assert REASONS[32] not in sentence(2, 0)
    assert holds(sentence(32), REASONS[32])
    assert holds(sentence(2, 32), f"{REASONS[2]}, or {REASONS[32]}")
    assert sentence(0, 1, float("nan")) == ""


# However the runs were computed.


def _same_flags(result: xr.Dataset) -> bool:
    return masked(result).values.tolist() == [[True, True], [False, False]]


BATCHES = bo.SGD(rate=0.2, epochs=60, batch=3, stop_loss=0.02)


@pytest.mark.parametrize(
    "fields",
    [{"training": BATCHES}, {"coordinates": "sampled"}, {"coordinates": "projected"}],
    ids=["mini-batches", "sampled", "projected"],
)
def test_mini_batches_and_reduced_coordinates_do_not_change_who_is_masked(tmp_path, fields):
    assert _same_flags(small(**fields).run(tmp_path))


@pytest.mark.slow
def test_a_vision_transformer_is_audited_by_its_loss(tmp_path):
    """The feeble attack does not move a pixel; the evaluation attack does."""
    ball = bo.Ball(p="inf", radius=0.3)
    experiment = Experiment(
        data=bo.SignalNoise(samples=8, tokens=4, dim=9, signal=3.0, noise_std=0.1),
        network=bo.VisionTransformer(hidden=8, heads=2, mlp=8),
        attack=[bo.PGD(ball=ball, steps=1, step=1e-4), bo.PGD(ball=ball, steps=10, keep="best")],
        training=bo.AdamW(rate=0.01, epochs=30, stop_loss=0.05),
        evaluation=bo.Evaluation(samples=20, attack=bo.PGD(ball=ball, steps=10, keep="best")),
    )
    result = experiment.run(tmp_path)
    assert masked(result).values.ravel().tolist() == [True, False]


def test_runs_with_and_without_an_audit_are_counted_apart(tmp_path):
    """Runs without any attack have no audit: they are neither masked nor among the audited ones."""
    result = small(attack=[None, FEEBLE], evaluation=bo.Evaluation(samples=20)).run(tmp_path)
    assert result["audit"].isnull().values.tolist() == [[True, True], [False, False]]
    assert masked(result).values.tolist() == [[False, False], [True, True]]
    assert masked_share(result).isnull().values.tolist() == [True, False]
    assert masked_count(result) == "2 of 2 audited runs (100 %), in 1 of 1 cell"
    assert len(attack_cells(result)) == 1


def test_a_result_without_an_audit_has_no_masked_runs(tmp_path, capsys):
    result = small(attack=None, evaluation=bo.Evaluation(samples=20)).run(tmp_path / "clean")
    assert "audit" not in result
    assert not masked(result).any()
    assert masked_share(result).isnull().all()
    assert doubts(result) == []
    assert "asked" not in caption_of(result)
    assert Atlas(result).endings.values.ravel().tolist() == ["2 seeds: converged"]
    assert main(["audit", str(tmp_path / "clean")]) == 0
    assert "nothing to audit" in capsys.readouterr().out
    assert not (tmp_path / "clean" / ATTACKS).exists()


def test_a_result_of_older_numerics_keeps_its_flags_and_says_how_they_were_found(result):
    """Before the training loss was measured, flags came from accuracies."""
    names = [name for name in result if "train_robust_loss" in name or "raised" in name]
    older = result.drop_vars(names).assign_attrs(numerics=BY_LOSS - 1)
    assert _same_flags(older)
    assert holds(masked_text(older), TEXT, "older", "accuracies", "numerics 5")
    assert "raises" not in masked_text(older)
    assert any(TEXT in line for line in attack_audit(older))
    assert attack_cells(older)[0]["masked"] == 2


SCRIPT = """
import os, signal, sys
from tests.sweep.test_ends import small

replace = os.replace

def dying(source, target):
    replace(source, target)
    if str(target).endswith(".npz"):
        os.kill(os.getpid(), signal.SIGKILL)

os.replace = dying
small().run(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_sweep_that_was_killed_and_resumed_has_the_same_flags(tmp_path, result):
    """The process dies when the first of two records is written."""
    folder = tmp_path / "killed"
    died = subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], cwd=ROOT, check=False)
    assert died.returncode == -signal.SIGKILL
    assert len(list(folder.glob("records/*.npz"))) == 1
    resumed = small().run(folder)
    for name in ("audit", "train_robust_loss", "train_loss_raised"):
        np.testing.assert_array_equal(resumed[name], result[name])
