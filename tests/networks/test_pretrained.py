"""The pretrained transformer: tiny files of three namings against a plain function, timm and transformers."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch as safetensors
import torch
from torch import Tensor
from torch.nn import functional

from benign.data import folder
from benign.data.mixture import Mixture
from benign.data.model import DataModel
from benign.networks.network import Params
from benign.networks.pretrained import PretrainedViT
from benign.networks.vit import load_vit, renamed, resized
from benign.spec.base import SpecError
from benign.streams import Streams
from tests.reference import close, film, normals, run_ids, small_pgd, small_setup, start
from tests.says import holds, says

State = dict[str, Tensor]
HIDDEN, HEADS, MLP, PATCH, LAYERS = 8, 2, 12, 2, 2
SHARED = Path(__file__).parents[3] / "shared" / "data" / "weights"
DINOV2 = Path(os.environ.get("BENIGN_DINOV2", SHARED / "dinov2_small_hf_fp16.safetensors"))
needs_dinov2 = pytest.mark.skipif(not DINOV2.exists(), reason=f"needs {DINOV2}, or BENIGN_DINOV2")


def drawn(shapes: dict[str, tuple[int, ...]]) -> State:
    return {
        name: (0.5 * normals(*shape, seed=seed)).float()
        for seed, (name, shape) in enumerate(shapes.items())
    }


def linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}


def by_transformers(dinov2: bool) -> State:
    """Weights as `Dinov2Model` or `ViTModel` save them, for pictures of 4 x 4."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.cls_token": (1, 1, HIDDEN),
        "embeddings.position_embeddings": (1, 5, HIDDEN),
        "embeddings.patch_embeddings.projection.weight": (HIDDEN, 3, PATCH, PATCH),
        "embeddings.patch_embeddings.projection.bias": (HIDDEN,),
        **norm("layernorm"),
    }
    before, after = ("norm1", "norm2") if dinov2 else ("layernorm_before", "layernorm_after")
    first, second = ("mlp.fc1", "mlp.fc2") if dinov2 else ("intermediate.dense", "output.dense")
    for layer in range(LAYERS):
        own = f"encoder.layer.{layer}."
        for name in ("query", "key", "value"):
            shapes |= linear(f"{own}attention.attention.{name}", HIDDEN, HIDDEN)
        shapes |= linear(f"{own}attention.output.dense", HIDDEN, HIDDEN)
        shapes |= norm(own + before) | norm(own + after)
        shapes |= linear(own + first, HIDDEN, MLP) | linear(own + second, MLP, HIDDEN)
        if dinov2:
            shapes |= {f"{own}layer_scale{place}.lambda1": (HIDDEN,) for place in (1, 2)}
    shapes |= {"embeddings.mask_token": (1, HIDDEN)} if dinov2 else linear("pooler.dense", 8, 8)
    return drawn(shapes)


def by_timm(state: State) -> State:
    """The same weights as timm names them."""
    names = [
        ("embeddings.cls_token", "cls_token"),
        ("embeddings.position_embeddings", "pos_embed"),
        ("embeddings.patch_embeddings.projection", "patch_embed.proj"),
        ("layernorm.", "norm."),
        ("encoder.layer", "blocks"),
        ("attention.output.dense", "attn.proj"),
        ("layer_scale1.lambda1", "ls1.gamma"),
        ("layer_scale2.lambda1", "ls2.gamma"),
    ]
    theirs: State = {}
    for name, part in state.items():
        for ours, other in names:
            name = name.replace(ours, other)
        theirs[name] = part
    theirs.pop("embeddings.mask_token")
    for layer in range(LAYERS):
        for kind in ("weight", "bias"):
            place = f"blocks.{layer}.attention.attention."
            parts = [theirs.pop(f"{place}{name}.{kind}") for name in ("query", "key", "value")]
            theirs[f"blocks.{layer}.attn.qkv.{kind}"] = torch.cat(parts)
    return theirs | {"head.weight": torch.zeros(3, HIDDEN), "head.bias": torch.zeros(3)}


def class_token(state: State, picture: Tensor, own: State | None = None) -> Tensor:
    """The class token of one picture [3, side, side], by the weights of transformers' names, patch by patch."""
    state = {name: part.double() for name, part in state.items()} | (own or {})

    def affine(name: str, x: Tensor) -> Tensor:
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def normed(name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(1, keepdim=True)
        scaled = centred / (centred.square().mean(1, keepdim=True) + 1e-6).sqrt()
        return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]

    weight = state["embeddings.patch_embeddings.projection.weight"].flatten(1)
    bias = state["embeddings.patch_embeddings.projection.bias"]
    patches = [
        picture[:, row : row + PATCH, column : column + PATCH].flatten() @ weight.T + bias
        for row in range(0, picture.shape[1], PATCH)
        for column in range(0, picture.shape[2], PATCH)
    ]
    x = torch.cat([state["embeddings.cls_token"][0], torch.stack(patches)])
    x = x + state["embeddings.position_embeddings"][0]
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        dinov2 = f"{name}norm1.weight" in state
        normalised = normed(name + ("norm1" if dinov2 else "layernorm_before"), x)
        size, parts = HIDDEN // HEADS, []
        for head in range(HEADS):
            query, key, value = (
                affine(f"{name}attention.attention.{part}", normalised)[
                    :, head * size : (head + 1) * size
                ]
                for part in ("query", "key", "value")
            )
            parts.append(torch.softmax(query @ key.T / math.sqrt(size), 1) @ value)
        moved = affine(f"{name}attention.output.dense", torch.cat(parts, 1))
        x = x + moved * state.get(f"{name}layer_scale1.lambda1", 1)
        normalised = normed(name + ("norm2" if dinov2 else "layernorm_after"), x)
        inside = affine(name + ("mlp.fc1" if dinov2 else "intermediate.dense"), normalised)
        inside = inside * (1 + torch.erf(inside / math.sqrt(2))) / 2
        moved = affine(name + ("mlp.fc2" if dinov2 else "output.dense"), inside)
        x = x + moved * state.get(f"{name}layer_scale2.lambda1", 1)
    return normed("layernorm", x)[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return saved(by_transformers(dinov2=True), tmp_path / "tiny.safetensors")


def saved(state: Any, path: Path) -> Path:
    if path.suffix == ".safetensors":
        safetensors.save_file({name: part.contiguous() for name, part in state.items()}, path)
    else:
        torch.save(state, path)
    return path


def tiny(path: Path | str, **fields: Any) -> PretrainedViT:
    sizes: dict[str, Any] = {"heads": HEADS, "image_side": 4, "classes": 3}
    return PretrainedViT(weights=str(path), **(sizes | fields))


def pictures(channels: int = 3, side: int = 4) -> DataModel:
    return Mixture(samples=4, dim=channels * side**2, signal=2.0)


def draw(network: PretrainedViT, runs: int = 2, data: DataModel | None = None) -> Params:
    streams = Streams(run_ids(runs))
    return network.initial_params(data or pictures(), streams, torch.float64)


# Features


@pytest.mark.parametrize("naming", ["dinov2", "vit", "timm", "prefixed", "pickled", "folder"])
def test_features_are_those_of_a_plain_function(naming: str, tmp_path: Path):
    state: State = by_transformers(dinov2=naming != "vit")
    given: Any = state
    path, heads = tmp_path / "tiny.safetensors", HEADS
    if naming == "timm":
        given = by_timm(state)
    if naming == "prefixed":
        given = {f"dinov2.{name}": part for name, part in state.items()}
        given |= {"classifier.weight": torch.zeros(2, HIDDEN)}
    if naming == "pickled":
        path, given = tmp_path / "tiny.pth", {"state_dict": state}
    saved(given, path)
    if naming == "folder":
        (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": HEADS}))
        path, heads = tmp_path, None
    network = tiny(path, heads=heads)
    x = normals(2, 3, 1, 48)
    params = draw(network)
    features, outputs = network.represent(params, x), network.forward(params, x)
    for run in range(2):
        expected = [
            class_token(state, 2 * picture.reshape(3, 4, 4) - 1) for picture in x[run, :, 0]
        ]
        close(features[run], torch.stack(expected))
        head = params["head.weight"][run], params["head.bias"][run]
        close(outputs[run], functional.linear(torch.stack(expected), *head))


def test_only_the_last_queries_keys_and_values_move(file: Path):
    data = pictures()
    setup = small_setup(data=data, network=tiny(file, classes=None), max_steps=3, rate=0.3)
    first, *_, last = film(start([setup, setup]))
    trained = {
        f"{name}.{kind}"
        for name in ("query", "key", "value", "head")
        for kind in ("weight", "bias")
    }
    assert set(last.params) == trained
    moved = {
        name for name, part in last.params.items() if not torch.equal(part, first.params[name])
    }
    assert moved >= trained - {"key.bias"}  # which softmax does not see
    state = by_transformers(dinov2=True)
    place = f"encoder.layer.{LAYERS - 1}.attention.attention."
    own = {
        f"{place}{name}": part[1]
        for name, part in last.params.items()
        if not name.startswith("head")
    }
    for sample in range(4):
        picture = 2 * last.x[1, sample].reshape(3, 4, 4) - 1
        head = last.params["head.weight"][1], last.params["head.bias"][1]
        expected = functional.linear(class_token(state, picture, own), *head)
        close(last.outputs[1, sample], expected[0])
    close(first.params["query.weight"][0], state[f"{place}query.weight"].double())


def test_a_frozen_head_stays_and_differs_by_run(file: Path):
    network = tiny(file, head="frozen", classes=None)
    frames = film(start([small_setup(data=pictures(), network=network, max_steps=3)] * 2))
    head = [frame.params["frozen/head.weight"] for frame in (frames[0], frames[-1])]
    assert torch.equal(*head)
    assert not torch.equal(head[0][0], head[0][1])
    assert "head.weight" not in network.trained(frames[0].params)


def test_gradients_are_those_of_differences(file: Path):
    network, x = tiny(file), normals(1, 2, 1, 48)
    params = draw(network, 1)
    names = list(params)

    def outputs(x: Tensor, *parts: Tensor) -> Tensor:
        return network.forward(dict(zip(names, parts, strict=True)), x)

    leaves = [part.requires_grad_() for part in (x, *params.values())]
    assert torch.autograd.gradcheck(outputs, leaves, fast_mode=True)
    forward_pass = network.run(params, x)
    c = normals(1, 2, 3, seed=2)
    (expected,) = torch.autograd.grad(network.forward(params, x), x, c)
    close(forward_pass.inputs_gradient(c), expected)


def test_a_picture_is_resized_normalised_and_grey_ones_repeated(file: Path):
    network = tiny(file, channels=1, mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0))
    data = pictures(1, 2)
    x, params = normals(1, 2, 1, 4), draw(network, 1, data)
    features = network.represent(params, x)
    for sample in range(2):
        small = x[0, sample].reshape(2, 2)
        share = torch.tensor([[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]], dtype=torch.float64)
        large = share @ small @ share.T
        picture = torch.stack([(large - 0.1) / 0.5, (large - 0.2) / 1.0, (large - 0.3) / 2.0])
        close(features[0, sample], class_token(by_transformers(dinov2=True), picture))


def test_patches_of_the_data_are_assembled(file: Path):
    network, whole = tiny(file), normals(1, 2, 3, 4, 4)
    corners = [whole[..., r : r + 2, c : c + 2].flatten(2) for r in (0, 2) for c in (0, 2)]
    params = draw(network, 1)
    patched = network.forward(params, torch.stack(corners, 2))
    close(patched, network.forward(params, whole.flatten(2)[:, :, None]), 1e-13)


def test_positions_are_resized_as_pictures_are():
    """A plane is a plane at every size, away from its edges; the class token keeps its own."""
    across = torch.linspace(0, 1, 8, dtype=torch.float64)
    plane = (across[:, None] + 2 * across).flatten()[None, :, None]
    positions = torch.cat([torch.full((1, 1, 1), 7.0, dtype=torch.float64), plane], 1)
    assert resized(positions, 8) is positions
    smaller = resized(positions, 4)
    assert smaller.shape == (1, 17, 1)
    assert float(smaller[0, 0]) == 7
    middle = smaller[0, 1:, 0].unflatten(0, (4, 4))[1:3, 1:3]
    ends = across.reshape(4, 2).mean(1)
    close(middle, (ends[:, None] + 2 * ends)[1:3, 1:3], 1e-6)


def test_frozen_weights_are_in_memory_once(file: Path):
    """A batch of many runs holds no weights but those that move."""
    network = tiny(file)
    params = draw(network, 16)
    own = 3 * HIDDEN * (HIDDEN + 1) + 3 * (HIDDEN + 1)
    assert sum(part.numel() for part in params.values()) == 16 * own
    cost = network.cost(pictures())
    assert cost.weights == 3 * own
    assert cost.point < 5000


def test_it_learns_under_attack(file: Path):
    attack = small_pgd(radius=0.1, per="sample", steps=2)
    network = tiny(file, classes=None)
    setup = small_setup(data=pictures(), network=network, attack=attack, max_steps=60, rate=0.3)
    frames = film(start([setup]))
    assert float(frames[-1].loss) < 0.5 * float(frames[0].loss)


# Weights


def refusal(network: PretrainedViT) -> str:
    with pytest.raises(ValueError, match="network") as refused:
        network.require()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_weights_that_do_not_fit_are_reported_in_one_line(tmp_path: Path):
    state = by_transformers(dinov2=True)
    path, query = tmp_path / "tiny.safetensors", "encoder.layer.1.attention.attention.query.bias"
    cases = [
        (
            state | {"embeddings.register_tokens": torch.zeros(1, 4, HIDDEN)},
            ["embeddings.register_tokens"],
        ),
        ({name: part for name, part in state.items() if name != query}, ["query.bias"]),
        (state | {query: torch.zeros(3)}, ["query.bias", "(3,)", "(8,)"]),
        (
            state | {"embeddings.position_embeddings": torch.zeros(1, 4, HIDDEN)},
            ["4 positions", "square"],
        ),
        ({"0.weight": torch.zeros(2, 2)}, ["ViT", "patch"]),
    ]
    for number, (wrong, parts) in enumerate(cases):
        file = path.with_stem(f"tiny{number}")
        assert holds(refusal(tiny(saved(wrong, file))), "`network.weights`", str(file), *parts)
    saved(state, path)
    message = refusal(tiny(path, image_side=5))
    assert holds(message, "`network.image_side`", "2", "pixels", "5", "4")
    assert holds(refusal(tiny(path, heads=3)), "8 columns", "3 heads", "`network.heads`")


def test_files_that_cannot_be_read_are_reported_in_one_line(tmp_path: Path, monkeypatch):
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "data"))
    absent = tmp_path / "nothing.safetensors"
    assert holds(refusal(tiny(absent)), str(absent), str(tmp_path / "data"), "config.json", "timm")
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{}")
    assert holds(refusal(tiny(broken)), str(broken), "Error: ")
    code = tmp_path / "code.pth"
    torch.save({"run": os.getcwd}, code)
    assert holds(refusal(tiny(code)), str(code), "tensors", ".safetensors")
    numbers, model = tmp_path / "list.pt", tmp_path / "model"
    torch.save([1, 2], numbers)
    assert holds(refusal(tiny(numbers)), str(numbers), "dictionary of tensors")
    model.mkdir()
    for content in (None, "[]", "[" * 4000):
        if content:
            (model / "config.json").write_text(content)
        assert holds(refusal(tiny(model)), str(model), "config.json")
    (model / "config.json").write_text("{}")
    assert holds(refusal(tiny(model)), str(model), "0 files")


def test_a_name_that_cannot_be_downloaded_is_reported():
    pytest.importorskip("huggingface_hub")
    message = refusal(PretrainedViT(weights="no_model_of_this_name"))
    assert holds(message, "`network.weights`", "'no_model_of_this_name'", "timm", "file of weights")


def test_an_experiment_is_written_and_opened_without_its_weights():
    network = PretrainedViT(image_side=112)
    setup = small_setup(data=pictures(), network=network)
    assert setup.network.cost(setup.data).multiplies == 17_600_000_000 // 4
    with pytest.raises(SpecError, match=says("`data.dim`", "channels=1", "square", "48")):
        small_setup(data=pictures(), network=PretrainedViT(channels=1))


def test_weights_are_found_in_the_folder_of_data(tmp_path: Path, monkeypatch):
    (tmp_path / "weights").mkdir()
    saved(by_transformers(dinov2=True), tmp_path / "weights" / "found.safetensors")
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path))
    tiny("found.safetensors").require()


# The libraries they come from


@pytest.mark.parametrize(
    ("name", "heads", "side"),
    [("vit_tiny_patch16_224", 3, 32), ("vit_small_patch14_dinov2", 6, 28)],
)
def test_timms_own_transformer_gives_the_same(name: str, heads: int, side: int):
    from benign.data.formats import import_torchvision

    try:
        import_torchvision()
    except ValueError as error:
        pytest.skip(str(error))
    timm = pytest.importorskip("timm")
    theirs = timm.create_model(name, pretrained=False, num_classes=0, img_size=side)
    theirs = theirs.double().eval()
    for seed, part in enumerate(theirs.parameters()):
        part.data = normals(*part.shape, seed=seed) * 0.1
    x = normals(2, 3, side, side)
    ours = filled(theirs.state_dict(), heads, side)
    with torch.no_grad():
        close(ours(x), theirs(x), 1e-6)  # our weights went through float32


def filled(state: State, heads: int, side: int) -> Any:
    from benign.networks.vit import _filled

    return _filled(renamed(state), heads, side).double()


@needs_dinov2
@pytest.mark.parametrize("side", [518, 224])
def test_transformers_makes_the_same_of_dinov2(side: int):
    transformers = pytest.importorskip("transformers")
    config = transformers.Dinov2Config(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=518, patch_size=14
    )
    theirs = transformers.Dinov2Model(config).eval()
    theirs.load_state_dict(
        {name: part.float() for name, part in safetensors.load_file(DINOV2).items()}
    )
    x = normals(1, 3, side, side).float()
    with torch.no_grad():
        expected = theirs(x).pooler_output
        close(load_vit(str(DINOV2), None, side)(x), expected, 1e-4)


@needs_dinov2
def test_the_dinov2_file_loads():
    network = PretrainedViT(weights=str(DINOV2), image_side=28, channels=1)
    data = pictures(1, 8)
    params = network.initial_params(data, Streams(run_ids(1)), torch.float32)
    assert params["query.weight"].shape == (1, 384, 384)
    x = data.sample(Streams(run_ids(1)), "train", 3, torch.float32).x
    features = network.represent(params, x)
    assert features.shape == (1, 3, 384)
    assert 1 < float(features.std()) < 5
