"""Carries out what the command line was asked for: runs, draws and tells."""

import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace

import xarray as xr

from benign.cli.describe import cost_text
from benign.experiment import Experiment
from benign.papers.requests import RunRequest
from benign.sweep.audits import flagged, with_rate_audit
from benign.sweep.dataset import counts_of
from benign.sweep.estimate import estimate
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.folders import open_experiment
from benign.sweep.results import RETRIED, ResultWarning, RunsFailed
from benign.sweep.status_text import errors
from benign.sweep.terminal import counted, statuses, watching
from benign.sweep.text import echo, print_error, shown
from benign.sweep.track.tracking import check_trackers, logged
from benign.training.machine import cores

LONG_WORK = 30.0
"""seconds of work above which several processes are worth their start of about 3 s"""
LONG_ON_GPU = 60.0
"""seconds of training to the last step from which on `--compile` is worth its 20 to 70 s on a GPU. Where runs end one
by one every size of the batch is compiled anew (zhang/fig1 took 215 s with it on an H200, 147 s without)"""


def run_requests(
    plans: Sequence[RunRequest],
    config: ExecutionConfig,
    workers: int | None,
    recompute: bool,
    verbose: bool,
    track: Sequence[str] = (),
) -> bool:
    """Run, draw and tell all; returns whether something failed. None is refused after others have run."""
    config.check()
    check_trackers(track)
    for plan in plans:
        here, at_once = config.executor is None, 1 if workers is None else workers
        plan.experiment.prepare(plan.folder, config.device, at_once, recompute, plan.made, here)
    failed = [
        run_request(plan, _with_processes(config, plan, workers), recompute, verbose, track)
        for plan in plans
    ]
    return any(failed)


def _with_processes(
    config: ExecutionConfig, plan: RunRequest, asked: int | None
) -> ExecutionConfig:
    if config.executor is None:
        return replace(config, workers=processes(plan.experiment, config.device, asked))
    return replace(config, workers=cores() if asked is None else asked)


def run_request(
    plan: RunRequest,
    config: ExecutionConfig,
    recompute: bool,
    verbose: bool,
    track: Sequence[str] = (),
) -> bool:
    """Run, draw and tell; returns whether something failed."""
    echo(plan.title)
    if verbose:
        echo(plan.experiment.to_yaml())
    if cost := cost_text(plan.experiment, plan.folder, config.device, config.workers, recompute):
        echo(cost)
        if _gains_by_compiling(plan.experiment, config):
            echo("all runs train to their last step: `--compile` may halve the time of a step")
    with watching(sys.stderr) as watcher, warnings.catch_warnings():
        warnings.simplefilter("always", ResultWarning)  # of every plan
        warnings.simplefilter("ignore", RunsFailed)  # told below, at length
        how = {**asdict(config), "track": track}
        result = plan.experiment.run(
            plan.folder, watcher=watcher, recompute=recompute, made=plan.made, **how
        )
    counts = counts_of(result["status"])
    failed = any(counts[status] for status in RETRIED)
    failed |= not _draw(*_with_all_seeds(plan, result), verbose)
    echo(f"page: `benign report {shown(plan.folder)}` makes one to look at")
    echo(f"runs: {statuses(counts)}")
    if doubts := flagged(result):
        echo(f"doubtful: {doubts}; `benign audit {shown(plan.folder)}` tells more")
    if any(counts[status] for status in RETRIED):
        echo("\n".join([*errors(plan.folder, whole=verbose), "the same command tries them again"]))
    for count, look in logged(track, plan.folder):
        echo(f"logged: {counted(count, 'run')}, `{look}` shows them")
    echo(f"data: {shown(plan.folder)}")
    return failed


def _with_all_seeds(plan: RunRequest, result: xr.Dataset) -> tuple[RunRequest, xr.Dataset]:
    """The same of all seeds that the folder holds: its pictures are not to be drawn from fewer."""
    seeds, asked = open_experiment(plan.folder).seeds, plan.experiment.seeds
    if seeds <= asked:
        return plan, result
    echo(f"{shown(plan.folder)} holds {seeds} seeds, not only {asked}: table and pictures show all")
    whole = plan.experiment.model_copy(update={"seeds": seeds})
    with warnings.catch_warnings(action="ignore"):  # told of the seeds asked for
        return replace(plan, experiment=whole), whole.result_in(plan.folder)


def processes(experiment: Experiment, device: str, asked: int | None) -> int:
    """As many as asked for; else one a core, unless the work is too short to start them, and one on a GPU."""
    if asked or device != "cpu" or cores() == 1:
        return asked or 1
    return cores() if estimate(experiment.units(), device).most_seconds > LONG_WORK else 1


def _gains_by_compiling(experiment: Experiment, config: ExecutionConfig) -> bool:
    if config.compile or config.device == "cpu":
        return False
    return estimate(experiment.units(), config.device).sure_training > LONG_ON_GPU


def _draw(plan: RunRequest, result: xr.Dataset, verbose: bool) -> bool:
    """Summarise and draw; an axis that was changed may make that impossible, the data is kept."""
    try:
        echo(plan.summarise(result))
        pictures = plan.draw(with_rate_audit(result, plan.folder))
    except Exception as error:
        if verbose:
            traceback.print_exc()
        print_error(f"the data is kept, but the figure of {plan.title} cannot be drawn: {error}")
        return False
    if pictures:
        echo(f"pictures: {', '.join(shown(path) for path in pictures)}")
    return True
