"""scripts/words.py: which words count as private, and where."""

import words


def lines_with_words(text: str) -> list[int]:
    return [number for number, _, _ in words.words_in(words.FORBIDDEN, text)]


def test_words_are_found_in_sentences_and_identifiers():
    assert lines_with_words("A mistake is told.\nfine\nIt TELLS") == [1, 3]
    assert lines_with_words(
        "told_parts = 1\nToldParts\nROOMS_MAY_USE\nparts_of_ground = f(told, told)"
    ) == [
        1,
        2,
        3,
        4,
        4,
        4,
    ]


def test_other_words_that_contain_them_are_left():
    assert not lines_with_words(
        "background, foreground, ground truth, headroom, household, stellar"
    )


def test_a_refused_word_is_named_with_its_file_and_line(tmp_path, monkeypatch):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("fine\n  toldParts = 1\n")
    assert words.refused([tmp_path / "docs" / "a.md"]) == ["docs/a.md:2: 'told' in: toldParts = 1"]


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
