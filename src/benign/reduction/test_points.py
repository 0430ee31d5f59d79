"""Test points in the coordinates of a run."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import pad

from benign.bartlett import bartlett
from benign.data.model import DataModel, Sample
from benign.networks.network import Network, Params, Pass
from benign.reduction.protocols import ReducibleWidth
from benign.reduction.sampled import GivenNormals
from benign.spec import axes
from benign.streams import Streams

LARGEST_ERROR = 1e-12
"""of a product of two vectors of a basis"""


class TestPoints:
    """Points drawn in the runs' own coordinates.

    These are R^d, or a span that contains every weight: components of a point beyond it have no effect
    (papers/jiang.md 7.2).
    """

    def model(self, data: DataModel) -> DataModel:
        """Return the model to draw from, given the data model of the runs."""
        return data

    def draw(
        self, model: DataModel, streams: Streams, split: str, count: int, dtype: torch.dtype
    ) -> Sample:
        return model.sample(streams, split, count, dtype)

    def run(self, network: Network, params: Params, sample: Sample) -> Pass:
        """Run the network on such points."""
        return network.run(params, sample.x)

    def select(self, places: Tensor) -> "TestPoints":
        """Return the same for some of the runs."""
        return self


@dataclass(frozen=True)
class JointTestPoints(TestPoints):
    """Test points drawn with the training points, their tokens in the span too: a joint law (papers/jiang.md 7.1)."""

    sample: Sample

    def draw(
        self, model: DataModel, streams: Streams, split: str, count: int, dtype: torch.dtype
    ) -> Sample:
        available = self.sample.y.shape[1]
        if count > available:
            raise ValueError(
                f"`evaluation.samples` is {available}, and the span holds no other test points, but {count} were "
                f"requested: request at most {available}"
            )
        x, y, clean = (
            part[:, :count] for part in (self.sample.x, self.sample.y, self.sample.clean_y)
        )
        return Sample(x, y, clean, self.sample.latent)

    def select(self, places: Tensor) -> "JointTestPoints":
        return JointTestPoints(self.sample.select(places))


@dataclass(frozen=True)
class View(TestPoints):
    """Points of R^d in an orthonormal basis of the span (papers/jiang.md 7.2)."""

    data: DataModel
    """the data model in R^d"""
    basis: Float[Tensor, "runs dim small"]

    def of(self, vectors: Float[Tensor, "runs *rows dim"]) -> Float[Tensor, "runs *rows small"]:
        return (vectors.flatten(1, -2) @ self.basis).unflatten(1, vectors.shape[1:-1])

    def of_sample(self, sample: Sample) -> Sample:
        """Return the sample with its tokens, and those of its latent parts that are vectors, in the basis."""
        vectors = {name: self.of(sample.latent[name]) for name in vector_names(self.data, sample)}
        return replace(sample, x=self.of(sample.x), latent=sample.latent | vectors)

    def model(self, data: DataModel) -> DataModel:
        return self.data

    def draw(
        self, model: DataModel, streams: Streams, split: str, count: int, dtype: torch.dtype
    ) -> Sample:
        return self.of_sample(model.sample(streams, split, count, dtype))

    def padded(self, dim: int) -> "View":
        """Return the view in so many coordinates, of which the additional ones are always zero."""
        return View(self.data, pad(self.basis, (0, dim - self.basis.shape[2])))

    def select(self, places: Tensor) -> "View":
        return View(axes.select(self.data, places), self.basis[places])


def vector_names(data: DataModel, sample: Sample) -> list[str]:
    return [name for name in data.latent_vectors if name in sample.latent]


def view_of_span(data: DataModel, sample: Sample, rows: Float[Tensor, "runs rows dim"]) -> View:
    """Return the view of the span of signals, training tokens and weights.

    Signals come first: orthogonal ones are the first axes.
    """
    signals = [sample.latent[name] for name in vector_names(data, sample)]
    spanning = torch.cat([*signals, data.noise_tokens(sample), rows], dim=1)
    return View(data, orthonormal(spanning.double().transpose(1, 2)).to(sample.x.dtype))


def orthonormal(vectors: Float64[Tensor, "runs dim small"]) -> Float64[Tensor, "runs dim small"]:
    """Return the basis of Gram and Schmidt of the columns; where they are dependent, some basis of their span and more.

    By the Cholesky factor of their Gram matrix on a GPU, where it takes a fifth of the time of a QR factorisation: 14
    ms for 1,101 columns in 9,000 dimensions on an H200. It loses digits where columns are nearly dependent.
    """
    if vectors.is_cuda:
        lower, failed = torch.linalg.cholesky_ex(vectors.transpose(1, 2) @ vectors)
        one = torch.eye(lower.shape[1], dtype=vectors.dtype, device=vectors.device)
        inverse = torch.linalg.solve_triangular(lower, one.expand_as(lower), upper=False)
        basis = vectors @ inverse.transpose(1, 2)
        error = (basis.transpose(1, 2) @ basis - one).abs().amax()
        if not failed.any() and error < LARGEST_ERROR:
            return basis
    basis, triangle = torch.linalg.qr(vectors)
    signs = torch.where(triangle.diagonal(dim1=1, dim2=2) < 0, -1.0, 1.0).to(basis)
    return basis * signs[:, None]


@dataclass(frozen=True)
class LiftedTestPoints(TestPoints):
    """Points of R^d, tested on the whole weights: the initial ones with what training moved on the span."""

    view: View
    """the span of the training tokens"""
    network: ReducibleWidth
    """of full width"""
    whole: Params
    """its weights at the start"""
    frame: Params
    """tensors with which weights of the reduced network are lifted"""

    def model(self, data: DataModel) -> DataModel:
        return self.view.data

    def run(self, network: Network, params: Params, sample: Sample) -> Pass:
        lifted = self.network.width_reduction().lifted(
            params, self.whole, self.frame, self.view.basis
        )
        return self.network.run(lifted, sample.x)

    def select(self, places: Tensor) -> "LiftedTestPoints":
        whole, frame = (
            {name: part[places] for name, part in parts.items()}
            for parts in (self.whole, self.frame)
        )
        network = axes.select(self.network, places)
        return LiftedTestPoints(self.view.select(places), network, whole, frame)


@dataclass(frozen=True)
class PerPointTestPoints(TestPoints):
    """Test points that each draw the part of the frozen weights on which only they depend.

    Given the training run, every point has the law it has with the trained network; that part is drawn anew
    for each point, so that a mean over points is a mean over all networks with this training run.
    """

    dim: int
    """d"""
    network: ReducibleWidth
    """of full width"""
    params: Params
    """of the reduced network at the start"""

    def draw(
        self, model: DataModel, streams: Streams, split: str, count: int, dtype: torch.dtype
    ) -> Sample:
        """Draw points in the coordinates of the span and, beyond it, in the basis of each point's own noise tokens."""
        noise, own = model.noise_count() // model.samples, streams.within(f"{split}/outside")
        along = own("along").normal(count, noise, model.dim, dtype=dtype)
        beyond = bartlett(own.within("tokens"), noise, self.dim - model.dim, count).to(dtype)
        normals = torch.cat([along, beyond], dim=3)
        replaced = GivenNormals(streams, f"{split}/noise", normals)
        sample = model.reduced(model.dim + beyond.shape[3]).sample(replaced, split, count, dtype)
        sample.latent["outside"] = self.network.width_reduction().point_weights(
            self.params, model.reduced(self.dim), own, count, beyond.shape[3]
        )
        return sample

    def run(self, network: Network, params: Params, sample: Sample) -> Pass:
        width = self.network.width_reduction()
        return width.point_pass(params, sample.x, sample.latent["outside"])

    def select(self, places: Tensor) -> "PerPointTestPoints":
        params = {name: part[places] for name, part in self.params.items()}
        return PerPointTestPoints(self.dim, axes.select(self.network, places), params)
