"""The command line: `benign papers`, `run`, `show`, `verify`, `report`, `audit`, `status`, `data`, `pack`, `merge` and
others.

Exit codes: 0 fine (a diverged run is an outcome), 1 some runs failed, 2 bad input, 130 interrupted.
Results go to stdout, progress and complaints to stderr. What imports torch is imported inside
functions, so that `--help` is quick.
"""

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benign import __version__
from benign.cli import claims as cli_claims
from benign.cli import completion
from benign.cli import data as cli_data
from benign.cli import live as cli_live
from benign.cli import report as cli_report
from benign.cli import store as cli_store
from benign.cli.options import (
    BAD_INPUT,
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
    Steal,
    Target,
    Track,
    UnitTimeout,
    Verbose,
    Width,
    Workers,
    examples,
    folder,
    path,
    shortened,
)
from benign.spec import plugins as outside
from benign.sweep.console import echo, print_error

if TYPE_CHECKING:
    from benign.papers.requests import RunRequest

# typer carries a click of its own, older versions use the package: this finds the class of either.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="benign",
    help="A laboratory for the theory of overfitting under attack.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        echo(f"benign {__version__}")
        raise typer.Exit(OK)
    return wanted


@app.callback(
    epilog=examples(
        "benign papers                     what there is",
        "benign show jiang/fig1            what it would do, and for how long",
        "benign run jiang/fig1             the figure and its data, in about a minute",
        "benign run my.yaml --seeds 20     an experiment of your own",
        "benign run own/fig1 --plugin own    a paper of your own, in the folder own",
    ),
)
def benign(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    sources: Annotated[
        list[Path] | None,
        typer.Option("--plugin", parser=path, metavar="PATH", help=outside.OPTION_HELP),
    ] = None,
) -> None:
    outside.load_all([*outside.named(), *(sources or [])])


@app.command(epilog=examples("benign papers", "benign papers jiang", "benign papers jiang/fig1"))
def papers(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A paper or a recipe, for the details.", autocompletion=completion.papers
        ),
    ] = None,
) -> None:
    """List the papers, their recipes and readings."""
    from benign.cli.describe import papers_text

    echo(papers_text(name))


@app.command(
    epilog=examples(
        "benign run jiang/fig1",
        "benign run jiang/fig1 --scale paper --seeds 10 --device cuda",
        "benign run zhang/fig1 --reading noise=std --reading labels=fair",
        "benign run zhang/fig1 --scale smoke --readings all --out runs/readings",
        "benign run my.yaml --set training.rate=0.05 --set data.samples='[4, 8, 16]'",
        "benign run my.yaml --track tensorboard=logs   curves and hyper-parameters as runs end",
        "benign run runs/jiang/fig1/quick/default      what is missing there, and the figure again",
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
    recompute: Recompute = False,
    track: Track = None,
    data: Data = None,
    width: Width = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="As `benign show`.")] = False,
    verbose: Verbose = False,
) -> None:
    """Run an experiment, draw its figure, and say how it went.

    A second call resumes, or returns at once; more --seeds or longer axes add to what is there.
    Ctrl-c once ends it with the units under way, twice at once.
    """
    from benign.cli.run import run_requests
    from benign.plot.sheet import drawn_for
    from benign.sweep.executors.base import ExecutionConfig

    plans = _plans(target, scale, reading, readings, changes, seeds, out)
    if dry_run:
        _show_plans(plans, device, workers, verbose)
        return
    manner = ExecutionConfig(device, 1, executor, unit_timeout, steal, keep_weights, compile)
    try:
        with drawn_for(width):
            failed = run_requests(plans, manner, workers, recompute, verbose, track or ())
    except KeyboardInterrupt:
        print_error("interrupted: what is finished is kept, the same command resumes")
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
    track: Track = None,
    data: Data = None,
    verbose: Verbose = False,
) -> None:
    """Compute what is missing, failed or damaged in a folder; `benign run FOLDER` does the same."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: name one that `benign run` has made")
    target = os.path.join(os.curdir, folder)  # which is no name of a recipe
    run(
        target,
        device=device,
        workers=workers,
        executor=executor,
        unit_timeout=unit_timeout,
        steal=steal,
        compile=compile,
        track=track,
        verbose=verbose,
    )


@app.command(
    epilog=examples(
        "benign show jiang/fig1 --scale paper",
        "benign show my.yaml --set data.dim=4096",
        "benign show runs/jiang/fig1/quick/default",
        "benign show runs/jiang/fig1/quick/default --yaml > my.yaml",
        "benign show zhang/fig1 -v          with the specification, a start for a file of your own",
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
    alone: Annotated[
        bool, typer.Option("--yaml", help="The specification and nothing else.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Show what a run would do, or what a folder holds."""
    from benign.papers.recipes import recipes
    from benign.sweep.status_text import folder_text

    is_folder = os.path.isdir(target) and target not in recipes()
    if is_folder and not alone:
        echo(folder_text(Path(target)))
        if not verbose:
            return
    plans = _plans(target, scale, reading, readings, changes, seeds, out)
    if is_folder or alone:
        echo("---\n".join(plan.experiment.to_yaml() for plan in plans))
    else:
        _show_plans(plans, device, workers, verbose)


@app.command(
    epilog=examples(
        "benign audit runs/zhang/fig1/quick/default      are its attacks strong enough?",
        "benign audit jiang/fig1 --scale smoke           does its step size decide the picture?",
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
    """Audit the attacks of a folder of results, or the step size of a recipe or a file.

    Attacks: the training attack beside the evaluation attack and certificates, with the runs that
    are doubtful. Step size: runs at the rate, half and a quarter of it, at equal rate x steps.
    """
    from benign.cli.run import processes
    from benign.papers.recipes import recipes
    from benign.sweep.audits import AUDIT, attack_audit, rate_audit
    from benign.sweep.folders import open_result
    from benign.sweep.terminal import watching

    if os.path.isdir(target) and target not in recipes():
        echo("\n".join(attack_audit(open_result(target))))
        return
    for plan in _plans(target, scale, reading, None, changes, seeds, out):
        echo(plan.title)
        at_once = processes(plan.experiment, device, workers)
        with watching(sys.stderr) as watcher:
            echo(
                "\n".join(
                    rate_audit(plan.experiment, plan.folder / AUDIT, device, at_once, watcher)
                )
            )


cli_claims.add_to(app)
cli_report.add_to(app)
cli_live.add_to(app)
cli_store.add_to(app)
cli_data.add_to(app)


@app.command(epilog=examples("benign pack runs/jiang/fig1/paper/default fig1.pack"))
def pack(
    folder: Folder,
    file: Annotated[Path, typer.Argument(parser=path, help="The file to write.")],
) -> None:
    """Write a folder of results into one file."""
    from benign.sweep.folders import pack

    echo(f"{pack(folder, file)} records of {folder} packed into {file}")


@app.command(epilog=examples("benign merge fig1.pack runs/jiang/fig1/paper/default"))
def merge(
    source: Annotated[
        Path, typer.Argument(parser=path, help="A packed file, or another folder of results.")
    ],
    folder: Annotated[
        Path,
        typer.Argument(parser=folder, help="The folder to add to; made if it is not there."),
    ],
) -> None:
    """Bring results made elsewhere into a folder."""
    from benign.sweep.folders import merge

    done = merge(source, folder)
    echo(
        f"{done.added} records added to {folder}, {done.present} were there, {done.damaged} damaged"
    )


@app.command(epilog=examples("benign schema > benign.spec.schema.json"))
def schema() -> None:
    """Print the JSON schema of experiments: with it editors complete and check YAML files."""
    import json

    from benign.spec.schema import experiment_schema

    echo(json.dumps(experiment_schema(), indent=1))


def _plans(
    target: str,
    scale: str | None,
    answers: list[str] | None,
    readings: str | None,
    changes: list[str] | None,
    seeds: int | None,
    out: Path | None,
) -> "list[RunRequest]":
    from benign.papers.requests import RunOptions, plans

    return plans(target, RunOptions(scale, answers or (), readings, changes or (), seeds, out))


def _show_plans(plans: "list[RunRequest]", device: str, workers: int | None, verbose: bool) -> None:
    from benign.cli.describe import plan_text
    from benign.training.machine import cores

    at_once = (cores() if device == "cpu" else 1) if workers is None else workers
    for plan in plans:
        plan.experiment.check_machine(device, at_once)
        echo(f"{plan.title}\n{plan_text(plan.experiment, plan.folder, device, at_once)}")
        if verbose:
            echo(plan.experiment.to_yaml())


def _usage(error: Any) -> str:
    """What is wrong with a command line, and where to read about it."""
    command = error.ctx.command_path if error.ctx else "benign"
    return f"{error.format_message().rstrip('.')}: see `{command} --help`"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print_error(str(message))
            words = outside.in_front(arguments) or ["--help"]
            answer = partial(app, words, prog_name="benign", standalone_mode=False)
            if completion.asked_by_bash():
                return completion.answer_bash(answer)
            return answer() or OK
    except (UsageError, ValueError, OSError) as error:
        if not {"-v", "--verbose"}.isdisjoint(arguments):
            traceback.print_exc()
        if isinstance(error, OSError):
            print_error(
                f"{shortened(error.filename or 'input or output')}: {error.strerror or error}"
            )
            return BAD_INPUT if error.errno == errno.ENAMETOOLONG else FAILED
        print_error(_usage(error) if isinstance(error, UsageError) else str(error))
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        print_error("interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
