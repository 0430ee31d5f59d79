"""The table of whole figures in benchmarks/README.md and docs/performance.md.

    python -m benchmarks.figures.report

writes both anew from benchmarks/results/figures-*.json.
"""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
PAGES = HERE / "README.md", HERE.parent / "docs" / "performance.md"
BEGIN, END = (
    "<!-- figures: written by benchmarks/figures/report.py -->\n",
    "<!-- end of figures -->\n",
)
HEAD = [
    "figure", "device", "runs", "loop s", "JAX s (compiling)", "benign s", "x loop", "x JAX", "floor s",
    "floor / benign",
    "drawing", "training", "evaluation", "audit", "records", "other",
]  # fmt: skip
PARTS = ("drawing", "training", "evaluation", "audit", "records", "other")
EMPTY = "No measurement of whole figures is in benchmarks/results yet.\n"


def rounded(value: Any) -> Any:
    """Return the same with numbers of four digits."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def table(found: list[dict[str, Any]]) -> str:
    """Return the table of all files, and below it what must be known about its numbers."""
    if not found:
        return EMPTY
    lines, notes = [], []
    for each in found:
        names = ("device", "cores", "torch", "JAX", "load before", "load after", "minutes")
        machine = each["machine"]
        notes.append(
            ", ".join(f"{name} {machine[name]}" for name in names if name in machine) + "."
        )
        for row in each["figures"]:
            lines.append(_cells(row, machine))
            notes += _notes(row)
    rows = [HEAD, ["---"] * len(HEAD), *lines]
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return text + "\n" + "".join(f"- {note}\n" for note in notes)


def _cells(row: dict[str, Any], machine: dict[str, Any]) -> list[str]:
    split = row.get("split") or {}
    whole = sum(split.get("seconds", {}).values())
    shares = [f"{100 * split['seconds'][part] / whole:.0f} %" if whole else "-" for part in PARTS]
    compiling = f" ({row['compile_s']:.3g})" if "compile_s" in row else ""
    sampled = f" of {row['figure_runs']}" if row["runs"] < row["figure_runs"] else ""
    floor, ours = row.get("floor_s"), row.get("benign_s")
    device = machine.get("device", row["device"])
    cores = f"{machine['cores']} cores, " if row["device"] == "cpu" and "cores" in machine else ""
    return [
        row["figure"] + (f" ({row['scale']})" if row["scale"] != "paper" else ""),
        f"{cores}{device}",
        f"{row['runs']}{sampled}",
        _number(row.get("loop_s")) + ("*" if row.get("loop_extrapolated") else ""),
        _number(row.get("jax_s")) + compiling,
        _number(ours),
        _ratio(row, "loop"),
        _ratio(row, "jax"),
        _number(floor),
        f"{floor / ours:.2f}" if floor and ours else "-",
        *shares,
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _ratio(row: dict[str, Any], name: str) -> str:
    if name in row.get("void", {}):
        return "void"
    value = row.get(f"ratio_to_{name}")
    return "-" if value is None else f"**{value:.2f}**"


def _notes(row: dict[str, Any]) -> list[str]:
    notes, name = [], row["figure"]
    if row.get("loop_extrapolated"):
        counts = f"{row['loop_runs']} of the {row['runs']} runs"
        notes.append(
            f"{name}: * the loop computed {counts}, some of every stratum; extrapolated by stratum."
        )
    if "other_s" in row:
        notes.append(
            f"{name}: benign with `coordinates: {row['other_coordinates']}` took {row['other_s']:.3g} s."
        )
    for peer, why in row.get("void", {}).items():
        notes.append(f"{name}: the ratio to {peer} is void, the results differ: {why}.")
    laws = row.get("law", {})
    if laws:
        parts = [
            f"{pair.replace(', ', ' and ')} p = {law['p']:.2g} ({law['cells']} cells)"
            for pair, law in laws.items()
        ]
        notes.append(f"{name}: agreement in law: {'; '.join(parts)}.")
    split = row.get("split")
    if split:
        other = ", ".join(f"{key} {value:.2g} s" for key, value in split["other"].items())
        share = f"{100 * split['covers']:.0f} %"
        notes.append(
            f"{name}: the split is of {split['workers']} processes and sums to {share} of their wall time; other: "
            f"{other}."
        )
    return notes


def page(text: str, found: list[dict[str, Any]]) -> str:
    """Return a page with a new table between the two marks."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + table(found) + "\n" + END + rest.split(END)[1]


def results() -> list[dict[str, Any]]:
    paths = sorted((HERE / "results").glob("figures-*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(page(each.read_text(encoding="utf-8"), results()), encoding="utf-8")
