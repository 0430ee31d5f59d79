"""What a batch of runs starts with, in the coordinates of its space."""

from dataclasses import dataclass

import torch

from benign.coordinates.rows import TokenRows
from benign.coordinates.sampled import GivenNormals, standard_rows
from benign.coordinates.space import Space
from benign.coordinates.span import View, view_of_span
from benign.data.model import DataModel, Sample
from benign.networks.network import Network, Params
from benign.streams import Streams


@dataclass(frozen=True)
class Start:
    """Training points and initial weights, and where fresh points come from."""

    data: DataModel
    """the data model in the coordinates of the run"""
    sample: Sample
    params: Params
    view: View | None = None
    """how fresh points of R^d are seen; without it they are drawn from `data`"""


def start(
    space: Space, data: DataModel, network: Network, streams: Streams, dtype: torch.dtype
) -> Start:
    """Draw the training points and the initial weights of every run."""
    if space.mode == "sampled":
        return _sampled(space.dim, data, network, streams, dtype)
    sample = data.sample(streams, "train", data.samples, dtype)
    params = network.initial_params(data, streams, dtype)
    if space.mode == "ambient":
        return Start(data, sample, params)
    return _projected(data, network, sample, params)


def _projected(data: DataModel, network: Network, sample: Sample, params: Params) -> Start:
    assert isinstance(network, TokenRows)
    rows = network.initial_rows(params, data)
    view = view_of_span(data, sample, rows[:, : network.row_count(data)])
    params = network.with_rows(params, view.of(rows))
    return Start(data.reduced(view.basis.shape[2]), view.of_sample(sample), params, view)


def _sampled(
    dim: int, data: DataModel, network: Network, streams: Streams, dtype: torch.dtype
) -> Start:
    """The reduced model draws everything but the noise; the network everything but its rows."""
    assert isinstance(network, TokenRows)
    small, axes, tokens = data.reduced(dim), data.axis_count(), data.noise_count()
    rows = standard_rows(streams, dim - axes, axes, data.dim)
    given = GivenNormals(streams, "train/noise", rows[:, :tokens])
    sample = small.sample(given, "train", data.samples, dtype)
    params = network.initial_params(small, streams, dtype)
    if not network.row_count(data):
        return Start(small, sample, params)
    weights = rows[:, tokens:] * network.row_std(params, data)[:, :, None]
    return Start(small, sample, network.with_rows(params, weights.to(dtype)))
