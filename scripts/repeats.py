"""Finds six lines of code that stand in two places."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

WINDOW = 6
Place = tuple[str, int]
"""a file and the place of a line among those that count"""


def counted(text: str) -> list[tuple[int, str]]:
    """Number and text of the lines that count: no imports, signatures, documentation, comments or lone brackets."""
    lines = text.splitlines()
    passed_over = {number for node in ast.walk(ast.parse(text)) for number in _lines_of(node)}
    return [
        (number, " ".join(line.split()))
        for number, line in enumerate(lines, 1)
        if number not in passed_over and any(map(str.isalnum, line.split("#")[0]))
    ]


def _lines_of(node: ast.AST) -> Iterator[int]:
    """Lines of an import, of a signature with its decorators, of a text that stands alone."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        yield from range(first, node.body[0].lineno)
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
        return
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr)):
        yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def repeats(texts: dict[str, str]) -> list[tuple[str, str, int]]:
    """Pairs of places (`file:line`) with the number of lines they share, the longest first."""
    lines = {name: counted(text) for name, text in texts.items()}
    pairs = _equal_windows(lines)
    found = []
    for (one, at), (other, there) in pairs:
        if ((one, at - 1), (other, there - 1)) in pairs:
            continue  # the run of lines begins before
        more = 1
        while ((one, at + more), (other, there + more)) in pairs:
            more += 1
        first, second = lines[one][at][0], lines[other][there][0]
        found.append((f"{one}:{first}", f"{other}:{second}", WINDOW - 1 + more))
    return sorted(found, key=lambda pair: (-pair[2], pair))


def _equal_windows(lines: dict[str, list[tuple[int, str]]]) -> set[tuple[Place, Place]]:
    """Pairs of places from which on so many lines are equal."""
    places: dict[tuple[str, ...], list[Place]] = defaultdict(list)
    for name, known in lines.items():
        for at in range(len(known) - WINDOW + 1):
            places[tuple(text for _, text in known[at : at + WINDOW])].append((name, at))
    return {pair for same in places.values() for pair in combinations(same, 2)}
