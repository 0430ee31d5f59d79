"""The page of PyTorch that a researcher would write: one run at a time, full matrices, autograd."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from benign.attacks.pgd import PGD
from benign.data.signal_noise import SignalNoise
from benign.networks.attention import Attention
from benign.training.setup import Setup


class PlainAttention(nn.Module):
    """Jiang eq. (1) with `nn.Linear`-like defaults divided by 16, w_O fixed and undivided."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, hidden, bias=False) for _ in range(3))
        for layer in (self.query, self.key, self.value):
            layer.weight.data /= 16
        self.output = nn.Linear(hidden, 1, bias=False).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        attention = (self.query(x) @ self.key(x).transpose(1, 2)).softmax(-1)
        return self.output(attention @ self.value(x)).mean((1, 2))


def draw(cell: Setup, count: int, device: str) -> tuple[Tensor, Tensor]:
    """Points of `SignalNoise` with isotropic noise, by torch's own generator."""
    data = cell.data
    assert isinstance(data, SignalNoise)
    y = torch.ones(count, device=device)
    y[1::2] = -1
    x = torch.randn(count, data.tokens, data.dim, device=device) * data.noise_std
    if data.strong_noise_std:
        x[:, 1] *= data.strong_noise_std / data.noise_std
    x[:, 0] = 0
    x[y > 0, 0, 0] = data.signal_norm()
    x[y < 0, 0, 1] = data.signal_norm()
    return x, y


def attack(
    model: nn.Module, x: Tensor, y: Tensor, radius: float, steps: int, step: float
) -> Tensor:
    """PGD on the margin, every token in its own l2 ball, from zero."""
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(-(y * model(x + delta)).sum(), delta)
        with torch.no_grad():
            delta += step * radius * functional.normalize(gradient, dim=-1)
            delta *= (radius / delta.norm(dim=-1, keepdim=True).clamp_min(1e-30)).clamp_max(1)
    return (x + delta).detach()


def train(cell: Setup, device: str) -> tuple[int, float]:
    """Train and test one run; return its steps and test loss."""
    assert isinstance(cell.network, Attention)
    model = PlainAttention(cell.data.dim, cell.network.hidden).to(device)
    x, y = draw(cell, cell.data.samples, device)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(weights, lr=cell.training.rate)
    number = 0
    while True:
        points = x
        if isinstance(cell.attack, PGD):
            points = attack(
                model, x, y, cell.attack.ball.size(cell.data), cell.attack.steps, cell.attack.step
            )
        loss = functional.softplus(-y * model(points)).mean()
        if loss.item() <= cell.training.stop_loss or number >= cell.training.most_steps():
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        number += 1
    with torch.no_grad():
        fresh, labels = draw(cell, cell.evaluation.samples, device)
        return number, functional.softplus(-labels * model(fresh)).mean().item()
