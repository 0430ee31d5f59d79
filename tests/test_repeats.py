"""No six lines of code stand in two places, but for those that are listed with a reason."""

from pathlib import Path

from tests.repeats import repeats

ROOT = Path(__file__).resolve().parents[1]
ALLOWED: dict[tuple[str, str], str] = {}
"""pairs of files that may share lines, each with its reason"""


def texts() -> dict[str, str]:
    folders = ("src", "tests", "benchmarks", "scripts")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}


def files_of(pair: tuple[str, str, int]) -> tuple[str, str]:
    return pair[0].split(":")[0], pair[1].split(":")[0]


def test_nothing_is_written_twice():
    found = repeats(texts())
    new = [pair for pair in found if files_of(pair) not in ALLOWED]
    assert not new, "\n".join(f"{one} and {other} share {lines} lines" for one, other, lines in new)
    assert {files_of(pair) for pair in found} == ALLOWED.keys(), "a reason that is not needed"


BODY = "".join(f"    value_{number} = {number} * x\n" for number in range(7))
ONE = f'"""One."""\n\nimport math\n\n\ndef one(x):\n    """What it does."""\n{BODY}    return 1\n'
OTHER = (
    f"import math\n\nY = 2\n\n\ndef other(\n    x,\n):\n{BODY}    return {{\n        1\n    }}\n"
)


def test_a_copied_body_is_noticed():
    assert repeats({"one.py": ONE, "other.py": OTHER}) == [("one.py:8", "other.py:9", 7)]
    spaced = OTHER.replace("value_3", "\n    # a word\n    value_3")
    assert repeats({"one.py": ONE, "other.py": spaced}) == [("one.py:8", "other.py:9", 7)]
    assert len(repeats({"twice.py": ONE + "\n\n" + OTHER})) == 1


def test_imports_signatures_and_fewer_lines_do_not_count():
    changed = OTHER.replace("value_2 =", "other_2 =")
    assert not repeats({"one.py": ONE, "other.py": changed})
    names = ", ".join(f"\n    name_{number}" for number in range(9))
    imports = f"from math import ({names}\n)\n\n\ndef f({names}\n):\n    return {{}}\n"
    assert not repeats({"one.py": imports, "other.py": imports})
