"""What every attack offers: perturbed points that a network finds harder."""

from abc import abstractmethod

from jaxtyping import Float
from torch import Tensor

from benign.data.model import DataModel
from benign.networks.network import Network, Params
from benign.spec import Component


class Attack(Component):
    """A way to choose, for every point, a harder one in a ball around it."""

    @abstractmethod
    def perturb(
        self,
        network: Network,
        params: Params,
        data: DataModel,
        x: Float[Tensor, "runs samples tokens dim"],
        y: Float[Tensor, "runs samples"],
    ) -> Float[Tensor, "runs samples tokens dim"]:
        """The attacked points; the network, its parameters and the labels stay as they are."""

    def check_against(self, data: DataModel) -> None:
        """Raise ValueError where the attack cannot be measured on this data."""

    def passes(self) -> int:
        """How many forward passes one attack costs, for estimates."""
        return 1
