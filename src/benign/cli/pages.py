"""The commands that make pages: `benign report` and `benign serve`."""

from pathlib import Path
from typing import Annotated

import typer

from benign.cli.options import examples, folder, path, whole
from benign.sweep.text import echo, shown

app = typer.Typer()


@app.command(
    epilog=examples(
        "benign report runs/jiang/fig1/quick/default",
        "benign report runs/jiang/fig1/quick               all readings, side by side",
        "benign report runs/first runs/second -o both.html",
    )
)
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            parser=folder,
            metavar="RUN...",
            help="Folders of results, or folders that contain several.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=path,
            metavar="FILE",
            help="The page to write.  [default: report.html in RUN]",
        ),
    ] = None,
    verdicts: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Verdicts written by `benign verify`.  [default: those next to the runs]",
        ),
    ] = None,
) -> None:
    """Write a page about one or more results: a single HTML file.

    It shows maps, training curves, claims and conditions, and how to run everything again. It loads nothing from the
    network, so it can be sent by mail. Runs of one recipe under several readings appear side by side.
    """
    from benign.report.page import write_report

    echo(f"report: {shown(write_report(*runs, output=output, verdicts=verdicts))}")


@app.command(
    epilog=examples(
        "benign serve                       every sweep in runs",
        "benign serve runs/my --open        one sweep, in a browser",
        "ssh -L 8080:localhost:8080 HOST    then open http://localhost:8080 to see the page of HOST",
    )
)
def serve(
    folder: Annotated[
        Path,
        typer.Argument(
            parser=folder, help="A folder of results, or a folder that contains several."
        ),
    ] = Path("runs"),
    port: Annotated[
        int | None,
        typer.Option(
            parser=whole,
            metavar="N",
            help="Port to listen on.  [default: 8080, or the next free one]",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote", help="Allow a --host that anybody on other machines can reach."
        ),
    ] = False,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser.")
    ] = False,
) -> None:
    """Serve a page that shows sweeps while they run. Ctrl-c stops it."""
    from benign.report.live.serve import serve

    serve(folder, host, port, allow_remote, open_browser)
