"""The page of PyTorch that a researcher would write for these figures: one run after the other, `torch.randn`,
`nn.Module`, autograd, all cores for every product, nothing compiled."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.figures.cases import Case, attacked_at
from benchmarks.figures.loop_attacks import Forward, cross_entropy, margin, perturb, sign_ascent

TESTED_AT_ONCE = 250
"""test points of a forward pass on a CPU, whose caches hold few: those of zhang/fig1 are 16 MB; a GPU takes all"""
CURVE_POINTS = 250
"""fresh points under the attacks of the curves of li/fig3"""


class Points(NamedTuple):
    x: Tensor
    """[n, tokens, dim]"""
    y: Tensor
    """observed labels"""
    clean_y: Tensor


# Data


def draw(case: Case, count: int, device: str, training: bool) -> Points:
    return {"signal_noise": signal_noise, "mixture": mixture, "feature_patches": patches}[
        case.data
    ](case, count, device, training)


def signs(count: int, device: str, balanced: bool) -> Tensor:
    if balanced:
        return 1.0 - 2 * (torch.arange(count, device=device) % 2)
    return torch.randint(2, (count,), device=device) * 2.0 - 1


def signal_noise(case: Case, count: int, device: str, training: bool) -> Points:
    """Zhang Definition 1, Jiang Definition 3.1: mu_y, then noise; token 2 may be stronger."""
    y = signs(count, device, case.balanced and training)
    x = torch.randn(count, case.tokens, case.dim, device=device) * case.noise_std
    if case.strong_noise_std:
        x[:, 1] *= case.strong_noise_std / case.noise_std
    x[:, 0] = 0
    x[y > 0, 0, 0] = case.signal
    x[y < 0, 0, 1] = case.signal
    return Points(x, y, y)


def mixture(case: Case, count: int, device: str, training: bool) -> Points:
    """Wang Definition 2.1: y mu + xi, training labels flipped with a probability."""
    clean = signs(count, device, case.balanced and training)
    x = torch.randn(count, 1, case.dim, device=device) * case.noise_std
    x[:, 0, 0] += clean * case.signal
    flipped = torch.rand(count, device=device) < (case.flip if training else 0)
    return Points(x, torch.where(flipped, -clean, clean), clean)


def patches(case: Case, count: int, device: str, training: bool) -> Points:
    """Li Definition 2.2: alpha u_y + xi on the first patches, beta v_y + xi on the others; u, v along axes."""
    y = torch.randint(2, (count,), device=device)
    x = torch.randn(count, case.tokens, case.dim, device=device) * case.noise_std
    robust, place = case.robust_patches, torch.arange(count, device=device)
    for patch in range(case.tokens):
        feature = y if patch < robust else y + 2
        x[place, patch, feature] += case.alpha if patch < robust else case.beta
    return Points(x, y.float(), y.float())


# Networks, in PyTorch's default initialisation where the papers have it


class Attention(nn.Module):
    def __init__(self, case: Case):
        super().__init__()
        self.query, self.key, self.value = (
            nn.Linear(case.dim, case.width, bias=False) for _ in range(3)
        )
        for layer in (self.query, self.key, self.value):
            if case.normal_weights:
                nn.init.normal_(layer.weight, std=(3 * case.dim) ** -0.5)
            layer.weight.data /= case.divide_by
        self.output = nn.Linear(case.width, 1, bias=False).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        attention = (self.query(x) @ self.key(x).transpose(1, 2)).softmax(-1)
        return self.output(attention @ self.value(x)).mean((1, 2))


class TwoLayer(nn.Module):
    def __init__(self, case: Case):
        super().__init__()
        self.inner, self.outer = nn.Linear(case.dim, case.width), nn.Linear(case.width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.inner(x.flatten(1)).relu())[:, 0]


class PatchCNN(nn.Module):
    """The smoothed ReLU with q = 3 and rho = 1, summed over filters and patches."""

    def __init__(self, case: Case):
        super().__init__()
        self.filters = nn.Parameter(torch.randn(2, case.width, case.dim) * case.init_std)

    def forward(self, x: Tensor) -> Tensor:
        z = x @ self.filters.flatten(0, 1).T
        activated = z.clamp(0, 1) ** 3 / 3 + (z - 1).relu()
        return activated.sum(1).unflatten(1, self.filters.shape[:2]).sum(2)


class Linear(nn.Module):
    def __init__(self, case: Case):
        super().__init__()
        self.u = nn.Parameter(torch.randn(case.dim) * case.init_std)

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1) @ self.u


NETWORKS = {"attention": Attention, "two_layer": TwoLayer, "patch_cnn": PatchCNN, "linear": Linear}


# Training and testing


def losses(outputs: Tensor, y: Tensor) -> Tensor:
    if outputs.ndim == 1:
        return functional.softplus(-y * outputs)
    return functional.cross_entropy(outputs, y.long(), reduction="none")


def run(case: Case, device: str) -> dict[str, float]:
    """Train and test one run, with torch's own generator, and return what is compared."""
    model = NETWORKS[case.network](case).to(device)
    train, fresh = draw(case, case.samples, device, True), draw(case, case.tests, device, False)
    curves: list[dict[str, float]] = []
    found = _train(
        case, model, train, lambda: curves.append(_snapshot(case, model, fresh, len(curves)))
    )
    found |= _tested(case, model, fresh)
    if case.attack and case.judge:
        found |= _audited(case, model, train)
    for name in curves[0] if curves else ():
        values = [each[name] for each in curves if name in each]
        found |= {f"{name}_mean": sum(values) / len(values)}
    return found


def _train(
    case: Case, model: nn.Module, train: Points, snapshot: Callable[[], None]
) -> dict[str, float]:
    optimiser = torch.optim.SGD([w for w in model.parameters() if w.requires_grad], lr=case.rate)
    step = 0
    while True:
        points = train.x + perturb(model, train.x, train.y, case.attack)
        value = losses(model(points), train.y).mean()
        if step in case.snapshots:
            snapshot()
        reached = value.item()
        if reached <= case.stop_loss or step >= case.max_steps or not math.isfinite(reached):
            return {"steps": float(step), "train_loss": reached}
        for group in optimiser.param_groups:
            group["lr"] = case.rate / case.drop_by ** (
                step // case.drop_every if case.drop_every else 0
            )
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        step += 1


def _tested(case: Case, model: nn.Module, fresh: Points) -> dict[str, float]:
    """Losses and accuracies on fresh points, clean and under the evaluation attack."""
    sums: dict[str, float] = {}
    for x, y in _chunks(fresh):
        with torch.no_grad():
            outputs = model(x)
        parts = {"test_loss": losses(outputs, y), "test_accuracy": (margin(outputs, y) > 0).float()}
        if case.judge:
            with torch.no_grad():
                outputs = model(x + perturb_with(model, x, y, case))
            wrong = (margin(outputs, y) <= 0).float()
            parts |= {"robust_loss": losses(outputs, y), "robust_accuracy": 1 - wrong}
            if case.flip:  # an adversary with flipped labels raises y f instead
                with torch.no_grad():
                    raised = margin(model(x + perturb_with(model, x, -y, case)), y)
                noisy = (1 - case.flip) * wrong + case.flip * (raised >= 0).float()
                parts |= {"robust_noisy_error": noisy}
        for name, part in parts.items():
            sums[name] = sums.get(name, 0.0) + part.sum().item()
    return {name: total / case.tests for name, total in sums.items()}


def perturb_with(model: Forward, x: Tensor, y: Tensor, case: Case) -> Tensor:
    """The perturbation of the evaluation attack."""
    with torch.enable_grad():
        return perturb(model, x, y, case.judge)


def _audited(case: Case, model: nn.Module, train: Points) -> dict[str, float]:
    """The training points under the evaluation attack: was the network trained to mislead its own attack?"""
    x, y = train.x, train.y
    judged, trained = perturb_with(model, x, y, case), perturb(model, x, y, case.attack)
    with torch.no_grad():
        outputs = [model(x), model(x + judged), model(x + trained)]
        worst = torch.stack([losses(each, y) for each in outputs]).amax(0)
        right = (margin(outputs[1], y) > 0).float()
    return {
        "train_robust_accuracy_judged": right.mean().item(),
        "train_robust_loss": worst.mean().item(),
    }


def _chunks(fresh: Points) -> list[tuple[Tensor, Tensor]]:
    size = TESTED_AT_ONCE if fresh.x.device.type == "cpu" else len(fresh.x)
    return list(zip(fresh.x.split(size), fresh.y.split(size), strict=True))


# The curves of li/fig3


def _snapshot(case: Case, model: nn.Module, fresh: Points, number: int) -> dict[str, float]:
    """Features learned and accuracies on fresh points, clean, under the training attack and on features alone; every
    second time also under ordinary attacks on the first 250 points."""
    assert isinstance(model, PatchCNN)
    assert case.judge
    assert case.judge.also
    w, one = model.filters.detach(), case.judge.also
    classes = torch.arange(2, device=w.device)
    found = {
        "robust_feature_learned": w[classes, :, classes].amax(1).mean().item(),
        "non_robust_feature_learned": w[classes, :, classes + 2].amax(1).mean().item(),
    }
    with torch.no_grad():
        found["test_accuracy"] = _right(model, fresh.x, fresh.y)
        for kind in ("robust", "non_robust"):
            found[f"{kind}_feature_accuracy"] = _right(model, _alone(case, fresh, kind), fresh.y)
    delta = perturb(model, fresh.x, fresh.y, case.attack)
    found["robust_accuracy"] = _right(model, fresh.x + delta, fresh.y)
    if not attacked_at(case, case.snapshots[number]):
        return found
    x, y = fresh.x[:CURVE_POINTS], fresh.y[:CURVE_POINTS]
    ball = one.ball
    attacks = {
        "one_step": perturb(model, x, y, one),
        "own_ascent": sign_ascent(model, x, y, ball, lambda out, y: -_own(out, y)),
        "margin_ascent": sign_ascent(model, x, y, ball, lambda out, y: -margin(out, y).sum()),
        "loss_ascent": sign_ascent(model, x, y, ball, cross_entropy),
        "feature_swap": _swapped(case, x, y, robust=False),
        "all_patch": _swapped(case, x, y, robust=True),
    }
    return found | {
        f"robust_accuracy_{name}": _right(model, x + d, y) for name, d in attacks.items()
    }


def _own(outputs: Tensor, y: Tensor) -> Tensor:
    return outputs.gather(1, y.long()[:, None]).sum()


def _right(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return (margin(model(x), y) > 0).float().mean().item()


def _alone(case: Case, fresh: Points, kind: str) -> Tensor:
    """The same points without the other features."""
    x, place, y = fresh.x.clone(), torch.arange(len(fresh.y), device=fresh.x.device), fresh.y.long()
    for patch in range(case.tokens):
        robust = patch < case.robust_patches
        if robust != (kind == "robust"):
            x[place, patch, y if robust else y + 2] -= case.alpha if robust else case.beta
    return x


def _swapped(case: Case, x: Tensor, y: Tensor, robust: bool) -> Tensor:
    """Li Theorem 4.3: another class's v in place of v_y; or another class's u on every patch, -u_y where u_y is."""
    assert case.judge
    delta, place, own = torch.zeros_like(x), torch.arange(len(y), device=x.device), y.long()
    eps = case.judge.ball.radius
    for patch in range(case.tokens):
        is_robust = patch < case.robust_patches
        if robust:
            delta[place, patch, 1 - own] += eps
            delta[place, patch, own] -= eps * is_robust
        elif not is_robust:
            delta[place, patch, 3 - own] += eps
            delta[place, patch, own + 2] -= min(case.beta, eps)
    return delta


CURVES = (
    "robust_feature_learned",
    "non_robust_feature_learned",
    "test_accuracy",
    "robust_feature_accuracy",
    "non_robust_feature_accuracy",
    "robust_accuracy",
    *(f"robust_accuracy_{name}" for name in ("one_step", "own_ascent", "margin_ascent")),
    *(f"robust_accuracy_{name}" for name in ("loss_ascent", "feature_swap", "all_patch")),
)
"""of li/fig3, compared by their means over snapshots"""
