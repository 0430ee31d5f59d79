"""The tables of docs/statistics.md, from rates.json: what must hold is marked where it does not."""

from __future__ import annotations

import re

Rates = dict[str, dict[str, dict[str, dict[str, float]]]]
"""group, case, quantity: mean, number, and the 99 % band of a share"""

LEAST_UPPER, LEAST_LOWER = 0.94, 0.92
"""of the 99 % band of the coverage of a two-sided interval"""
NOMINAL, ONE_SIDED = 0.95, 0.975
"""coverage of an interval; of one end of a simultaneous one"""
ALARMS = 0.01
WIDEST = 1.5
"""of `boundary()`, in widths of the oracle, from five seeds on"""
FAILS = " (!)"


def two_sided(found: dict[str, float]) -> bool:
    """Return whether the coverage of a two-sided interval is as it must be."""
    return found["high"] >= LEAST_UPPER and found["low"] >= LEAST_LOWER


def width_ratio(found: dict[str, dict[str, float]], of: str) -> float | None:
    """Return the mean width of the slope's or the constant's interval in widths of the oracle; None if not measured."""
    if f"oracle {of} width" not in found:
        return None
    return found[f"{of} width"]["mean"] / found[f"oracle {of} width"]["mean"]


def few_seeds(name: str) -> bool:
    """Return whether a case has fewer than five seeds: its width is reported, and nothing is asked of it."""
    return bool(re.match(r"[1-4] seeds?\b", name))


def failures(stored: Rates) -> list[str]:
    """Return what does not hold of what must."""
    found = []
    for name, of in stored.get("boundary", {}).items():
        for part in ("slope", "constant", "free constant"):
            if not two_sided(of[part]):
                found.append(f"{name}: {part} covers {_band(of[part])}")
        for part in ("slope", "constant"):
            ratio = width_ratio(of, part)
            if ratio is not None and ratio > WIDEST and not few_seeds(name):
                found.append(f"{name}: {part} is {ratio:.2f} times as wide as that of the oracle")
        if of["no fit"]["low"] > ALARMS:
            found.append(f"{name}: {_band(of['no fit'])} false alarms")
    for group, parts in TWO_SIDED.items():
        for name, of in stored.get(group, {}).items():
            found += [
                f"{name}: {part} covers {_band(of[part])}"
                for part in parts
                if part in of and not two_sided(of[part])
            ]
    for name, of in stored.get("fall", {}).items():
        if of["low end"]["high"] < ONE_SIDED or of["interval"]["high"] < NOMINAL:
            found.append(f"{name}: covers {_band(of['interval'])}")
    for name, of in stored.get("bound", {}).items():
        found += [f"{name}: {part} {_band(of[part])}" for part in of if of[part]["high"] < NOMINAL]
    return found


TWO_SIDED = {"shift": ("shift",), "mean": ("interval",), "bisection": ("slope", "constant")}


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _band(found: dict[str, float]) -> str:
    """Return a share in percent with its 99 % band."""
    return f"{_percent(found['mean'])} [{_percent(found['low'])}, {_percent(found['high'])}]"


def _cover(found: dict[str, float]) -> str:
    return _band(found) + ("" if two_sided(found) else FAILS)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ratio(of: dict[str, dict[str, float]], part: str, name: str) -> str:
    ratio = width_ratio(of, part)
    if ratio is None:
        return ""
    return f"{ratio:.2f}" + (FAILS if ratio > WIDEST and not few_seeds(name) else "")


def _boundary(cases: dict) -> str:
    head = [
        "truth",
        "slope",
        "constant at the exponent",
        "free constant",
        "width: slope",
        "constant",
    ]
    head = [*head, "false alarms"]
    rows = [
        [
            name,
            *(_cover(of[part]) for part in ("slope", "constant", "free constant")),
            *(_ratio(of, part, name) for part in ("slope", "constant")),
            _band(of["no fit"]) + (FAILS if of["no fit"]["low"] > ALARMS else ""),
        ]
        for name, of in cases.items()
    ]
    return _table(head, rows)


def _broken(cases: dict) -> str:
    head = ["broken truth", "no fit", "as rows that cross back"]
    rows = [
        [name, _band(of["found"]), _percent(of["as rows that cross back"]["mean"])]
        for name, of in cases.items()
    ]
    return _table(head, rows)


def _shift(cases: dict) -> str:
    rows = [[name, _cover(of["shift"]), f"{of['width']['mean']:.2f}"] for name, of in cases.items()]
    return _table(["truth", "coverage", "mean half-width of log(c / c)"], rows)


def _fall(cases: dict) -> str:
    part = ["coverage", "a fall is significant", "mean high end"]
    head = ["truth", *part, *(f"average line: {each}" for each in part)]
    rows = []
    for name, of in cases.items():
        mark = FAILS if of["interval"]["high"] < NOMINAL else ""
        line = "interval of the average line", "significant in the average line"
        rows.append(
            [
                name,
                _band(of["interval"]) + mark,
                _percent(of["significant"]["mean"]),
                f"{of['high']['mean']:.2f}",
                _percent(of[line[0]]["mean"]),
                _percent(of[line[1]]["mean"]),
                f"{of['high of the average line']['mean']:.3f}",
            ]
        )
    return _table(head, rows)


def _bounds(cases: dict) -> str:
    rows = [
        [name, part, _band(of[part]) + (FAILS if of[part]["high"] < NOMINAL else "")]
        for name, of in cases.items()
        for part in of
    ]
    return _table(["case", "what", "coverage"], rows)


def _plain(cases: dict) -> str:
    rows = [
        [name, part, _band(of[part]) + (FAILS if of[part]["high"] < LEAST_UPPER else "")]
        for name, of in cases.items()
        for part in of
        if part != "no fit"
    ]
    return _table(["case", "what", "coverage"], rows)


TABLES = {
    "boundary": _boundary, "broken": _broken, "shift": _shift, "fall": _fall, "mean": _plain,
    "bisection": _plain, "bound": _bounds, "skewed": _plain, "skewed bound": _bounds,
}  # fmt: skip


def render(page: str, stored: Rates) -> str:
    """Return the page with its tables made anew; each stands between a marker with its group's name and an end."""
    for group, table in TABLES.items():
        text = table(stored[group]) if group in stored else ""
        page = re.sub(
            rf"(<!-- rates: {group} -->\n).*?(<!-- end -->)",
            lambda found, text=text: f"{found[1]}\n{text}\n\n{found[2]}",
            page,
            flags=re.DOTALL,
        )
    counts = [
        quantity["of"]
        for cases in stored.values()
        for of in cases.values()
        for quantity in of.values()
        if "low" in quantity
    ]
    count = f"{min(counts)} to {max(counts)}" if counts else "no"
    return re.sub(
        r"(<!-- rates: count -->).*?(<!-- end -->)", rf"\g<1>{count}\g<2>", page, flags=re.DOTALL
    )
