"""Networks of images by benign's own steps: small ViTs side by side, and ResNet-18 under attack.

python -m benchmarks.images --device cuda                       # about three minutes on an H200
python -m benchmarks.images --device cuda --json images.json
python -m benchmarks.images --smoke                             # tiny sizes, in seconds on a CPU

A grid of ViTs (N = 1000, patches of 7 x 7, PGD-10) takes one step of gradient descent batched, against its runs
one after another, each recorded as a CUDA graph or launched kernel by kernel; and for 1, 2, 4, ... runs, to see
where the gain ends. The same for an epoch of AdamW with mini-batches of 50, as the recipes train.

ResNet-18 (CIFAR, batch 256) is trained plainly by a bare loop of torch's, plainly by benign, and by benign under
PGD: images a second, and which share of (plain images a second) / (attack steps + 1) is reached. The three take turns,
an epoch each, after two epochs that are not timed, in which cuDNN chooses kernels and benign records its steps (0.4 s
more than another epoch of benign). The bare loop has what such loops have: images on the GPU, memory in the order of
tensor cores, fused SGD, cuDNN's own trials of its kernels.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import softplus

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.data.constructions import PixelNoise
from benign.data.images import Images
from benign.data.mixture import Mixture
from benign.networks.module_checks import PointSize
from benign.networks.resnet import ResNet
from benign.networks.vision_transformer import VisionTransformer
from benign.streams import RunId, Streams
from benign.training.descent import Batch, descend
from benign.training.engine import products
from benign.training.fast import recording
from benign.training.optimisers import SGD, AdamW, GradientDescent, Training
from benign.training.setup import Evaluation, Setup, stack

PRECISIONS = ("float32", "tf32", "mixed")
WARM = 6
"""steps before the timing starts: a GPU records the fourth"""
EPSILON = 8 / 255


@dataclass(frozen=True)
class Sizes:
    """Sizes of the benchmark."""

    samples: int = 1000
    tokens: int = 16
    dim: int = 49
    hidden: int = 128
    attack_steps: int = 10
    grid: int = 4
    runs: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    steps: int = 10
    mini_batch: int = 50
    mini_steps: int = 2
    pictures: int = 2048
    batch: int = 256
    side: int = 32
    width: int = 64
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    epochs: int = 7


SMOKE = Sizes(
    samples=20,
    tokens=4,
    dim=4,
    hidden=8,
    attack_steps=2,
    grid=2,
    runs=(1, 2),
    steps=2,
    mini_batch=10,
    mini_steps=1,
    pictures=32,
    batch=8,
    side=8,
    width=4,
    blocks=(1, 1),
    epochs=1,
)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    options = parse(arguments)
    sizes = SMOKE if options.smoke else Sizes()
    report: dict[str, Any] = {"device": options.device, "torch": torch.__version__}
    if options.device != "cpu":
        report["gpu"] = torch.cuda.get_device_name(options.device)
    if options.only != "resnet":
        report["vits"] = vits(sizes, options.device, options.precision)
        print_vits(report["vits"])
        report["mini_batches"] = mini_batches(sizes, options.device, options.precision)
        print_grid(report["mini_batches"], f"AdamW with batches of {sizes.mini_batch}", "an epoch")
    if options.only != "vits":
        report["resnet"] = [resnet(sizes, options.device, each) for each in PRECISIONS]
        print_resnet(report["resnet"])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    return report


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=PRECISIONS, help="of the ViTs")
    parser.add_argument("--only", choices=["vits", "resnet"])
    parser.add_argument("--smoke", action="store_true", help="tiny sizes")
    parser.add_argument("--json", help="write the numbers to this file")
    return parser.parse_args(arguments)


# Small ViTs


def vits(sizes: Sizes, device: str, precision: Any) -> dict[str, Any]:
    """Time a step of the grid in one batch and run by run; then of increasing numbers of runs of the first cell."""
    cells = [vit_setup(sizes, *cell, precision) for cell in grid(sizes)]
    rows = []
    for runs in sizes.runs:
        try:
            seconds = _seconds([cells[0]] * runs, WARM, sizes.steps, device)
        except torch.OutOfMemoryError:
            break
        rows.append({"runs": runs, "seconds_a_step": seconds, "seconds_a_run_step": seconds / runs})
    for row in rows:
        row["gain"] = rows[0]["seconds_a_run_step"] / row["seconds_a_run_step"]
    return {"precision": precision, "by_runs": rows} | gains(cells, WARM, sizes.steps, device)


def mini_batches(sizes: Sizes, device: str, precision: Any) -> dict[str, Any]:
    """Time an epoch of the grid in mini-batches, in one batch and run by run."""
    training = AdamW(rate=1e-3, batch=sizes.mini_batch, epochs=10**6, stop_loss=0.0)
    cells = [vit_setup(sizes, *cell, precision, training) for cell in grid(sizes)]
    return {"precision": precision} | gains(cells, 1, sizes.mini_steps, device)


def gains(cells: list[Setup], warm: int, steps: int, device: str) -> dict[str, Any]:
    """Return the seconds of a step of all runs together and run by run, with and without CUDA graphs."""
    batched = _seconds(cells, warm, steps, device)
    alone = sum(_seconds([cell], warm, steps, device) for cell in cells)
    with unrecorded():
        launched = sum(_seconds([cell], warm, steps, device) for cell in cells)
    return {
        "runs": len(cells),
        "batched_seconds_a_step": batched,
        "one_after_another_seconds_a_step": alone,
        "kernel_by_kernel_seconds_a_step": launched,
        "gain": alone / batched,
        "gain_over_kernel_by_kernel": launched / batched,
    }


def grid(sizes: Sizes) -> list[tuple[float, float]]:
    """Return signal-to-noise ratios and radii."""
    places = [(place + 1) / sizes.grid for place in range(sizes.grid)]
    return [(2 * snr, 0.1 * radius) for snr, radius in itertools.product(places, places)]


def vit_setup(
    sizes: Sizes, snr: float, radius: float, precision: Any, training: Training | None = None
) -> Setup:
    """Return a setup with the shipped digits at the size of MNIST, which costs the same."""
    ball = Ball(radius=radius, relative_to="signal")
    return Setup(
        data=Images(
            source="digits",
            samples=sizes.samples,
            tokens=sizes.tokens,
            dim=sizes.dim,
            construction=PixelNoise(snr=snr),
        ),
        network=VisionTransformer(hidden=sizes.hidden, mlp=sizes.hidden, classes=10),
        attack=PGD(ball=ball, steps=sizes.attack_steps),
        training=training or GradientDescent(rate=0.1, stop_loss=0.0, max_steps=10**6),
        evaluation=Evaluation(samples=10),
        precision=precision,
    )


@contextmanager
def unrecorded() -> Iterator[None]:
    """Launch kernels one by one, as in a plain loop, without CUDA graphs."""
    before, recording.WARM_UP = recording.WARM_UP, 10**9
    try:
        yield
    finally:
        recording.WARM_UP = before


def _seconds(cells: list[Setup], warm: int, steps: int, device: str) -> float:
    """Return the seconds of an attacked training step of all runs together."""
    ids = [RunId(0, index, "") for index in range(len(cells))]
    with products(cells[0].precision, device):
        walk = descend(Batch.start(stack(cells, device), Streams(ids, device)))
        for _ in range(warm):
            next(walk)
        return timed(lambda: next(walk), steps, device)


def timed(act: Callable[[], Any], times: int, device: str) -> float:
    """Return the seconds of one of several repetitions, after the device has finished the last."""
    wait(device)
    begin = time.perf_counter()
    for _ in range(times):
        act()
    wait(device)
    return (time.perf_counter() - begin) / times


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


# ResNet-18


def resnet(sizes: Sizes, device: str, precision: Any) -> dict[str, Any]:
    """Return images per second: clean training by a bare loop and by benign, and training under attack."""
    steps = sizes.attack_steps
    attack = PGD(ball=resnet_ball(), steps=steps)
    with products(precision, device):
        epochs = [
            bare_epoch(sizes, device, precision),
            benign_epoch(resnet_setup(sizes, None, precision), device),
            benign_epoch(resnet_setup(sizes, attack, precision), device),
        ]
        for _ in range(2):
            for epoch in epochs:
                epoch()
        spent = [[timed(epoch, 1, device) for epoch in epochs] for _ in range(sizes.epochs)]
    bare, plain, attacked = (
        sizes.pictures / statistics.median(times) for times in zip(*spent, strict=True)
    )
    return {
        "precision": precision,
        "attack_steps": steps,
        "bare_images_a_second": bare,
        "plain_images_a_second": plain,
        "attacked_images_a_second": attacked,
        "plain_share_of_bare": plain / bare,
        "share_of_plain": attacked * (steps + 1) / plain,
        "share_of_bare": attacked * (steps + 1) / bare,
    }


def resnet_ball() -> Ball:
    return Ball(p="inf", radius=EPSILON, per="sample")


def resnet_setup(sizes: Sizes, attack: PGD | None, precision: Any) -> Setup:
    return Setup(
        data=Mixture(samples=sizes.pictures, dim=3 * sizes.side**2, signal=1.0),
        network=ResNet(width=sizes.width, blocks=sizes.blocks),
        attack=attack,
        training=SGD(rate=0.1, weight_decay=5e-4, batch=sizes.batch, epochs=10**6, stop_loss=0.0),
        evaluation=Evaluation(samples=10),
        precision=precision,
    )


def benign_epoch(setup: Setup, device: str) -> Callable[[], Any]:
    """Return what trains for an epoch."""
    walk = descend(Batch.start(stack([setup], device), Streams([RunId(0, 0, "")], device)))
    return lambda: next(walk)


def bare_epoch(sizes: Sizes, device: str, precision: Any) -> Callable[[], None]:
    """Return what trains the same module cleanly for an epoch, in a bare loop."""
    setup = resnet_setup(sizes, None, precision)
    streams = Streams([RunId(0, 0, "")], device)
    sample = setup.data.sample(streams, "train", sizes.pictures, torch.float32)
    module = setup.network.build(PointSize(1, setup.data.dim)).to(device)  # pyright: ignore[reportAttributeAccessIssue]
    if device != "cpu":
        module = module.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, 0.9, weight_decay=5e-4, fused=True)

    def epoch() -> None:
        torch.backends.cudnn.benchmark = True
        order = torch.randperm(sizes.pictures, device=device)
        for places in order.split(sizes.batch):
            _bare_update(module, optimizer, sample.x[0, places], sample.y[0, places])
        torch.backends.cudnn.benchmark = False

    return epoch


def _bare_update(
    module: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor
) -> None:
    optimizer.zero_grad()
    softplus(-y * module(x)[:, 0].float()).mean().backward()
    optimizer.step()


# Tables


def print_grid(found: dict[str, Any], training: str, step: str) -> None:
    print(
        f"{found['runs']} small ViTs, {training}, {found['precision']}: "
        f"{found['batched_seconds_a_step']:.4g} s {step} batched, "
        f"{found['one_after_another_seconds_a_step']:.4g} s one after another, gain {found['gain']:.3g}; "
        f"kernel by kernel {found['kernel_by_kernel_seconds_a_step']:.4g} s, "
        f"gain {found['gain_over_kernel_by_kernel']:.3g}"
    )


def print_vits(found: dict[str, Any]) -> None:
    print_grid(found, "gradient descent", "a step")
    print(f"{'runs':>6} {'s a step':>10} {'s a run-step':>13} {'gain':>6}")
    for row in found["by_runs"]:
        print(
            f"{row['runs']:6} {row['seconds_a_step']:10.4g} {row['seconds_a_run_step']:13.4g} {row['gain']:6.3g}"
        )


def print_resnet(rows: list[dict[str, Any]]) -> None:
    print(f"ResNet, images a second; attacked in {rows[0]['attack_steps']} steps")
    print(
        f"{'precision':>10} {'bare':>9} {'plain':>9} {'attacked':>9} {'of plain/(k+1)':>15} {'of bare/(k+1)':>14}"
    )
    for row in rows:
        print(
            f"{row['precision']:>10} {row['bare_images_a_second']:9.4g} {row['plain_images_a_second']:9.4g} "
            f"{row['attacked_images_a_second']:9.4g} {row['share_of_plain']:15.3g} {row['share_of_bare']:14.3g}"
        )


if __name__ == "__main__":
    main()
