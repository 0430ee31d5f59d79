"""The commands about folders of results: `benign status`, `export`, `pack`, `merge` and `store check`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benign.cli.options import FAILED, OK, Folder, examples, path
from benign.cli.options import folder as folder_path
from benign.sweep.text import echo

if TYPE_CHECKING:
    from benign.sweep.status import SweepStatus


app = typer.Typer()
store = typer.Typer()


@app.command(
    epilog=examples(
        "benign status runs/jiang/fig1/paper/default",
        "benign status runs                            every folder of results in runs",
        "benign status runs/my --json                  for programs",
    )
)
def status(
    folder: Annotated[
        Path,
        typer.Argument(
            parser=folder_path, help="A folder of results, or a folder that contains several."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show how many runs of a sweep are done, running or missing.

    This reads only the statuses in the records; `benign store check` verifies every byte.
    """
    from benign.sweep.status import stores_in
    from benign.sweep.status_text import sweep_text, sweeps_text

    folders = list(stores_in(folder))
    if folders == [folder]:
        sweep = _status(folder)
        text = json.dumps(_plain(folder, sweep), indent=2) if as_json else ""
        echo(text or sweep_text(folder, sweep))
        return
    statuses = {each: _status_or_error(each) for each in folders}
    if as_json:
        echo(json.dumps([_plain(each, found) for each, found in statuses.items()], indent=2))
    else:
        echo(sweeps_text(statuses))


@app.command(
    epilog=examples(
        "benign export runs/my my.nc                   NetCDF: xarray, Matlab, R, Julia",
        "benign export runs/my my.csv                  one row per run",
        "benign export runs/my my.json.gz              the numbers of a figure, at most 300 kB: bo.published",
        "benign export runs/my my.zarr --force         replace an earlier one",
        "benign export runs/my tensorboard=logs        then: tensorboard --logdir logs",
        "benign export runs/my mlflow=sqlite:///mlflow.db",
    )
)
def export(
    folder: Folder,
    file: Annotated[
        str,
        typer.Argument(
            help="The file to write, NAME.zarr, NAME.nc, NAME.csv or NAME.json.gz; or a tracker, tensorboard=FOLDER or "
            "mlflow=sqlite:///FILE."
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Export a result as zarr, NetCDF, CSV or the numbers of a figure, or to a tracker.

    A tracker gets every run only once, however often you export.
    """
    from benign.sweep.export import FIGURE, check_export
    from benign.sweep.export import export as written
    from benign.sweep.folders import open_result
    from benign.sweep.track.tracking import names_tracker

    if names_tracker(file):
        _log(folder, file)
        return
    check_export(Path(file), force)
    if file.endswith(FIGURE):
        from benign.papers.published import store

        result, kept = store(folder, Path(file))
        if left_out := kept.attrs["left_out"]:
            echo(f"left out, for lack of space: {', '.join(left_out)}")
    else:
        result = open_result(folder)
        written(result, Path(file), force)
    runs, missing = result.attrs["runs"], result.attrs["runs_missing"]
    echo(f"{runs - missing} of {runs} runs of {folder} written to {file}")


@app.command(epilog=examples("benign pack runs/jiang/fig1/paper/default fig1.pack"))
def pack(
    folder: Folder,
    file: Annotated[Path, typer.Argument(parser=path, help="The file to write.")],
) -> None:
    """Write a folder of results into one file, for `benign merge`."""
    from benign.sweep.folders import pack

    echo(f"{pack(folder, file)} records of {folder} packed into {file}")


@app.command(epilog=examples("benign merge fig1.pack runs/jiang/fig1/paper/default"))
def merge(
    source: Annotated[
        Path, typer.Argument(parser=path, help="A packed file, or another folder of results.")
    ],
    folder: Annotated[
        Path,
        typer.Argument(parser=folder_path, help="The folder to extend; created if necessary."),
    ],
) -> None:
    """Add the results of a packed file or of another folder."""
    from benign.sweep.folders import merge

    done = merge(source, folder)
    echo(
        f"{done.added} records added to {folder}, {done.present} already present, {done.damaged} damaged"
    )


@store.callback()
def _store() -> None:
    """Maintain folders of results: `benign store check`."""


@store.command(
    epilog=examples(
        "benign store check runs/jiang/fig1/paper/default",
        "benign store check runs --remove              delete damaged files",
    )
)
def check(
    folders: Annotated[
        list[Path],
        typer.Argument(
            parser=folder_path, help="Folders of results, or folders that contain several."
        ),
    ],
    remove: Annotated[bool, typer.Option("--remove", help="Delete damaged files.")] = False,
) -> None:
    """Verify every record, checkpoint and file of weights.

    Exit code 1: something is damaged.
    """
    from benign.sweep.status import stores_in

    for folder in folders:
        if not any(store.is_dir() for store in stores_in(folder)):
            raise ValueError(f"{folder} does not exist: name a folder of results")
    faults = [_faults(store, remove) for folder in folders for store in stores_in(folder)]
    raise typer.Exit(FAILED if any(faults) else OK)


app.add_typer(store, name="store")


def _log(folder: Path, where: str) -> None:
    from benign.sweep.dataset import ended
    from benign.sweep.folders import current_experiment, current_result
    from benign.sweep.store import Store
    from benign.sweep.track.tracking import log_result, tracker_of

    tracker, store = tracker_of(where, folder), Store.open(folder, writing=False)
    result = current_result(store)
    new = log_result(tracker, current_experiment(store), result)
    there = int(ended(result).sum()) - new
    echo(f"{new} runs of {folder} logged to {where}, {there} already present")


def _status(folder: Path) -> "SweepStatus":
    from benign.sweep.status import sweep_status
    from benign.sweep.store import Store, StoreError

    store = Store.open(folder, writing=False)
    if not (history := store.experiments()):
        raise StoreError(f"{folder} holds no experiment yet: run one there first")
    return sweep_status(store, history)


def _status_or_error(folder: Path) -> "SweepStatus | str":
    """Return the status of one of several folders, or the first line of its error."""
    try:
        return _status(folder)
    except ValueError as error:
        return str(error).splitlines()[0]


def _plain(folder: Path, sweep: "SweepStatus | str") -> dict[str, Any]:
    from benign.sweep.status_text import next_steps

    if isinstance(sweep, str):
        return {"folder": str(folder), "error": sweep}
    return {
        "folder": str(folder),
        **vars(sweep.counts),
        "axes": {
            name: [{"value": value, **vars(counts)} for value, counts in values]
            for name, values in sweep.axes.items()
        },
        "damaged": sweep.damaged,
        "workers": [vars(worker) for worker in sweep.workers],
        "notes": sweep.notes,
        "next": next_steps(folder, sweep),
    }


def _faults(folder: Path, remove: bool) -> int:
    """Print the faults of a store and return their number."""
    from benign.sweep.store import Store, StoreError
    from benign.sweep.validation import check_records

    store, faults = Store(folder), []
    try:
        store = Store.open(folder, writing=remove)
        store.experiments()
    except StoreError as error:
        faults.append(str(error))
    checked = check_records(store)
    faults += checked.damaged.values()
    faults += [f"{path} is not a record: move it away" for path in checked.strange]
    faults += [f"{path} cannot be used: {fault}" for path, fault in checked.spoiled.items()]
    if remove:
        for path in (*map(store.path, checked.damaged), *checked.spoiled):
            path.unlink(missing_ok=True)
    echo(f"{folder}: {checked.records} records of {checked.runs} runs are intact")
    if checked.intact_files:
        echo(f"{checked.intact_files} files of checkpoints and weights are intact")
    echo("\n".join(faults))
    if checked.damaged:
        done = "removed; " if remove else ""
        echo(f"{len(checked.damaged)} damaged: {done}`benign resume {folder}` computes them again")
    return len(faults)
