"""scripts/words.py: which words count as private, and where."""

from collections import Counter

import words


def found(text: str) -> list[int]:
    return [number for number, _ in words.lines_with(words.FORBIDDEN, text)]


def test_words_are_found_in_sentences_and_identifiers():
    assert found("A mistake is told.\nfine\nIt TELLS") == [1, 3]
    assert found("told_parts = 1\nToldParts\nROOMS_MAY_USE\nparts_of_ground = f(told, told)") == [
        1,
        2,
        3,
        4,
        4,
        4,
    ]


def test_other_words_that_contain_them_are_left():
    assert not found("background, foreground, ground truth, headroom, household, stellar")


def test_a_folder_above_its_limit_is_named_with_its_counts():
    counts = Counter({"docs": 3, "src/benign/cli": 1, "tests": 2})
    one, other = words.excess(counts, {"docs": 2, "tests": 2})
    assert one.startswith("docs: 3 private words, 2 allowed")
    assert other.startswith("src/benign/cli: 1 private words, 0 allowed")


def test_files_are_counted_by_folder():
    names = [
        "src/benign/cli/main.py",
        "src/benign/streams.py",
        "tests/a/b/test_c.py",
        "tests/test_c.py",
        "README.md",
    ]
    assert [words.folder(words.ROOT / name) for name in names] == [
        "src/benign/cli",
        "src/benign",
        "tests/a",
        "tests",
        "README.md",
    ]
