"""Four ways to train the same runs, side by side: seconds a step of a run, ratios, memory, growth.

python -m benchmarks.peers                          # all four figures: minutes
python -m benchmarks.peers --figure li/fig3 --quick # seconds
python -m benchmarks.peers --device cuda --json benchmarks/results/cuda.json
python -m benchmarks.peers --cores 1                # one thread each, CPU time: for a machine that is busy
"""

import argparse
import time
from pathlib import Path

from benchmarks.peers.compare import SIZES, Bench
from benchmarks.peers.machine import facts, has_jax, load, product_rate
from benchmarks.peers.problems import FIGURES
from benchmarks.peers.report import tables, write
from benchmarks.peers.workers import Team, contestants
from benign.training.machine import cores


def main() -> None:
    options = parse()
    figures = options.figure or list(FIGURES)
    begin, peak = time.perf_counter(), product_rate(options.device, options.cores)
    machine = facts(options.device, options.cores, peak)
    if not has_jax():
        print("JAX is not installed: its rows are missing (pip install 'benign[bench]')")
    teams = [
        Team(each, options.device, options.cores)
        for each in contestants(options.device, options.cores)
        if (each.runner != "jax" or has_jax())
        and (each.coordinates == "ambient" or any(FIGURES[figure].exact for figure in figures))
    ]
    bench = Bench(teams, options.device, options.cores, peak)
    found = [
        bench.quickly(figure) if options.quick else bench.figure(figure, options.size or [*SIZES])
        for figure in figures
    ]
    rows = [row for each in found for row in each]
    for team in teams:
        team.close()
    machine |= {"load after": load(), "minutes": round((time.perf_counter() - begin) / 60, 1)}
    print(tables({"machine": machine, "rows": [vars(row) for row in rows]}))
    if options.json:
        write(options.json, machine, rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--figure", action="append", choices=FIGURES, help="only this one (may be repeated)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small networks, one sample size, few steps"
    )
    parser.add_argument("--size", action="append", choices=SIZES, help="only this sample size")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--cores", type=int, default=cores(), help="CPU cores that each contestant uses"
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
