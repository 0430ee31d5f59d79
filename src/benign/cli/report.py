"""The command about pages: `benign report`."""

from pathlib import Path
from typing import Annotated

import typer

from benign.cli import completion
from benign.cli.options import examples, folder, path
from benign.sweep.console import echo, shown


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            parser=folder,
            metavar="RUN...",
            help="Folders of results, or with several below them.",
            autocompletion=completion.folders,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=path,
            metavar="FILE",
            help="The page.  [default: report.html beside RUN]",
        ),
    ] = None,
    verdicts: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Verdicts that `benign verify` wrote.  [default: those beside the runs]",
        ),
    ] = None,
) -> None:
    """Write one HTML file to look at runs: maps, training curves, claims, conditions, how to run it again.

    It needs no network, so that it can be sent by mail. Runs of one recipe under several readings stand side by
    side; what is not finished is shown as far as it is.
    """
    from benign.report.page import write_report

    echo(f"report: {shown(write_report(*runs, output=output, verdicts=verdicts))}")


def add_to(app: typer.Typer) -> None:
    """Make it a command of the program."""
    app.command(
        epilog=examples(
            "benign report runs/jiang/fig1/quick/default",
            "benign report runs/jiang/fig1/quick               all readings side by side",
            "benign report runs/first runs/second -o both.html",
        )
    )(report)
