"""The commands about claims: `benign verify` and `benign advise`."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

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
    papers,
    recipes,
    words,
)
from benign.sweep.text import echo, print_error

app = typer.Typer()


@app.command(
    epilog=examples(
        "benign verify                             judge every claim, at quick scale",
        "benign verify jiang --scale paper         judge the claims of one paper, at paper scale",
        "benign verify 'zhang/lem*' --list         list some claims",
        "benign verify --only 'li/thm*' --only 'wang/thm*' --readings all",
        "benign verify wang --ladder               give inconclusive claims more seeds: 5, 10, 20, 40",
    )
)
def verify(
    pattern: Annotated[
        str | None,
        typer.Argument(
            help="A paper, a claim, or a glob such as 'zhang/lem*'.  [default: all claims]",
            autocompletion=papers,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="GLOB",
            help="A further paper, claim or glob. Repeatable.",
            autocompletion=papers,
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the claims; judge nothing.")] = False,
    scale: Scale = None,
    reading: Answers = None,
    readings: Readings = None,
    no_run: Annotated[
        bool,
        typer.Option("--no-run", help="Run nothing: judge by the results that are there."),
    ] = False,
    ladder: Annotated[
        bool,
        typer.Option("--ladder", help="Give an inconclusive claim more seeds: 5, 10, 20, 40."),
    ] = False,
    device: Device = "cpu",
    workers: Workers = None,
    out: Annotated[
        Path,
        typer.Option(
            parser=folder,
            metavar="FOLDER",
            help="Folder of the results; verdicts go to FOLDER/verdicts.",
        ),
    ] = Path("runs"),
    data: Data = None,
    verbose: Verbose = False,
) -> None:
    """Judge the claims of the papers on runs.

    Runs that are missing are computed first. A verdict has two parts: whether the statement holds on these runs, and
    whether these runs satisfy the conditions of the theorem. Exit code 1: an error prevented a verdict.
    """
    from benign.papers.registry import matching
    from benign.papers.requests import parsed_answers
    from benign.papers.verify import claims_text
    from benign.papers.verify import verify as judged

    chosen = matching([glob for glob in [pattern, *(only or [])] if glob is not None])
    if listed:
        echo(claims_text(chosen))
        return
    try:
        no_errors = judged(
            chosen,
            scale or "quick",
            readings or "default",
            device,
            workers,
            out,
            verbose,
            no_run,
            parsed_answers(reading or []),
            ladder,
        )
    except KeyboardInterrupt:
        print_error("interrupted: finished runs are kept, the same command resumes")
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(OK if no_errors else FAILED)


@app.command(
    epilog=examples(
        "benign advise --samples 20 --snr 2 --tokens 4 --dim 4096 --hidden 128 --radius 0.05",
        "benign advise --network two_layer --samples 100 --signal 8 --dim 5000 --flip 0.1",
        "benign advise my.yaml                       for an experiment of your own",
        "benign advise --samples 20 --snr 2 --yaml > my.yaml && benign run my.yaml",
    )
)
def advise(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A YAML file or a recipe with a single cell, instead of numbers.",
            autocompletion=recipes,
        ),
    ] = None,
    network: Annotated[
        str,
        typer.Option(
            help="Network: attention or two_layer.",
            autocompletion=words("attention", "two_layer"),
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
    radius: Annotated[
        str | None, typer.Option(metavar="X", help="Radius of the attack, as a share of |mu|.")
    ] = None,
    flip: Number = None,
    loss: Annotated[str | None, typer.Option(metavar="X", help="Training loss to reach.")] = None,
    rate: Number = None,
    copies: Annotated[
        str | None, typer.Option(metavar="K", help="Number of noisy copies of every point.")
    ] = None,
    only_yaml: Annotated[
        bool, typer.Option("--yaml", help="Print only the experiment that tests the advice.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print every condition, in a table.")
    ] = False,
) -> None:
    """Print what the theorems predict for your numbers."""
    given = {
        "samples": samples, "tokens": tokens, "dim": dim, "hidden": hidden, "width": width, "snr": snr,
        "signal": signal, "noise": noise, "radius": radius, "flip": flip, "loss": loss, "rate": rate,
        "copies": copies,
    }  # fmt: skip
    numbers = {name: value for name, value in given.items() if value is not None}
    echo(_advice_text(target, network, numbers, only_yaml, verbose))


def _advice_text(
    target: str | None, network: str, given: Mapping[str, str], only_yaml: bool, verbose: bool
) -> str:
    """Return the advice and the command that tests it, or with `only_yaml` the experiment that tests it."""
    from benign.papers.advice import advise
    from benign.papers.numbers import experiment_for
    from benign.papers.requests import RequestOptions, requests_of

    if target and given:
        raise ValueError(f"give {target} or numbers (--{next(iter(given))}), not both")
    if target:
        experiment = requests_of(target, RequestOptions())[0].experiment
        advice, test = advise(experiment), f"benign run {shlex.quote(target)}"
    else:
        numbers = {name: _number(name, text) for name, text in given.items()}
        experiment, advice = experiment_for(network, numbers), advise(network=network, **numbers)
        options = " ".join(f"--{name} {shlex.quote(text)}" for name, text in given.items())
        test = f"benign advise --network {network} {options} --yaml > my.yaml && benign run my.yaml"
    if only_yaml:
        return experiment.to_yaml()
    return f"{advice.text(verbose)}\n\nto test it: {test}"


def _number(name: str, text: str) -> float | int:
    """Return the number, as an integer if it is one: `1e9` is a dimension."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"--{name}: must be a number, got {text!r}") from None
    return int(value) if value.is_integer() else value
