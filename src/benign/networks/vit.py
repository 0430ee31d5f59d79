"""A plain vision transformer as it is published with weights: ViT and DINOv2, up to the class token."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, interpolate, scaled_dot_product_attention

Tokens: TypeAlias = Float[Tensor, "samples tokens hidden"]
Columns: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""tokens to queries, keys and values, the heads of each side by side"""
EPSILON = 1e-6
"""of layer norms, in ViT and DINOv2"""


class Block(nn.Module):
    """Attention and a perceptron, each after a norm and added to its input, scaled where there are scales."""

    def __init__(self, hidden: int, heads: int, mlp: int, scaled: bool):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(hidden, EPSILON) for _ in range(2))
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(hidden, mlp), nn.Linear(mlp, hidden)
        scales = (nn.Parameter(torch.ones(hidden)) if scaled else None for _ in range(2))
        self.scale1, self.scale2 = scales

    def columns(self, x: Tokens) -> tuple[Tokens, Tokens, Tokens]:
        return self.query(x), self.key(x), self.value(x)

    def forward(self, x: Tokens, columns: Columns | None = None) -> Tokens:
        """`columns` takes the place of the block's own."""
        attended = self.attended((columns or self.columns)(self.norm1(x)))
        x = x + (attended if self.scale1 is None else self.scale1 * attended)
        moved = self.fc2(gelu(self.fc1(self.norm2(x))))
        return x + (moved if self.scale2 is None else self.scale2 * moved)

    def attended(self, columns: tuple[Tokens, Tokens, Tokens]) -> Tokens:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in columns
        )
        return self.out(scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


class ViT(nn.Module):
    """Pictures to their class token after the last norm."""

    def __init__(
        self, hidden: int, layers: int, heads: int, mlp: int, patch: int, tokens: int, scaled: bool
    ):
        super().__init__()
        self.patch = nn.Conv2d(3, hidden, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.zeros(1, tokens, hidden))
        blocks = (Block(hidden, heads, mlp, scaled) for _ in range(layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(hidden, EPSILON)

    def forward(
        self, pictures: Float[Tensor, "samples 3 height width"], last: Columns | None = None
    ) -> Float[Tensor, "samples hidden"]:
        """`last` takes the place of queries, keys and values of the last block."""
        tokens = self.patch(pictures).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls.expand(len(tokens), -1, -1), tokens], 1) + self.positions
        for place, block in enumerate(self.blocks, start=1):
            tokens = block(tokens, last if place == len(self.blocks) else None)
        return self.norm(tokens[:, 0])


def resized(
    positions: Float[Tensor, "1 tokens hidden"], across: int
) -> Float[Tensor, "1 new hidden"]:
    """Positions of a class token and a square of patches for a square of another side, by cubic interpolation."""
    own = round((positions.shape[1] - 1) ** 0.5)
    if own == across:
        return positions
    square = positions[:, 1:].unflatten(1, (own, own)).permute(0, 3, 1, 2).float()
    square = interpolate(square, (across, across), mode="bicubic", align_corners=False)
    return torch.cat([positions[:, :1], square.flatten(2).transpose(1, 2).to(positions)], 1)
