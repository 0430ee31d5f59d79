"""The measurements: rows, their ratios, and the tables of benchmarks/README.md.

    python -m benchmarks.peers.report

writes the tables anew from the files of benchmarks/results.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- peers: written by benchmarks/peers/report.py -->\n", "<!-- end of peers -->\n"
NAMES = {
    "loop": "loop",
    "vmap": "vmap",
    "jax": "JAX",
    "benign": "benign",
    "benign_exact": "benign, exact coordinates",
    "benign_compiled": "benign, compiled",
}


@dataclass
class Row:
    """One contestant on one problem. Times are of one step of one run."""

    figure: str
    name: str
    shape: dict[str, int]
    batch: int
    """runs trained at once"""
    seconds_a_run_step: float
    """the least of the rounds"""
    median_seconds: float
    """the median of the rounds"""
    run_steps_a_second: float
    operations: float
    """multiplications and additions in matrix products of a run-step, counted by torch; of the plain loop
    for vmap and JAX, which do the same"""
    fraction_of_peak: float
    peak_memory: int | None
    """bytes, of all runs trained at once"""
    start_seconds: float
    """seconds to draw and arrange points and weights"""
    first_step_seconds: float
    """seconds of the first step, with compilation and allocation"""
    doubled: str = ""
    ratio_to_loop: float | None = None
    """speed relative to the loop; the next two are relative to vmap and JAX"""
    ratio_to_vmap: float | None = None
    ratio_to_jax: float | None = None
    growth: float | None = None
    """for a doubled problem: its time for a run-step divided by that of the small problem"""


def compared(rows: list[Row]) -> list[Row]:
    """Fill in the ratios among the rows of one problem."""
    times = {row.name: row.seconds_a_run_step for row in rows}
    for row in rows:
        for other in ("loop", "vmap", "jax"):
            if other in times:
                setattr(row, f"ratio_to_{other}", times[other] / row.seconds_a_run_step)
    return rows


def write(path: Path, machine: dict[str, Any], rows: list[Row]) -> None:
    text = json.dumps(
        {"machine": machine, "rows": [_rounded(asdict(row)) for row in rows]}, indent=1
    )
    path.write_text(text + "\n", encoding="utf-8")


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: float(f"{value:.4g}") if isinstance(value, float) else value
        for key, value in row.items()
    }


def tables(found: dict[str, Any]) -> str:
    """Return the tables of one file: every problem, then the growth of time."""
    machine = ", ".join(f"{key} {value}" for key, value in found["machine"].items())
    main = [row for row in found["rows"] if not row["doubled"]]
    head = [
        "figure",
        "samples",
        "contestant",
        "runs at once",
        "ms a run-step",
        "run-steps a s",
        "x loop",
        "x vmap",
    ]
    head += ["x JAX", "of peak", "peak MB", "first step s"]
    return f"{machine}\n\n{_table(head, map(_cells, main))}\n{_growth_table(found['rows'])}"


def _cells(row: dict[str, Any]) -> list[str]:
    ratios = [row[f"ratio_to_{other}"] for other in ("loop", "vmap", "jax")]
    return [
        row["figure"],
        str(row["shape"]["samples"]),
        NAMES[row["name"]],
        str(row["batch"]),
        f"{1000 * row['seconds_a_run_step']:.3g}",
        f"{row['run_steps_a_second']:.3g}",
        *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
        f"{100 * row['fraction_of_peak']:.0f} %",
        "-" if row["peak_memory"] is None else f"{row['peak_memory'] / 1e6:.0f}",
        f"{row['first_step_seconds']:.2f}",
    ]


def _growth_table(rows: list[dict[str, Any]]) -> str:
    """Return the time of a run-step at twice the runs, samples, dimension or width, relative to the small problem."""
    extend_history = {
        (row["figure"], row["name"], row["doubled"]): row["growth"]
        for row in rows
        if row["doubled"]
    }
    if not extend_history:
        return ""
    doubled = list(dict.fromkeys(key[2] for key in extend_history))
    lines = []
    for figure, name in dict.fromkeys(key[:2] for key in extend_history):
        found = (extend_history.get((figure, name, each)) for each in doubled)
        lines.append(
            [figure, NAMES[name], *("-" if each is None else f"{each:.2f}" for each in found)]
        )
    return _table(["figure", "contestant", *(f"2 x {each}" for each in doubled)], lines)


def _table(head: list[str], lines: Any) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def page(text: str, results: list[dict[str, Any]]) -> str:
    """Return a page with new tables between the two marks."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return before + BEGIN + "\n" + "\n".join(map(tables, results)) + "\n" + END + after


def results() -> list[dict[str, Any]]:
    """Return the contents of the files in benchmarks/results that belong to this benchmark."""
    found = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((HERE / "results").glob("*.json"))
    ]
    return [each for each in found if "rows" in each]


if __name__ == "__main__":
    readme = HERE / "README.md"
    readme.write_text(page(readme.read_text(encoding="utf-8"), results()), encoding="utf-8")
