"""Badges: a small picture for every verdict. It contains the words, so that nothing depends on its colour."""

from pathlib import Path

from benign.claims.words import LIMITS, WORDS, label

NOT_JUDGED = "not judged"
OLDER = "judged by older machinery"

# Colours of Okabe and Ito: blue side holds, orange side fails, grey is open; paler for runs with a limit.
DARK = {
    "confirmed": ("#0072B2", "#ffffff"),
    "certified": ("#00664B", "#ffffff"),
    "unbroken": ("#33658A", "#ffffff"),
    "calibrated": ("#5B5B8C", "#ffffff"),
    "by construction": ("#595959", "#ffffff"),
    "identity": ("#595959", "#ffffff"),
    "refuted": ("#A84300", "#ffffff"),
    "inconclusive": ("#D9D9D9", "#000000"),
    "error": ("#000000", "#ffffff"),
}
PALE = {
    "confirmed": ("#56B4E9", "#000000"),
    "certified": ("#5CC4A4", "#000000"),
    "unbroken": ("#A5C8E0", "#000000"),
    "calibrated": ("#C9C9E6", "#000000"),
    "by construction": ("#E3E3E3", "#000000"),
    "identity": ("#E3E3E3", "#000000"),
    "refuted": ("#E69F00", "#000000"),
}
COLOURS = {
    **{
        label(word, limit): (PALE[word] if limit and word in PALE else DARK[word])
        for word in WORDS
        for limit in ("", *LIMITS)
    },
    OLDER: ("#F2F2F2", "#000000"),
    NOT_JUDGED: ("#F2F2F2", "#000000"),
}
"""background and text colour of each verdict, in the order of the words"""

CHARACTER = 6.2
"""width in pixels of a letter of font size 11"""


def image(word: str, gallery: str) -> str:
    """Return the badge of a verdict in Markdown; `gallery` is the path from the page there, `""` or `"../"`."""
    return f"![{word}]({gallery}badges/{_file(word)})"


def write(gallery: Path) -> None:
    """Write all badges, and remove those of words that no longer exist."""
    folder = gallery / "badges"
    folder.mkdir(exist_ok=True)
    for old in {path.name for path in folder.glob("*.svg")} - set(map(_file, COLOURS)):
        (folder / old).unlink()
    for word in COLOURS:
        (folder / _file(word)).write_text(_svg(word), encoding="utf-8")


def _file(word: str) -> str:
    return f"{word.replace(' ', '-')}.svg"


def _svg(word: str) -> str:
    background, ink = COLOURS[word]
    text = round(CHARACTER * len(word))
    width = text + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="18" role="img" aria-label="{word}">\n'
        f"<title>{word}</title>\n"
        f'<rect width="{width}" height="18" rx="3" fill="{background}" stroke="#595959"/>\n'
        f'<text x="6" y="13" textLength="{text}" fill="{ink}" font-size="11" '
        f'font-family="DejaVu Sans,Verdana,sans-serif">{word}</text>\n'
        "</svg>\n"
    )
