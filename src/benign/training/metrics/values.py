"""Values in the theory's coordinates, and the stages of training they mark: Zhang Definition 2, Jiang Definition B.1.

The value of a token x is V_x = x^T u with u = W_V w_O. Metrics sum the values of several heads; whole tensors keep
heads apart.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.weak import WeakTensorKeyDictionary

from benign.losses import logistic_slope
from benign.training.descent import Step
from benign.training.metrics.attention import (
    ByToken,
    attention_network,
    attention_on_signal_noise,
    attention_pass,
    left_out_norm,
    noise_tokens,
    strong_token,
)
from benign.training.metrics.metric import PerRunValue, first_time, metric, running_metric

STILL_HALF = 0.05
"""stage II lasts while every -l'_n is within this of 1/2 (papers/zhang.md, program stage markers)"""

_STARTS = WeakTensorKeyDictionary()
"""u(0) by the weights that started with it, for as long as these are trained"""


def scalarised_values(step: Step) -> ByToken:
    """V_+, V_- and V_{n,i} of the clean tokens, [..., heads] (Zhang Definition 2, Jiang Definition B.1)."""
    u = attention_network(step).values(step.batch.params)
    return ByToken(torch.bmm(step.batch.sample.latent["signal"], u), _values(step)[:, :, 1:])


def growth(step: Step) -> ByToken:
    """gamma_{V,+}, gamma_{V,-} and rho_{V,n,i}, [..., heads]: (V_x(t) - V_x(0)) / |w_O|^2 of the clean tokens x
    (Zhang Definition 4, Jiang Definition B.1)."""
    x, moved = step.batch.sample.x, _moved(step)
    noise = torch.bmm(x.flatten(1, 2), moved).unflatten(1, x.shape[1:3])[:, :, 1:]
    return ByToken(torch.bmm(step.batch.sample.latent["signal"], moved), noise)


def _moved(step: Step) -> Float[Tensor, "runs dim heads"]:
    """(u - u(0)) / |w_O|^2 of every head."""
    params = step.batch.params
    moved = attention_network(step).values(params) - initial_value_vectors(step)
    return moved / params["output"].square().sum(1)[:, None, None]


def initial_value_vectors(step: Step) -> Float[Tensor, "runs dim heads"]:
    """Return u(0) = W_V(0) w_O of every head.

    It is stored at step 0, because drawing W_V again costs as much as two forward passes. It is drawn again if step 0
    was not computed here, or if runs have left the batch since.
    """
    if step.batch.initial_params is not None:
        return attention_network(step).values(step.batch.initial_params)
    weights = step.batch.params["weights"]
    if step.number == 0:
        _STARTS[weights] = attention_network(step).values(step.batch.params).clone()
    elif weights not in _STARTS:
        _STARTS[weights] = _drawn_again(step)
    return _STARTS[weights]


def _drawn_again(step: Step) -> Float[Tensor, "runs dim heads"]:
    batch, network = step.batch, attention_network(step)
    if "initial_values" in batch.params:  # in small coordinates W_V is not drawn
        return batch.params["initial_values"]
    output = batch.params["output"]
    heads = [
        network.initial_value_matrix(batch.setup.data, batch.streams, output.dtype, head)
        @ output[:, :, None]
        for head in range(network.heads)
    ]
    return torch.cat(heads, dim=2)


def _values(step: Step) -> Float[Tensor, "runs samples tokens heads"]:
    """Return x^T u of every clean token. Under attack it is one product with u: stage markers need it at every step."""
    if step.batch.setup.attack is None:
        return attention_pass(step.attacked_pass).values.transpose(2, 3)
    x = step.batch.sample.x
    u = attention_network(step).values(step.batch.params)
    return torch.bmm(x.flatten(1, 2), u).unflatten(1, x.shape[1:3])


@metric(
    "gamma_{V,+} = (V_+ - V_+(0)) / |w_O|^2, growth of the positive signal's value, summed over heads",
    applies=attention_on_signal_noise,
)
def growth_positive_signal(step: Step) -> PerRunValue:
    return _signal_growth(step)[:, 0]


@metric(
    "gamma_{V,-} = (V_- - V_-(0)) / |w_O|^2, growth of the negative signal's value, summed over heads",
    applies=attention_on_signal_noise,
)
def growth_negative_signal(step: Step) -> PerRunValue:
    return _signal_growth(step)[:, 1]


@metric(
    "largest |rho_{V,n,i}| = |V_{n,i} - V_{n,i}(0)| / |w_O|^2 over clean noise tokens, summed over heads",
    applies=noise_tokens,
)
def growth_noise_max(step: Step) -> PerRunValue:
    return growth(step).noise.sum(3).abs().amax((1, 2))


@metric(
    "cosine of the angle between u, summed over heads, and mu_+ - mu_-",
    applies=attention_on_signal_noise,
)
def value_alignment(step: Step) -> PerRunValue:
    u = attention_network(step).values(step.batch.params).sum(2)
    positive, negative = step.batch.sample.latent["signal"].unbind(1)
    u = torch.cat([u, left_out_norm(step, 3)[:, None]], dim=1)
    return torch.cosine_similarity(u, pad(positive - negative, (0, 1)), dim=1, eps=0)


@running_metric(
    "T1, first step at which every point has V_s >= 3M |V_{n,i}| for its signal s (-V_s for mu_-); -1 if never",
    "steps",
    applies=noise_tokens,
    padded=True,
)
def stage_1_end(so_far: Tensor | None, step: Step) -> PerRunValue:
    """Zhang Lemma 18, Jiang Lemma D.5."""
    return first_time(so_far, step, _leads(step, 0, step.batch.sample.clean_y))


@running_metric(
    "T1 of harmful overfitting, first step at which every point has y V_{n,2} >= 3M |V| for its other tokens; "
    "-1 if never",
    "steps",
    applies=strong_token,
    padded=True,
)
def stage_1_end_harmful(so_far: Tensor | None, step: Step) -> PerRunValue:
    """Jiang Lemma E.3. The strong noise token learns the label, also a flipped one."""
    return first_time(so_far, step, _leads(step, 1, step.batch.sample.y))


@running_metric(
    "T2, first step at which some point trained on has |-l'(y f) - 1/2| > 0.05; -1 if never",
    "steps",
    applies=attention_on_signal_noise,
    padded=True,
)
def stage_2_end(so_far: Tensor | None, step: Step) -> PerRunValue:
    distance = (-logistic_slope(step.margins) - 0.5).abs().amax(1)
    return first_time(so_far, step, distance > STILL_HALF)


@running_metric(
    "T3, first step at which the training loss that is descended is at most `stop_loss`; -1 if never",
    "steps",
    applies=attention_on_signal_noise,
    padded=True,
)
def stage_3_end(so_far: Tensor | None, step: Step) -> PerRunValue:
    return first_time(so_far, step, step.loss <= step.batch.setup.training.stop_loss)


def _signal_growth(step: Step) -> Float[Tensor, "runs 2"]:
    """gamma_{V,+} and gamma_{V,-}, summed over heads; without the noise tokens, which are many."""
    return torch.bmm(step.batch.sample.latent["signal"], _moved(step)).sum(2)


def _leads(step: Step, token: int, sign: Float[Tensor, "runs samples"]) -> Bool[Tensor, " runs"]:
    """Return whether, for every point, sign times the value of this token is 3M times as large as all others."""
    values = _values(step).sum(3)
    tokens = values.shape[2]
    others = torch.cat([values[:, :, :token], values[:, :, token + 1 :]], dim=2).abs().amax(2)
    return (sign * values[:, :, token] >= 3 * tokens * others).all(1)
