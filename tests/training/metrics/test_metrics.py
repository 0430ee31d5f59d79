"""Every metric is what its words say: recomputed directly, from full matrices, token by token."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import mean, pstdev
from types import UnionType

import numpy as np
import pytest
import torch
import xarray as xr

from benign.experiment import Experiment
from benign.streams import Streams
from benign.sweep.replay import Replay
from benign.training.descent import Step, descend
from benign.training.engine import train_runs
from benign.training.metrics import (
    METRICS,
    Metric,
    PointMetric,
    RunningMetric,
    evaluation,
    metric,
    metrics_for,
    running_metric,
    variables,
)
from benign.training.setup import Setup, stack
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
from tests.registry import forgetting
from tests.says import says
from tests.training.metrics.test_attacked_patches import ATTACKED
from tests.training.metrics.test_theory import LI, WANG, WANG_RUNNING


def experiment_of(setup: Setup) -> Experiment:
    """Two seeds, with draws that do not change when a component gets a new field."""
    fields = {name: getattr(setup, name) for name in type(setup).model_fields}
    return Experiment(**(fields | {"seeds": 2, "pairing": "common"}))


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    """Two heads, an attack, a strong noise token and flips, so that every metric applies."""
    setup = small_setup(
        small_data(samples=6, signal=3.0, flip=[0.2, 0.3], strong_noise_std=0.8),
        small_network(heads=2),
        small_pgd(0.2, steps=3, step=0.5),
        rate=2.0,
        stop_loss=0.07,
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
        yield experiment.run(tmp_path_factory.mktemp("metrics"))


@pytest.fixture(scope="module")
def frames(experiment) -> list[Frame]:
    """The run of the larger flip rate and the second seed, again."""
    return replayed(experiment.replay(flip=0.3, seed=1))


def replayed(replay: Replay) -> list[Frame]:
    batch = start([replay.run.cell], [replay.run.id])
    return film(batch)


class PaperStep:
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

    def growth(self, token: torch.Tensor) -> float:
        """x (W_V - W_V(0)) w_O / |w_O|^2, summed over heads."""
        batch, output = self.frame.batch, self.weights.output
        draw = self.frame.network.initial_value_matrix
        before = [draw(batch.setup.data, batch.streams, output.dtype, h)[0] for h in self.heads]
        pairs = zip(self.weights.value, before, strict=True)
        return sum(float(token @ (now - then) @ output) for now, then in pairs) / float(
            output @ output
        )

    def score(self, head: int, row: torch.Tensor, key: torch.Tensor) -> float:
        """<q_row, k_key>."""
        return float((row @ self.weights.query[head]) @ (key @ self.weights.key[head]))

    def score_moves(self) -> list[float]:
        """What the attack adds to every score of every head and point."""
        return [
            self.score(head, attacked[row], attacked[key])
            - self.score(head, point[row], point[key])
            for head in self.heads
            for point, attacked in zip(self.points, self.attacked, strict=True)
            for row in range(len(point))
            for key in range(len(point))
        ]

    def scores(self, row: int, key: int) -> list[float]:
        """Of one token for another, in every head and point."""
        return [self.score(head, x[row], x[key]) for head in self.heads for x in self.points]

    def signal_scores(self) -> list[float]:
        return [self.score(head, s, s) for head in self.heads for s in self.signal]

    def gaps(self, rows: range, leader: int) -> list[float]:
        """<q_row, k_leader - k_rival> for every point, head, row and rival."""
        return [
            self.score(head, point[row], point[leader]) - self.score(head, point[row], rival)
            for head in self.heads
            for point in self.points
            for row in rows
            for place, rival in enumerate(point)
            if place != leader
        ]

    def leads(self, token: int, signs: torch.Tensor) -> bool:
        """Whether this token's value is 3M times that of every other token of its point."""
        for point, sign in zip(self.points, signs, strict=True):
            values = [self.value(x) for x in point]
            lead = float(sign) * values.pop(token)
            if lead < 3 * len(point) * max(map(abs, values)):
                return False
        return True

    def mean_norm(self, matrices: list[torch.Tensor], tokens: list[torch.Tensor]) -> float:
        return mean(float((x @ matrix).norm()) for matrix in matrices for x in tokens)

    def noise(self) -> list[torch.Tensor]:
        return [x for point in self.points for x in point[1:]]


def noise_rows(step: PaperStep) -> range:
    return range(1, len(step.points[0]))


def all_rows(step: PaperStep) -> range:
    return range(len(step.points[0]))


def alignment(step: PaperStep) -> float:
    u = torch.stack([value @ step.weights.output for value in step.weights.value]).sum(0)
    direction = step.signal[0] - step.signal[1]
    return float(u @ direction / (u.norm() * direction.norm()))


def loss_of(margins: list[float]) -> float:
    return mean(math.log(1 + math.exp(-margin)) for margin in margins)


def share(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


def norm_of(matrices: list[torch.Tensor]) -> float:
    return math.sqrt(sum(float(matrix.square().sum()) for matrix in matrices))


def fitted_flips(step: PaperStep) -> float:
    margins = step.margins(step.points)
    flipped = [n for n in range(len(margins)) if step.y[n] != step.clean_y[n]]
    return share([margins[n] > 0 for n in flipped])


def entropy_of(row: list[float]) -> float:
    return -sum(a * math.log(a) for a in row)


DIRECT: dict[str, Callable[[PaperStep], float]] = {
    "train_loss": lambda s: loss_of(s.margins(s.attacked)),
    "train_clean_loss": lambda s: loss_of(s.margins(s.points)),
    "train_accuracy": lambda s: share([m > 0 for m in s.margins(s.points)]),
    "train_robust_accuracy": lambda s: share([m > 0 for m in s.margins(s.attacked)]),
    "flipped_fitted": fitted_flips,
    "attention_on_signal": lambda s: mean([float(row[0]) for row in s.rows(s.points)]),
    "attention_on_signal_attacked": lambda s: mean([float(row[0]) for row in s.rows(s.attacked)]),
    "attention_on_strong_noise": lambda s: mean([float(row[1]) for row in s.rows(s.points)]),
    "attention_entropy": lambda s: mean([entropy_of(row.tolist()) for row in s.rows(s.points)]),
    "attention_entropy_attacked": lambda s: mean(
        [entropy_of(row.tolist()) for row in s.rows(s.attacked)]
    ),
    "value_positive_signal": lambda s: s.value(s.signal[0]),
    "value_negative_signal": lambda s: s.value(s.signal[1]),
    "value_noise_max": lambda s: max(abs(s.value(x)) for point in s.points for x in point[1:]),
    "query_norm": lambda s: norm_of(s.weights.query),
    "key_norm": lambda s: norm_of(s.weights.key),
    "value_norm": lambda s: norm_of([w @ s.weights.output for w in s.weights.value]),
    "signal_gap_min": lambda s: min(s.gaps(range(1), 0)),
    "noise_gap_min": lambda s: min(s.gaps(noise_rows(s), 0)),
    "reverse_gap_min": lambda s: min(s.gaps(all_rows(s), 1)),
    "signal_score_min": lambda s: min(s.signal_scores()),
    "signal_score_max": lambda s: max(s.signal_scores()),
    "score_shift_max": lambda s: max(abs(move) for move in s.score_moves()),
    "signal_query_norm": lambda s: s.mean_norm(s.weights.query, list(s.signal)),
    "signal_key_norm": lambda s: s.mean_norm(s.weights.key, list(s.signal)),
    "noise_query_norm": lambda s: s.mean_norm(s.weights.query, s.noise()),
    "noise_key_norm": lambda s: s.mean_norm(s.weights.key, s.noise()),
    "growth_positive_signal": lambda s: s.growth(s.signal[0]),
    "growth_negative_signal": lambda s: s.growth(s.signal[1]),
    "growth_noise_max": lambda s: max(abs(s.growth(x)) for x in s.noise()),
    "value_alignment": alignment,
    "score_signal_for_signal": lambda s: mean(s.scores(0, 0)),
    "score_signal_for_strong": lambda s: mean(s.scores(0, 1)),
    "score_strong_for_signal": lambda s: mean(s.scores(1, 0)),
    "score_strong_for_strong": lambda s: mean(s.scores(1, 1)),
    "value_strong_noise": lambda s: mean(
        float(y) * s.value(point[1]) for y, point in zip(s.y, s.points, strict=True)
    ),
}

FIRST: dict[str, Callable[[PaperStep], bool]] = {
    "first_fit": lambda s: min(s.margins(s.attacked)) > 0,
    "stage_1_end": lambda s: s.leads(0, s.clean_y),
    "stage_1_end_harmful": lambda s: s.leads(1, s.y),
    "stage_2_end": lambda s: (
        max(abs(1 / (1 + math.exp(m)) - 0.5) for m in s.margins(s.attacked)) > 0.05
    ),
    "stage_3_end": lambda s: (
        loss_of(s.margins(s.attacked)) <= float(s.frame.batch.setup.training.stop_loss)
    ),
}
"""running metrics of the first step at which something holds"""


def of_the_package(kind: type | UnionType, part: str = "") -> set[str]:
    """Return the names of the package's metrics of a kind, which are declared in a part of it."""
    return {
        name
        for name, metric in METRICS.items()
        if isinstance(metric, kind) and metric.function.__module__.startswith(f"benign{part}")
    }


def test_every_metric_of_the_package_is_recomputed_here_or_in_the_test_of_its_theory(frames):
    assert of_the_package(Metric) == (DIRECT.keys() | WANG.keys() | LI.keys() | ATTACKED.keys())
    assert of_the_package(RunningMetric) == {"peak_loss"} | FIRST.keys() | WANG_RUNNING.keys()
    applied = {metric.name for metric in metrics_for(frames[0].batch.setup)}
    assert applied == DIRECT.keys(), "the small experiment should meet every metric"


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
            expected = DIRECT[name](PaperStep(frames[step]))
            assert measured == pytest.approx(expected, rel=1e-10, abs=1e-14)
    assert float(run[name]) == pytest.approx(
        DIRECT[name](PaperStep(frames[-1])), rel=1e-10, abs=1e-14
    )


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


def test_running_metrics_include_every_step():
    """Peaks and first times between snapshots, of runs that fit, never fit, overshoot or overfit."""
    weak = small_data(samples=8, signal=3.0, noise_std=0.1, strong_noise_std=0.1, flip=0.3)
    strong = small_data(signal=0.1, noise_std=0.01, strong_noise_std=2.0, dim=40, flip=0.3)
    heads, attack = small_network(0.3, 0.05, heads=2), small_pgd(0.05)
    cells = [
        small_setup(network=small_network(0.3, 0.02), rate=0.01),
        small_setup(network=small_network(0.3, 0.02), rate=2.0, stop_loss=0.3),
        small_setup(weak, heads, attack, rate=0.3, max_steps=20),
        small_setup(small_data(signal=3.0), rate=60.0, max_steps=20),
        small_setup(strong, small_network(0.01, 0.05, heads=2), attack, rate=0.2, stop_loss=0.5),
    ]
    times_of: dict[str, list[int]] = {name: [] for name in FIRST}
    for cell, id in zip(cells, run_ids(len(cells)), strict=True):
        result = train_runs([cell], [id])
        frames = [PaperStep(frame) for frame in film(start([cell], [id]))]
        losses = [loss_of(each.margins(each.attacked)) for each in frames]
        assert result["peak_loss"][0] == pytest.approx(max(losses), rel=1e-10)
        for name in FIRST.keys() & result.keys():
            held = [each.frame.number for each in frames if FIRST[name](each)]
            assert result[name][0] == (held[0] if held else -1), name
            times_of[name].append(held[0] if held else -1)
    for name, times in times_of.items():
        assert min(times) == -1, f"{name} was never missed: {times}"
        assert max(times) > 0, f"{name} never came after step 0: {times}"


def test_running_metrics_of_a_batch_are_those_of_its_runs():
    cells = [
        small_setup(rate=rate, stop_loss=stop) for rate, stop in ((1000, 0), (0.1, 0.4), (0.01, 0))
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
    attacked, raised = (
        attacked_points(weights, x, label, slow_attack(pgd, plain)) for label in (y, -y)
    )
    robust, highest = ((y * outputs(weights, each)).tolist() for each in (attacked, raised))
    heads = range(len(weights.query))
    rows = [row for point in x for head in heads for row in attention_rows(weights, head, point)]
    return {
        "test_loss": loss_of(margins),
        "test_accuracy": share([m > 0 for m in margins]),
        "test_noisy_error": noisy_error(frame, margins, margins),
        "test_margin_mean": mean(margins),
        "test_margin_positive": mean(m for m, label in zip(margins, y, strict=True) if label > 0),
        "test_margin_negative": mean(m for m, label in zip(margins, y, strict=True) if label < 0),
        "test_margin_std": pstdev(margins),
        "test_attention_on_signal": mean(float(row[0]) for row in rows),
        "robust_loss": loss_of(robust),
        "robust_accuracy": share([m > 0 for m in robust]),
        "robust_noisy_error": noisy_error(frame, robust, highest),
    }


def noisy_error(frame: Frame, lowest: list[float], highest: list[float]) -> float:
    """Where a label is flipped, a margin of at least 0 is the error."""
    flip = float(frame.batch.setup.data.flip)  # type: ignore[attr-defined]
    pairs = zip(lowest, highest, strict=True)
    return mean((1 - flip) * (low <= 0) + flip * (high >= 0) for low, high in pairs)


def test_evaluation_is_that_of_the_reference(experiment, result, frames):
    """Two blocks of fresh points; curves under the training attack, the end under its own."""
    blocks, run = [("test/0", 6), ("test/1", 4)], result.sel(flip=0.3, seed=1)
    cell = experiment.replay(flip=0.3, seed=1).run.cell
    end = evaluated(frames[-1], cell.evaluation.attack, blocks)
    evaluations = of_the_package(PointMetric, ".training.metrics.evaluation")
    assert end.keys() == evaluations | {"test_attention_on_signal"}
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


def test_without_attack_or_strong_token_their_metrics_are_absent():
    setup = stack([small_setup()], "cpu")
    absent = {"train_clean_loss", "train_robust_accuracy", "attention_on_signal_attacked"}
    absent |= {"attention_on_strong_noise", "robust_loss", "robust_accuracy"}
    absent |= {"reverse_gap_min", "stage_1_end_harmful", "value_strong_noise"}
    assert not absent & variables(setup).keys()
    assert {"train_loss", "train_accuracy", "test_loss"} <= variables(setup).keys()


@pytest.fixture
def new_metrics() -> Iterator[None]:
    """One small function each, removed afterwards."""

    with forgetting():

        @metric("mean of y f over the points trained on", "1")
        def mean_margin(step: Step) -> torch.Tensor:
            return step.margins.mean(1)

        @running_metric(
            "number of steps whose loss rose", "steps", finish=lambda state: state[:, 1]
        )
        def rises(so_far: torch.Tensor | None, step: Step) -> torch.Tensor:
            if so_far is None:
                return torch.stack([step.loss, torch.zeros_like(step.loss)], 1)
            return torch.stack([step.loss, so_far[:, 1] + (step.loss > so_far[:, 0])], 1)

        yield


def test_a_new_metric_is_one_small_function(new_metrics, tmp_path):
    experiment = experiment_of(small_setup(rate=150.0))
    result = experiment.run(tmp_path)
    name = result.mean_margin.attrs["long_name"]
    assert name.startswith("mean of y f over the points trained on")
    assert "end" in name
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


def test_metrics_that_are_removed_are_gone():
    assert "mean_margin" not in METRICS
    assert "rises" not in METRICS
    assert "mean_margin" not in variables(small_setup())


def test_a_metric_whose_name_is_taken_is_refused_with_both_places():
    for register in (metric("mine"), running_metric("mine")):
        for name, owner in (
            ("train_loss", "evaluation.train_loss"),
            ("peak_loss", ".peak_loss"),
            ("test_loss", "evaluation.test_loss"),
            ("audit", "audit.audit"),
        ):
            with pytest.raises(
                ValueError, match=says(f"`{name}`", "benign.", owner, f"mine.{name}")
            ):
                register(named_function(name))
    assert METRICS["train_loss"].function.__module__.startswith("benign.")


@pytest.mark.parametrize("name", ["status", "steps", "run", "seed", "my_curve", "confusion_0_1"])
def test_a_metric_cannot_have_a_name_that_results_use(name):
    with pytest.raises(ValueError, match=says(f"`{name}`", "results", "metric")):
        metric("mine")(named_function(name))
    assert name not in METRICS


def test_a_metric_that_is_defined_again_replaces_itself():
    with forgetting():
        metric("one")(named_function("again"))
        running_metric("two")(named_function("again"))
        assert isinstance(METRICS["again"], RunningMetric)
        assert METRICS["again"].definition == "two"


def named_function(name: str) -> Callable:
    def function(*_) -> torch.Tensor: ...

    function.__name__ = function.__qualname__ = name
    function.__module__ = "mine"
    return function


def test_fresh_points_of_a_replay_are_those_of_the_evaluation(experiment):
    replay = experiment.replay(flip=0.3, seed=1)
    direct = replay.setup.data.sample(Streams([replay.run.id]), "test/0", 7, torch.float64)
    assert torch.equal(replay.test(7).x, direct.x)
    assert replay.train.x.shape == (1, 6, 3, 8)
