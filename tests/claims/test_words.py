"""The words of verdicts: one table in code and docs."""

from pathlib import Path

from benign.claims.words import LIMITS, WORDS, label, meaning

DOCS = Path(__file__).parents[2] / "docs" / "claims.md"


def test_the_docs_have_the_same_table():
    rows = [f"| {word} | {what} |" for word, what in WORDS.items()]
    assert "\n".join(rows) in DOCS.read_text(encoding="utf-8")


def test_nothing_is_confirmed_or_refuted_away_from_where_it_is_meant_to_hold():
    away = {label(word, limit) for word in WORDS for limit in LIMITS}
    assert not any("confirmed" in word or "refuted" in word for word in away)


def test_the_meaning_of_a_limited_word_names_the_limit():
    assert WORDS["unbroken"] in meaning("unbroken at a smaller size")
    assert LIMITS["at a smaller size"] in meaning("holds at a smaller size")
    assert meaning("a word of an older version") == ""
