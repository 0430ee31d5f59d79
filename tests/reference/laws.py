"""Helpers of tests of laws: draws of a data model, and the rate at which a correct law may fail."""

import torch
from scipy import stats
from torch import Tensor

from benign.data.model import DataModel, Sample
from benign.streams import Streams
from tests.reference import run_ids

FALSE_ALARM = 1e-6
"""chance that a correct law fails one test"""

FLOAT64 = torch.float64


def draw(data: DataModel, runs: int = 1, split: str = "train", count: int | None = None) -> Sample:
    return data.sample(Streams(run_ids(runs)), split, count or data.samples, FLOAT64)


def check_share(hits: Tensor, chance: float) -> None:
    """Independent events of this probability."""
    assert stats.binomtest(int(hits.sum()), hits.numel(), chance).pvalue > FALSE_ALARM
