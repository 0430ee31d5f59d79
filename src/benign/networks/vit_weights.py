"""Reads the weights of a vision transformer: files and folders by safe loaders, or by a name through timm."""

import json
import math
import re
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benign.data.folder import data_folder
from benign.data.formats import import_torchvision
from benign.networks.module_checks import first_line
from benign.networks.vit import ViT, resized

State = dict[str, Tensor]

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
SHIPPED = Path(__file__).parent
"""where tiny_vit.safetensors is: two layers of random weights for pictures of 8 x 8 pixels, for trials"""
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
"""what names of others become"""
LEFT_OUT = re.compile(r"(^|\.)(mask_token|pooler|head|classifier|pre_logits)(\.|$)")
"""what is not of the way from a picture to its class token"""


class Found(NamedTuple):
    """Weights as they were published."""

    state: State
    heads: int | None


def load_vit(weights: str, heads: int | None, side: int) -> ViT:
    """The transformer of these weights for pictures of `side` pixels, in float32; ValueError says why there is none."""
    with torch.device("cpu"):  # also where a module is tried out on no device
        found = _find(weights)
        try:
            return _filled(renamed(found.state), heads or found.heads, side)
        except ValueError as error:
            raise ValueError(f"`network.weights` {weights!r}: {error}") from error


def place_of(weights: str) -> Path | None:
    """The file or folder of this name, here, in the folder of data, or shipped; None where there is none."""
    roots = (Path(), data_folder(), data_folder() / "weights", SHIPPED)
    places = (root / Path(weights).expanduser() for root in roots)
    return next((place for place in places if place.exists()), None)


def _find(weights: str) -> Found:
    place = place_of(weights)
    if place is not None:
        return _from_folder(place) if place.is_dir() else Found(_read(place), None)
    if weights.endswith(SUFFIXES) or weights.startswith(("/", ".", "~")):
        raise ValueError(
            f"`network.weights` {weights!r}: no such file, here or in {data_folder()}: name a file "
            f"({', '.join(SUFFIXES)}), a folder with config.json, or a model of timm"
        )
    return _by_name(weights)


def _from_folder(folder: Path) -> Found:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        heads = config.get("num_attention_heads")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"`network.weights` {str(folder)!r}: no readable config.json in this folder ({first_line(error)})"
        ) from error
    files = [each for suffix in SUFFIXES for each in sorted(folder.glob(f"*{suffix}"))]
    if len(files) != 1:
        raise ValueError(
            f"`network.weights` {str(folder)!r}: {len(files)} files of weights in this folder, one is expected: name it"
        )
    return Found(_read(files[0]), heads)


def _read(path: Path) -> State:
    """By loaders that run no code of the file's."""
    try:
        state: Any = _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)
    except UnpicklingError as error:  # whose own words advise to load it unsafely
        raise ValueError(
            f"`network.weights` {str(path)!r}: is no file of torch's, or holds more than tensors: use .safetensors"
        ) from error
    except Exception as error:
        raise ValueError(
            f"`network.weights` {str(path)!r}: cannot be read: {type(error).__name__}: {first_line(error)}"
        ) from error
    while isinstance(state, dict) and (inner := {"state_dict", "model", "teacher"} & {*state}):
        state = state[min(inner)]
    if not isinstance(state, dict) or not all(isinstance(each, Tensor) for each in state.values()):
        raise ValueError(f"`network.weights` {str(path)!r}: is no dictionary of tensors")
    return state


def _safetensors(path: Path) -> State:
    from safetensors.torch import load_file

    return load_file(path)


def _pickled(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _by_name(name: str) -> Found:
    try:
        import_torchvision()
        import timm

        model: Any = timm.create_model(name, pretrained=True, num_classes=0)
        return Found(model.state_dict(), model.blocks[0].attn.num_heads)
    except Exception as error:
        raise ValueError(
            f"`network.weights` {name!r}: is no file here and cannot be had through timm "
            f"({type(error).__name__}: {first_line(error)}): name a file of weights"
        ) from error


def renamed(state: State) -> State:
    """The weights by our names; what a class token does not need is left out."""
    ours: State = {}
    for name, part in state.items():
        if LEFT_OUT.search(name):
            continue
        for pattern, replacement in NAMES:
            name = re.sub(pattern, replacement, name)
        if ".attn.qkv." in name:
            each = zip(("query", "key", "value"), part.chunk(3), strict=True)
            ours |= {name.replace("attn.qkv", kind): own for kind, own in each}
        else:
            ours[name] = part
    return ours


def _filled(state: State, heads: int | None, side: int) -> ViT:
    sizes = _sizes(state, heads)
    if side % sizes["patch"]:
        near = max(1, round(side / sizes["patch"])) * sizes["patch"]
        raise ValueError(
            f"`network.image_side` must be a multiple of {sizes['patch']}, the pixels of a patch, got {side}: "
            f"use {near}"
        )
    state = {name: part.float() for name, part in state.items()}
    with torch.device("meta"):  # drawn weights would be thrown away
        vit = ViT(**sizes)
    _check_fit(state, vit)
    vit.load_state_dict(state, assign=True)
    vit.positions = nn.Parameter(resized(vit.positions.data, side // sizes["patch"]))
    return vit.requires_grad_(False).eval()


def _sizes(state: State, heads: int | None) -> dict[str, Any]:
    """Of the transformer that these weights are of."""
    needed = ("patch.weight", "positions", "blocks.0.fc1.weight")
    if lacking := [name for name in needed if name not in state]:
        raise ValueError(
            f"weights that do not fit: no {lacking[0]}, so this is no ViT that is known here"
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
    wrong = [f"{name} is not known" for name in given.keys() - wanted.keys()]
    wrong += [f"{name} is not there" for name in wanted.keys() - given.keys()]
    wrong += [
        f"{name} is {given[name]}, not {wanted[name]}"
        for name in given.keys() & wanted.keys()
        if given[name] != wanted[name]
    ]
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ValueError(f"weights that do not fit: {min(wrong)}{more}")
