"""The switch for compiled code."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch._dynamo.exc import TorchDynamoException

import benign as bo
from benign.cli import main as cli
from benign.cli.run import _gains_by_compiling
from benign.networks.compiled import compiled, compiling, is_on
from benign.sweep.compute import compute
from benign.sweep.dispatch import _executor
from benign.sweep.estimate import estimate
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.executors.local import SerialExecutor
from benign.sweep.progress import Watcher
from benign.sweep.records import read_record
from benign.sweep.runner import Runner
from benign.sweep.store import Store
from tests.says import says
from tests.tiny import tiny_file


@pytest.mark.parametrize("on", [False, True])
def test_only_with_the_switch_on_is_a_function_compiled(on, monkeypatch):
    made = []

    def compile(function):
        made.append(function)
        return lambda x, by: function(x, by) + 100

    def twice(x: torch.Tensor, by: int) -> torch.Tensor:
        """Twice as many."""
        return 2 * x * by

    monkeypatch.setattr(torch, "compile", compile)
    x, chosen = torch.ones(2), compiled(twice)
    assert chosen.__doc__ == "Twice as many."
    with compiling(on) as has_compiled:
        assert not has_compiled()
        for _ in range(2):
            assert chosen(x, 3).tolist() == ([106, 106] if on else [6, 6])
        assert has_compiled() == on
    assert made == ([twice] if on else [])


def test_a_function_that_cannot_be_compiled_runs_uncompiled_with_one_warning(monkeypatch):
    def fail(function):
        def failing(x: torch.Tensor) -> torch.Tensor:
            raise TorchDynamoException("no compiler here\nmore")

        return failing

    def thrice(x: torch.Tensor) -> torch.Tensor:
        return 3 * x

    monkeypatch.setattr(torch, "compile", fail)
    chosen = compiled(thrice)
    with compiling(True) as has_compiled:
        with pytest.warns(UserWarning, match=says("`thrice`", "no compiler here")):
            assert chosen(torch.ones(1)).tolist() == [3]
        assert chosen(torch.ones(1)).tolist() == [3]  # warnings are errors here: it is silent now
        assert not has_compiled()


def test_errors_of_the_function_are_not_attributed_to_the_compiler(monkeypatch):
    def full(x: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(torch, "compile", lambda function: function)
    with compiling(True), pytest.raises(torch.OutOfMemoryError):
        compiled(full)(torch.ones(1))


def test_the_switch_goes_back_after_the_block():
    assert not is_on()

    def stops() -> None:
        with compiling(True):
            with compiling(False):
                assert not is_on()
            assert is_on()
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stops()
    assert not is_on()


class MayBeCompiled(bo.Linear):
    """A network with a function that may be compiled."""

    def run(self, params, x):
        return super().run(params, _same(x))


@compiled
def _same(x: torch.Tensor) -> torch.Tensor:
    return 1.0 * x


@pytest.mark.parametrize(("compile", "workers"), [(False, 1), (True, 1), (True, 2)])
def test_records_say_whether_compiled_code_took_part(compile, workers, tmp_path, monkeypatch):
    """It was switched on by an estimate of the time, and no record said so."""
    experiment = bo.Experiment(
        data=bo.Mixture(samples=[4, 6], dim=5, signal=2.0),
        network=MayBeCompiled(),
        training=bo.GradientDescent(rate=0.1, max_steps=3),
        evaluation=bo.Evaluation(samples=10),
    )
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")  # in workers: no C++ compiler is needed
    monkeypatch.setattr(torch, "compile", lambda function: function)
    result = experiment.run(tmp_path, workers=workers, compile=compile)
    assert result.attrs["devices"].endswith(", compiled") == compile
    records = [read_record(path) for path in (tmp_path / "records").glob("*.npz")]
    assert [record.meta["compiled"] for record in records] == [compile] * 2
    assert not is_on()


def test_nothing_else_decides(monkeypatch, tmp_path):
    """No estimate of the time: a long sweep on a GPU is advised, not switched."""
    experiment = bo.recipe("wang/fig1").experiment("smoke")
    long = replace(estimate(experiment.units(), "cpu"), sure_training=1e4)
    monkeypatch.setattr("benign.sweep.runner.estimate", lambda units, device: long)
    monkeypatch.setattr("benign.sweep.runner.check_machine", lambda cells, device, workers: None)

    def planned(device: str, compile: bool = False) -> Runner:
        config = ExecutionConfig(device, workers=None, compile=compile)
        return Runner(experiment, tmp_path / "new", config, dry_run=True)

    assert planned("cuda").config.workers == 1
    assert not is_on()
    assert _gains_by_compiling(planned("cuda"))
    assert not _gains_by_compiling(planned("cuda", compile=True))
    assert not _gains_by_compiling(planned("cpu"))


def test_compiled_steps_do_not_go_on_from_checkpoints_of_others(tmp_path):
    """The record of such a run would say half of what computed it."""
    [unit] = bo.recipe("li/fig3").experiment("smoke").units()[:1]
    store = Store.open(tmp_path, create=True)
    origins = []
    for compile in (False, True):
        with _executor(ExecutionConfig(compile=compile), [unit], Watcher(), store) as executor:
            assert isinstance(executor, SerialExecutor)
            origins.append(executor._checkpoint(unit))
    assert origins[0].code != origins[1].code
    assert origins[0]._replace(code="") == origins[1]._replace(code="")


ON_A_GPU = """
import sys
import benign as bo

if __name__ == "__main__":
    experiment = bo.recipe("li/fig3").experiment("smoke")
    for compile in (False, True):
        result = experiment.run(f"{sys.argv[1]}/{compile}", "cuda", int(sys.argv[2]), compile=compile)
        print(float(result.train_loss.mean()), result.attrs["devices"])
"""


@pytest.mark.gpu
@pytest.mark.parametrize("workers", [1, 2])
def test_a_gpu_compiles_when_asked_and_gives_the_same(workers, tmp_path):
    """In a process of its own: what checks shapes in tests cannot be compiled."""
    script = tmp_path / "script.py"
    script.write_text(ON_A_GPU)
    words = [sys.executable, str(script), str(tmp_path), str(workers)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    plain, fast = done.stdout.splitlines()
    assert "compiled" not in plain
    assert fast.endswith(", compiled")
    assert float(fast.split()[0]) == pytest.approx(float(plain.split()[0]), rel=1e-4)


@pytest.mark.parametrize("command", ["run", "resume"])
def test_the_command_line_passes_it_on(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = []

    def computed(unit, device, progress, keeping, compile):
        asked.append(compile)
        return compute(unit, device, progress, keeping)

    monkeypatch.setattr("benign.sweep.executors.local.compute", computed)
    file = tiny_file(tmp_path, "seeds=1", "training.max_steps=3")
    assert cli.main(["run", str(file), "--compile"]) == 0
    if command == "resume":
        shutil.rmtree(Path("runs/tiny/records"))
        assert cli.main(["resume", "runs/tiny", "--compile"]) == 0
    assert set(asked) == {True}
