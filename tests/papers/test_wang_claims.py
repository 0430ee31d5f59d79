"""The claims about Wang et al.: identities hold, planted truths hold, and planted falsehoods fail."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from benign.claims import Claim, Evidence, Outcome, Study, judge
from benign.claims.identity import identity_batch, identity_steps
from benign.claims.replays import Replays
from benign.experiment import Experiment
from benign.papers.registry import claims
from benign.papers.statistics import cells_of
from benign.papers.verify import Verifier
from benign.papers.wang import figures
from benign.papers.wang.bounds import robust_error_floor
from benign.papers.wang.claims import extremes, identities, studies
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


def accuracies(power: float, noise: float, signals: list[float]) -> xr.Dataset:
    """Maps whose accuracy is Phi(1) at d = 40 r^power."""
    dims = np.geomspace(100, 60_000, 24)
    generator = np.random.default_rng(0)
    rows = np.array([[1.0 - 0.1587 * dim / (40 * r**power) for dim in dims] for r in signals])
    noisy = np.clip(rows + noise * generator.standard_normal(rows.shape), 0.5, 1)[..., None]
    coords = {"signal": signals, "dim": dims, "seed": [0]}
    where = ("signal", "dim", "seed")
    return xr.Dataset({k: (where, noisy) for k in ("test_accuracy", "robust_accuracy")}, coords)


@pytest.mark.parametrize(
    ("power", "clean", "robust"), [(4, Outcome.HOLDS, Outcome.FAILS), (2, Outcome.FAILS, Outcome.HOLDS)]
)  # fmt: skip
def test_exponents_of_figure_1(power: float, clean: Outcome, robust: Outcome):
    experiment = figures.FIG1.experiment("smoke")
    result = accuracies(power, 0.0, [2.5, 3.0, 3.5, 4.0, 5.0])
    assert outcome("fig1.clean-exponent-4", result, experiment) is clean
    assert outcome("fig1.robust-exponent-2", result, experiment) is robust


def test_an_exponent_of_too_few_or_noisy_rows_is_not_decided():
    experiment = figures.FIG1.experiment("smoke")
    for result in (accuracies(4, 0.0, [3.0, 4.0]), accuracies(4, 0.1, [2.5, 3.0, 3.5])):
        assert outcome("fig1.clean-exponent-4", result, experiment) is Outcome.INCONCLUSIVE


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
