"""The commands about claims: `benign verify` and `benign advise`."""

from pathlib import Path
from typing import Annotated

import typer

from benign.cli import completion
from benign.cli.options import (
    FAILED,
    INTERRUPTED,
    OK,
    Answers,
    Data,
    Device,
    Number,
    Readings,
    Scale,
    Verbose,
    Workers,
    examples,
    folder,
)
from benign.sweep.console import echo, print_error


def verify(
    pattern: Annotated[
        str | None,
        typer.Argument(
            help="A paper, a claim or a glob such as 'zhang/lem*'.  [default: all]",
            autocompletion=completion.claims,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="GLOB",
            help="Further patterns. Repeatable.",
            autocompletion=completion.claims,
        ),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Show the claims, and judge none.")
    ] = False,
    scale: Scale = None,
    reading: Answers = None,
    readings: Readings = None,
    found: Annotated[
        bool,
        typer.Option("--no-run", help="Run nothing: judge what the folders hold, of any size."),
    ] = False,
    device: Device = "cpu",
    workers: Workers = None,
    out: Annotated[
        Path,
        typer.Option(
            parser=folder, metavar="FOLDER", help="Folder of the runs; verdicts go to OUT/verdicts."
        ),
    ] = Path("runs"),
    data: Data = None,
    verbose: Verbose = False,
) -> None:
    """Judge what the papers claim, on runs: what is missing is run first.

    A verdict has two parts: whether the statement holds on these runs, and whether these are inside the theorem's
    conditions. Exit code 0: everything could be decided, or is explained.
    """
    from benign.papers.claims import matching
    from benign.papers.requests import parsed_answers
    from benign.papers.verify import claims_text
    from benign.papers.verify import verify as judged

    chosen = matching([each for each in [pattern, *(only or [])] if each is not None])
    if listed:
        echo(claims_text(chosen))
        return
    try:
        fine = judged(
            chosen,
            scale or "quick",
            readings or "default",
            device,
            workers,
            out,
            verbose,
            found,
            parsed_answers(reading or []),
        )
    except KeyboardInterrupt:
        print_error("interrupted: finished runs are kept, the same command resumes")
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(OK if fine else FAILED)


def advise(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A YAML file or a recipe of one cell, instead of numbers.",
            autocompletion=completion.targets,
        ),
    ] = None,
    network: Annotated[
        str,
        typer.Option(
            help="attention or two_layer.",
            autocompletion=completion.words("attention", "two_layer"),
        ),
    ] = "attention",
    samples: Number = None,
    tokens: Number = None,
    dim: Number = None,
    hidden: Number = None,
    width: Number = None,
    snr: Number = None,
    signal: Number = None,
    noise: Number = None,
    radius: Annotated[str | None, typer.Option(metavar="X", help="As a share of |mu|.")] = None,
    flip: Number = None,
    loss: Annotated[str | None, typer.Option(metavar="X", help="Training loss to reach.")] = None,
    rate: Number = None,
    copies: Annotated[
        str | None, typer.Option(metavar="K", help="Noise-injected copies of every point.")
    ] = None,
    alone: Annotated[
        bool, typer.Option("--yaml", help="The experiment that tests it, and nothing else.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every condition as a table.")
    ] = False,
) -> None:
    """Say what the theorems predict for numbers of your own, and how to test it."""
    from benign.cli.advise import advice_text

    given = {
        "samples": samples, "tokens": tokens, "dim": dim, "hidden": hidden, "width": width, "snr": snr,
        "signal": signal, "noise": noise, "radius": radius, "flip": flip, "loss": loss, "rate": rate,
        "copies": copies,
    }  # fmt: skip
    numbers = {name: value for name, value in given.items() if value is not None}
    echo(advice_text(target, network, numbers, alone, verbose))


def add_to(app: typer.Typer) -> None:
    """Make both commands of the program."""
    app.command(
        epilog=examples(
            "benign verify                             every claim, at quick scale",
            "benign verify jiang --scale paper         the claims of one paper, larger",
            "benign verify 'zhang/lem*' --list         what there is",
            "benign verify --only 'li/thm*' --only 'wang/thm*' --readings all",
        )
    )(verify)
    app.command(
        epilog=examples(
            "benign advise --samples 20 --snr 2 --tokens 4 --dim 4096 --hidden 128 --radius 0.05",
            "benign advise --network two_layer --samples 100 --signal 8 --dim 5000 --flip 0.1",
            "benign advise my.yaml                       about an experiment of your own",
            "benign advise --samples 20 --snr 2 --yaml > my.yaml && benign run my.yaml",
        )
    )(advise)
