"""The commands about papers and experiments: `benign papers`, `show`, `run`, `resume`, `audit`, `schema`.

`run` and `resume` are declared here, with their options; cli/run carries them out.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benign.cli.options import (
    FAILED,
    INTERRUPTED,
    OK,
    Answers,
    Changes,
    Compile,
    Data,
    Device,
    Executor,
    Folder,
    KeepWeights,
    Out,
    Readings,
    Recompute,
    Scale,
    Seeds,
    Slots,
    Steal,
    Target,
    Track,
    UnitTimeout,
    Verbose,
    Width,
    Workers,
    examples,
    papers_and_recipes,
)
from benign.sweep.text import echo, print_error, shown

if TYPE_CHECKING:
    from benign.papers.requests import RunRequest

app = typer.Typer()


@app.command(epilog=examples("benign papers", "benign papers jiang", "benign papers jiang/fig1"))
def papers(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A paper such as jiang, or a recipe such as jiang/fig1.  [default: all papers]",
            autocompletion=papers_and_recipes,
        ),
    ] = None,
) -> None:
    """List the papers, their recipes and the readings of each."""
    from benign.cli.describe import papers_text

    echo(papers_text(name))


@app.command(
    epilog=examples(
        "benign show jiang/fig1 --scale paper",
        "benign show my.yaml --set data.dim=4096",
        "benign show runs/jiang/fig1/quick/default",
        "benign show runs/jiang/fig1/quick/default --yaml > my.yaml",
        "benign show zhang/fig1 -v          also print the specification",
    )
)
def show(
    target: Target,
    seeds: Seeds = None,
    scale: Scale = None,
    reading: Answers = None,
    readings: Readings = None,
    device: Device = "cpu",
    workers: Workers = None,
    out: Out = None,
    changes: Changes = None,
    data: Data = None,
    only_yaml: Annotated[
        bool, typer.Option("--yaml", help="Print the specification and nothing else.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Show what a run would do, or what a folder of results holds."""
    from benign.papers.requests import target_kind
    from benign.sweep.status_text import folder_text

    is_folder = target_kind(target) == "folder"
    if is_folder and not only_yaml:
        echo(folder_text(Path(target)))
        if not verbose:
            return
    requests = _requests(target, scale, reading, readings, changes, seeds, out)
    if is_folder or only_yaml:
        echo("---\n".join(request.experiment.to_yaml() for request in requests))
    else:
        _show_requests(requests, device, workers, verbose)


@app.command(
    epilog=examples(
        "benign run jiang/fig1",
        "benign run jiang/fig1 --scale paper --seeds 10 --device cuda",
        "benign run zhang/fig1 --reading noise=std --reading labels=fair",
        "benign run zhang/fig1 --scale smoke --readings all --out runs/readings",
        "benign run my.yaml --set training.rate=0.05 --set data.samples='[4, 8, 16]'",
        "benign run my.yaml --track tensorboard=logs   log runs as they end",
        "benign run runs/jiang/fig1/quick/default      complete a folder and draw its figure",
    )
)
def run(
    target: Target,
    seeds: Seeds = None,
    scale: Scale = None,
    reading: Answers = None,
    readings: Readings = None,
    device: Device = "cpu",
    workers: Workers = None,
    out: Out = None,
    changes: Changes = None,
    executor: Executor = None,
    unit_timeout: UnitTimeout = None,
    steal: Steal = False,
    keep_weights: KeepWeights = False,
    compile: Compile = False,
    slots: Slots = None,
    recompute: Recompute = False,
    track: Track = None,
    data: Data = None,
    width: Width = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run nothing; print what `benign show` prints.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Run an experiment and draw its figure.

    The same command resumes an interrupted run, and returns at once when nothing is missing. More --seeds or longer
    axes extend the results. Ctrl-c stops after the units in progress, a second ctrl-c stops at once.
    """
    if not dry_run and executor is None and (scale == "paper" if workers is None else workers > 1):
        from benign.sweep.executors.processes import start_server

        start_server()  # beside our own imports, which take as long

    from benign.cli.run import run_requests
    from benign.plot.sheet import drawn_for
    from benign.sweep.executors.base import ExecutionConfig

    requests = _requests(target, scale, reading, readings, changes, seeds, out)
    if dry_run:
        _show_requests(requests, device, workers, verbose)
        return
    config = ExecutionConfig(
        device=device,
        workers=workers,
        executor=executor,
        unit_timeout=unit_timeout,
        steal=steal,
        keep_weights=keep_weights,
        compile=compile,
        slots=slots,
        recompute=recompute,
        track=tuple(track or ()),
    )
    try:
        with drawn_for(width):
            failed = run_requests(requests, config, verbose)
    except KeyboardInterrupt:
        print_error("interrupted: finished runs are kept, the same command resumes")
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(FAILED if failed else OK)


@app.command(epilog=examples("benign resume runs/jiang/fig1/paper/default --workers 8"))
def resume(
    folder: Folder,
    device: Device = "cpu",
    workers: Workers = None,
    executor: Executor = None,
    unit_timeout: UnitTimeout = None,
    steal: Steal = False,
    compile: Compile = False,
    slots: Slots = None,
    track: Track = None,
    data: Data = None,
    verbose: Verbose = False,
) -> None:
    """Compute the runs that are missing, failed or damaged in a folder.

    `benign run FOLDER` does the same and has more options.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: name one that `benign run` has made")
    target = os.path.join(os.curdir, folder)  # never the name of a recipe
    run(
        target,
        device=device,
        workers=workers,
        executor=executor,
        unit_timeout=unit_timeout,
        steal=steal,
        compile=compile,
        slots=slots,
        track=track,
        verbose=verbose,
    )


@app.command(
    epilog=examples(
        "benign audit runs/zhang/fig1/quick/default      are its attacks strong enough?",
        "benign audit jiang/fig1 --scale smoke           does the step size change the result?",
    )
)
def audit(
    target: Target,
    seeds: Seeds = None,
    scale: Scale = None,
    reading: Answers = None,
    device: Device = "cpu",
    workers: Workers = None,
    out: Out = None,
    changes: Changes = None,
) -> None:
    """Check whether the attacks of a result can be trusted.

    For a folder: compares the training attack with the evaluation attack and the certificates, lists masked runs by
    cell, and writes `attacks.json` there. For a recipe or a file: checks its step size instead, by runs at the full
    rate, half and a quarter of it, with equal rate x steps.
    """
    from benign.papers.requests import target_kind
    from benign.sweep.audits import AUDIT, attack_audit, rate_audit, store_attack_audit
    from benign.sweep.executors.base import ExecutionConfig
    from benign.sweep.folders import open_result
    from benign.sweep.terminal import display_for

    if target_kind(target) == "folder":
        result = open_result(target)
        echo("\n".join(attack_audit(result)))
        if "audit" in result:
            try:
                echo(f"stored: {shown(store_attack_audit(result, Path(target)))}")
            except OSError as error:  # a folder that may only be read
                print_error(f"the audit is not stored: {error}")
        return
    config = ExecutionConfig(device=device, workers=workers)
    for request in _requests(target, scale, reading, None, changes, seeds, out):
        echo(request.title)
        with display_for(sys.stderr) as watcher:
            lines = rate_audit(request.experiment, request.folder / AUDIT, config, watcher)
            echo("\n".join(lines))


@app.command(epilog=examples("benign schema > benign.spec.schema.json"))
def schema() -> None:
    """Print the JSON schema of experiments, for editors."""
    from benign.spec.schema import experiment_schema

    echo(json.dumps(experiment_schema(), indent=1))


def _requests(
    target: str,
    scale: str | None,
    answers: list[str] | None,
    readings: str | None,
    changes: list[str] | None,
    seeds: int | None,
    out: Path | None,
) -> "list[RunRequest]":
    from benign.papers.requests import RequestOptions, requests_of

    return requests_of(
        target, RequestOptions(scale, answers or (), readings, changes or (), seeds, out)
    )


def _show_requests(
    requests: "list[RunRequest]", device: str, workers: int | None, verbose: bool
) -> None:
    from benign.cli.describe import plan_text
    from benign.sweep.executors.base import ExecutionConfig
    from benign.sweep.runner import Runner

    config = ExecutionConfig(device=device, workers=workers)
    for request in requests:
        runner = Runner(request.experiment, request.folder, config, dry_run=True)
        echo(f"{request.title}\n{plan_text(runner)}")
        if verbose:
            echo(request.experiment.to_yaml())
