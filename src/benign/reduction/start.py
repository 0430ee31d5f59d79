"""What a batch of runs starts with, in the coordinates of its space."""

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from benign.data.model import DataModel, Sample
from benign.networks.attention import Attention
from benign.networks.network import Network, Params
from benign.reduction.lifted import expanded
from benign.reduction.reduced_attention import PerPointTestPoints, closed, narrow_params, narrowed
from benign.reduction.rows import TokenRows
from benign.reduction.sampled import GivenNormals, standard_rows
from benign.reduction.space import Space
from benign.reduction.span import view_of_span
from benign.reduction.test_points import JointTestPoints, TestPoints
from benign.streams import Streams


@dataclass(frozen=True)
class Start:
    """Training points and initial weights, and where fresh points come from."""

    data: DataModel
    """the data model in the coordinates of the run"""
    sample: Sample
    params: Params
    network: Network
    """in those coordinates"""
    fresh: TestPoints
    """where points come from that are not trained on"""


def start(
    space: Space, data: DataModel, network: Network, streams: Streams, dtype: torch.dtype
) -> Start:
    """Draw the training points and the initial weights of every run."""
    if space.hidden is not None and space.mode != "projected":
        assert isinstance(network, Attention)
        return _narrow(space, data, network, streams, dtype)
    if space.mode == "sampled":
        return _sampled(space.dim, data, network, streams, dtype)
    sample = data.sample(streams, "train", data.samples, dtype)
    params = network.initial_params(data, streams, dtype)
    if space.mode == "ambient":
        return Start(data, sample, params, network, TestPoints())
    if space.hidden is not None:
        assert isinstance(network, Attention)
        narrow, params, sample, source = expanded(data, network, sample, params)
        return Start(data.reduced(space.dim), sample, params, narrow, source)
    return _projected(data, network, sample, params)


def _projected(data: DataModel, network: Network, sample: Sample, params: Params) -> Start:
    assert isinstance(network, TokenRows)
    rows = network.initial_rows(params, data)
    view = view_of_span(data, sample, rows[:, : network.row_count(data)])
    params = network.with_rows(params, view.of(rows))
    small = data.reduced(view.basis.shape[2])
    return Start(small, view.of_sample(sample), params, network, view)


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
        return Start(small, sample, params, network, TestPoints())
    weights = rows[:, tokens:] * network.row_std(params, data)[:, :, None]
    params = network.with_rows(params, weights.to(dtype))
    return Start(small, sample, params, network, TestPoints())


def _narrow(
    space: Space, data: DataModel, network: Attention, streams: Streams, dtype: torch.dtype
) -> Start:
    """Tokens, those of held test points among them, and the weights on their span."""
    small, axes = data.reduced(space.dim), data.axis_count()
    rows = standard_rows(streams, space.tokens - axes, axes, data.dim)
    rows = pad(rows, (0, space.dim - space.tokens))
    train, test = rows.split([data.noise_count(), space.tokens - axes - data.noise_count()], dim=1)
    sample = small.sample(GivenNormals(streams, "train/noise", train), "train", data.samples, dtype)
    assert space.hidden is not None
    narrow = narrowed(network, space.hidden)
    params = narrow_params(network, space.tokens, data, streams, dtype)
    if space.mode == "approximate":
        params = closed(narrow, network.hidden, params, data, streams)
    fresh: TestPoints = PerPointTestPoints(data.dim, network.hidden, narrow, params)
    if space.held:
        given = GivenNormals(streams, "test/0/noise", test)
        fresh = JointTestPoints(small.sample(given, "test/0", space.held, dtype))
    return Start(small, sample, params, narrow, fresh)
