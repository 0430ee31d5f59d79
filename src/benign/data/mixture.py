"""Two clusters around +mu and -mu with flipped labels: Wang et al. Definition 2.1."""

import math
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from benign.data.model import DataModel, Sample, column, signed_labels
from benign.spec.axes import PerRun, Shape, default, replace
from benign.spec.base import Count, FlipRate, NonNegative, Positive
from benign.streams import Streams

Vector = tuple[float, ...]


class Mixture(DataModel):
    """x = y mu + xi with a fair label y; the coordinates of xi are independent, each of one law.

    The law of a coordinate is `noise_std` times one of these, all symmetric and strongly
    log-concave (Definition 2.1 wants a psi_2 norm of at most 1 as well):

    - `gaussian`: N(0, 1). Its psi_2 norm is 1.63; Definition 2.1 holds for noise_std^2 <= 3/8.
    - `truncated`: N(0, 1) conditioned on |z| <= `cut`. At 1.4: variance 0.500, psi_2 norm 0.98.
    - `quartic`: density proportional to exp(-z^2 / 2 - z^4). Variance 0.279, psi_2 norm 0.76.

    Only observed labels of training points are flipped; x and the clean label do not change.
    `flip_mode` says which points are flipped:

    - `independent`: each with probability `flip`, whatever its x.
    - `half_space`: where <u, xi> exceeds its quantile 1 - `flip`, for the unit vector u of
      `half_space`. The chance of a flip is `flip`, but it depends on x; pairs stay independent.
    - `fixed_count`: exactly round(`flip` N) points (halves to even), all choices equally likely.
    - `blocks`: of `block` consecutive points all or none, a block with probability `flip`.

    A point is one vector, so `tokens` is 1. Latent parts: `signal` [runs, 1, dim] is mu, `flipped`
    [runs, samples] marks flipped points, and `half_space` [runs, 1, dim], in its mode, is u. Fewer
    points are the first of more points, but for the flips of `fixed_count`.

    >>> import benign as bo
    >>> data = bo.Mixture(samples=50, dim=1000, signal=3.0, flip=0.1)
    >>> error = data.least_robust_error(p=2, radius=1.0, per="sample")  # Phi(-2), of any classifier
    >>> round(float(error), 4)
    0.0228
    """

    latent_vectors: ClassVar[tuple[str, ...]] = ("signal", "half_space")

    tokens: Shape[Count] = default(1)
    """number of tokens of a point, always one: it is a vector"""
    dim: Shape[Count]
    """dimension d of a point"""
    signal: PerRun[NonNegative]
    """distance |mu| of a cluster's centre from the origin"""
    cluster: Shape[Literal["gaussian", "truncated", "quartic"]] = default("gaussian")
    """law of a coordinate of xi"""
    noise_std: PerRun[Positive] = default(1.0)
    """factor sigma of the law of a coordinate: its standard deviation for `gaussian`, more than that for the others"""
    cut: PerRun[Positive] = default(1.4)
    """end of the law `truncated`, in units of `noise_std`; the other laws ignore it"""
    flip: PerRun[FlipRate] = default(0.0)
    """share beta of training labels that are flipped"""
    flip_mode: Shape[Literal["independent", "half_space", "fixed_count", "blocks"]] = default(
        "independent"
    )
    """which labels are flipped"""
    half_space: Shape[Literal["orthogonal", "signal"]] = default("orthogonal")
    """normal u of the half space: orthogonal to mu (then <u, xi> = <u, x>), or mu / |mu|"""
    block: Shape[Count] = default(10)
    """points that are flipped together by `blocks`; the last ones may be fewer"""
    direction: Literal["axis", "random"] | Vector = "axis"
    """direction of mu: the first coordinate axis, uniform on the sphere, or a given vector"""
    balanced: bool = False
    """as many training points of one class as of the other, instead of independent fair labels"""

    def check(self) -> None:
        if self.tokens != 1:
            raise ValueError(
                f"`tokens` must be 1 (a point of the mixture is one vector), got {self.tokens}: leave it out"
            )
        if self.balanced and self.samples % 2:
            raise ValueError(
                f"`samples` must be even with `balanced: true`, got {self.samples}: "
                f"use {self.samples + 1} or `balanced: false`"
            )
        if not isinstance(self.direction, str):
            _check_vector(self.direction, self.dim)
        if self.flip_mode == "half_space":
            self._check_half_space()

    def _check_half_space(self) -> None:
        if self.half_space == "orthogonal" and self.dim < 2:
            raise ValueError(
                f"`dim` must be at least 2 for a half space orthogonal to mu, got {self.dim}: "
                "use `half_space: signal`"
            )
        # The quantile of <u, xi> is known only if u is an axis or xi is Gaussian.
        if self.cluster != "gaussian" and self.direction != "axis":
            direction = self.direction if isinstance(self.direction, str) else "a vector"
            raise ValueError(
                f"`direction` must be axis for half-space flips of a {self.cluster} cluster, "
                f"got {direction}: use `direction: axis` or `cluster: gaussian`"
            )

    def signal_norm(self) -> Any:
        return self.signal

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        training = split == "train"
        direction = self._direction(streams)
        signal = (direction * column(self.signal, direction)).to(dtype)
        clean = signed_labels(streams, split, count, dtype, balanced=self.balanced and training)
        noise = self._noise(streams, split, count, dtype)
        latent = {"signal": signal[:, None]}
        if self.flip_mode == "half_space":
            normal = self._half_space_normal(streams, direction).to(dtype)
            latent["half_space"] = normal[:, None]
            flipped = self._in_half_space(noise, normal)
        else:
            flipped = self._drawn_flips(streams, split, count)
        latent["flipped"] = flipped & training
        x = noise.mul_(column(self.noise_std, noise)).addcmul_(clean[..., None], signal[:, None])
        return Sample(x[:, :, None], torch.where(latent["flipped"], -clean, clean), clean, latent)

    def least_robust_error(self, p: Any, radius: Any, per: str) -> Any:
        """Return Phi(-(|mu| - alpha) / sigma) for Gaussian clusters and l2 balls, at most 1/2 (papers/wang.md 2.3)."""
        if self.cluster != "gaussian" or p != 2:
            return 0.0
        slack = torch.as_tensor((self.signal - radius) / self.noise_std, dtype=torch.float64)
        return torch.special.ndtr(-slack.clamp_min(0))

    def flip_rate(self) -> Any:
        return self.flip

    def flip_chance(self, sample: Sample) -> Float[Tensor, "runs samples"]:
        if self.flip_mode != "half_space":
            return super().flip_chance(sample)
        centres = sample.clean_y[..., None] * sample.latent["signal"]
        noise = (sample.x[:, :, 0] - centres) / column(self.noise_std, sample.x[:, :, 0])
        return self._in_half_space(noise, sample.latent["half_space"][:, 0]).to(sample.y.dtype)

    def axis_count(self) -> int:
        return 1 if self.flip_mode != "half_space" else 2

    def reduced(self, dim: int) -> "Mixture":
        return replace(self, {("dim",): dim, ("direction",): "axis"})

    def why_not_gaussian(self) -> str | None:
        if self.cluster == "gaussian":
            return None
        return f"`data.cluster` is {self.cluster}, whose law a rotation changes: use `gaussian`"

    def _direction(self, streams: Streams) -> Float64[Tensor, "runs dim"]:
        """Return mu / |mu| of each run."""
        if self.direction == "axis":
            return _axis(0, self.dim, streams)
        if self.direction == "random":
            return _unit(streams("signal/direction").normal(self.dim))
        given = torch.tensor(self.direction, dtype=torch.float64, device=streams.device)
        return _unit(given.expand(len(streams), self.dim))

    def _noise(
        self, streams: Streams, split: str, count: int, dtype: torch.dtype
    ) -> Float[Tensor, "runs samples dim"]:
        """Draw noise of the law with `noise_std` 1."""
        stream = streams(f"{split}/noise")
        if self.cluster == "gaussian":
            return stream.normal(count, self.dim, dtype=dtype)
        return self._quantile(stream.uniform(count, self.dim)).to(dtype)

    def _quantile(self, chance: Float64[Tensor, "runs *rest"]) -> Float64[Tensor, "runs *rest"]:
        """Return the quantile of a coordinate of the law with `noise_std` 1; `chance` is overwritten."""
        if self.cluster == "gaussian":
            return torch.special.ndtri(chance)
        if self.cluster == "quartic":
            # Run by run: interpolation takes eight times the memory of what it is given.
            for one_run in chance:
                one_run.copy_(_quartic_quantile(one_run))
            return chance
        inside = torch.erf(column(self.cut, chance) / math.sqrt(2))
        return chance.mul_(2).sub_(1).mul_(inside).erfinv_().mul_(math.sqrt(2))

    def _drawn_flips(
        self, streams: Streams, split: str, count: int
    ) -> Bool[Tensor, "runs samples"]:
        """Return the flips that do not depend on the point."""
        stream = streams(f"{split}/flips")
        blocks = self.flip_mode == "blocks"
        draws = stream.uniform(math.ceil(count / self.block) if blocks else count)
        rate = column(self.flip, draws)
        if blocks:
            return (draws < rate).repeat_interleave(self.block, dim=1)[:, :count]
        if self.flip_mode == "independent":
            return draws < rate
        rank = draws.argsort(dim=1, stable=True).argsort(dim=1)
        return rank < (rate * count).round()

    def _in_half_space(
        self, noise: Float[Tensor, "runs samples dim"], normal: Float[Tensor, "runs dim"]
    ) -> Bool[Tensor, "runs samples"]:
        """Return where <u, xi> exceeds its quantile 1 - `flip`; `noise` has `noise_std` 1."""
        depth = torch.einsum("rnd,rd->rn", noise, normal)
        # The laws are symmetric, and a small chance is more precise than one near 1.
        rate = column(self.flip, depth.double()).expand(len(depth), 1).clone()
        return depth > -self._quantile(rate)

    def _half_space_normal(
        self, streams: Streams, direction: Float64[Tensor, "runs dim"]
    ) -> Float64[Tensor, "runs dim"]:
        """Return u of each run: mu / |mu|, or orthogonal to mu (axis 2 if mu is along axis 1, else a random vector)."""
        if self.half_space == "signal":
            return direction
        if self.direction == "axis":
            return _axis(1, self.dim, streams)
        draw = streams("signal/half_space").normal(self.dim)
        return _unit(draw - (draw * direction).sum(1, keepdim=True) * direction)


def _axis(index: int, dim: int, streams: Streams) -> Float64[Tensor, "runs dim"]:
    axis = torch.zeros(dim, dtype=torch.float64, device=streams.device)
    axis[index] = 1
    return axis.expand(len(streams), dim)


def _unit(vectors: Float64[Tensor, "runs dim"]) -> Float64[Tensor, "runs dim"]:
    return vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)


def _check_vector(vector: Vector, dim: int) -> None:
    if len(vector) != dim:
        raise ValueError(f"`direction` must have length dim={dim}, got {len(vector)} numbers")
    if not any(vector):
        raise ValueError("`direction` must be a non-zero vector, got zeros: give a direction")


QUARTIC_END = 2.5  # |z| is larger with probability 1e-20, and no draw has a tail below 2**-32
QUARTIC_CELLS = 4096


def _quartic_density(z: Tensor) -> Tensor:
    """Return the density up to its constant factor."""
    return torch.exp(-z.square() / 2 - z.pow(4))


@cache
def _quartic_table() -> tuple[Tensor, Tensor, Tensor]:
    """Return P(|Z| > z), z and dz/dP at equal steps of z, from the far end to 0.

    Cells are integrated by Gauss's rule of 5 points, exact to rounding at this width, and added
    from the tail inwards, so that small chances keep their relative precision.
    """
    z = torch.linspace(QUARTIC_END, 0, QUARTIC_CELLS + 1, dtype=torch.float64, device="cpu")
    node, weight = map(torch.from_numpy, np.polynomial.legendre.leggauss(5))
    half = QUARTIC_END / QUARTIC_CELLS / 2
    mass = half * (_quartic_density(z[1:, None] + half * (1 + node)) @ weight)
    tail = torch.cat([mass.new_zeros(1), mass.cumsum(0)])
    return tail / tail[-1], z, -tail[-1] / _quartic_density(z)


def _quartic_quantile(chance: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    """Return the quantile of `quartic`, by cubic Hermite interpolation of the table; the error is below 1e-9."""
    tails, places, slopes = (part.to(chance.device) for part in _quartic_table())
    tail = 2 * torch.minimum(chance, 1 - chance)
    right = torch.bucketize(tail, tails).clamp_(1, QUARTIC_CELLS)
    left = right - 1
    width, step = tails[right] - tails[left], places[right] - places[left]
    t = (tail - tails[left]) / width
    bend = (1 - t) * (width * slopes[left] - step) - t * (width * slopes[right] - step)
    return (chance - 0.5).sign() * (places[left] + t * (step + (1 - t) * bend))
