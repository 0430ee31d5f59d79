"""Rename symbols as names.py says: names in Python code, and names in backticks or code in documents and strings."""

import io
import re
import subprocess
import tokenize
from pathlib import Path

from names import NAMES, TEXT

ROOT = Path(__file__).resolve().parents[2]


def in_scope(path: str, scope: tuple[str, ...]) -> bool:
    return not scope or path.startswith(scope) or not path.startswith(("src", "tests"))


def python(path: str, text: str) -> str:
    lines = text.splitlines(keepends=True)
    edits = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in NAMES:
            new, scope = NAMES[token.string]
            if in_scope(path, scope):
                edits.append((token.start, token.end, new))
        elif (
            token.type == tokenize.STRING
            and token.start[0] == token.end[0]
            and (new := in_string(path, token.string)) != token.string
        ):
            edits.append((token.start, token.end, new))
    for (row, begin), (_, end), new in reversed(edits):
        line = lines[row - 1]
        lines[row - 1] = line[:begin] + new + line[end:]
    return "".join(lines)


ANNOTATION = re.compile(r"[\"'][\w\[\], .|]+[\"']")


def in_string(path: str, text: str) -> str:
    """What an f-string computes, and annotations in quotes."""
    if text[0] in "fFrR" and "f" in text[:2].lower():
        return re.sub(r"\{[^{}]*\}", lambda found: named(path, found[0], NAMES), text)
    if ANNOTATION.fullmatch(text):
        classes = {old: new for old, new in NAMES.items() if old[0].isupper()}
        return named(path, text, classes) if text[1:-1] not in ("Here", "At", "Again") else text
    return text


def named(path: str, text: str, names: dict) -> str:
    for old, (new, scope) in names.items():
        if in_scope(path, scope):
            text = re.sub(rf"(?<![\w.]){old}\b|(?<=\w\.){old}\b", new, text)
    return text


def words(path: str, text: str) -> str:
    """Names in backticks, after `bo.` and before a bracket, where they are no words of English."""
    for old, (new, scope) in NAMES.items():
        if not in_scope(path, scope):
            continue
        text = re.sub(rf"(?<=`){old}(?=[`(.])", new, text)
        text = re.sub(rf"(?<=bo\.){old}\b", new, text)
        if old[0].isupper() and old not in ("Here", "At", "Again", "Plan"):
            text = re.sub(rf"\b{old}\(", f"{new}(", text)
    for old, new in TEXT.items():
        text = re.sub(rf"(?<![\w-]){old}(?![\w-])", new, text)
    return text


def main() -> None:
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], check=True, capture_output=True, text=True
    )
    for line in listing.stdout.splitlines():
        path = ROOT / line
        if line.startswith(("scripts/restructure", "CHANGELOG", "gallery/", "tests/sweep/stores")):
            continue
        if (
            path.suffix not in (".py", ".md", ".toml", ".yml", ".sh", ".ipynb", "")
            or not path.is_file()
        ):
            continue
        text = path.read_text(encoding="utf-8")
        new = python(line, text) if path.suffix == ".py" else text
        new = words(line, new)
        if new != text:
            path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
