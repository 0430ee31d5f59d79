"""jiang/fig1 by the plain PyTorch loop and by benign on the same cores: seconds a run and memory.

python benchmarks/attention.py                  # paper scale, one seed: about five minutes on two cores
python benchmarks/attention.py --scale quick
python benchmarks/attention.py --device cuda
"""

import argparse
import json
import resource
import tempfile
import time

import plain_loop
import torch

from benign.papers.registry import recipe
from benign.streams import RunId, Streams
from benign.sweep.plan import runs_of
from benign.training.machine import cores

GIB = 2**30


def main() -> None:
    options = parse()
    experiment = (
        recipe("jiang/fig1").experiment(options.scale).model_copy(update={"seeds": options.seeds})
    )
    ours = time_benign(experiment, options.device)
    loop = time_loop(experiment, options.device)
    report = {
        "recipe": "jiang/fig1",
        "scale": options.scale,
        "device": options.device,
        "cores": cores(),
        "runs": ours["runs"],
        "loop_seconds_a_run": loop["seconds"] / loop["runs"],
        "benign_seconds_a_run": ours["seconds"] / ours["runs"],
        "ratio_to_loop": loop["seconds"] / ours["seconds"],
        "loop_steps": loop["steps"],
        "benign_steps": ours["steps"],
        "peak_memory_gib": ours["memory"],
        "nanoseconds_a_normal_draw": time_draws(options.device),
    }
    for name, value in report.items():
        print(f"{name:28} {value:.4g}" if isinstance(value, float) else f"{name:28} {value}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", default="paper")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", help="write the numbers to this file")
    return parser.parse_args()


def time_benign(experiment, device: str) -> dict:
    """Time the whole sweep, with sampling, evaluation, start of the workers and records."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        result = experiment.run(
            f"{folder}/store", device, workers=cores() if device == "cpu" else 1
        )
        seconds = time.perf_counter() - begin
    return {
        "seconds": seconds,
        "runs": result.attrs["runs"],
        "steps": float(result.steps.mean()),
        "memory": peak_memory(device),
    }


def time_loop(experiment, device: str) -> dict:
    """Time the same cells one after the other, with all cores for every matrix product (torch's default)."""
    runs = list(runs_of(experiment))
    begin = time.perf_counter()
    steps = [plain_loop.train(run.cell, device)[0] for run in runs]
    return {
        "seconds": time.perf_counter() - begin,
        "runs": len(runs),
        "steps": sum(steps) / len(steps),
    }


def peak_memory(device: str) -> float:
    """Return the peak memory in GiB: of this process and `cores` times its largest worker, or of the GPU."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / GIB
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return (own + cores() * worker) * 1024 / GIB


def time_draws(device: str) -> float:
    """Return the nanoseconds of a normal draw, on one CPU thread."""
    torch.set_num_threads(1)
    stream = Streams([RunId(0, 0, "")], device)("bench")
    stream.normal(1_000_000, dtype=torch.float32).sum().item()
    begin = time.perf_counter()
    stream.normal(4_000_000, dtype=torch.float32).sum().item()
    return (time.perf_counter() - begin) / 4e6 * 1e9


if __name__ == "__main__":
    main()
