"""What the page of a sweep draws and tells, from the records that are there now."""

from dataclasses import dataclass

import numpy as np

from benign.experiment import Experiment, history_of
from benign.papers.recipes import recipes
from benign.report.atlas import Atlas
from benign.report.cells import ending_text
from benign.report.figures import names_of
from benign.report.live.reader import Reader
from benign.sweep.audits import flagged
from benign.sweep.dataset import assemble
from benign.sweep.plan import keys_of
from benign.sweep.results import runs_in
from benign.sweep.status_text import error_lines
from benign.sweep.store import Store, StoreError
from benign.sweep.validation import valid_records
from benign.training.descent import Status

BAD = (Status.DIVERGED, Status.FAILED, Status.OUT_OF_MEMORY)
MOST_CELLS = 20
"""cells with bad ends that are listed"""


@dataclass(frozen=True)
class Drawn:
    """A sweep as it can be drawn now."""

    experiment: Experiment
    atlas: Atlas
    doubts: str
    """how many runs have a doubtful robust accuracy, and why; empty where none has"""
    troubles: list[str]
    """what went wrong, in lines: why runs failed, which are doubtful, cells with bad ends"""


def drawn(reader: Reader) -> Drawn:
    """Look at a store and draw what is there; StoreError or OSError where that cannot be read."""
    Store.open(reader.folder, writing=False)  # which refuses links and other things
    reader.look()
    history = history_of(reader)
    if not history:
        raise StoreError(f"{reader.folder} holds no experiment yet")
    result = assemble(history[-1], valid_records(reader))
    made = reader.about.made
    atlas = Atlas(result, recipes().get(made.get("target", "")), made.get("changes") or ())
    wanted = set(keys_of(history[-1]))
    held = runs_in(valid_records(reader))
    doubts = flagged(result)
    troubles = [
        *error_lines(at for key, at in held.items() if key in wanted),
        *([f"Doubtful robust accuracy: {doubts}"] if doubts else []),
        *bad_ends(atlas),
    ]
    return Drawn(history[-1], atlas, doubts, troubles)


def bad_ends(atlas: Atlas) -> list[str]:
    """The cells where runs diverged or failed, with how their runs ended."""
    status = atlas.result["status"].transpose(*atlas.dims, "seed").values.astype(int)
    labels = {dim: names_of(atlas.result[dim]) for dim in atlas.dims}
    told = []
    for place in np.argwhere(np.isin(status, BAD).any(-1)).tolist():
        where = [f"{dim} {labels[dim][at]}" for dim, at in zip(atlas.dims, place, strict=True)]
        ends = ending_text(status[tuple(place)].tolist())
        told.append(f"{', '.join(where) or 'the only cell'}: {ends}")
    rest = len(told) - MOST_CELLS
    return told[:MOST_CELLS] + ([f"and {rest} more cells"] if rest > 0 else [])
