"""The space a run is computed in: R^d itself, or the span in which all its points and weights stay."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from benign.attacks.attack import Attack
from benign.coordinates.exact import why_not_projected, why_not_sampled
from benign.coordinates.rows import TokenRows
from benign.data.model import DataModel
from benign.networks.network import Network

Mode: TypeAlias = Literal["ambient", "projected", "sampled"]
Wanted: TypeAlias = Literal["ambient", "projected", "sampled", "auto"]


@dataclass(frozen=True)
class Space:
    """Where a run is computed.

    - `ambient`: in R^d.
    - `projected`: everything is drawn in R^d and seen in an orthonormal basis of the span: the same run.
    - `sampled`: the coordinates in such a basis are drawn, nothing of length d exists: the same law.
    """

    mode: Mode
    dim: int
    """length of a token there"""
    drawn_dim: int
    """length of the vectors that tokens and weights are drawn as"""
    why: str

    @property
    def text(self) -> str:
        return f"{self.mode}, {self.dim:,} coordinates: {self.why}"


def choose(
    wanted: Wanted, data: DataModel, network: Network, attack: Attack | None, judge: Attack | None
) -> Space:
    """The space of a run; ValueError with the reason where what is wanted would not be exact.

    `auto` takes the first exact of sampled, projected and ambient.
    """
    if wanted == "ambient":
        return _ambient(data, "as asked")
    against = {
        "sampled": why_not_sampled(data, network, attack, judge),
        "projected": why_not_projected(network, attack, judge),
    }
    if wanted != "auto":
        if trouble := against[wanted]:
            exact = "ambient" if against["projected"] else "projected"
            raise ValueError(
                f"`coordinates` is {wanted}, which would not be exact: {trouble}; "
                f"`coordinates: {exact}` is exact"
            )
        return _small(wanted, data, network, "")
    if not against["sampled"]:
        return _small("sampled", data, network, "")
    if not against["projected"]:
        return _small("projected", data, network, f"; not sampled: {against['sampled']}")
    return _ambient(data, str(against["projected"]))


def _ambient(data: DataModel, why: str) -> Space:
    return Space("ambient", data.dim, data.dim, why)


def _small(mode: Mode, data: DataModel, network: Network, besides: str) -> Space:
    """The span, unless it is no smaller than R^d."""
    assert isinstance(network, TokenRows)
    size = data.axis_count() + data.noise_count() + network.row_count(data)
    if size >= data.dim:
        held = f"the span has {size:,} dimensions and `dim` is {data.dim:,}"
        return _ambient(data, f"{held}, so {mode} coordinates would save nothing")
    same = "the same law" if mode == "sampled" else "the same runs"
    why = f"{same} as in {data.dim:,}, by the span of training tokens, signals and initial weights"
    return Space(mode, size, size if mode == "sampled" else data.dim, why + besides)
