"""Features that a network learns: Li and Li, section 4, Lemmas D.2, D.7 and E.3; accuracy on features alone."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from benign.data.feature_patches import FeaturePatches
from benign.data.model import BLOCK, DataModel
from benign.losses import correct, margin
from benign.networks.patch_cnn import PatchCNN, PatchCNNPass
from benign.training.descent import Step
from benign.training.metrics import image_features
from benign.training.metrics.fresh_points import EvaluatedRuns
from benign.training.metrics.metric import PerRunValue, evaluation_metric, metric
from benign.training.setup import Setup


class Correlations(NamedTuple):
    """Products of the weights w_ir with the features: axes are class i, weight r and the feature's class j."""

    robust: Float[Tensor, "runs classes width feature_classes"]
    """<w_ir, u_j>: A_ir where j = i, C_irj elsewhere"""
    non_robust: Float[Tensor, "runs classes width feature_classes"]
    """<w_ir, v_j>: B_ir where j = i, D_irj elsewhere"""


def patches_and_features(setup: Setup) -> bool:
    return isinstance(setup.network, PatchCNN) and isinstance(setup.data, FeaturePatches)


def correlations(step: Step) -> Correlations:
    """A, B, C and D of Lemma D.2, as correlations with the whole weights."""
    weights, features = step.batch.params["weights"], step.batch.sample.latent["features"]
    products = torch.einsum("rimd,rfd->rimf", weights, features)
    return Correlations(*products.chunk(2, dim=3))


def own(
    products: Float[Tensor, "runs classes width classes"],
) -> Float[Tensor, "runs classes width"]:
    """Return A_ir from <w_ir, u_j>, or B_ir from <w_ir, v_j>: the products with a feature of the weight's own class."""
    return products.diagonal(dim1=1, dim2=3).transpose(1, 2)


@metric(
    "max_r <w_ir, u_i>, largest correlation of a weight with its class's robust feature, mean over classes",
    applies=patches_and_features,
)
def robust_feature_learned(step: Step) -> PerRunValue:
    return own(correlations(step).robust).amax(2).mean(1)


@metric(
    "max_r <w_ir, v_i>, the same for the non-robust feature",
    applies=patches_and_features,
)
def non_robust_feature_learned(step: Step) -> PerRunValue:
    return own(correlations(step).non_robust).amax(2).mean(1)


@metric(
    "largest <w_ir, u_j> with j != i, of a weight with another class's robust feature, over all weights",
    applies=patches_and_features,
)
def other_robust_features_learned(step: Step) -> PerRunValue:
    return _largest_other(correlations(step).robust)


@metric(
    "largest <w_ir, v_j> with j != i, of a weight with another class's non-robust feature, over all weights",
    applies=patches_and_features,
)
def other_non_robust_features_learned(step: Step) -> PerRunValue:
    return _largest_other(correlations(step).non_robust)


@metric(
    "largest |<w_ir, xi_p>| over all weights and the noise xi_p of clean training patches",
    applies=patches_and_features,
)
def noise_correlation(step: Step) -> PerRunValue:
    """Lemma E.3: <w_ir, x_p> without its feature, whose strength is known."""
    sample, data = step.batch.sample, _data(step)
    strength = sample.latent["strength"] * _visible(data, sample.latent["robust"])
    by_class = torch.stack(correlations(step), dim=4).permute(0, 3, 4, 1, 2)
    runs = torch.arange(len(by_class), device=by_class.device)[:, None, None]
    kind = (~sample.latent["robust"]).long()
    feature = by_class[runs, sample.y.long()[:, :, None], kind]
    noise = _preactivations(step) - strength[..., None, None] * feature
    return noise.abs().flatten(1).amax(1)


@metric(
    "the same for the part of xi_p that is orthogonal to all features",
    applies=patches_and_features,
)
def noise_correlation_off_features(step: Step) -> PerRunValue:
    sample = step.batch.sample
    along = torch.einsum("rnpd,rfd->rnpf", sample.x, sample.latent["features"])
    products = torch.cat(correlations(step), dim=3)
    noise = _preactivations(step) - torch.einsum("rnpf,rimf->rnpim", along, products)
    return noise.abs().flatten(1).amax(1)


@metric(
    "Frobenius norm of the weights' part that is orthogonal to all features",
    applies=patches_and_features,
)
def weights_off_features(step: Step) -> PerRunValue:
    """Lemma D.2: constant in noiseless standard training."""
    weights, features = step.batch.params["weights"], step.batch.sample.latent["features"]
    along = torch.einsum("rimf,rfd->rimd", torch.cat(correlations(step), dim=3), features)
    return torch.linalg.vector_norm(weights - along, dim=(1, 2, 3))


def shows_features(setup: Setup) -> bool:
    """Return whether there are fresh points that show one kind of features alone: views of the data, or made images."""
    views = type(setup.data).views is not DataModel.views
    return views or setup.evaluation.features is not None


@evaluation_metric(
    "accuracy on fresh points that show robust features alone (Li Definition 4.1; on images A.1)",
    applies=shows_features,
)
def robust_feature_accuracy(runs: EvaluatedRuns) -> PerRunValue:
    return _feature_accuracy(runs, "robust")


@evaluation_metric(
    "accuracy on fresh points that show non-robust features alone", applies=shows_features
)
def non_robust_feature_accuracy(runs: EvaluatedRuns) -> PerRunValue:
    return _feature_accuracy(runs, "non_robust")


def _feature_accuracy(runs: EvaluatedRuns, kind: str) -> PerRunValue:
    if runs.setup.evaluation.features is not None:
        return image_features.accuracy(runs, kind)
    batch, total = runs.batch, runs.setup.evaluation.samples
    right = []
    for number, begin in enumerate(range(0, total, BLOCK)):
        points = batch.test_points(f"test/{number}", min(BLOCK, total - begin), view=kind)
        outputs = batch.run(points).outputs.double()
        right.append(correct(margin(outputs, points.y.double())).sum(1))
    return torch.stack(right).sum(0) / total


def _largest_other(products: Float[Tensor, "runs classes width classes"]) -> PerRunValue:
    same = torch.eye(products.shape[1], dtype=torch.bool, device=products.device)[:, None]
    return products.masked_fill(same, -torch.inf).flatten(1).amax(1)


def _visible(
    data: FeaturePatches, robust: Bool[Tensor, "runs samples tokens"]
) -> Bool[Tensor, "runs samples tokens"]:
    """Return whether each patch shows its feature."""
    return torch.ones_like(robust) if data.only == "both" else robust == (data.only == "robust")


def _data(step: Step) -> FeaturePatches:
    data = step.batch.setup.data
    assert isinstance(data, FeaturePatches)
    return data


def _preactivations(step: Step) -> Float[Tensor, "runs samples tokens classes width"]:
    """<w_ir, x_p> of the clean training patches."""
    clean = step.clean_pass
    assert isinstance(clean, PatchCNNPass)
    return clean.preactivations
