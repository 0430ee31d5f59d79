"""Where points come from that the runs were not trained on, and how the runs see them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from benign.data.model import DataModel, Sample
from benign.networks.network import Network, Params, Pass
from benign.streams import Streams


class TestPoints:
    """Points drawn in the runs' own coordinates.

    Of R^d, or of a span that holds every weight: what a point has beyond it is never seen (papers/jiang.md 7.2).
    """

    def model(self, data: DataModel) -> DataModel:
        """What to draw from, given the data model of the runs."""
        return data

    def draw(
        self, model: DataModel, streams: Streams, split: str, count: int, dtype: torch.dtype
    ) -> Sample:
        return model.sample(streams, split, count, dtype)

    def run(self, network: Network, params: Params, sample: Sample) -> Pass:
        """What the network makes of such points."""
        return network.run(params, sample.x)

    def select(self, places: Tensor) -> "TestPoints":
        """The same for some of the runs."""
        return self


@dataclass(frozen=True)
class JointTestPoints(TestPoints):
    """Test points drawn with the training points, their tokens in the span too: a joint law (papers/jiang.md 7.1)."""

    sample: Sample

    def draw(
        self, model: DataModel, streams: Streams, split: str, count: int, dtype: torch.dtype
    ) -> Sample:
        held = self.sample.y.shape[1]
        if count > held:
            raise ValueError(
                f"`evaluation.samples` is {held}, and no other test points are in the span, asked for {count}"
            )
        x, y, clean = (
            part[:, :count] for part in (self.sample.x, self.sample.y, self.sample.clean_y)
        )
        return Sample(x, y, clean, self.sample.latent)

    def select(self, places: Tensor) -> "JointTestPoints":
        return JointTestPoints(self.sample.select(places))
