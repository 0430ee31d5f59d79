"""Every probe is what its words say: recomputed directly, from full matrices, token by token."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import mean, pstdev

import numpy as np
import pytest
import torch
import xarray as xr

from benign.experiment import Experiment, Replay
from benign.streams import Streams
from benign.training import evaluation
from benign.training.descent import Step, descend
from benign.training.engine import train_runs
from benign.training.evaluation import MEANINGS
from benign.training.probes import SNAPSHOTS, TALLIES, snapshot, snapshots_for, tally
from benign.training.setup import Setup, stack
from benign.training.variables import variables
from tests.reference import (
    Frame,
    film,
    run_ids,
    slow_attack,
    small_data,
    small_network,
    small_pgd,
    small_setup,
    start,
)
from tests.reference.attention import (
    Weights,
    attacked_points,
    attention_rows,
    outputs,
    token_values,
)


def experiment_of(setup: Setup) -> Experiment:
    """Two seeds, with draws that do not change when a component gets a new field."""
    fields = {name: getattr(setup, name) for name in type(setup).model_fields}
    return Experiment(**(fields | {"seeds": 2, "pairing": "common"}))


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    """Two heads, an attack, a strong noise token and flips, so that every probe applies."""
    setup = small_setup(
        small_data(samples=6, signal=3.0, flip=[0.2, 0.3], strong_noise_std=0.8),
        small_network(heads=2),
        small_pgd(0.2, steps=3, step=0.5),
        rate=2.0,
        stop_loss=0.23,
        max_steps=16,
        test_samples=10,
        test_at="snapshots",
        test_attack=small_pgd(0.3, "sample", steps=2, step=0.7),
    )
    return experiment_of(setup)


@pytest.fixture(scope="module")
def result(experiment, tmp_path_factory) -> Iterator[xr.Dataset]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "BLOCK", 6)
        yield experiment.run(tmp_path_factory.mktemp("probes"))


@pytest.fixture(scope="module")
def frames(experiment) -> list[Frame]:
    """The run of the larger flip rate and the second seed, again."""
    return replayed(experiment.replay(flip=0.3, seed=1))


def replayed(replay: Replay) -> list[Frame]:
    batch = start([replay.run.cell], [replay.run.id])
    return film(batch)


class Seen:
    """One step of one run as the papers write it."""

    def __init__(self, frame: Frame):
        self.frame = frame
        self.weights: Weights = frame.full[0]
        self.points, self.attacked, self.y = frame.x[0], frame.attacked[0], frame.y[0]
        self.clean_y = frame.batch.sample.clean_y[0]
        self.signal = frame.batch.sample.latent["signal"][0]
        self.heads = range(len(self.weights.query))

    def margins(self, points: torch.Tensor) -> list[float]:
        return (self.y * outputs(self.weights, points)).tolist()

    def rows(self, points: torch.Tensor) -> list[torch.Tensor]:
        """Every attention row of every point and head."""
        return [
            row
            for point in points
            for head in self.heads
            for row in attention_rows(self.weights, head, point)
        ]

    def value(self, token: torch.Tensor) -> float:
        """x W_V w_O, summed over heads."""
        return sum(float(token_values(self.weights, head, token[None])[0]) for head in self.heads)


def loss_of(margins: list[float]) -> float:
    return mean(math.log(1 + math.exp(-margin)) for margin in margins)


def share(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


def norm_of(matrices: list[torch.Tensor]) -> float:
    return math.sqrt(sum(float(matrix.square().sum()) for matrix in matrices))


def fitted_flips(seen: Seen) -> float:
    margins = seen.margins(seen.points)
    flipped = [n for n in range(len(margins)) if seen.y[n] != seen.clean_y[n]]
    return share([margins[n] > 0 for n in flipped])


DIRECT: dict[str, Callable[[Seen], float]] = {
    "train_loss": lambda s: loss_of(s.margins(s.attacked)),
    "train_clean_loss": lambda s: loss_of(s.margins(s.points)),
    "train_accuracy": lambda s: share([m > 0 for m in s.margins(s.points)]),
    "train_robust_accuracy": lambda s: share([m > 0 for m in s.margins(s.attacked)]),
    "flipped_fitted": fitted_flips,
    "attention_on_signal": lambda s: mean([float(row[0]) for row in s.rows(s.points)]),
    "attention_on_signal_attacked": lambda s: mean([float(row[0]) for row in s.rows(s.attacked)]),
    "attention_on_strong_noise": lambda s: mean([float(row[1]) for row in s.rows(s.points)]),
    "attention_entropy": lambda s: mean(
        [-sum(a * math.log(a) for a in row.tolist()) for row in s.rows(s.points)]
    ),
    "value_positive_signal": lambda s: s.value(s.signal[0]),
    "value_negative_signal": lambda s: s.value(s.signal[1]),
    "value_noise_max": lambda s: max(abs(s.value(x)) for point in s.points for x in point[1:]),
    "query_norm": lambda s: norm_of(s.weights.query),
    "key_norm": lambda s: norm_of(s.weights.key),
    "value_norm": lambda s: norm_of([w @ s.weights.output for w in s.weights.value]),
}


LI = {"robust_feature_learned", "non_robust_feature_learned"}
"""recomputed in tests/attacks/test_one_step.py, on patches"""


def test_every_snapshot_of_the_package_is_recomputed_here(frames):
    own = {
        name for name, probe in SNAPSHOTS.items() if probe.measure.__module__.startswith("benign")
    } - LI
    assert own == set(DIRECT)
    applied = {probe.name for probe in snapshots_for(frames[0].batch.setup)}
    assert own <= applied, "the small experiment should meet every probe"


@pytest.mark.parametrize("name", DIRECT)
def test_curves_hold_the_value_at_the_snapshot_and_nothing_after_the_end(name, result, frames):
    run = result.sel(flip=0.3, seed=1)
    last = int(run.steps)
    assert last == frames[-1].number
    assert 3 < last < 16
    assert last not in result.step, "the run should end between snapshots"
    for step in result.step.values.tolist():
        measured = float(run[f"{name}_curve"].sel(step=step))
        if step > last:
            assert math.isnan(measured)
        else:
            expected = DIRECT[name](Seen(frames[step]))
            assert measured == pytest.approx(expected, rel=1e-10, abs=1e-14)
    assert float(run[name]) == pytest.approx(DIRECT[name](Seen(frames[-1])), rel=1e-10, abs=1e-14)


def test_snapshots_are_dense_first_and_sparse_later(experiment):
    steps = experiment.snapshot_steps()
    assert steps == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 16]
    long = small_setup(max_steps=1000).snapshot_steps()
    assert long[0] == 0
    assert long[-1] == 1000
    assert all(b <= 1.25 * a + 1 for a, b in pairwise(long))


def test_replay_traces_every_step(experiment, result, frames):
    trace = experiment.replay(flip=0.3, seed=1).trace()
    assert trace.step.values.tolist() == [frame.number for frame in frames]
    run = result.sel(flip=0.3, seed=1)
    for name in DIRECT:
        kept = run[f"{name}_curve"].dropna("step")
        np.testing.assert_allclose(trace[name].sel(step=kept.step), kept, rtol=1e-10, atol=1e-14)


def test_tallies_see_every_step():
    """Peaks and first fits between snapshots, of a run that never fits and one that overshoots."""
    assert {"peak_loss", "first_fit"} <= TALLIES.keys()
    cells = [
        small_setup(rate=0.01),
        small_setup(rate=2.0, attack=None),
        small_setup(small_data(signal=3.0), rate=60.0, max_steps=20),
    ]
    for cell, id in zip(cells, run_ids(3), strict=True):
        result = train_runs([cell], [id])
        frames = film(start([cell], [id]))
        losses = [loss_of(Seen(frame).margins(frame.attacked[0])) for frame in frames]
        assert result["peak_loss"][0] == pytest.approx(max(losses), rel=1e-10)
        fits = [f.number for f in frames if min(Seen(f).margins(f.attacked[0])) > 0]
        assert result["first_fit"][0] == (fits[0] if fits else -1)


def test_tallies_of_a_batch_are_those_of_its_runs():
    cells = [
        small_setup(rate=rate, stop_loss=stop) for rate, stop in ((150, 0), (4, 0.4), (0.01, 0))
    ]
    together = train_runs(cells, run_ids(3))
    assert len(set(together["first_fit"].tolist())) == 3, together["first_fit"]
    assert -1 in together["first_fit"]
    assert together["peak_loss"][0] > together["train_loss_curve"][0, 0]
    for run, (cell, id) in enumerate(zip(cells, run_ids(3), strict=True)):
        for name in ("peak_loss", "first_fit"):
            assert together[name][run] == pytest.approx(
                train_runs([cell], [id])[name][0], rel=1e-10
            )


def evaluated(frame: Frame, pgd, blocks: list[tuple[str, int]]) -> dict[str, float]:
    """The evaluation of one run by the reference's network and attack, on the same fresh points."""
    data, weights = frame.batch.setup.data, frame.full[0]
    cell = {name: value for name, value in data if name != "flip"}
    plain = small_data(**{n: float(v[0]) if torch.is_tensor(v) else v for n, v in cell.items()})
    samples = [plain.sample(frame.streams, split, count, torch.float64) for split, count in blocks]
    x, y = (torch.cat([getattr(sample, part)[0] for sample in samples]) for part in ("x", "y"))
    margins = (y * outputs(weights, x)).tolist()
    attacked = attacked_points(weights, x, y, slow_attack(pgd, plain))
    robust = (y * outputs(weights, attacked)).tolist()
    heads = range(len(weights.query))
    rows = [row for point in x for head in heads for row in attention_rows(weights, head, point)]
    return {
        "test_loss": loss_of(margins),
        "test_accuracy": share([m > 0 for m in margins]),
        "test_margin_mean": mean(margins),
        "test_margin_std": pstdev(margins),
        "test_attention_on_signal": mean(float(row[0]) for row in rows),
        "robust_loss": loss_of(robust),
        "robust_accuracy": share([m > 0 for m in robust]),
    }


def test_evaluation_is_that_of_the_reference(experiment, result, frames):
    """Two blocks of fresh points; curves under the training attack, the end under its own."""
    blocks, run = [("test/0", 6), ("test/1", 4)], result.sel(flip=0.3, seed=1)
    cell = experiment.replay(flip=0.3, seed=1).run.cell
    end = evaluated(frames[-1], cell.evaluation.attack, blocks)
    assert end.keys() == MEANINGS.keys()
    for name, value in end.items():
        assert float(run[name]) == pytest.approx(value, rel=1e-10, abs=1e-12), name
    for step in (0, 3):
        for name, value in evaluated(frames[step], cell.attack, blocks).items():
            measured = float(run[f"{name}_curve"].sel(step=step))
            assert measured == pytest.approx(value, rel=1e-10, abs=1e-12), name


def test_every_variable_has_a_meaning_and_units(result, experiment):
    cell = experiment.replay(flip=0.3, seed=1).run.cell
    assert set(result.data_vars) == set(variables(cell))
    for name, variable in result.data_vars.items():
        assert variable.attrs["long_name"], name
        assert variable.attrs["units"], name


def test_a_diverged_run_has_no_accuracy():
    """NaN > 0 is false, but that is no measurement."""
    result = train_runs([small_setup(rate=1e200, test_at="snapshots")], run_ids(1))
    step = int(result["steps"][0])
    assert np.isnan(result["train_loss"][0])
    assert np.isnan(result["train_accuracy"][0])
    assert np.isnan(result["test_accuracy_curve"][0, step:]).all()


def test_without_attack_or_strong_token_their_probes_are_absent():
    setup = stack([small_setup()], "cpu")
    absent = {"train_clean_loss", "train_robust_accuracy", "attention_on_signal_attacked"}
    absent |= {"attention_on_strong_noise", "robust_loss", "robust_accuracy"}
    assert not absent & variables(setup).keys()
    assert {"train_loss", "train_accuracy", "test_loss"} <= variables(setup).keys()


@pytest.fixture
def new_probes() -> Iterator[None]:
    """One small function each; taken back afterwards."""

    @snapshot("mean of y f over the points trained on", "1")
    def mean_margin(step: Step) -> torch.Tensor:
        return step.margins.mean(1)

    @tally("number of steps whose loss rose", "steps", finish=lambda state: state[:, 1])
    def rises(so_far: torch.Tensor | None, step: Step) -> torch.Tensor:
        if so_far is None:
            return torch.stack([step.loss, torch.zeros_like(step.loss)], 1)
        return torch.stack([step.loss, so_far[:, 1] + (step.loss > so_far[:, 0])], 1)

    yield
    del SNAPSHOTS["mean_margin"], TALLIES["rises"]


def test_a_new_probe_is_one_small_function(new_probes, tmp_path):
    experiment = experiment_of(small_setup(rate=150.0))
    result = experiment.run(tmp_path)
    assert (
        result.mean_margin.attrs["long_name"]
        == "mean of y f over the points trained on, at the end"
    )
    assert result.mean_margin_curve.dims == ("seed", "step")
    for seed in range(2):
        run = experiment.replay(seed=seed).run
        batch = start([run.cell], [run.id])
        steps = [(float(step.margins.mean()), float(step.loss)) for step, _ in descend(batch)]
        margins, losses = zip(*steps, strict=True)
        kept = [margins[step] for step in result.step.values.tolist()]
        np.testing.assert_allclose(result.mean_margin_curve.sel(seed=seed), kept, rtol=1e-12)
        rose = sum(b > a for a, b in pairwise(losses))
        assert int(result.rises.sel(seed=seed)) == rose
    assert int(result.rises.max()) > 0


def test_probes_taken_back_are_gone():
    assert "mean_margin" not in SNAPSHOTS
    assert "rises" not in TALLIES
    assert "mean_margin" not in variables(small_setup())


def test_fresh_points_of_a_replay_are_those_of_the_evaluation(experiment):
    replay = experiment.replay(flip=0.3, seed=1)
    direct = replay.setup.data.sample(Streams([replay.run.id]), "test/0", 7, torch.float64)
    assert torch.equal(replay.test(7).x, direct.x)
    assert replay.train.x.shape == (1, 6, 3, 8)
