"""Options that several commands share, and the names that shells complete."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""exit codes"""


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be a whole number, got {text!r}") from None


RECIPES = {
    "compare": "architectures",
    "jiang": "fig1 fig2 fig3 fig4 inside",
    "li": "alpha fig3 table1_cifar table1_mnist table1_svhn table2",
    "wang": "exponents fig1 fig2 fig3 fig4 fig5 fig6 undertraining",
    "zhang": "augment fig1 fig1cd fig2 fig3 fig4 fig5 fig6 fig7 fig8 heads inside norms output radius tokens",
}
"""names for shells to complete: importing the recipes themselves takes seconds (a test compares them)"""


SCALES = ("smoke", "quick", "paper")


def words(*known: str) -> Callable[[str], list[str]]:
    """Return a function that completes one of a few words."""
    return lambda incomplete: [word for word in known if word.startswith(incomplete)]


recipes = words(*(f"{paper}/{name}" for paper in RECIPES for name in RECIPES[paper].split()))
papers = words(*RECIPES)


def papers_and_recipes(incomplete: str) -> list[str]:
    return papers(incomplete) + recipes(incomplete)


LONGEST_NAME, MOST_LEVELS = 255, 200
"""bytes that file systems allow; levels above which a path is surely a mistake"""


def path(text: str | Path) -> Path:
    """Return the path that a user wrote, with `~` expanded; raise if no file or folder can have it."""
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
    """Return the path that a user wrote; raise if it is a file."""
    place = path(text)
    if os.path.exists(place) and not os.path.isdir(place):
        raise typer.BadParameter(f"{place} is a file, name a folder")
    return place


def _bytes(name: str) -> int:
    return len(os.fsencode(name))


def shortened(name: object) -> str:
    """Return a name for a message, cut if it is long."""
    text = str(name)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}..."


Number = Annotated[str | None, typer.Option(metavar="X")]
Target = Annotated[
    str,
    typer.Argument(
        help="A recipe such as jiang/fig1 (see `benign papers`), a YAML file, or a folder of results.",
        autocompletion=recipes,
    ),
]
Folder = Annotated[Path, typer.Argument(parser=folder, help="A folder of results.")]
Seeds = Annotated[
    int | None,
    typer.Option(
        parser=whole, metavar="N", help="Number of seeds, instead of that of the experiment."
    ),
]
Scale = Annotated[
    str | None,
    typer.Option(
        help="Size of a recipe: smoke, quick or paper.  [default: quick]",
        autocompletion=words(*SCALES),
    ),
]
Answers = Annotated[
    list[str] | None,
    typer.Option(
        "--reading",
        metavar="QUESTION=ANSWER",
        help="Answer an open question of the paper, such as w_O=divided. Repeatable.",
    ),
]
Readings = Annotated[
    str | None,
    typer.Option(
        help="Which readings: default, all (change one answer at a time) or product (all combinations).",
        autocompletion=words("default", "all", "product"),
    ),
]
Device = Annotated[
    str,
    typer.Option(help="Device: cpu, cuda, cuda:0, ...", autocompletion=words("cpu", "cuda")),
]
Workers = Annotated[
    int | None,
    typer.Option(
        parser=whole,
        metavar="N",
        help="Number of processes.  [default: one per core for long work, else 1]",
    ),
]
Executor = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="Compute on a cluster: dask, slurm, slurm:FILE, tcp://HOST:PORT or a scheduler file.",
        autocompletion=words("dask", "slurm"),
    ),
]
UnitTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Stop a unit of runs after this time; its runs count as failed."
    ),
]
Steal = Annotated[
    bool,
    typer.Option(
        "--steal", help="Also compute units leased by processes of other hosts, if these are dead."
    ),
]
Recompute = Annotated[
    bool,
    typer.Option(
        "--recompute",
        help="Recompute runs that lack a variable, or whose code or images have changed.",
    ),
]
KeepWeights = Annotated[
    bool,
    typer.Option("--keep-weights", help="Keep the final weights of every run, in FOLDER/weights."),
]
Compile = Annotated[
    bool,
    typer.Option(
        "--compile", help="Compile the steps of attacks; worth it for long runs on a GPU."
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        parser=whole,
        metavar="N",
        help="Train N runs at a time, each in a slot that the next run gets; 0 trains unit by unit.  "
        "[default: as many as fill a GPU, 0 on a CPU]",
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="WHERE",
        help="Log every run to tensorboard=FOLDER or mlflow=sqlite:///FILE. Repeatable.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        parser=folder,
        metavar="FOLDER",
        help="Folder for the results; with --readings, the folder that contains one for each reading.  "
        "[default: runs/RECIPE/SCALE/READING or runs/FILE]",
    ),
]
Width = Annotated[
    str | None,
    typer.Option(
        metavar="WIDTH",
        help="Width of figures: column (3.35 inches) or page (6.9 inches).  [default: for a screen]",
        autocompletion=words("column", "page"),
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change a field of the specification, such as training.rate=0.05. Repeatable. More values of an axis "
        "extend the results; for any other change use --out.",
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
        help="Folder of image sets.  [default: $BENIGN_DATA or ~/.cache/benign/data]",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also print the specification, and tracebacks of errors."),
]


def examples(*lines: str) -> str:
    """Return the examples that follow the help of a command."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
