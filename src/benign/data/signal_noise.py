"""One signal token among noise tokens: Zhang et al. Definition 1, Jiang et al. Definition 3.1."""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from benign.data.model import DataModel, Sample, signed_labels
from benign.spec.axes import PerRun, default, replace
from benign.spec.base import FlipRate, NonNegative, Positive
from benign.streams import Streams

Vector = tuple[float, ...]


class SignalNoise(DataModel):
    """Token 1 is the signal mu_y, the others are Gaussian noise.

    A label y = +-1 chooses one of two orthogonal signals of equal norm, SNR = |mu| / (noise_std
    sqrt(dim)). Zhang's Definition 1 has noise of one size; Jiang's Definition 3.1 makes token 2 a
    strong noise token. Both project the noise off the two signals; the experiments of both papers
    do not (`projected=False`).

    >>> import benign as bo
    >>> data = bo.SignalNoise(samples=20, tokens=4, dim=100, snr=2.0, noise_std=0.5)
    >>> data.signal_norm()  # snr noise_std sqrt(dim)
    10.0
    """

    snr: PerRun[Positive | None] = default(None)
    """signal-to-noise ratio SNR"""
    signal: PerRun[NonNegative | None] = default(None)
    """signal norm |mu|, instead of `snr`"""
    noise_std: PerRun[Positive]
    """standard deviation sigma_p of a noise coordinate"""
    strong_noise_std: PerRun[Positive | None] = default(None)
    """standard deviation of token 2 (Jiang's strong noise token), if it differs"""
    projected: bool = False
    """noise exactly orthogonal to both signals (the papers' definitions)"""
    balanced: bool = False
    """as many training points of one class as of the other, instead of independent fair labels"""
    flip: PerRun[FlipRate] = default(0.0)
    """probability that a training label is flipped; neither paper has it"""
    directions: Literal["axes", "random"] | tuple[Vector, Vector] = "axes"
    """the signals' directions: the first two coordinate axes, a random orthogonal pair, or two given vectors"""

    def check(self) -> None:
        if (self.snr is None) == (self.signal is None):
            both = "both" if self.snr is not None else "neither"
            raise ValueError(
                f"`snr` and `signal`: give exactly one of them, got {both} "
                f"(snr={self.snr}, signal={self.signal})"
            )
        if self.dim < 2:
            raise ValueError(f"`dim` must be at least 2 for two orthogonal signals, got {self.dim}")
        if self.balanced and self.samples % 2:
            raise ValueError(
                f"`samples` must be even with `balanced: true`, got {self.samples}: "
                f"use {self.samples + 1} or `balanced: false`"
            )
        if self.strong_noise_std is not None and self.tokens < 2:
            raise ValueError(f"`strong_noise_std` needs `tokens` of at least 2, got {self.tokens}")
        if not isinstance(self.directions, str):
            _check_pair(self.directions, self.dim)

    def signal_norm(self) -> Any:
        if self.snr is None:
            return self.signal
        return self.snr * self.noise_std * math.sqrt(self.dim)

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        pair = self._directions(streams, dtype)
        norm = torch.as_tensor(self.signal_norm(), dtype=dtype, device=streams.device)
        signal = pair * norm.reshape(-1, 1, 1)
        training = split == "train"
        clean = signed_labels(streams, split, count, dtype, balanced=self.balanced and training)
        x = torch.empty(
            len(streams), count, self.tokens, self.dim, dtype=dtype, device=clean.device
        )
        chosen = (clean < 0).long()[..., None].expand(-1, -1, self.dim)
        x[:, :, 0] = signal.gather(1, chosen)
        if self.tokens > 1:
            x[:, :, 1:] = self._noise(streams, split, count, dtype)
        if self.projected:
            project_off(x[:, :, 1:], pair)
        y = clean * self._flips(streams, split, count, dtype) if training else clean
        return Sample(x, y, clean, {"signal": signal})

    def least_robust_error(self, p: Any, radius: Any, per: str) -> Any:
        """Return 1/2 for radii of at least |mu_+ - mu_-|_p / 2, at which the two signals meet (papers/zhang.md 4).

        For p = 2, and for signals along axes.
        """
        if p != 2 and (p == 0 or self.directions != "axes"):
            return 0.0
        meeting = {1: 1.0, 2: math.sqrt(0.5), "inf": 0.5}[p] * self.signal_norm()
        return 0.5 * torch.as_tensor(radius >= meeting).double()

    def flip_rate(self) -> Any:
        return self.flip

    def axis_count(self) -> int:
        return 2

    def noise_count(self) -> int:
        return self.samples * (self.tokens - 1)

    def noise_tokens(self, sample: Sample) -> Float[Tensor, "runs rows dim"]:
        return sample.x[:, :, 1:].flatten(1, 2)

    def reduced(self, dim: int) -> "SignalNoise":
        changes = {"dim": dim, "snr": None, "signal": self.signal_norm(), "directions": "axes"}
        return replace(self, {(name,): value for name, value in changes.items()})

    def why_not_gaussian(self) -> str | None:
        return None

    def _directions(self, streams: Streams, dtype: torch.dtype) -> Float[Tensor, "runs 2 dim"]:
        """Return mu_+ / |mu| and mu_- / |mu| of each run."""
        if self.directions == "axes":
            pair = torch.eye(2, self.dim, dtype=dtype, device=streams.device)
        elif self.directions == "random":
            columns = streams("signal/directions").normal(self.dim, 2, dtype=dtype)
            basis, triangle = torch.linalg.qr(columns)
            signs = triangle.diagonal(dim1=1, dim2=2).sign()  # without them not uniform
            pair = (basis * signs[:, None, :]).transpose(1, 2)
        else:
            given = torch.tensor(self.directions, dtype=dtype, device=streams.device)
            pair = given / torch.linalg.vector_norm(given, dim=1, keepdim=True)
        return pair.expand(len(streams), 2, self.dim)

    def _noise(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Tensor:
        noise = streams(f"{split}/noise").normal(count, self.tokens - 1, self.dim, dtype=dtype)
        size = torch.as_tensor(self.noise_std, dtype=dtype, device=noise.device)
        strong = size if self.strong_noise_std is None else self.strong_noise_std
        strong = torch.as_tensor(strong, dtype=dtype, device=noise.device)
        noise[:, :, :1] *= strong.reshape(-1, 1, 1, 1)
        noise[:, :, 1:] *= size.reshape(-1, 1, 1, 1)
        return noise

    def _flips(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Tensor:
        draw = streams(f"{split}/flips").uniform(count, dtype=torch.float64)
        rate = torch.as_tensor(self.flip, dtype=torch.float64, device=draw.device)
        return torch.where(draw < rate.reshape(-1, 1), -1.0, 1.0).to(dtype)


def project_off(noise: Tensor, pair: Float[Tensor, "runs 2 dim"]) -> None:
    """Remove the two signals' directions, of length 1, from the noise, in place."""
    along = torch.einsum("rnmd,rsd->rnms", noise, pair)
    noise -= torch.einsum("rnms,rsd->rnmd", along, pair)


def _check_pair(pair: tuple[Vector, Vector], dim: int) -> None:
    first, second = (torch.tensor(vector, dtype=torch.float64) for vector in pair)
    if len(first) != dim or len(second) != dim:
        raise ValueError(
            f"`directions` must hold two vectors of length dim={dim}, got {len(first)} and {len(second)}"
        )
    size = float(first.norm() * second.norm())
    if size == 0 or abs(float(first @ second)) > 1e-12 * size:
        raise ValueError(
            f"`directions` must be two orthogonal, non-zero vectors, got the inner product {float(first @ second)}"
        )
