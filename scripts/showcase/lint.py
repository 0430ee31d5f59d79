"""Hand-typed results in the texts of pages: decimals, percentages, intervals, "N of M", times.

Free are code, formulas, placeholders, the section "What the paper shows", and settings of the form `N = 20`. Other
numbers that are not results are marked where they stand: `{{printed 1000}}`, `{{setting 0.05}}` (see `values`).
"""

import re
from collections.abc import Iterator

from showcase.values import PLACEHOLDER

NUMBERED = (
    "Figure|Table|Theorem|Lemma|Definition|Condition|Proposition|version|numerics|benign|section"
)
SETTING = "SNR|N|M|H|K|d|r|n|d_h|C_p|τ|ρ|ε|α|η|σ_0|level|seed"  # noqa: RUF001
VALUE = r"[\d.e,]*\d"
FREE = [
    r"<!--.*?-->",
    r"^```.*?^```",
    r"`[^`\n]*`",
    r"\$[^$\n]+\$",
    r"\]\([^)\s]*\)",  # the target of a link
    r"^## What the paper shows$.*?(?=^## )",
    PLACEHOLDER.pattern,
    rf"\b(?:{NUMBERED})s? \(?[A-Z]?\d+(?:\.\d+)*\)?",
    rf"\b(?:{SETTING}) ?(?:=|<=|>=|<|>|≤|≥) ?{VALUE}(?:(?: to| and|,) {VALUE})*(?: ?‖μ‖)?",
    r"\bd ~ r\^\d",
    r"papers/\w+\.md \d+(?:\.\d+)*",  # a section of a specification
    r"\bCC BY(?:-SA)? \d\.\d",
    r"\b\d+(?:\.\d+){3}\b",  # an address
    r"\b100 %",  # all
]
"""what may hold numbers that no file has"""

RESULTS = {
    "an interval": r"\[-?[\d.e]+, -?[\d.e]+\]",
    "a percentage": r"-?\d+(?:\.\d+)? ?(?:%|per cent)",
    "a share": r"\b\d[\d,]* of (?:the |all )?\d[\d,]*\b",
    "a time": r"\b\d+(?:\.\d+)? ?(?:s|ms|min|h|seconds?|minutes?|hours?|days?)\b",
    "a decimal": r"-?\b\d+\.\d+(?:e[-+]?\d+)?",
    "a power of ten": r"\b\d+e[-+]?\d+\b",
}


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def hand_typed(text: str) -> Iterator[str]:
    """Yield the results that are typed in a text, each with its line."""
    rest = text
    for pattern in FREE:
        rest = re.sub(pattern, _blank, rest, flags=re.DOTALL | re.MULTILINE)
    lines = text.splitlines()
    for kind, pattern in RESULTS.items():
        for match in re.finditer(pattern, rest):
            place = rest.count("\n", 0, match.start())
            yield f"line {place + 1}: {kind}, {match[0]}: {lines[place].strip()[:90]}"
        rest = re.sub(pattern, _blank, rest)
