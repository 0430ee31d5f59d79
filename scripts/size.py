"""Report the size of the package: lines and modules by folder, long and short modules, repeated code.

python scripts/size.py          # part of `make lint`; it never fails
"""

import ast
from collections import Counter
from pathlib import Path

from repeats import repeats

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "benign"
SHORT, LONG = 60, 600


def sources() -> dict[str, str]:
    paths = sorted(SOURCE.rglob("*.py"))
    return {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in paths}


def by_folder(texts: dict[str, str]) -> list[str]:
    """A line a folder: modules, lines, lines of import statements."""
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


def main() -> None:
    texts = sources()
    print("\n".join(by_folder(texts)))
    for name, text in texts.items():
        count = len(text.splitlines())
        if count > LONG or (count < SHORT and not name.endswith(("__init__.py", "__main__.py"))):
            print(f"{name}: {count} lines")
    code = {f"src/benign/{name}": text for name, text in texts.items()}
    for folder in ("tests", "benchmarks", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            code[path.relative_to(ROOT).as_posix()] = path.read_text("utf-8")
    for one, other, lines in repeats(code):
        print(f"{one} and {other} share {lines} lines")


if __name__ == "__main__":
    main()
