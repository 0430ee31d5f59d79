"""Badges: a small picture for every verdict. It contains the word, so that nothing depends on its colour."""

from pathlib import Path

NOT_JUDGED = "not judged"

# Colours of Okabe and Ito: blue side holds, orange side fails, grey is open.
COLOURS = {
    "confirmed": ("#0072B2", "#ffffff"),
    "holds outside its conditions": ("#56B4E9", "#000000"),
    "holds at a smaller size": ("#56B4E9", "#000000"),
    "refuted": ("#A84300", "#ffffff"),
    "fails outside its conditions": ("#E69F00", "#000000"),
    "fails at a smaller size": ("#E69F00", "#000000"),
    "inconclusive": ("#D9D9D9", "#000000"),
    "error": ("#000000", "#ffffff"),
    NOT_JUDGED: ("#F2F2F2", "#000000"),
}
"""background and text colour of each verdict"""

CHARACTER = 6.2
"""width in pixels of a letter of font size 11"""


def image(word: str, gallery: str) -> str:
    """Return the badge of a verdict in Markdown; `gallery` is the path from the page there, `""` or `"../"`."""
    return f"![{word}]({gallery}badges/{_file(word)})"


def write(gallery: Path) -> None:
    """Write all badges."""
    folder = gallery / "badges"
    folder.mkdir(exist_ok=True)
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
