"""Options that several commands share."""

import os
from pathlib import Path
from typing import Annotated

import typer

from benign.cli import completion

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""exit codes"""


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be a whole number, got {text!r}") from None


LONGEST_NAME, MOST_LEVELS = 255, 200
"""bytes that file systems allow, and levels that are surely a mistake"""


def path(text: str | Path) -> Path:
    """A path as a person writes it, with `~`; refused where there can be no such file or folder."""
    written = os.path.expanduser(str(text))
    names = written.split(os.sep)
    if not written:
        problem = "a path must not be empty; the folder here is `.`"
    elif "\0" in written:
        problem = "a path must not hold a zero byte"
    elif written.startswith("~") and not os.path.lexists(written):
        problem = f"there is no user {shortened(names[0])}: write ./{shortened(written)} for a name that begins so"
    elif longest := max((name for name in names if _bytes(name) > LONGEST_NAME), default=""):
        problem = f"a name in a path may have {LONGEST_NAME} bytes, got {_bytes(longest)}: {shortened(longest)}"
    elif len(names) > MOST_LEVELS:
        problem = f"a path may have {MOST_LEVELS} levels, got {len(names)}"
    elif file := next(filter(os.path.isfile, Path(written).parents), None):
        problem = f"{file} is a file, so nothing lies below it"
    else:
        return Path(written)
    raise typer.BadParameter(problem)


def folder(text: str | Path) -> Path:
    """A path that is not a file."""
    found = path(text)
    if os.path.exists(found) and not os.path.isdir(found):
        raise typer.BadParameter(f"{found} is a file, name a folder")
    return found


def _bytes(name: str) -> int:
    return len(os.fsencode(name))


def shortened(name: object) -> str:
    """A name for a message: of a long one its begin."""
    text = str(name)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}..."


Number = Annotated[str | None, typer.Option(metavar="X")]
Target = Annotated[
    str,
    typer.Argument(
        help="A recipe such as jiang/fig1 (see `benign papers`), a YAML file, or a folder of results.",
        autocompletion=completion.targets,
    ),
]
Folder = Annotated[
    Path,
    typer.Argument(parser=folder, help="A folder of results.", autocompletion=completion.folders),
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
Steal = Annotated[
    bool,
    typer.Option("--steal", help="Take units that processes on other hosts have: these are dead."),
]
Recompute = Annotated[
    bool,
    typer.Option(
        "--recompute",
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
        parser=folder,
        metavar="FOLDER",
        help="Folder of the results; with --readings the folder around them.  "
        "[default: runs/RECIPE/SCALE/READING or runs/FILE]",
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
        parser=folder,
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
