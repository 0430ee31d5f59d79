"""Advice: what theory says about numbers, in Python and on the command line."""

import dataclasses
import math

import pytest
import yaml

import benign as bo
from benign.cli import main as cli
from benign.papers.advice import advise
from benign.papers.jiang import theory as jiang
from benign.papers.zhang import theory as zhang
from benign.spec.axes import cells
from tests.says import holds


def run(capsys, *words):
    code = cli.main(["advise", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def limits(advice):
    return {(limit.name, limit.form): limit.value for limit in advice.radii}


def test_radii_of_attention_printed_beside_corrected():
    found = limits(advise(samples=20, snr=2.0, tokens=4, hidden=128, radius=0.05))
    assert found["attention learns", "printed"] == pytest.approx(1 / math.log(128))
    assert found["no classifier is robust", "printed"] == 1.0
    assert found["no classifier is robust", "corrected"] == pytest.approx(math.sqrt(0.5))
    assert found["nor any that ignores positions", "corrected"] == pytest.approx(
        math.sqrt(1.25) / 2
    )
    assert found["nor uniform attention", "corrected"] == pytest.approx(math.sqrt(0.5) / 4)


def test_the_bracket_of_lemma_18_closes_at_its_radius():
    advice = advise(samples=2000, snr=4.0, tokens=2, dim=10**6, radius=0.001)
    edge = limits(advice)["attention learns", "corrected"]
    assert 0 < edge < 1 / (30 * 4)
    numbers = jiang.JiangNumbers.of(advice.experiment, attacked=True)
    for radius, exists in ((0.999 * edge, True), (1.001 * edge, False)):
        gain, cost = zhang.bracket(dataclasses.replace(numbers, radius=radius), jiang.ALL_ONE)
        assert (gain > cost) is exists


def test_the_conditions_are_those_of_the_experiment():
    clean, attacked = advise(samples=20, snr=2.0), advise(samples=20, snr=2.0, radius=0.1)
    assert [each.title[:17] for each in clean.theorems] == [
        "Jiang Theorem 4.1",
        "Jiang Theorem 4.2",
    ]
    assert attacked.theorems[0].title.startswith("Zhang Theorem 2 case 1")
    assert attacked.theorems == (zhang.conditions(attacked.experiment, 1),)
    assert (
        advise(samples=20, snr=2.0, radius=0.4)
        .theorems[0]
        .title.startswith("Zhang Theorem 2 case 2")
    )


def test_copies_are_not_new_points():
    line = advise(samples=20, snr=2.0, copies=4).regime[-1]
    assert "N 20 -> 80" in line
    assert holds(line, "N SNR^2 80.0 -> 160", "printed", "64.0", "corrected")


def test_two_layers_and_patches():
    two = advise(network="two_layer", samples=100, signal=8.0, dim=5000, flip=0.1)
    assert limits(two)["no classifier is robust", "printed"] == 1.0
    assert "n r^4 / d = 81.9" in two.regime[0]
    chosen = bo.recipe("li/fig3")
    *_, (_, attacked) = cells(chosen.experiment("smoke"))
    patches = advise(attacked)
    assert (patches.unit, patches.theorems[0].title[:14]) == ("alpha", "Li Theorem 4.4")


def test_training_to_a_loss_of_0_has_no_number_of_steps(tmp_path):
    """The page of such an experiment ended in a ZeroDivisionError."""
    experiment = bo.Experiment(
        data=bo.Mixture(samples=4, dim=6, signal=2.0),
        network=bo.TwoLayer(width=2, preset="torch_default"),
        training=bo.GradientDescent(rate=0.1, stop_loss=0.0, max_steps=2),
        evaluation=bo.Evaluation(samples=4),
    )
    assert advise(experiment).steps == ()
    experiment.run(tmp_path / "run")
    assert bo.write_report(tmp_path / "run").is_file()


def test_the_command_gives_an_experiment_that_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        "--samples",
        "4",
        "--snr",
        "4",
        "--tokens",
        "2",
        "--dim",
        "1e9",
        "--hidden",
        "8",
        "--loss",
        "0.3",
    ]
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "benign advise --network attention --samples 4" in out
    code, out, _ = run(capsys, *words, "--yaml")
    assert yaml.safe_load(out)["data"]["dim"] == 10**9
    (tmp_path / "my.yaml").write_text(out)
    assert cli.main(["run", "my.yaml", "--seeds", "1", "--set", "training.max_steps=3"]) == 0
    code, out, _ = run(capsys, "my.yaml", "-v")
    assert code == 0
    assert "d >= N^2 d_h / eps^2" in out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--samples", "20"], ["snr"]),
        (["--samples", "x", "--snr", "1"], ["--samples", "number", "'x'"]),
        (
            ["--network", "resnet", "--samples", "2"],
            ["`network`", "attention", "two_layer", "'resnet'"],
        ),
        (["my.yaml", "--samples", "2"], ["my.yaml", "--samples"]),
        (["jiang/fig1"], ["60 cells", "one"]),
        (
            ["--network", "two_layer", "--samples", "9", "--signal", "2", "--copies", "3"],
            ["copies", "field"],
        ),
    ],
)
def test_what_cannot_be_advised_on_is_refused(capsys, words, parts):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert holds(err, *parts)
