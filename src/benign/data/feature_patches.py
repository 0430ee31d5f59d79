"""Patches with a robust or a non-robust feature of their class: Li and Li, Definitions 2.1, 2.2 and 4.1."""

from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

import torch
from jaxtyping import Bool, Float, Float64, Int64
from pydantic import Field
from torch import Tensor

from benign.data.model import DataModel, Sample
from benign.spec.axes import PerRun, Shape, default, replace
from benign.spec.base import Count, NonNegative, Whole
from benign.streams import Streams

Visible: TypeAlias = Literal["both", "robust", "non_robust"]
Spread: TypeAlias = Annotated[NonNegative, Field(lt=1)]
ByClass: TypeAlias = tuple[NonNegative, ...]
Labels: TypeAlias = Int64[Tensor, "runs samples"]
Robust: TypeAlias = Bool[Tensor, "runs samples tokens"]


class FeaturePatches(DataModel):
    """x_p = alpha_p u_y + xi_p on the robust patches J_R of a point, beta_p v_y + xi_p on the others, J_NR.

    The class y is uniform on 0, ..., k - 1. The robust features u_j and the non-robust v_j are 2k
    orthonormal vectors, and xi_p is N(0, noise_std^2 I_dim). Patches are the tokens of a point. Every
    patch has its own strength, uniform within `alpha_spread` (or `beta_spread`) of its mean:
    alpha (1 - spread) to alpha (1 + spread). The partition (J_R, J_NR) follows one of these rules:

    - `first`: the first `robust_patches` patches of every point.
    - `random`: for every point a set of this size, all equally likely.
    - `by_class`: such a set for every class of a run, the same for all its points, training or test.
    - `independent`: every patch with probability `robust_patches` / `tokens`, so its size is random.

    For any other rule, derive a class and override `robust_mask`.

    Labels are 0 to k - 1, also with two classes: the network must have one output a class. A network
    with one output, which wants labels -1 and +1, learns nothing from class 0.

    Latent parts: `features` [runs, 2k, dim] holds u_0, ..., u_{k-1}, v_0, ..., v_{k-1}; `robust` and
    `strength`, both [runs, samples, tokens], mark J_R and hold alpha_p or beta_p. They are those of
    the whole point even where `only` hides a feature. The strengths differ, so there is no one
    signal norm; give attacks an absolute radius. Fewer points are the first of more points.

    >>> import benign as bo
    >>> data = bo.FeaturePatches(samples=20, tokens=16, dim=100, alpha=2.0, beta=1.0, noise_std=0.1)
    >>> data.label_count(), data.robust_patches
    (2, 1)
    """

    latent_vectors: ClassVar[tuple[str, ...]] = ("features",)

    classes: Shape[Count] = default(2)
    """number of classes k"""
    robust_patches: Shape[Whole] = default(1)
    """number of robust patches |J_R|; the other patches of a point are non-robust"""
    alpha: PerRun[NonNegative | None] = default(None)
    """mean strength of the robust feature in a patch"""
    beta: PerRun[NonNegative | None] = default(None)
    """mean strength of the non-robust feature in a patch"""
    alpha_by_class: ByClass | None = None
    """the mean strength in each class, instead of `alpha`"""
    beta_by_class: ByClass | None = None
    """the mean strength in each class, instead of `beta`"""
    alpha_spread: PerRun[Spread] = default(0.0)
    """largest relative deviation of alpha_p from its mean; 0 is a constant strength"""
    beta_spread: PerRun[Spread] = default(0.0)
    """largest relative deviation of beta_p from its mean"""
    noise_std: PerRun[NonNegative]
    """standard deviation sigma_n of a coordinate of xi_p; 0 is the noiseless case of Lemma 5.1"""
    projected: bool = False
    """noise exactly orthogonal to all features; Definition 2.2 does not project"""
    directions: Literal["axes", "random"] = "axes"
    """the features: the first 2k coordinate axes (Definition 2.1), or random orthonormal vectors"""
    partition: Shape[Literal["first", "random", "by_class", "independent"]] = default("first")
    """which patches are robust"""
    only: Shape[Visible] = default("both")
    """features that the points have; the others are replaced by zero (Definition 4.1), the noise stays"""
    balanced: bool = False
    """equally many training points of every class, instead of independent uniform labels"""

    def check(self) -> None:
        k = self.classes
        if k < 2:
            raise ValueError(f"`classes` must be at least 2, got {k}: use 2 or more")
        if self.dim < 2 * k:
            raise ValueError(
                f"`dim` must be at least {2 * k} for two orthonormal features in each of {k} classes, "
                f"got {self.dim}: raise `dim` or lower `classes`"
            )
        if self.robust_patches > self.tokens:
            raise ValueError(
                f"`robust_patches` must be at most tokens={self.tokens}, the patches of a point, "
                f"got {self.robust_patches}: lower it or raise `tokens`"
            )
        if self.balanced and self.samples % k:
            raise ValueError(
                f"`samples` must be a multiple of classes={k} with `balanced: true`, "
                f"got {self.samples}: use {self.samples + k - self.samples % k} or `balanced: false`"
            )
        _check_strength("alpha", self.alpha, self.alpha_by_class, k)
        _check_strength("beta", self.beta, self.beta_by_class, k)

    def showing(self, only: str) -> "FeaturePatches":
        """Return D_F of Definition 4.1: the same draws with only these features."""
        if only not in get_args(Visible):
            raise ValueError(f"`only` must be one of {', '.join(get_args(Visible))}, got {only!r}")
        return replace(self, {("only",): only})

    def views(self) -> dict[str, DataModel]:
        return {kind: self.showing(kind) for kind in ("robust", "non_robust")}

    def label_count(self) -> int:
        return self.classes

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        labels = self._labels(streams, split, count, balanced=self.balanced and split == "train")
        robust = self.robust_mask(streams, split, labels)
        strength = self._strength(streams, split, labels, robust).to(dtype)
        features = self._features(streams).to(dtype)
        x = self._noise(streams, split, count, features)
        visible = (
            strength if self.only == "both" else strength * (robust == (self.only == "robust"))
        )
        chosen = torch.where(robust, labels[..., None], labels[..., None] + self.classes).flatten(1)
        signal = features.gather(1, chosen[..., None].expand(-1, -1, self.dim)).view_as(x)
        x += signal.mul_(visible[..., None])  # two steps: a fused one may round by a number's place
        y = labels.to(dtype)
        return Sample(x, y, y, {"features": features, "robust": robust, "strength": strength})

    def axis_count(self) -> int:
        return 2 * self.classes

    def reduced(self, dim: int) -> "FeaturePatches":
        return replace(self, {("dim",): dim, ("directions",): "axes"})

    def why_not_gaussian(self) -> None:
        return None

    def robust_mask(self, streams: Streams, split: str, labels: Labels) -> Robust:
        """Return J_R of every point, of classes `labels`: a draw from D_{J,y} of Definition 2.2."""
        if self.partition == "first":
            first = torch.arange(self.tokens, device=streams.device) < self.robust_patches
            return first.expand(*labels.shape, self.tokens)
        if self.partition == "by_class":
            sets = self._random_sets(
                streams("features/partition").uniform(self.classes, self.tokens)
            )
            return sets.gather(1, labels[..., None].expand(-1, -1, self.tokens))
        draws = streams(f"{split}/partition").uniform(labels.shape[1], self.tokens)
        if self.partition == "random":
            return self._random_sets(draws)
        return draws < self.robust_patches / self.tokens

    def _random_sets(
        self, draws: Float64[Tensor, "runs sets tokens"]
    ) -> Bool[Tensor, "runs sets tokens"]:
        """Return where the smallest draws are."""
        rank = draws.argsort(dim=2, stable=True).argsort(dim=2)
        return rank < self.robust_patches

    def _labels(self, streams: Streams, split: str, count: int, *, balanced: bool) -> Labels:
        if balanced:
            in_turn = torch.arange(count, device=streams.device) % self.classes
            return in_turn.expand(len(streams), count)
        return streams(f"{split}/labels").integers(count) * self.classes >> 32

    def _strength(
        self, streams: Streams, split: str, labels: Labels, robust: Robust
    ) -> Float64[Tensor, "runs samples tokens"]:
        """Draw alpha_p on robust patches, beta_p on the others."""
        deviation = streams(f"{split}/strength").uniform(*robust.shape[1:]).mul_(2).sub_(1)
        alpha, beta = (
            _mean_strength(number, by_class, labels) * (1 + _column(spread, labels) * deviation)
            for number, by_class, spread in (
                (self.alpha, self.alpha_by_class, self.alpha_spread),
                (self.beta, self.beta_by_class, self.beta_spread),
            )
        )
        return torch.where(robust, alpha, beta)

    def _features(self, streams: Streams) -> Float64[Tensor, "runs features dim"]:
        """Return u_0, ..., u_{k-1}, v_0, ..., v_{k-1} of each run."""
        count = 2 * self.classes
        if self.directions == "axes":
            axes = torch.eye(count, self.dim, dtype=torch.float64, device=streams.device)
            return axes.expand(len(streams), count, self.dim)
        basis, triangle = torch.linalg.qr(streams("features/directions").normal(self.dim, count))
        signs = triangle.diagonal(dim1=1, dim2=2).sign()  # without them not uniform
        return (basis * signs[:, None, :]).transpose(1, 2)

    def _noise(
        self, streams: Streams, split: str, count: int, features: Float[Tensor, "runs features dim"]
    ) -> Float[Tensor, "runs samples tokens dim"]:
        stream = streams(f"{split}/noise")
        noise = stream.normal(count, self.tokens, self.dim, dtype=features.dtype)
        size = torch.as_tensor(self.noise_std, dtype=noise.dtype, device=noise.device)
        noise *= size.reshape(-1, 1, 1, 1)
        if self.projected:
            along = torch.einsum("rnpd,rfd->rnpf", noise, features)
            noise -= torch.einsum("rnpf,rfd->rnpd", along, features)
        return noise


def _column(number: Any, labels: Labels) -> Float64[Tensor, "_ 1 1"]:
    """Return a number of each run, or one for all runs, as a tensor that multiplies [runs, samples, tokens]."""
    return torch.as_tensor(number, dtype=torch.float64, device=labels.device).reshape(-1, 1, 1)


def _mean_strength(number: Any, by_class: ByClass | None, labels: Labels) -> Tensor:
    """Return the mean strength in the patches of every point, as a tensor that multiplies [runs, samples, tokens]."""
    if by_class is None:
        return _column(number, labels)
    return torch.tensor(by_class, dtype=torch.float64, device=labels.device)[labels][..., None]


def _check_strength(name: str, number: Any, by_class: ByClass | None, classes: int) -> None:
    if (number is None) == (by_class is None):
        both = "neither" if number is None else "both"
        raise ValueError(
            f"`{name}` and `{name}_by_class`: give exactly one of them, got {both} "
            f"({name}={number}, {name}_by_class={by_class})"
        )
    if by_class is not None and len(by_class) != classes:
        raise ValueError(
            f"`{name}_by_class` must hold one number for each of {classes} classes, "
            f"got {len(by_class)}: give {classes}, or one `{name}` for all"
        )
