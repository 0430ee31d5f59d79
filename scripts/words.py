"""Find the private words of this project: words that a reader of the field would not use for what they mean here.

python scripts/words.py             # counts by folder, part of `make lint`; it never fails
python scripts/words.py src/benign/cli docs/faults.md       # every line with a forbidden word below these paths

A forbidden word anywhere fails a test (tests/test_layout.py). Doubtful words have good uses as well: they are counted.
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
LEFT_OUT = (
    "scripts/words.py",
    "tests/test_words.py",
)


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


def words_in(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str, str]]:
    """Yield every match, with the number and the text of its line: number, word, line."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in pattern.finditer(split(line)):
            yield number, match[0], line.strip()


def folder(path: Path) -> str:
    """Return the folder a file is counted in: two levels below src, one below the others."""
    parts = path.relative_to(ROOT).parts
    depth = 3 if parts[0] == "src" else 2
    return "/".join(parts[: min(depth, max(len(parts) - 1, 1))])


def counts(files: Iterable[Path], pattern: re.Pattern[str] = FORBIDDEN) -> Counter[str]:
    """Return how often the words occur, by folder."""
    number = Counter[str]()
    for path in files:
        number[folder(path)] += sum(1 for _ in words_in(pattern, path.read_text("utf-8")))
    return number


def refused(files: Iterable[Path]) -> list[str]:
    """Return every forbidden word with its file, line and text."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {word!r} in: {line}"
        for path in files
        for number, word, line in words_in(FORBIDDEN, path.read_text("utf-8"))
    ]


def main(wanted: list[str]) -> None:
    files = paths()
    if wanted:
        below = [(ROOT / name).resolve() for name in wanted]
        chosen = [path for path in files if any(path.is_relative_to(each) for each in below)]
        print(*refused(chosen), sep="\n")
        return
    forbidden, doubtful = counts(files), counts(files, DOUBTFUL)
    for name in sorted(forbidden):
        if forbidden[name] or doubtful[name]:
            print(f"{name:28} {forbidden[name]:4} private words, {doubtful[name]:4} doubtful ones")


if __name__ == "__main__":
    main(sys.argv[1:])
