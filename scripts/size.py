"""Report the size of the package: lines and modules by folder, long and short modules, repeated code.

    python scripts/size.py          # part of `make lint`; it never fails

A module is worth a second thought if it is long, short, or imported by one module only: the latter two often belong
to the module that uses them.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "benign"
SHORT, LONG = 60, 600
WINDOW = 6
"""lines of code that count as a repeat"""

Position = tuple[str, int]
"""a file and the index of one of its lines that count"""


def by_folder(texts: dict[str, str]) -> list[str]:
    """Return one line per folder: modules, lines, lines of import statements."""
    modules, lines, imports = Counter[str](), Counter[str](), Counter[str]()
    for name, text in texts.items():
        for folder in (name.split("/")[0] if "/" in name else "(top)", "all"):
            modules[folder] += 1
            lines[folder] += len(text.splitlines())
            imports[folder] += sum(
                (node.end_lineno or node.lineno) - node.lineno + 1
                for node in ast.walk(ast.parse(text))
                if isinstance(node, (ast.Import, ast.ImportFrom))
            )
    return [
        f"{folder:12} {modules[folder]:4} modules {lines[folder]:6} lines, {imports[folder]:5} of imports"
        for folder in sorted(modules, key=lambda folder: (folder == "all", folder))
    ]


def by_length(texts: dict[str, str]) -> list[str]:
    """Return one line per module that is long or short; packages and `__main__` may be short."""
    lengths = {name: len(text.splitlines()) for name, text in texts.items()}
    return [
        f"{name}: {count} lines"
        for name, count in lengths.items()
        if count > LONG or (count < SHORT and not _may_be_small(name))
    ]


def with_one_importer(texts: dict[str, str]) -> list[str]:
    """Return one line per module that exactly one other module imports, unless that is the list of a package."""
    modules = {_dotted(name): name for name in texts}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, text in texts.items():
        for module in _imported(text):
            if module in modules and modules[module] != name:
                importers[modules[module]].add(name)
    return [
        f"{name}: only {min(importers[name])} imports it"
        for name in texts
        if len(importers[name]) == 1
        and not _may_be_small(name)
        and not _may_be_small(min(importers[name]))
    ]


def _may_be_small(name: str) -> bool:
    return name.endswith(("__init__.py", "__main__.py"))


def _dotted(name: str) -> str:
    """Return the module of a path below the package: `a/b.py` is `benign.a.b`."""
    return f"benign.{name.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"


def _imported(text: str) -> Iterator[str]:
    """Yield the names that a text imports, both `a.b` and `a.b.c` for `from a.b import c`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def repeats(texts: dict[str, str]) -> list[tuple[str, str, int]]:
    """Return pairs of places (`file:line`) with the number of lines that they share, the longest first."""
    lines = {name: _counted(text) for name, text in texts.items()}
    pairs = _equal_windows(lines)
    shared = []
    for (one, i), (other, j) in pairs:
        if ((one, i - 1), (other, j - 1)) in pairs:
            continue  # part of a longer repeat
        more = 1
        while ((one, i + more), (other, j + more)) in pairs:
            more += 1
        first, second = lines[one][i][0], lines[other][j][0]
        shared.append((f"{one}:{first}", f"{other}:{second}", WINDOW - 1 + more))
    return sorted(shared, key=lambda pair: (-pair[2], pair))


def _counted(text: str) -> list[tuple[int, str]]:
    """Return number and text of the lines of code, without imports, signatures, docstrings and lone brackets."""
    skipped = {number for node in ast.walk(ast.parse(text)) for number in _skipped(node)}
    return [
        (number, " ".join(line.split()))
        for number, line in enumerate(text.splitlines(), 1)
        if number not in skipped and any(map(str.isalnum, line.split("#")[0]))
    ]


def _skipped(node: ast.AST) -> Iterator[int]:
    """Yield the lines of an import, of a signature with its decorators, or of a docstring."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        yield from range(first, node.body[0].lineno)
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
        return
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr)):
        yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _equal_windows(
    lines: dict[str, list[tuple[int, str]]],
) -> set[tuple[Position, Position]]:
    """Return pairs of positions from which WINDOW lines are equal."""
    positions: dict[tuple[str, ...], list[Position]] = defaultdict(list)
    for name, counted in lines.items():
        for i in range(len(counted) - WINDOW + 1):
            positions[tuple(text for _, text in counted[i : i + WINDOW])].append((name, i))
    return {pair for same in positions.values() for pair in combinations(same, 2)}


def _read(folder: Path, below: Path) -> dict[str, str]:
    paths = sorted(folder.rglob("*.py"))
    return {path.relative_to(below).as_posix(): path.read_text("utf-8") for path in paths}


def main() -> None:
    package = _read(SOURCE, SOURCE)
    print("\n".join([*by_folder(package), *by_length(package), *with_one_importer(package)]))
    code: dict[str, str] = {}
    for folder in (SOURCE, *(ROOT / name for name in ("tests", "benchmarks", "scripts"))):
        code |= _read(folder, ROOT)
    for one, other, lines in repeats(code):
        print(f"{one} and {other} share {lines} lines")


if __name__ == "__main__":
    main()
