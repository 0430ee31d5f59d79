"""Carries out `benign run` and `benign resume`: runs the requests, draws their figures and reports how they ended.

The commands themselves, with their options, are declared in cli/experiments.
"""

import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import replace

import xarray as xr

from benign.cli.describe import cost_text
from benign.papers.requests import RunRequest
from benign.sweep.audits import with_rate_audit
from benign.sweep.dataset import counts_of
from benign.sweep.ends import doubts
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.results import RETRIED, ResultWarning, RunsFailed
from benign.sweep.runner import Runner
from benign.sweep.status_text import error_lines
from benign.sweep.terminal import counted, display_for, statuses
from benign.sweep.text import echo, echo_error, print_error, shown
from benign.sweep.track.tracking import logged

LONG_ON_GPU = 60.0
"""seconds of training to the last step from which on `--compile` is worth its 20 to 70 s on a GPU. Where runs end one
by one every size of the batch is compiled anew (zhang/fig1 took 215 s with it on an H200, 147 s without)"""


def run_requests(requests: Sequence[RunRequest], config: ExecutionConfig, verbose: bool) -> bool:
    """Run and draw all; return whether something failed. All are checked before the first one runs."""
    runners = [
        Runner(each.experiment, each.folder, replace(config, made=each.made)) for each in requests
    ]
    failed = [
        run_request(request, runner, verbose)
        for request, runner in zip(requests, runners, strict=True)
    ]
    return any(failed)


def run_request(request: RunRequest, runner: Runner, verbose: bool) -> bool:
    """Run and draw; return whether something failed."""
    echo(request.title)
    if verbose:
        echo(request.experiment.to_yaml())
    if cost := cost_text(runner):
        echo(cost)
        if _gains_by_compiling(runner):
            echo("all runs train to their last step: `--compile` may halve the time of a step")
    with display_for(sys.stderr) as watcher, warnings.catch_warnings():
        warnings.simplefilter("always", ResultWarning)  # of every request
        warnings.simplefilter("ignore", RunsFailed)  # reported below, at length
        result = runner.run(watcher)
    folder, counts = shown(request.folder), counts_of(result["status"])
    failed = any(counts[status] for status in RETRIED)
    drawn = _draw(*_with_all_seeds(request, runner, result), verbose)
    echo(f"page: `benign report {folder}` writes one")
    echo(f"runs: {statuses(counts)}")
    if found := doubts(result):
        echo(f"doubtful: {' '.join(found)} `benign audit {folder}` shows more")
    if failed:
        lines = error_lines(runner.recorded().values(), in_full=verbose)
        echo_error("\n".join([*lines, "the same command tries them again"]))
    for count, command in logged(runner.config.track, request.folder):
        echo(f"logged: {counted(count, 'run')}, `{command}` shows them")
    echo(f"data: {folder}")
    return failed or not drawn


def _with_all_seeds(
    request: RunRequest, runner: Runner, result: xr.Dataset
) -> tuple[RunRequest, xr.Dataset]:
    """Return the request and the result with all seeds of the folder: its figures must not be drawn from fewer."""
    seeds, requested = runner.plan.history[-1].seeds, request.experiment.seeds
    if seeds <= requested:
        return request, result
    echo(
        f"{shown(request.folder)} holds {seeds} seeds, not only {requested}: table and pictures show all"
    )
    experiment = request.experiment.model_copy(update={"seeds": seeds})
    with warnings.catch_warnings(action="ignore"):  # the seeds requested have had theirs
        return replace(request, experiment=experiment), runner.result(experiment)


def _gains_by_compiling(runner: Runner) -> bool:
    if runner.config.compile or runner.config.device == "cpu":
        return False
    return runner.cost().sure_training > LONG_ON_GPU


def _draw(request: RunRequest, result: xr.Dataset, verbose: bool) -> bool:
    """Summarise and draw; return whether that was possible. A changed axis may make it impossible."""
    try:
        echo(request.summarise(result))
        pictures = request.draw(with_rate_audit(result, request.folder))
    except Exception as error:
        if verbose:
            traceback.print_exc()
        print_error(f"the data is kept, but the figure of {request.title} cannot be drawn: {error}")
        return False
    if pictures:
        echo(f"pictures: {', '.join(shown(path) for path in pictures)}")
    return True
