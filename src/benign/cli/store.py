"""The commands about a folder of results: `benign status`, `check` and `export`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benign.cli import completion
from benign.cli.options import FAILED, OK, Folder, examples
from benign.cli.options import folder as place
from benign.sweep.console import echo

if TYPE_CHECKING:
    from benign.sweep.status import SweepStatus


def status(
    folder: Annotated[
        Path,
        typer.Argument(
            parser=place,
            help="A folder of results, or one with several below it.",
            autocompletion=completion.folders,
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="The same for programs.")] = False,
) -> None:
    """Say how far a sweep is: runs done, running, failed and missing, along every axis.

    It looks at what every record tells of its runs; `benign check` verifies every byte.
    """
    from benign.sweep.status import stores_in
    from benign.sweep.status_text import standing_text, standings_text

    several = list(stores_in(folder))
    if several == [folder]:
        standing = _standing(folder)
        told = json.dumps(_plain(folder, standing), indent=2) if as_json else ""
        echo(told or standing_text(folder, standing))
        return
    standings = {each: _standing_or_why(each) for each in several}
    if as_json:
        echo(json.dumps([_plain(each, found) for each, found in standings.items()], indent=2))
    else:
        echo(standings_text(standings))


def check(
    folders: Annotated[
        list[Path],
        typer.Argument(
            parser=place,
            help="Folders of results, or with several below them.",
            autocompletion=completion.folders,
        ),
    ],
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete the damaged files that are found.")
    ] = False,
) -> None:
    """Verify every record, checkpoint and file of weights of a sweep: its checksum, its form and its name.

    Exit code 1: something is damaged.
    """
    from benign.sweep.status import stores_in

    for folder in folders:
        if not any(store.is_dir() for store in stores_in(folder)):
            raise ValueError(f"{folder} does not exist: name a folder of results")
    faults = [_faults(store, remove) for folder in folders for store in stores_in(folder)]
    raise typer.Exit(FAILED if any(faults) else OK)


def export(
    folder: Folder,
    file: Annotated[
        str,
        typer.Argument(
            help="What to write: NAME.zarr, NAME.nc or NAME.csv; or a tracker, tensorboard=FOLDER or "
            "mlflow=sqlite:///FILE."
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write the result in a folder as zarr, NetCDF or a table of its runs, or log its runs to a tracker.

    A tracker gets every run once, however often it is asked.
    """
    from benign.sweep.export import check_export
    from benign.sweep.export import export as written
    from benign.sweep.folders import open_result
    from benign.sweep.track.tracking import names_tracker

    if names_tracker(file):
        _log(folder, file)
        return
    check_export(Path(file), force)
    result = open_result(folder)
    written(result, Path(file), force)
    runs, missing = result.attrs["runs"], result.attrs["runs_missing"]
    echo(f"{runs - missing} of {runs} runs of {folder} written to {file}")


def _log(folder: Path, where: str) -> None:
    from benign.sweep.dataset import ended
    from benign.sweep.folders import open_experiment, open_result
    from benign.sweep.track.tracking import log_result, tracker_of

    tracker, result = tracker_of(where, folder), open_result(folder)
    new = log_result(tracker, open_experiment(folder), result)
    there = int(ended(result).sum()) - new
    echo(f"{new} runs of {folder} logged to {where}, {there} were there already")


def _standing(folder: Path) -> "SweepStatus":
    from benign.experiment import history_of
    from benign.sweep.status import standing_of
    from benign.sweep.store import Store, StoreError

    store = Store.open(folder, writing=False)
    if not (history := history_of(store)):
        raise StoreError(f"{folder} holds no experiment yet: run one there first")
    return standing_of(store, history)


def _standing_or_why(folder: Path) -> "SweepStatus | str":
    """What is wrong with one of several folders is no reason to be silent about the others."""
    try:
        return _standing(folder)
    except ValueError as error:
        return str(error).splitlines()[0]


def _plain(folder: Path, standing: "SweepStatus | str") -> dict[str, Any]:
    from benign.sweep.status_text import next_steps

    if isinstance(standing, str):
        return {"folder": str(folder), "error": standing}
    return {
        "folder": str(folder),
        **vars(standing.counts),
        "axes": {
            name: [{"value": value, **vars(counts)} for value, counts in values]
            for name, values in standing.axes.items()
        },
        "damaged": standing.damaged,
        "workers": [vars(worker) for worker in standing.workers],
        "notes": standing.notes,
        "next": next_steps(folder, standing),
    }


def _faults(folder: Path, remove: bool) -> int:
    """How many faults a store has; each is told."""
    from benign.experiment import history_of
    from benign.sweep.store import Store, StoreError
    from benign.sweep.validation import check_records

    store, told = Store(folder), []
    try:
        store = Store.open(folder, writing=remove)
        history_of(store)
    except StoreError as error:
        told.append(str(error))
    checked = check_records(store)
    told += checked.damaged.values()
    told += [f"{path} is no record: move it away" for path in checked.strange]
    told += [f"{path} cannot be used: {fault}" for path, fault in checked.spoiled.items()]
    if remove:
        for path in (*map(store.path, checked.damaged), *checked.spoiled):
            path.unlink(missing_ok=True)
    echo(f"{folder}: {checked.records} records of {checked.runs} runs are intact")
    if checked.kept:
        echo(f"{checked.kept} files of checkpoints and weights are intact")
    echo("\n".join(told))
    if checked.damaged:
        done = "removed; " if remove else ""
        echo(f"{len(checked.damaged)} damaged: {done}`benign resume {folder}` computes them again")
    return len(told)


def add_to(app: typer.Typer) -> None:
    """Make these commands of the program."""
    app.command(
        epilog=examples(
            "benign status runs/jiang/fig1/paper/default",
            "benign status runs                            every folder of results below",
            "benign status runs/my --json                  for programs",
        )
    )(status)
    app.command(
        epilog=examples(
            "benign check runs/jiang/fig1/paper/default",
            "benign check runs --remove                    so that damaged files are gone",
        )
    )(check)
    app.command(
        epilog=examples(
            "benign export runs/my my.nc                   NetCDF: xarray, Matlab, R, Julia",
            "benign export runs/my my.csv                  one row a run",
            "benign export runs/my my.zarr --force         in place of an earlier one",
            "benign export runs/my tensorboard=logs        then: tensorboard --logdir logs",
            "benign export runs/my mlflow=sqlite:///mlflow.db",
        )
    )(export)
