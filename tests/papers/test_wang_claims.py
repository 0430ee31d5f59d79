"""The claims about Wang et al.: identities hold, planted truths hold, and planted falsehoods fail."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from benign.claims import Claim, Evidence, Outcome, Study, Undecided, judge
from benign.claims.identity import identity_batch, identity_steps
from benign.claims.replays import Replays
from benign.experiment import Experiment
from benign.papers.registry import claims
from benign.papers.statistics import cells_of
from benign.papers.verify import Verifier
from benign.papers.wang import figures
from benign.papers.wang.bounds import robust_error_floor
from benign.papers.wang.claims import extremes, identities, studies
from benign.papers.wang.claims import figures as claims_of_figures
from benign.papers.wang.claims.extremes import distance_between, extremes_of
from benign.spec.axes import cells, dimensions


def claim(name: str) -> Claim:
    return claims()[f"wang/{name}"]


def outcome(name: str, result: xr.Dataset, experiment: Experiment) -> Outcome:
    """Of a claim on a made-up result of an experiment."""
    verdict = judge(claim(name), Evidence("smoke", {}, (result,), (experiment,)))
    assert not verdict.error
    return verdict.outcome


def in_process(experiment: Experiment, folder: Path, title: str) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return experiment.run(folder)


@pytest.mark.parametrize("name", ["identities"])
def test_a_claim_is_judged_without_error(name: str, tmp_path: Path):
    for each in Verifier("smoke", tmp_path, in_process).judge(claim(name)):
        assert not each.verdict.error


@pytest.mark.parametrize("scale", ["smoke", "quick", "paper"])
def test_studies_inside_the_theorem_are_inside(scale: str):
    """All conditions, but for the rate where a study says so."""
    for study, missed in (
        (studies.FIRST, set()),
        (studies.ACTIVE, set()),
        (studies.INSIDE, {"(4)"}),
    ):
        for _, cell in cells(study.experiment(scale)):
            conditions = studies.for_robust_error(cell)
            assert conditions is not None
            assert {row.name for row in conditions.failing} == missed


def floor_result(experiment: Experiment, excess: float) -> xr.Dataset:
    """Robust errors that exceed the sharp floor by a fixed amount."""
    rows = []
    for cell in cells_of(experiment):
        n = extremes.LemmaNumbers.of(cell)
        rows.append(float(robust_error_floor(n.signal, n.radius, studies.FLIP)) + excess)
    errors = np.repeat(np.array(rows)[:, None], experiment.seeds, 1)
    return xr.Dataset({"robust_noisy_error": (("cell", "seed"), errors)})


@pytest.mark.parametrize("name", ["thm3.2.lower-bound", "derived.lower-bound-sharp"])
def test_the_floor_of_any_classifier(name: str):
    experiment = studies.FLOOR.experiment("smoke")
    assert outcome(name, floor_result(experiment, 0.02), experiment) is Outcome.HOLDS
    weak = floor_result(experiment, -0.3)  # no classifier is so good: the attack is too weak
    assert outcome(name, weak, experiment) is Outcome.INCONCLUSIVE


def test_only_the_sharp_floor_is_missed_between_the_two():
    experiment = studies.FLOOR.experiment("paper")  # never run: sizes alone are read
    between = floor_result(experiment, -0.01)
    assert outcome("thm3.2.lower-bound", between, experiment) is Outcome.HOLDS
    assert outcome("derived.lower-bound-sharp", between, experiment) is Outcome.INCONCLUSIVE


def accuracies(power: float, noise: float, dims: int = 8) -> xr.Dataset:
    """Maps of five seeds whose accuracy is Phi(1) at d = 40 r^power, up to an effect of the seed."""
    rows, signals = np.geomspace(1000, 18_000, dims), np.geomspace(1.2, 40, 16)
    generator = np.random.default_rng(0)
    shift = noise * generator.standard_normal((1, 1, 5)) + noise * generator.standard_normal(
        (dims, 1, 5)
    )
    place = np.log(signals)[None, :, None] - np.log(rows / 40)[:, None, None] / power - shift
    accuracy = 0.5 + 0.5 / (1 + np.exp(-8 * place) * 0.1587 / 0.3413)
    coords = {"dim": rows, "signal": signals, "seed": range(5)}
    where = ("dim", "signal", "seed")
    return xr.Dataset({k: (where, accuracy) for k in ("test_accuracy", "robust_accuracy")}, coords)


@pytest.mark.parametrize(
    ("power", "clean", "robust"), [(4, Outcome.HOLDS, Outcome.FAILS), (2, Outcome.FAILS, Outcome.HOLDS)]
)  # fmt: skip
def test_exponents_of_figure_1(power: float, clean: Outcome, robust: Outcome):
    experiment = figures.FIG1.experiment("smoke")
    result = accuracies(power, 0.01)
    assert outcome("fig1.clean-exponent-4", result, experiment) is clean
    assert outcome("fig1.robust-exponent-2", result, experiment) is robust


def test_an_exponent_of_too_few_or_noisy_rows_is_not_decided():
    experiment = figures.FIG1.experiment("smoke")
    for result in (accuracies(4, 0.0, dims=2), accuracies(4, 0.4)):
        assert outcome("fig1.clean-exponent-4", result, experiment) is Outcome.INCONCLUSIVE


def trade_off(edges: list[float], noise: float = 0.01) -> xr.DataArray:
    """Maps whose robust accuracy is 80 % at a radius for each dimension; five seeds."""
    radii, seeds = np.linspace(0.05, 0.45, 9), 5
    shift = noise * np.random.default_rng(0).standard_normal((len(edges), 1, seeds))
    accuracy = 0.8 - (radii[None, :, None] - np.array(edges)[:, None, None] - shift)
    coords = {"dim": 100 * 2 ** np.arange(len(edges)), "radius": radii, "seed": range(seeds)}
    return xr.DataArray(accuracy, coords, ("dim", "radius", "seed"))


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([0.4, 0.35, 0.3, 0.25, 0.2, 0.15], Outcome.HOLDS),
        ([0.15, 0.2, 0.25, 0.3, 0.35, 0.4], Outcome.FAILS),
        # Outside the grid at both ends: these rows count, though they have no radius.
        ([0.9, 0.8, 0.3, 0.25, 0.02, 0.01], Outcome.HOLDS),
        ([0.02, 0.01, 0.2, 0.25, 0.8, 0.9], Outcome.FAILS),
        # Up, then down, with a first row far below: no trend, whatever a line through it says.
        ([0.05, 0.3, 0.35, 0.6, 0.34, 0.29], Outcome.INCONCLUSIVE),
    ],
)
def test_a_trade_off_is_a_trend_over_all_dimensions(edges: list[float], expected: Outcome):
    measured = claims_of_figures.radius_trend(trade_off(edges, 0.03))
    assert claim("fig5.tradeoff-mnist").rule_for("").judge(measured.estimate) is expected
    assert measured.estimate.low < measured.estimate.high


def test_a_trend_needs_dimensions_that_cross():
    for edges in ([0.2, 0.3, 0.25], [0.9, 0.8, 0.9, 0.8, 0.9]):
        with pytest.raises(Undecided):
            claims_of_figures.radius_trend(trade_off(edges))


def settings(**values: np.ndarray) -> xr.Dataset:
    """A result of Figure 2 with arrays over setting and seed."""
    experiment = figures.FIG2.experiment("paper")
    numbers = [extremes.LemmaNumbers.of(cell) for cell in cells_of(experiment)]
    coords = {
        "signal": ("setting", [n.signal for n in numbers]),
        "dim": ("setting", [n.dim for n in numbers]),
    }
    return xr.Dataset({name: (("setting", "seed"), v) for name, v in values.items()}, coords)


@pytest.mark.parametrize(
    ("error", "word"), [(0.11, "unbroken"), (0.2, "refuted"), (0.05, "inconclusive"), (0.13, "inconclusive")]
)  # fmt: skip
def test_the_error_goes_to_the_noise_in_every_setting(error: float, word: str):
    """One setting differs from 0.1; below the noise only a certificate could say so."""
    errors = 0.1 + 0.004 * np.random.default_rng(0).standard_normal((9, 10))
    errors[4] += error - 0.1
    experiment = figures.FIG2.experiment("paper")
    evidence = Evidence("paper", {}, (settings(robust_noisy_error=errors),), (experiment,))
    verdict = judge(claim("fig2.error-to-noise"), evidence)
    assert not verdict.error
    assert verdict.word == word


def test_the_loss_of_figure_2_is_the_robust_loss():
    """Training lowered the loss under its own attack; the evaluation attack finds a larger one in one setting."""
    trained = np.full((9, 10), 0.001)
    robust = trained * (1 + 0.01 * np.random.default_rng(0).standard_normal((9, 10)))
    experiment = figures.FIG2.experiment("paper")
    for factor, word in ((1, "unbroken"), (30, "refuted")):
        robust[3] *= factor
        result = settings(train_loss=trained, train_robust_loss=robust)
        verdict = judge(claim("fig2.loss-zero"), Evidence("paper", {}, (result,), (experiment,)))
        assert verdict.word == word


@pytest.mark.parametrize(("power", "expected"), [(0.5, Outcome.HOLDS), (0.25, Outcome.FAILS)])
def test_the_rate_of_the_clean_error(power: float, expected: Outcome):
    experiment = studies.SCALING.experiment("smoke")
    (axis,) = dimensions(experiment)
    sizes = {path[-1]: np.array(values) for path, values in axis.fields.items()}
    z = sizes["signal"] ** 2 * (sizes["samples"] / sizes["dim"]) ** power
    wobble = 1 + 0.01 * np.random.default_rng(0).standard_normal((z.size, 5))
    coords = {name: ("cell", sizes[name]) for name in ("signal", "samples", "dim")}
    result = xr.Dataset(
        {
            "test_margin_mean": (("cell", "seed"), z[:, None] * wobble),
            "test_margin_std": (("cell", "seed"), np.ones((z.size, 5))),
        },
        coords,
    )
    assert outcome("thm3.1.clean-exp-rate", result, experiment) is expected


@pytest.mark.parametrize("case", studies.CASES)
def test_identities_hold_to_rounding(case: str):
    assert max(identities.errors(case).values()) < 1e-10


def test_an_identity_with_other_weights_does_not():
    cell = cells_of(studies.INSIDE.experiment("smoke"))[0]
    before, weights, after = next(extremes.pairs(identity_steps(identity_batch([cell]))))
    fresh = before.batch.test_points("test/0", 5).x
    moved = after.batch.params
    altered = {**moved, "inner": 1.01 * moved["inner"]}
    assert float(identities.increment_error(before, weights, moved, fresh)) < 1e-10
    assert float(identities.increment_error(before, weights, altered, fresh)) > 1e-3


def replays_of(study: Study, folder: Path) -> tuple[Replays, ...]:
    """The runs of every cell of a study at smoke scale."""
    experiment = study.experiment("smoke")
    made = Evidence("smoke", {}, (in_process(experiment, folder, ""),), (experiment,))
    return made.replays_by_cell()


def test_extremes_are_those_of_a_plain_replay(tmp_path: Path):
    experiment = studies.INSIDE.experiment("smoke")
    cell = cells_of(experiment)[0]
    n = extremes.LemmaNumbers.of(cell)
    replay = experiment.replay(cell=0, seed=1)
    growth, total, start, weights = 0.0, 0.0, None, None
    for step in replay.steps():
        weights = step.batch.params["inner"].norm()
        if start is None:
            start = weights
        else:
            unit = n.rate * (n.dim / n.samples) ** 0.5 * total
            growth = max(growth, float(weights - start) / unit)
        total += float(torch.sigmoid(-step.margins).mean())
    values = extremes_of(replays_of(studies.INSIDE, tmp_path)[0])
    assert values["growth"][1] == pytest.approx(growth, rel=1e-10)


def test_the_first_move_is_the_first_gradient(tmp_path: Path):
    replay = replays_of(studies.FIRST, tmp_path)[3]
    step = replay.first_step()
    moved = replay.cell.training.rate * step.gradient()["inner"].norm(dim=(1, 2))
    expected = moved / step.batch.params["inner"].norm(dim=(1, 2))
    torch.testing.assert_close(extremes_of(replay)["first_move"], expected, rtol=1e-10, atol=0)


def test_runs_without_an_attack_are_at_distance_0(tmp_path: Path):
    clean = replays_of(studies.BY_RADIUS, tmp_path)[0]
    assert distance_between(clean, clean).tolist() == [0.0, 0.0]


def losses(height: float) -> xr.Dataset:
    """A loss that stays about a height, at the steps of the long study; the robust loss at the end is the same."""
    steps = studies.LONG.experiment("quick").snapshot_steps()
    runs = height * np.array([0.999, 1.0, 1.001])
    curve = np.repeat(runs[None, :, None], len(steps), 2)
    return xr.Dataset(
        {
            "train_loss_curve": (("cell", "seed", "step"), curve),
            "train_robust_loss": (("cell", "seed"), runs[None]),
        },
        {"step": steps},
    )


@pytest.mark.parametrize(("height", "expected"), [(0.01, Outcome.HOLDS), (0.69, Outcome.FAILS)])
def test_printed_rates(height: float, expected: Outcome):
    experiment = studies.LONG.experiment("quick")
    for name in ("lemB15.rate-smooth", "corB16.rate-slrelu"):
        assert outcome(name, losses(height), experiment) is expected


def test_a_rate_is_of_the_robust_loss_and_not_of_the_loss_under_the_training_attack():
    experiment = studies.LONG.experiment("quick")
    misled = losses(0.01)
    misled["train_robust_loss"] = misled.train_robust_loss * 80
    assert outcome("lemB15.rate-smooth", misled, experiment) is Outcome.FAILS


def test_a_rate_is_vacuous_before_it_is_below_log_2():
    early = losses(0.01).sel(step=slice(None, 100))
    verdict = judge(
        claim("lemB15.rate-smooth"),
        Evidence("quick", {}, (early,), (studies.LONG.experiment("quick"),)),
    )
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "vacuous" in verdict.reason
