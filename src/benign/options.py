"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from benign import completion

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""exit codes"""


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be a whole number, got {text!r}") from None


Number = Annotated[str | None, typer.Option(metavar="X")]
Target = Annotated[
    str,
    typer.Argument(
        help="A recipe such as jiang/fig1 (see `benign papers`), a YAML file, or a folder of results.",
        autocompletion=completion.targets,
    ),
]
Folder = Annotated[
    Path, typer.Argument(help="A folder of results.", autocompletion=completion.folders)
]
Seeds = Annotated[
    int | None,
    typer.Option(parser=whole, metavar="N", help="Repetitions of every cell, instead of its own."),
]
Scale = Annotated[
    str | None,
    typer.Option(
        help="Size of a recipe: smoke, quick or paper.  [default: quick]",
        autocompletion=completion.scales,
    ),
]
Answers = Annotated[
    list[str] | None,
    typer.Option(
        "--reading",
        metavar="QUESTION=ANSWER",
        help="Answer an open question. Repeatable.",
        autocompletion=completion.readings,
    ),
]
Readings = Annotated[
    str | None,
    typer.Option(
        help="default, all (each other answer alone as well) or product (every mix).",
        autocompletion=completion.words("default", "all", "product"),
    ),
]
Device = Annotated[
    str,
    typer.Option(help="cpu, cuda, cuda:0, ...", autocompletion=completion.words("cpu", "cuda")),
]
Workers = Annotated[
    int | None,
    typer.Option(
        parser=whole,
        metavar="N",
        help="Processes on the CPU.  [default: one a core, if the work is long]",
    ),
]
Executor = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="A cluster instead of this machine: dask, slurm or slurm:FILE, tcp://HOST:PORT, a scheduler file.",
        autocompletion=completion.words("dask", "slurm"),
    ),
]
UnitTimeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="End a unit of runs that takes longer; they have failed."),
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over", help="Take units that processes on other hosts have: these are dead."
    ),
]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Compute runs again that lack a variable, or whose code of yours has changed.",
    ),
]
KeepWeights = Annotated[
    bool,
    typer.Option(
        "--keep-weights",
        help="Keep the final weights of every run, one file each in FOLDER/weights.",
    ),
]
Compile = Annotated[
    bool,
    typer.Option("--compile", help="Compile the steps of attacks first: for long sweeps on a GPU."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="WHERE",
        help="Log every run, once, to tensorboard=FOLDER or mlflow=sqlite:///FILE. Repeatable.",
        autocompletion=completion.words("tensorboard=", "mlflow=sqlite:///"),
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the results; with --readings the folder around them.  "
        "[default: runs/RECIPE/SCALE/READING or runs/FILE]"
    ),
]
Width = Annotated[
    str | None,
    typer.Option(
        metavar="WIDTH",
        help="Draw for a paper: column (3.35 inches) or page (6.9).  [default: for a screen]",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change a field. Repeatable. More values of an axis join the folder; for another value use --out.",
    ),
]


def _use_data(folder: Path | None) -> Path | None:
    if folder is not None:
        from benign.data.folder import use_folder

        use_folder(folder)
    return folder


Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        callback=_use_data,
        help="Folder of image sets.  [default: BENIGN_DATA or ~/.cache/benign/data]",
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also the whole specification, and tracebacks.")
]


def examples(*lines: str) -> str:
    """Lines under a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
