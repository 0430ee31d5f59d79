"""Sample pictures of a recipe on images: training pictures at its smallest and at its largest signal-to-noise ratio."""

from pathlib import Path

import torch
import xarray as xr

from benign.data.images import Images
from benign.experiment import Experiment, specification
from benign.plot.bars import PictureRow, pictures_figure
from benign.plot.style import save
from benign.spec import axes
from benign.streams import RunId, Streams

COUNT = 8


def draw_samples(result: xr.Dataset, path: Path, caption: str) -> list[Path]:
    """Write the pictures; none where the image set is not on this machine, as where runs came from another one."""
    experiment = Experiment.from_dict(specification(result))
    cells = [cell.data for _, cell in axes.cells(experiment)]
    ends = [min(cells, key=_ratio), max(cells, key=_ratio)]
    if ends[0].absent():
        return []
    rows = [PictureRow(f"SNR = {_ratio(data):g}", _pictures(data)) for data in ends]
    drawn = pictures_figure(rows, title="Training pictures", caption=caption)
    return save(drawn, path)


def _ratio(data: Images) -> float:
    return data.construction.snr  # pyright: ignore[reportAttributeAccessIssue]


def _pictures(data: Images):
    """The same pictures for every ratio: draws do not depend on it."""
    sample = data.sample(Streams([RunId(0, 0, "")]), "train", COUNT, torch.float32)
    return data.pictures(sample.x)[0].numpy()
