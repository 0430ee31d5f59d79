"""The command serve."""

from pathlib import Path
from typing import Annotated

import typer

from benign.cli import completion
from benign.cli.options import examples, whole
from benign.cli.options import folder as place


def serve(
    folder: Annotated[
        Path,
        typer.Argument(
            parser=place,
            help="A folder of results, or one with several below it.",
            autocompletion=completion.folders,
        ),
    ] = Path("runs"),
    port: Annotated[
        int | None,
        typer.Option(
            parser=whole,
            metavar="N",
            help="Where to listen.  [default: 8080, or the next that is free]",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote", help="Let --host be reached from other machines, by anybody."
        ),
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Show sweeps on a page of this machine that fills while they run. Ctrl-c ends it."""
    from benign.report.live.serve import serve

    serve(folder, host, port, allow_remote, open_browser)


def add_to(app: typer.Typer) -> None:
    """Make it a command of the program."""
    app.command(
        epilog=examples(
            "benign serve                       every sweep below runs",
            "benign serve runs/my --open        and open a browser",
            "ssh -L 8080:localhost:8080 THERE   a page of another machine at http://localhost:8080",
        )
    )(serve)
