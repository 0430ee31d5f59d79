"""Points side by side with those of their own class, so that one batched product serves each class."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def grouped(
    y: Float[Tensor, "runs samples"], classes: int
) -> tuple[Int[Tensor, "runs places"], Int[Tensor, "runs samples"]]:
    """Labels 0, ..., classes - 1 in groups of one size: the sample at each place, and the place of each sample.

    Class j has the places from j times the size of the largest class on. Places that are left over hold sample 0.
    """
    own = y.long()
    belongs = own[..., None] == torch.arange(classes, device=y.device)
    before = belongs.cumsum(1)
    size = int(before[:, -1].max())
    places = own * size + before.gather(2, own[..., None])[..., 0] - 1
    samples = torch.arange(own.shape[1], device=y.device).expand_as(own)
    return own.new_zeros(len(own), classes * size).scatter_(1, places, samples), places


def taken(
    rows: Float[Tensor, "runs rows *shape"],
    places: Int[Tensor, "runs places"],
    out: Float[Tensor, "runs places *shape"] | None = None,
) -> Float[Tensor, "runs places *shape"]:
    """Of every run, the rows at these places."""
    first = torch.arange(len(rows), device=rows.device)[:, None] * rows.shape[1]
    chosen, room = (places + first).flatten(), None if out is None else out.flatten(0, 1)
    return torch.index_select(rows.flatten(0, 1), 0, chosen, out=room).unflatten(0, places.shape)
