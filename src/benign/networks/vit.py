"""The published vision transformers ViT and DINOv2, up to the class token, and readers of their weights.

timm downloads weights by name. Files are read here, because timm is an optional package, needs the name of the model
for a file, and does not read the folders of transformers; here a file is enough, and no loader runs code of a file.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, interpolate, scaled_dot_product_attention

from benign.data.folder import data_folder
from benign.data.formats import import_torchvision
from benign.networks.module_checks import first_line

Tokens: TypeAlias = Float[Tensor, "samples tokens hidden"]
Columns: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""from tokens to queries, keys and values, each with its heads concatenated"""
State: TypeAlias = dict[str, Tensor]
EPSILON = 1e-6
"""constant of layer norms in ViT and DINOv2"""


class Block(nn.Module):
    """Attention and a perceptron, each after a norm, scaled if the weights have scales, and added to its input."""

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
        """Run the block; `columns` replaces its own queries, keys and values."""
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
    """From pictures to their class token after the last norm."""

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
        """Run the network; `last` replaces queries, keys and values of the last block."""
        tokens = self.patch(pictures).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls.expand(len(tokens), -1, -1), tokens], 1) + self.positions
        for place, block in enumerate(self.blocks, start=1):
            tokens = block(tokens, last if place == len(self.blocks) else None)
        return self.norm(tokens[:, 0])


def resized(
    positions: Float[Tensor, "1 tokens hidden"], across: int
) -> Float[Tensor, "1 new hidden"]:
    """Return the positions of a class token and a square of patches for another side, by cubic interpolation."""
    own = round((positions.shape[1] - 1) ** 0.5)
    if own == across:
        return positions
    square = positions[:, 1:].unflatten(1, (own, own)).permute(0, 3, 1, 2).float()
    square = interpolate(square, (across, across), mode="bicubic", align_corners=False)
    return torch.cat([positions[:, :1], square.flatten(2).transpose(1, 2).to(positions)], 1)


SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
SHIPPED = Path(__file__).parent
"""folder of tiny_vit.safetensors: two layers of random weights for pictures of 8 x 8 pixels, for trials"""
HEAD_DIM = 64
"""columns of a head in all ViTs of these families"""
NAMES = [
    # transformers, ViT and DINOv2
    (r"^(vit|dinov2|backbone|model|module)\.", ""),
    (r"^embeddings\.cls_token$", "cls"),
    (r"^embeddings\.position_embeddings$", "positions"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch."),
    (r"^encoder\.layer\.", "blocks."),
    (r"\.attention\.attention\.", "."),
    (r"\.attention\.output\.dense\.", ".out."),
    (r"\.intermediate\.dense\.", ".fc1."),
    (r"\.output\.dense\.", ".fc2."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.layer_scale([12])\.lambda1$", r".scale\1"),
    (r"^layernorm\.", "norm."),
    # timm
    (r"^cls_token$", "cls"),
    (r"^pos_embed$", "positions"),
    (r"^patch_embed\.proj\.", "patch."),
    (r"\.attn\.proj\.", ".out."),
    (r"\.ls([12])\.gamma$", r".scale\1"),
    # both
    (r"\.mlp\.fc([12])\.", r".fc\1."),
]
"""patterns of the names in published files, and their names here"""
UNUSED = re.compile(r"(^|\.)(mask_token|pooler|head|classifier|pre_logits)(\.|$)")
"""names of tensors on which the class token does not depend"""


class Published(NamedTuple):
    """Weights under their published names."""

    state: State
    heads: int | None


def load_vit(weights: str, heads: int | None, side: int) -> ViT:
    """Return the transformer of these weights for pictures of `side` pixels, in float32.

    Raise ValueError if the weights cannot be found or read, or do not fit.
    """
    with torch.device("cpu"):  # also while a module is checked on the meta device
        published = _published(weights)
        try:
            return _filled(renamed(published.state), heads or published.heads, side)
        except ValueError as error:
            raise ValueError(f"`network.weights` {weights!r}: {error}") from error


def find_weights(weights: str) -> Path | None:
    """Return the file or folder of this name, in the working folder, the folder of data or the package, or None."""
    roots = (Path(), data_folder(), data_folder() / "weights", SHIPPED)
    places = (root / Path(weights).expanduser() for root in roots)
    return next((place for place in places if place.exists()), None)


def _published(weights: str) -> Published:
    place = find_weights(weights)
    if place is not None:
        return _from_folder(place) if place.is_dir() else Published(_read(place), None)
    if weights.endswith(SUFFIXES) or weights.startswith(("/", ".", "~")):
        raise ValueError(
            f"`network.weights` {weights!r}: no such file, here or in {data_folder()}: name a file "
            f"({', '.join(SUFFIXES)}), a folder with config.json, or a model of timm"
        )
    return _by_name(weights)


def _from_folder(folder: Path) -> Published:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        heads = config.get("num_attention_heads")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"`network.weights` {str(folder)!r}: no readable config.json in this folder ({first_line(error)})"
        ) from error
    files = [file for suffix in SUFFIXES for file in sorted(folder.glob(f"*{suffix}"))]
    if len(files) != 1:
        raise ValueError(
            f"`network.weights` {str(folder)!r}: {len(files)} files of weights in this folder, one is expected: name it"
        )
    return Published(_read(files[0]), heads)


def _read(path: Path) -> State:
    """Read a file of tensors by loaders that run no code of the file."""
    try:
        state: Any = _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)
    except UnpicklingError as error:  # its own message advises to load the file unsafely
        raise ValueError(
            f"`network.weights` {str(path)!r}: is no file of torch, or holds more than tensors: use .safetensors"
        ) from error
    except Exception as error:
        raise ValueError(
            f"`network.weights` {str(path)!r}: cannot be read: {type(error).__name__}: {first_line(error)}"
        ) from error
    while isinstance(state, dict) and (inner := {"state_dict", "model", "teacher"} & {*state}):
        state = state[min(inner)]
    if not isinstance(state, dict) or not all(isinstance(part, Tensor) for part in state.values()):
        raise ValueError(f"`network.weights` {str(path)!r}: is no dictionary of tensors")
    return state


def _safetensors(path: Path) -> State:
    from safetensors.torch import load_file

    return load_file(path)


def _pickled(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _by_name(name: str) -> Published:
    try:
        import_torchvision()
        import timm

        model: Any = timm.create_model(name, pretrained=True, num_classes=0)
        return Published(model.state_dict(), model.blocks[0].attn.num_heads)
    except Exception as error:
        raise ValueError(
            f"`network.weights` {name!r}: is no file here and cannot be downloaded by timm "
            f"({type(error).__name__}: {first_line(error)}): name a file of weights"
        ) from error


def renamed(state: State) -> State:
    """Return the weights under the names of `ViT`, without those that the class token does not need."""
    ours: State = {}
    for name, part in state.items():
        if UNUSED.search(name):
            continue
        for pattern, replacement in NAMES:
            name = re.sub(pattern, replacement, name)
        if ".attn.qkv." in name:
            chunks = zip(("query", "key", "value"), part.chunk(3), strict=True)
            ours |= {name.replace("attn.qkv", kind): chunk for kind, chunk in chunks}
        else:
            ours[name] = part
    return ours


def _filled(state: State, heads: int | None, side: int) -> ViT:
    sizes = _sizes(state, heads)
    if side % sizes["patch"]:
        nearest = max(1, round(side / sizes["patch"])) * sizes["patch"]
        raise ValueError(
            f"`network.image_side` must be a multiple of {sizes['patch']}, the pixels of a patch, got {side}: "
            f"use {nearest}"
        )
    state = {name: part.float() for name, part in state.items()}
    with torch.device("meta"):  # initial weights would be discarded
        vit = ViT(**sizes)
    _check_fit(state, vit)
    vit.load_state_dict(state, assign=True)
    vit.positions = nn.Parameter(resized(vit.positions.data, side // sizes["patch"]))
    return vit.requires_grad_(False).eval()


def _sizes(state: State, heads: int | None) -> dict[str, Any]:
    """Return the arguments of `ViT` for these weights. Raise ValueError if they are not those of a ViT."""
    needed = ("patch.weight", "positions", "blocks.0.fc1.weight")
    if lacking := [name for name in needed if name not in state]:
        raise ValueError(
            f"weights that do not fit: no {lacking[0]}, so this is no ViT of a known layout"
        )
    hidden, patch = state["patch.weight"].shape[0], state["patch.weight"].shape[-1]
    tokens = state["positions"].shape[-2]
    if math.isqrt(tokens - 1) ** 2 != tokens - 1:
        raise ValueError(
            f"weights that do not fit: {tokens} positions are no class token and a square of patches"
        )
    heads = heads or max(1, hidden // HEAD_DIM)
    if hidden % heads:
        raise ValueError(
            f"weights that do not fit: {hidden} columns cannot be {heads} heads: give `network.heads`"
        )
    layers = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("blocks."))
    scaled, mlp = "blocks.0.scale1" in state, state["blocks.0.fc1.weight"].shape[0]
    return {
        "hidden": hidden, "layers": layers, "heads": heads, "mlp": mlp, "patch": patch, "tokens": tokens,
        "scaled": scaled,
    }  # fmt: skip


def _check_fit(state: State, vit: ViT) -> None:
    wanted = {name: tuple(part.shape) for name, part in vit.state_dict().items()}
    given = {name: tuple(part.shape) for name, part in state.items()}
    wrong = [f"{name} is unknown" for name in given.keys() - wanted.keys()]
    wrong += [f"{name} is missing" for name in wanted.keys() - given.keys()]
    wrong += [
        f"{name} is {given[name]}, not {wanted[name]}"
        for name in given.keys() & wanted.keys()
        if given[name] != wanted[name]
    ]
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ValueError(f"weights that do not fit: {min(wrong)}{more}")
