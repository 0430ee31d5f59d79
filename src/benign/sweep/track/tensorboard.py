"""TensorBoard: a folder a run, with one file of events whose name identifies the run."""

import os
import re
import shlex
import tempfile
from pathlib import Path

from benign.sweep.track.tracker import RunLog, Tracker, check_folder

LONGEST = 120
"""letters of a folder's name"""
_EVENTS = re.compile(r"events\.out\.tfevents\..*\.([0-9a-f]{32})\.([0-9a-f]{32})")


class TensorBoard(Tracker):
    """`FOLDER/EXPERIMENT/samples=4,snr=0.5,seed=0/events...`: TensorBoard shows each such folder as a run."""

    needs = ("tensorboard",)
    form = "tensorboard=FOLDER"

    @classmethod
    def check(cls, place: str) -> None:
        check_folder(place)

    @property
    def folder(self) -> Path:
        return Path(self.place) / _plain(self.experiment)

    def view_command(self) -> str:
        return f"tensorboard --logdir {shlex.quote(self.place)}"

    def known(self) -> dict[str, str]:
        matches = (_EVENTS.fullmatch(path.name) for path in self.folder.glob("*/events.*"))
        return {match[1]: match[2] for match in matches if match}

    def write(self, run: RunLog) -> None:
        """The file appears whole or not at all."""
        target = self._folder_of(run)
        target.mkdir(parents=True, exist_ok=True)
        for other in target.glob("events.*"):
            other.unlink()
        with tempfile.TemporaryDirectory(dir=self.place) as draft:
            _write_events(run, draft)
            [file] = Path(draft).iterdir()
            os.replace(file, target / file.name)

    def _folder_of(self, run: RunLog) -> Path:
        """Named by the label, and by a part of the key where another run has that name: labels are rounded."""
        named = self.folder / _folder_name(run)
        theirs = (_EVENTS.fullmatch(path.name) for path in named.glob("events.*"))
        is_used = any(match and match[1] != run.key for match in theirs)
        return named.with_name(f"{named.name}-{run.key[:8]}") if is_used else named


def _write_events(run: RunLog, folder: str) -> None:
    from torch.utils.tensorboard.summary import hparams
    from torch.utils.tensorboard.writer import SummaryWriter

    last = {name: points[max(points)] for name, points in run.series.items()}
    with SummaryWriter(folder, filename_suffix=f".{run.key}.{run.content}") as writer:
        # `add_hparams` would make a second run of them.
        for summary in hparams({**run.parameters, "status": run.status}, last):
            writer._get_file_writer().add_summary(summary)
        for name, points in run.series.items():
            for step, value in sorted(points.items()):
                writer.add_scalar(name, value, step)


def _plain(name: str) -> str:
    """Letters that every file system takes, and no way out of the folder."""
    return re.sub(r"[^\w.,=+()-]+", "-", name).strip(".-") or "runs"


def _folder_name(run: RunLog) -> str:
    """The label, with a part of the key where the label alone could be that of two runs."""
    name = _plain(run.label)
    return name if name == run.label and len(name) <= LONGEST else f"{name[:LONGEST]}-{run.key[:8]}"
