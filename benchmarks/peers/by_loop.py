"""The page of PyTorch that a researcher would write: `nn.Module`, autograd, one run after the other."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.peers.problems import Task


class Attention(nn.Module):
    """Zhang eq. (1), Jiang eq. (1): mean over tokens of softmax(Q K^T) V w_O, with w_O fixed."""

    def __init__(self, weights: dict[str, Tensor]):
        super().__init__()
        hidden, dim = weights["query.weight"].shape
        self.query, self.key, self.value = (nn.Linear(dim, hidden, bias=False) for _ in range(3))
        self.output = nn.Linear(hidden, 1, bias=False).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        attention = (self.query(x) @ self.key(x).transpose(1, 2)).softmax(-1)
        return self.output(attention @ self.value(x)).mean((1, 2))


class TwoLayer(nn.Module):
    """Wang section 5: two layers with biases, ReLU between them, both trained."""

    def __init__(self, weights: dict[str, Tensor]):
        super().__init__()
        width, dim = weights["inner.weight"].shape
        self.inner, self.outer = nn.Linear(dim, width), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.inner(x.flatten(1)).relu())[:, 0]


class PatchCNN(nn.Module):
    """Li section 2: for every class the sum over filters and patches of the smoothed ReLU, q = 3 and rho = 1."""

    def __init__(self, weights: dict[str, Tensor]):
        super().__init__()
        self.filters = nn.Parameter(torch.empty(weights["filters"].shape))

    def forward(self, x: Tensor) -> Tensor:
        z = x @ self.filters.flatten(0, 1).T
        activated = z.clamp(0, 1) ** 3 / 3 + (z - 1).relu()
        return activated.sum(1).unflatten(1, self.filters.shape[:2]).sum(2)


MODULES = {"attention": Attention, "two_layer": TwoLayer, "patch_cnn": PatchCNN}


def module_of(task: Task, run: int) -> nn.Module:
    """Return the network of one run."""
    weights = {name: w[run] for name, w in {**task.weights, **task.frozen}.items()}
    module = MODULES[task.network](weights).to(task.x.device, task.x.dtype)
    module.load_state_dict(weights)
    return module


def loss(outputs: Tensor, y: Tensor) -> Tensor:
    """Mean logistic loss of one output a point, or mean cross-entropy of one a class."""
    if outputs.ndim == 1:
        return functional.softplus(-y * outputs).mean()
    return functional.cross_entropy(outputs, y.long())


def own(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the number that attacks lower: y f, or the output of the own class."""
    if outputs.ndim == 1:
        return (y * outputs).sum()
    return outputs.gather(1, y.long()[:, None]).sum()


def pgd(model: nn.Module, x: Tensor, y: Tensor, radius: Tensor, steps: int, step: float) -> Tensor:
    """Projected ascent of -y f by normalised steps, every token in its own l2 ball, from zero."""
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(-own(model(x + delta), y), delta)
        with torch.no_grad():
            delta += step * radius * functional.normalize(gradient, dim=-1, eps=1e-30)
            delta *= (radius / delta.norm(dim=-1, keepdim=True).clamp_min(1e-30)).clamp_max(1)
    return (x + delta).detach()


def one_step(model: nn.Module, x: Tensor, y: Tensor, clip: Tensor, rate: float) -> Tensor:
    """One step along the gradient of -F_y, every coordinate clipped (Li section 2)."""
    delta = torch.zeros_like(x, requires_grad=True)
    (gradient,) = torch.autograd.grad(-own(model(x + delta), y), delta)
    return x + (rate * gradient).clamp(-clip, clip)


def attacked(task: Task, model: nn.Module, run: int) -> Tensor:
    x, y, radius = task.x[run], task.y[run], task.radius[run]
    if task.attack == "pgd":
        return pgd(model, x, y, radius, task.attack_steps, task.attack_step)
    if task.attack == "one_step":
        return one_step(model, x, y, radius, task.attack_step)
    return x


def prepare(task: Task) -> Callable[[int], Tensor]:
    """Train every run for some steps, and return their losses at the last step."""
    models = [module_of(task, run) for run in range(len(task.x))]
    optimisers = [
        torch.optim.SGD([w for w in model.parameters() if w.requires_grad], lr=task.rate)
        for model in models
    ]

    def train(run: int, steps: int) -> Tensor:
        model, optimiser = models[run], optimisers[run]
        value = task.x.new_zeros(())
        for _ in range(steps):
            value = loss(model(attacked(task, model, run)), task.y[run])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
        return value.detach()

    return lambda steps: torch.stack([train(run, steps) for run in range(len(models))])
