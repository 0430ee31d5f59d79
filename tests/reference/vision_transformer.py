"""The small vision transformer of one run as an `nn.Module`, point by point and head by head."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from benign.networks.network import Params


class SlowTransformer(nn.Module):
    """Takes points [samples, tokens, dim]; `network` has the fields of `VisionTransformer`."""

    def __init__(self, network: Any, tokens: int, dim: int):
        super().__init__()
        self.network = network
        width, count = network.hidden, network.layers
        self.embed = nn.Linear(dim, width)
        for name in ("query", "key", "value"):
            setattr(self, name, nn.ModuleList([nn.Linear(width, width) for _ in range(count)]))
        self.project = nn.ModuleList([nn.Linear(width, width) for _ in range(count)])
        self.norm = nn.ModuleList([nn.LayerNorm(width) for _ in range(count + 1)])
        self.mlp, self.head = (
            nn.Linear(width, network.mlp),
            nn.Linear(network.mlp, network.classes or 1),
        )
        own = int(network.pool == "cls")
        self.class_token = nn.Parameter(torch.zeros(own, width))
        self.positions = nn.Parameter(torch.zeros(tokens + own, width))
        self.double()

    def filled(self, params: Params, run: int) -> "SlowTransformer":
        """With the weights of one run of a batch; `nn.Linear` holds them transposed."""
        own = {name: part[run] for name, part in params.items()}
        state = {}
        for name in ("embed", "mlp", "head"):
            state |= {f"{name}.weight": own[name].T, f"{name}.bias": own[f"{name}_bias"]}
        for layer in range(self.network.layers):
            parts = zip(own["qkv"][layer].chunk(3, 1), own["qkv_bias"][layer].chunk(3), strict=True)
            for name, (weight, bias) in zip(("query", "key", "value"), parts, strict=True):
                state |= {f"{name}.{layer}.weight": weight.T, f"{name}.{layer}.bias": bias}
            state[f"project.{layer}.weight"] = own["project"][layer].T
            state[f"project.{layer}.bias"] = own["project_bias"][layer]
        for place in range(self.network.layers + 1 if self.network.layer_norm else 0):
            state[f"norm.{place}.weight"] = own["gain"][place]
            state[f"norm.{place}.bias"] = own["shift"][place]
        state |= {name: own[name] for name in ("positions", "class_token") if name in own}
        self.load_state_dict(state, strict=False)
        return self

    def normed(self, tokens: Tensor, place: int) -> Tensor:
        return self.norm[place](tokens) if self.network.layer_norm else tokens

    def attended(self, tokens: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Tokens [tokens, hidden] of one point after attention, and the maps of the heads."""
        network = self.network
        size = network.hidden // network.heads
        attended, maps = [], []
        for head in range(network.heads):
            part = slice(head * size, (head + 1) * size)
            query, key, value = (
                getattr(self, name)[layer](tokens)[:, part] for name in ("query", "key", "value")
            )
            scores = query @ key.T / (math.sqrt(size) if network.score_scale else 1.0)
            maps.append(torch.softmax(scores, 1))
            attended.append(maps[-1] @ value)
        return self.project[layer](torch.cat(attended, 1)), torch.stack(maps)

    def point(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features and attention maps of one point."""
        tokens, maps = self.embed(x), []
        if self.network.pool == "cls":
            tokens = torch.cat([self.class_token, tokens])
        tokens = tokens + self.positions
        for layer in range(self.network.layers):
            moved, map_ = self.attended(self.normed(tokens, layer), layer)
            tokens = tokens + moved if self.network.residual else moved
            maps.append(map_)
        tokens = self.normed(tokens, self.network.layers)
        pooled = tokens[0] if self.network.pool == "cls" else tokens.mean(0)
        return torch.relu(self.mlp(pooled)), torch.stack(maps)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.head(torch.stack([self.point(each)[0] for each in x]))
        return outputs if self.network.classes else outputs[:, 0]
