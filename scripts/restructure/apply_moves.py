"""Move modules and tests as the tables of moves.py say, and rewrite imports, dotted names and paths everywhere.

    python scripts/restructure/apply_moves.py        # in a clean checkout

Nothing but names of modules and paths of files changes.
"""

import ast
import re
import shutil
import subprocess
from pathlib import Path

from moves import FILES, MOVES, NEW_PACKAGES, PACKAGES, TESTS

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "benign"


def git(*words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True
    )
    return done.stdout


def file_of(module: str) -> Path:
    return SRC / (module.replace(".", "/") + ".py")


MODULES = {f"benign.{old}": f"benign.{new}" for old, new in MOVES.items()}
for old, new in PACKAGES.items():
    if new:
        MODULES[f"benign.{old}"] = f"benign.{new}"
TEST_MODULES = {}
for old, new in TESTS.items():
    if old.endswith(".json"):
        continue
    one, two = (f"tests.{each.removesuffix('.py').replace('/', '.')}" for each in (old, new))
    TEST_MODULES[one] = two
ALL = MODULES | TEST_MODULES


def known_modules() -> set[str]:
    found = set()
    for line in git("ls-files", "src/benign", "tests").split():
        if line.endswith(".py"):
            name = line.removeprefix("src/").removesuffix(".py").replace("/", ".")
            found.add(name.removesuffix(".__init__"))
    return found


def new_name(dotted: str) -> str:
    """A dotted name with the longest module in it renamed."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        head = ".".join(parts[:length])
        if head in ALL:
            return ".".join([ALL[head], *parts[length:]])
    return dotted


def rewritten(text: str) -> str:
    """Python source with its imports, and dotted names outside of imports, renamed."""
    lines = text.splitlines(keepends=True)
    edits = []
    imports = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports |= set(range(node.lineno, node.end_lineno + 1))
    for place, line in enumerate(lines, 1):
        if place not in imports:
            lines[place - 1] = dotted(line)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.split(".")[0] not in ("benign", "tests"):
                continue
            groups: dict[str, list[str]] = {}
            changed = False
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                local = alias.asname or alias.name
                if full in KNOWN or full in ALL:  # a module is imported
                    target = ALL.get(full, full)
                    origin, _, name = target.rpartition(".")
                else:
                    origin, name = new_name(node.module), alias.name
                changed |= origin != node.module or name != alias.name
                as_is = name == local and not alias.asname
                groups.setdefault(origin, []).append(name if as_is else f"{name} as {local}")
            if changed:
                pad = " " * node.col_offset
                new = f"\n{pad}".join(
                    f"from {origin} import {', '.join(names)}" for origin, names in groups.items()
                )
                edits.append((node.lineno, node.end_lineno, node.col_offset, new))
        elif isinstance(node, ast.Import):
            new = []
            for alias in node.names:
                name = ALL.get(alias.name, alias.name)
                new.append(name + (f" as {alias.asname}" if alias.asname else ""))
            old = [a.name + (f" as {a.asname}" if a.asname else "") for a in node.names]
            if new != old:
                edits.append(
                    (node.lineno, node.end_lineno, node.col_offset, "import " + ", ".join(new))
                )
    for first, last, column, new in sorted(edits, reverse=True):
        tail = ""
        if "#" in lines[last - 1]:
            tail = "  #" + lines[last - 1].split("#", 1)[1].rstrip("\n")
        head = lines[first - 1][:column]
        lines[first - 1 : last] = [head + new + tail + "\n"]
    return "".join(lines)


DOTTED = re.compile(r"(?<![\w./-])(?:benign|tests)(?:\.[A-Za-z_]\w*)+(?!\.json|\w)")
HOMES = ("src/benign/__init__.py", "src/benign/parts.py", "src/benign/plot/__init__.py")


def dotted(text: str) -> str:
    return DOTTED.sub(lambda found: new_name(found[0]), text)


def texts(name: str, text: str) -> str:
    """Paths in strings, comments and documents."""
    for old, new in sorted(MOVES.items(), key=lambda pair: -len(pair[0])):
        one, two = f"{old.replace('.', '/')}.py", f"{new.replace('.', '/')}.py"
        text = re.sub(rf"(?<![\w/.-])src/benign/{re.escape(one)}", f"src/benign/{two}", text)
        if "/" in one and name != "docs/architecture.md":
            text = re.sub(rf"(?<![\w/.-]){re.escape(one)}", two, text)
            text = re.sub(rf"(?<![\w/.-])`{re.escape(one[:-3])}`", f"`{two[:-3]}`", text)
    for old, new in sorted(TESTS.items(), key=lambda pair: -len(pair[0])):
        text = re.sub(rf"(?<![\w/.-])tests/{re.escape(old)}(?![\w-])", f"tests/{new}", text)
    text = re.sub(r"(?<![\w.-])src/benign/pages/files", "src/benign/report/files", text)
    if name in HOMES:
        for old, new in MOVES.items():
            text = re.sub(rf'(": )"{re.escape(old)}"', rf'\1"{new}"', text)
            text = re.sub(rf'(": )"{re.escape(old)}"', rf'\1"{new}"', text)
        text = text.replace('": "training.probes"', '": "training.metrics"')
    return text


def main() -> None:
    for line in git("ls-files").splitlines():
        path = ROOT / line
        if line.startswith(("scripts/restructure", "CHANGELOG", "gallery/", "tests/sweep/stores")):
            continue
        if (
            path.suffix not in (".py", ".md", ".toml", ".yml", ".sh", ".ipynb", ".cfg", "")
            or not path.is_file()
        ):
            continue
        text = path.read_text(encoding="utf-8")
        new = rewritten(text) if path.suffix == ".py" else dotted(text)
        new = texts(line, new)
        if new != text:
            path.write_text(new, encoding="utf-8")
    for package in NEW_PACKAGES:
        file = SRC / package.replace(".", "/") / "__init__.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'"""{package}"""\n', encoding="utf-8")
    for old, new in FILES.items():
        (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
        git("mv", old, new)
    # Through a draft name: `cli.py` makes room for the folder `cli`.
    for old in MOVES:
        git("mv", str(file_of(old)), str(file_of(old)) + ".moving")
    for old, new in PACKAGES.items():
        here = SRC / old.replace(".", "/") / "__init__.py"
        if new:
            there = SRC / new.replace(".", "/") / "__init__.py"
            there.parent.mkdir(parents=True, exist_ok=True)
            git("mv", str(here), str(there))
        else:
            git("rm", "-q", "-f", str(here))
    for old, new in MOVES.items():
        file_of(new).parent.mkdir(parents=True, exist_ok=True)
        git("mv", str(file_of(old)) + ".moving", str(file_of(new)))
    tests = ROOT / "tests"
    for old, new in TESTS.items():
        (tests / new).parent.mkdir(parents=True, exist_ok=True)
        if (tests / new).is_dir() and (tests / old).is_dir():
            for each in git("ls-files", f"tests/{old}").split():
                git("mv", each, each.replace(f"tests/{old}", f"tests/{new}", 1))
        else:
            git("mv", f"tests/{old}", f"tests/{new}")
    git("add", "-A")
    for old in ("coordinates", "live", "pages", "plan", "theory", "track", "training/probes"):
        shutil.rmtree(SRC / old, ignore_errors=True)


KNOWN = known_modules()
if __name__ == "__main__":
    main()
