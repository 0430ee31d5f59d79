"""Which features a patch network learns: Li and Li, section 4."""

import torch
from jaxtyping import Float
from torch import Tensor

from benign.data.feature_patches import FeaturePatches
from benign.networks.patch_cnn import PatchCNN
from benign.training.descent import Step
from benign.training.probes.probe import PerRunValue, snapshot
from benign.training.setup import Setup


def patches_and_features(setup: Setup) -> bool:
    return isinstance(setup.network, PatchCNN) and isinstance(setup.data, FeaturePatches)


@snapshot(
    "max_r <w_ir, u_i>, largest correlation of a weight with its class's robust feature, mean over classes",
    applies=patches_and_features,
)
def robust_feature_learned(step: Step) -> PerRunValue:
    return _correlations(step)[0]


@snapshot(
    "max_r <w_ir, v_i>, the same for the non-robust feature",
    applies=patches_and_features,
)
def non_robust_feature_learned(step: Step) -> PerRunValue:
    return _correlations(step)[1]


def _correlations(step: Step) -> Float[Tensor, "2 runs"]:
    """max_r <w_ir, u_i> and max_r <w_ir, v_i> (Li section 4), means over the classes i."""
    weights, features = step.batch.params["weights"], step.batch.sample.latent["features"]
    by_kind = features.unflatten(1, (2, weights.shape[1]))
    products = torch.einsum("rimd,rfid->rfim", weights, by_kind)
    return products.amax(3).mean(2).T
