"""Runs trained together are runs trained alone, however they are batched and however others end."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import torch

from benign.networks.attention import Attention
from benign.spec import axes
from benign.streams import RunId
from benign.training import descent, engine
from benign.training.descent import Batch, Status
from benign.training.engine import batch_size, run_bytes, train_runs
from benign.training.metrics import METRICS, EvaluationMetric, PointMetric
from benign.training.setup import Setup
from tests.reference import run_ids, small_data, small_network, small_pgd, small_setup

Arrays = dict[str, np.ndarray]
ATTACKED = pytest.mark.parametrize("attacked", [False, True], ids=["clean", "attacked"])


def different_runs(attacked: bool) -> list[Setup]:
    """Five runs that differ in every number a run may differ in, and end at different steps."""
    table = [
        # rate, radius, signal, noise_std, flip, score_std, output_norm, stop_loss
        (4.0, 0.1, 2.0, 0.3, 0.1, 0.3, 0.6, 0.3),
        (2.0, 0.3, 3.0, 0.5, 0.2, 0.2, 0.8, 0.1),
        (1.0, 0.0, 1.0, 0.2, 0.3, 0.4, 0.5, 0.0),
        (6.0, 0.2, 2.5, 0.4, 0.1, 0.1, 0.7, 0.4),
        (0.5, 0.5, 4.0, 0.1, 0.2, 0.2, 0.9, 0.2),
    ]
    return [
        small_setup(
            small_data(signal=signal, noise_std=noise, strong_noise_std=2 * noise, flip=flip),
            small_network(score, 0.3, output_norm=norm),
            small_pgd(radius, steps=3, step=0.5) if attacked else None,
            rate=rate,
            stop_loss=stop,
            max_steps=20,
            test_at="snapshots",
        )
        for rate, radius, signal, noise, flip, score, norm, stop in table
    ]


@cache
def in_one_batch(attacked: bool) -> Arrays:
    """What they give together."""
    return train_runs(different_runs(attacked), run_ids(5))


def alone(cells: Sequence[Setup], ids: Sequence[RunId], device: str = "cpu") -> Arrays:
    """Every run in a batch of its own."""
    each = zip(cells, ids, strict=True)
    return engine._joined([train_runs([cell], [id], device) for cell, id in each])


def assert_same(
    actual: Arrays,
    expected: Arrays,
    runs: slice | list[int] = slice(None),
    tolerance: float = 1e-10,
) -> None:
    """Every variable of these runs, to the tolerance; statuses and steps exactly."""
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        allowed = 0 if name in ("status", "steps") else tolerance
        np.testing.assert_allclose(actual[name][runs], values[runs], allowed, allowed, err_msg=name)


@ATTACKED
def test_a_batch_is_each_run_alone(attacked):
    together = in_one_batch(attacked)
    assert len(set(together["steps"].tolist())) >= 4, "the runs should end at different steps"
    assert set(together["status"].tolist()) == {Status.CONVERGED, Status.STEP_CAP}
    assert_same(together, alone(different_runs(attacked), run_ids(5)))


@ATTACKED
def test_the_same_batch_twice_is_bitwise_equal(attacked):
    again = train_runs(different_runs(attacked), run_ids(5))
    for name, values in in_one_batch(attacked).items():
        np.testing.assert_array_equal(values, again[name], err_msg=name)


@ATTACKED
def test_a_diverging_run_is_recorded_and_the_others_finish(attacked):
    cells, ids = different_runs(attacked), run_ids(5)
    wild = cells[1].training.model_copy(update={"rate": 1e200})
    mixed = [*cells[:1], cells[1].model_copy(update={"training": wild}), *cells[2:]]
    result = train_runs(mixed, ids)
    assert result["status"][1] == Status.DIVERGED
    assert result["steps"][1] >= 1
    fresh = {n for n, each in METRICS.items() if isinstance(each, PointMetric | EvaluationMetric)}
    assert fresh & result.keys()
    for name in fresh & result.keys():
        assert np.isnan(result[name][1]), name
    assert_same(result, in_one_batch(attacked), [0, 2, 3, 4])


def test_every_run_diverging_is_an_outcome():
    result = train_runs([small_setup(rate=1e200)] * 2, run_ids(2))
    assert result["status"].tolist() == [Status.DIVERGED] * 2


def test_a_run_at_the_step_cap_says_so():
    result = train_runs([small_setup(max_steps=7)], run_ids(1))
    assert result["status"].tolist() == [Status.STEP_CAP]
    assert result["steps"].tolist() == [7]
    assert np.isfinite(result["test_loss"]).all()


def give_memory_for(runs: int, cell: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CPU_BUDGET", runs * run_bytes(cell) + 1)
    assert batch_size(cell, "cpu") == runs


@pytest.mark.parametrize("size", [1, 2, 3])
@ATTACKED
def test_batches_of_any_size_give_the_same(attacked, size, monkeypatch):
    cells, ids = different_runs(attacked), run_ids(5)
    together = in_one_batch(attacked)
    give_memory_for(size, cells[0], monkeypatch)
    sizes = []
    original = Batch.start

    def begin(setup, streams):
        sizes.append(len(streams))
        return original(setup, streams)

    monkeypatch.setattr(Batch, "start", begin)
    assert_same(train_runs(cells, ids), together)
    assert max(sizes) == size
    assert sum(sizes) == 5


def test_a_run_larger_than_the_budget_is_trained_alone(monkeypatch):
    monkeypatch.setattr(engine, "CPU_BUDGET", 1)
    assert batch_size(small_setup(), "cpu") == 1


@pytest.mark.parametrize("size", [1, 2])
def test_batches_with_and_without_flips_give_the_same_variables(size, monkeypatch):
    """`flipped_fitted` applies to runs with flips; the batches of one unit may differ in that."""
    cells = [small_setup(small_data(flip=flip)) for flip in (0.0, 0.0, 0.3, 0.0)]
    together = train_runs(cells, run_ids(4))
    assert "flipped_fitted" in together
    give_memory_for(size, cells[0], monkeypatch)
    assert_same(train_runs(cells, run_ids(4)), together)


def scarce(limit: int, error: type[Exception], where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches of more runs than the limit fail, when they begin or at their third step."""
    begin, change = Batch.start, descent.update

    def start(setup, streams):
        if where == "start" and len(streams) > limit:
            raise error("simulated")
        return begin(setup, streams)

    calls = {"steps": 0}

    def update(batch, gradient, number):
        calls["steps"] += 1
        if where == "third step" and len(batch) > limit and calls["steps"] >= 3:
            raise error("simulated")
        change(batch, gradient, number)

    monkeypatch.setattr(Batch, "start", start)
    monkeypatch.setattr(descent, "update", update)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
@pytest.mark.parametrize("where", ["start", "third step"])
@pytest.mark.parametrize("limit", [1, 2])
def test_out_of_memory_halves_the_batch(limit, where, error, monkeypatch):
    cells, ids = different_runs(attacked=False), run_ids(5)
    together = in_one_batch(False)
    scarce(limit, error, where, monkeypatch)
    assert_same(train_runs(cells, ids), together)


def test_a_run_that_does_not_fit_alone_is_recorded_and_the_others_finish(monkeypatch):
    cells, ids = different_runs(attacked=True), run_ids(5)
    together = in_one_batch(True)
    begin = Batch.start

    def start(setup, streams):
        if ids[3] in streams.runs:
            raise torch.OutOfMemoryError("simulated")
        return begin(setup, streams)

    monkeypatch.setattr(Batch, "start", start)
    result = train_runs(cells, ids)
    assert result["status"][3] == Status.OUT_OF_MEMORY
    assert result["steps"][3] == -1
    assert np.isnan(result["train_loss"][3])
    assert np.isnan(result["train_loss_curve"][3]).all()
    assert_same(result, together, [0, 1, 2, 4])


def test_memory_that_the_cpu_cannot_give_is_out_of_memory(monkeypatch):
    """On a CPU torch raises a plain RuntimeError."""

    def impossible(*arguments):
        return torch.empty(2**50, dtype=torch.float64)

    monkeypatch.setattr(Attention, "run", impossible)
    result = train_runs([small_setup()] * 2, run_ids(2))
    assert result["status"].tolist() == [Status.OUT_OF_MEMORY] * 2


def test_other_errors_are_not_mistaken_for_a_lack_of_memory(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr(Attention, "run", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        train_runs([small_setup()] * 2, run_ids(2))


def test_progress_reports_step_and_runs_left():
    reported = []
    cells = [small_setup(rate=4.0, stop_loss=stop, max_steps=6) for stop in (0.5, 0.0)]
    result = train_runs(
        cells, run_ids(2), progress=lambda step, runs: reported.append((step, runs))
    )
    first = int(result["steps"].min())
    assert 0 < first < 6
    steps = [(step, 2 if step <= first else 1) for step in range(7)]
    assert reported == [*steps, (engine.TESTING, 2)]


def test_products_are_exact_unless_tf32_is_asked_for():
    """Whatever the process has set; numbers of a CPU are the same either way."""
    assert small_setup(precision="tf32").dtype == torch.float32
    for precision, setting in (("float32", "highest"), ("tf32", "high")):
        torch.set_float32_matmul_precision("medium")
        with engine.products(precision, "cuda"):
            assert torch.get_float32_matmul_precision() == setting
            assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")
        assert torch.get_float32_matmul_precision() == "medium"
    torch.set_float32_matmul_precision("highest")


@pytest.mark.gpu
def test_tf32_rounds_on_a_gpu():
    """To 10 binary digits: the losses of a few steps agree to a percent, and are not the same."""
    cell = small_setup(small_data(dim=64), small_network(hidden=64), precision="float32")
    rounded = axes.replace(cell, {("precision",): "tf32"})
    exact, loose = (train_runs([each], run_ids(1), "cuda") for each in (cell, rounded))
    np.testing.assert_allclose(loose["train_loss"], exact["train_loss"], rtol=1e-2)
    assert (loose["train_loss"] != exact["train_loss"]).any()


def test_memory_grows_with_every_size_and_halves_with_the_precision():
    small = run_bytes(small_setup(attack=small_pgd()))
    larger = [
        small_setup(small_data(samples=500), attack=small_pgd()),
        small_setup(small_data(tokens=9), attack=small_pgd()),
        small_setup(small_data(dim=20), attack=small_pgd()),
        small_setup(network=small_network(hidden=50), attack=small_pgd()),
        small_setup(network=small_network(heads=3), attack=small_pgd()),
    ]
    assert all(run_bytes(setup) > small for setup in larger)
    assert run_bytes(small_setup()) < small
    assert 2 * run_bytes(small_setup(attack=small_pgd(), precision="float32")) == small
