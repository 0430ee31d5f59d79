"""Projected coordinates: draw in R^d, then see everything in an orthonormal basis of the span (papers/jiang.md 7.2)."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from benign.data.model import DataModel, Sample
from benign.reduction.test_points import TestPoints
from benign.spec import axes
from benign.streams import Streams


@dataclass(frozen=True)
class View(TestPoints):
    """R^d as seen from a subspace: of every vector its coordinates in an orthonormal basis."""

    data: DataModel
    """the data model in R^d"""
    basis: Float[Tensor, "runs dim small"]

    def of(self, vectors: Float[Tensor, "runs *rows dim"]) -> Float[Tensor, "runs *rows small"]:
        return (vectors.flatten(1, -2) @ self.basis).unflatten(1, vectors.shape[1:-1])

    def of_sample(self, sample: Sample) -> Sample:
        """The sample with its tokens, and those of its latent parts that are vectors, in the basis."""
        vectors = {name: self.of(sample.latent[name]) for name in vector_names(self.data, sample)}
        return replace(sample, x=self.of(sample.x), latent=sample.latent | vectors)

    def model(self, data: DataModel) -> DataModel:
        return self.data

    def draw(
        self, model: DataModel, streams: Streams, split: str, count: int, dtype: torch.dtype
    ) -> Sample:
        return self.of_sample(model.sample(streams, split, count, dtype))

    def select(self, places: Tensor) -> "View":
        return View(axes.select(self.data, places), self.basis[places])


def vector_names(data: DataModel, sample: Sample) -> list[str]:
    return [name for name in data.latent_vectors if name in sample.latent]


def view_of_span(data: DataModel, sample: Sample, rows: Float[Tensor, "runs rows dim"]) -> View:
    """The span of signals, training tokens and weights. Signals come first: orthogonal ones are the first axes."""
    signals = [sample.latent[name] for name in vector_names(data, sample)]
    spanning = torch.cat([*signals, data.noise_tokens(sample), rows], dim=1)
    basis, triangle = torch.linalg.qr(spanning.double().transpose(1, 2))
    signs = torch.where(triangle.diagonal(dim1=1, dim2=2) < 0, -1.0, 1.0).to(basis)
    return View(data, (basis * signs[:, None]).to(sample.x.dtype))
