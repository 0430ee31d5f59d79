"""Count the private words of this project: words that a reader of the field would not use for what they mean here.

python scripts/words.py             # counts by folder, part of `make lint`; it never fails
python scripts/words.py src/benign/cli docs/faults.md       # every line with such a word below these paths

Forbidden words must vanish (tests/test_layout.py). Doubtful words have good uses as well and are only counted.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = re.compile(
    r"\b(?:tell(?:s|ing)?|told|rooms?|houses?|crews?|climb(?:s|ing|ed|er)?|grounds?(?! truth))\b",
    re.IGNORECASE,
)
DOUBTFUL = re.compile(
    r"\b(?:seen|beside|taken|look(?:s|ed|ing)?|watch(?:es|ed)?|glance|standing|there is none|none of|what is)\b",
    re.IGNORECASE,
)
CHECKED = ("src", "tests", "docs", "examples", "scripts", "benchmarks")
FILES = ("README.md", "CONTRIBUTING.md", "Makefile")
SUFFIXES = {
    ".py",
    ".md",
    ".js",
    ".css",
    ".html",
    ".jinja",
    ".j2",
    ".sh",
    ".toml",
    ".yaml",
    ".ipynb",
}
# Tables of old names, and the two files that must name the words.
LEFT_OUT = ("scripts/restructure/", "scripts/words.py", "tests/test_words.py")
LIMITS: dict[str, int] = {
    "docs": 4,
    "scripts/showcase": 30,
    "src/benign/cli": 17,
    "src/benign/papers": 279,
    "src/benign/report": 243,
    "src/benign/sweep": 149,
    "src/benign/testing": 22,
    "src/benign/training": 42,
    "tests": 77,
    "tests/cli": 13,
    "tests/faults": 63,
    "tests/papers": 153,
    "tests/report": 79,
    "tests/sweep": 93,
    "tests/testing": 3,
    "tests/training": 24,
}
"""how many forbidden words a folder may still have; a folder without a limit has none, and limits only fall"""


def paths() -> list[Path]:
    """Return the text files that git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *CHECKED, *FILES]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    return [
        ROOT / name
        for name in sorted(set(listed))
        if (Path(name).suffix in SUFFIXES or name in FILES) and not name.startswith(LEFT_OUT)
        if (ROOT / name).is_file()
    ]


def split(text: str) -> str:
    """Write identifiers as words: `toldParts`, `told_parts` and `TOLD_PARTS` contain a word each."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ")


def lines_with(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line, once for every match in it."""
    for number, line in enumerate(text.splitlines(), 1):
        for _ in pattern.finditer(split(line)):
            yield number, line.strip()


def folder(path: Path) -> str:
    """Return the folder a file is counted in: two levels below src, one below the others."""
    parts = path.relative_to(ROOT).parts
    depth = 3 if parts[0] == "src" else 2
    return "/".join(parts[: min(depth, max(len(parts) - 1, 1))])


def counts(files: Iterable[Path], pattern: re.Pattern[str] = FORBIDDEN) -> Counter[str]:
    """Return how often the words occur, by folder."""
    number = Counter[str]()
    for path in files:
        number[folder(path)] += sum(1 for _ in lines_with(pattern, path.read_text("utf-8")))
    return number


def excess(number: Counter[str], limits: dict[str, int]) -> list[str]:
    """Return a line for each folder with more forbidden words than its limit."""
    return [
        f"{name}: {count} private words, {limits.get(name, 0)} allowed; python scripts/words.py {name} lists them"
        for name, count in sorted(number.items())
        if count > limits.get(name, 0)
    ]


def main(wanted: list[str]) -> None:
    files = paths()
    if wanted:
        below = [(ROOT / name).resolve() for name in wanted]
        for path in files:
            if any(path == each or each in path.parents for each in below):
                for number, line in lines_with(FORBIDDEN, path.read_text("utf-8")):
                    print(f"{path.relative_to(ROOT)}:{number}: {line}")
        return
    forbidden, doubtful = counts(files), counts(files, DOUBTFUL)
    for name in sorted(forbidden):
        if forbidden[name] or doubtful[name]:
            print(f"{name:28} {forbidden[name]:4} private words, {doubtful[name]:4} doubtful ones")


if __name__ == "__main__":
    main(sys.argv[1:])
