"""What is measured while a run trains. A probe is one small function of a step.

A *snapshot* is measured at common log-spaced steps and at the end. A *tally* sees every step and
keeps one number a run.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from benign.data.feature_patches import FeaturePatches
from benign.data.signal_noise import SignalNoise
from benign.losses import correct
from benign.networks.attention import Attention, AttentionPass
from benign.networks.network import Pass
from benign.networks.patch_cnn import PatchCNN
from benign.training.descent import Step
from benign.training.setup import Setup

PerRunValue = Float[Tensor, " runs"]


@dataclass(frozen=True)
class Snapshot:
    """A number of every run at one step."""

    name: str
    meaning: str
    units: str
    measure: Callable[[Step], Tensor]
    applies: Callable[[Setup], bool]


@dataclass(frozen=True)
class Tally:
    """A number of every run over all its steps.

    `update` takes the state so far (None at the first step) and gives the next, a tensor with a
    leading runs axis; `finish` turns the last state into the number.
    """

    name: str
    meaning: str
    units: str
    update: Callable[[Tensor | None, Step], Tensor]
    finish: Callable[[Tensor], Tensor]


SNAPSHOTS: dict[str, Snapshot] = {}
TALLIES: dict[str, Tally] = {}


def always(setup: Setup) -> bool:
    return True


def attacked(setup: Setup) -> bool:
    return setup.attack is not None


def attention_on_signal_noise(setup: Setup) -> bool:
    return isinstance(setup.network, Attention) and isinstance(setup.data, SignalNoise)


def strong_token(setup: Setup) -> bool:
    data = setup.data
    return (
        isinstance(data, SignalNoise)
        and isinstance(setup.network, Attention)
        and data.strong_noise_std is not None
    )


def patches_and_features(setup: Setup) -> bool:
    return isinstance(setup.network, PatchCNN) and isinstance(setup.data, FeaturePatches)


def flips(setup: Setup) -> bool:
    """Whether the data model flips labels and does so in some run."""
    return bool(torch.as_tensor(getattr(setup.data, "flip", 0.0)).gt(0).any())


def snapshot(meaning: str, units: str = "1", applies: Callable[[Setup], bool] = always):
    """Register a function of a step as a snapshot under its own name."""

    def register(measure: Callable[[Step], Tensor]) -> Callable[[Step], Tensor]:
        SNAPSHOTS[measure.__name__] = Snapshot(measure.__name__, meaning, units, measure, applies)
        return measure

    return register


def tally(meaning: str, units: str = "1", finish: Callable[[Tensor], Tensor] = torch.clone):
    """Register a function of (state so far, step) as a tally under its own name."""

    def register(update: Callable[[Tensor | None, Step], Tensor]):
        TALLIES[update.__name__] = Tally(update.__name__, meaning, units, update, finish)
        return update

    return register


def snapshots_for(setup: Setup) -> list[Snapshot]:
    return [probe for probe in SNAPSHOTS.values() if probe.applies(setup)]


@snapshot("training loss that is descended (of attacked points under an attack)", "nats")
def train_loss(step: Step) -> PerRunValue:
    return step.loss


@snapshot("training loss of the clean points", "nats", attacked)
def train_clean_loss(step: Step) -> PerRunValue:
    return step.clean_loss


@snapshot("share of clean training points with y f > 0")
def train_accuracy(step: Step) -> PerRunValue:
    return correct(step.clean_margins).mean(1)


@snapshot("share of training points with y f > 0 under the training attack", applies=attacked)
def train_robust_accuracy(step: Step) -> PerRunValue:
    return correct(step.margins).mean(1)


@snapshot("share of flipped training points fitted with their wrong label", applies=flips)
def flipped_fitted(step: Step) -> PerRunValue:
    flipped = step.batch.sample.y != step.batch.sample.clean_y
    return (flipped & (step.clean_margins > 0)).sum(1) / flipped.sum(1)


@snapshot(
    "attention on the signal token, mean over clean points, heads and rows",
    applies=attention_on_signal_noise,
)
def attention_on_signal(step: Step) -> PerRunValue:
    return _attention(step.clean)[..., 0].mean((1, 2, 3))


@snapshot(
    "attention on the signal token, mean over attacked points, heads and rows",
    applies=lambda setup: attacked(setup) and attention_on_signal_noise(setup),
)
def attention_on_signal_attacked(step: Step) -> PerRunValue:
    return _attention(step.seen)[..., 0].mean((1, 2, 3))


@snapshot(
    "attention on the strong noise token, mean over clean points, heads and rows",
    applies=strong_token,
)
def attention_on_strong_noise(step: Step) -> PerRunValue:
    return _attention(step.clean)[..., 1].mean((1, 2, 3))


@snapshot(
    "entropy of an attention row, mean over clean points, heads and rows",
    "nats",
    attention_on_signal_noise,
)
def attention_entropy(step: Step) -> PerRunValue:
    return torch.special.entr(_attention(step.clean)).sum(-1).mean((1, 2, 3))


@snapshot(
    "V_+ = <mu_+, u>, value of the positive signal, summed over heads",
    applies=attention_on_signal_noise,
)
def value_positive_signal(step: Step) -> PerRunValue:
    return _signal_values(step)[:, 0]


@snapshot(
    "V_- = <mu_-, u>, value of the negative signal, summed over heads",
    applies=attention_on_signal_noise,
)
def value_negative_signal(step: Step) -> PerRunValue:
    return _signal_values(step)[:, 1]


@snapshot(
    "largest |V_{n,i}| over the noise tokens of clean points, summed over heads",
    applies=attention_on_signal_noise,
)
def value_noise_max(step: Step) -> PerRunValue:
    values = _attention_pass(step.clean).values.sum(2)[:, :, 1:]
    return values.abs().flatten(1).amax(1) if values.numel() else torch.zeros_like(step.loss)


@snapshot("Frobenius norm of W_Q over all heads", "1/length", attention_on_signal_noise)
def query_norm(step: Step) -> PerRunValue:
    return torch.linalg.vector_norm(_network(step).queries(step.batch.params), dim=(1, 2))


@snapshot("Frobenius norm of W_K over all heads", "1/length", attention_on_signal_noise)
def key_norm(step: Step) -> PerRunValue:
    return torch.linalg.vector_norm(_network(step).keys(step.batch.params), dim=(1, 2))


@snapshot("norm of u = W_V w_O over all heads", "1/length", attention_on_signal_noise)
def value_norm(step: Step) -> PerRunValue:
    return torch.linalg.vector_norm(_network(step).values(step.batch.params), dim=(1, 2))


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


@tally("largest training loss over all steps", "nats")
def peak_loss(so_far: Tensor | None, step: Step) -> PerRunValue:
    return step.loss.clone() if so_far is None else torch.maximum(so_far, step.loss)


@tally("first step at which every point trained on has y f > 0; -1 if never", "steps")
def first_fit(so_far: Tensor | None, step: Step) -> PerRunValue:
    if so_far is None:
        so_far = torch.full_like(step.loss, -1)
    now = (so_far < 0) & (step.margins > 0).all(1)
    return torch.where(now, float(step.number), so_far)


def _attention_pass(seen: Pass) -> AttentionPass:
    assert isinstance(seen, AttentionPass)
    return seen


def _attention(seen: Pass) -> Float[Tensor, "runs samples heads tokens tokens"]:
    return _attention_pass(seen).attention


def _network(step: Step) -> Attention:
    network = step.batch.setup.network
    assert isinstance(network, Attention)
    return network


def _signal_values(step: Step) -> Float[Tensor, "runs 2"]:
    u = _network(step).values(step.batch.params).sum(2)
    return torch.einsum("rsd,rd->rs", step.batch.sample.latent["signal"], u)


def _correlations(step: Step) -> Float[Tensor, "2 runs"]:
    """max_r <w_ir, u_i> and max_r <w_ir, v_i> (Li section 4), means over the classes i."""
    weights, features = step.batch.params["weights"], step.batch.sample.latent["features"]
    by_kind = features.unflatten(1, (2, weights.shape[1]))
    products = torch.einsum("rimd,rfid->rfim", weights, by_kind)
    return products.amax(3).mean(2).T
