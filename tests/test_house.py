"""The rules of the house: what the code base promises about itself."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from math import inf
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import benign

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "benign"
MODULES = sorted(SOURCE.rglob("*.py"))

# Data flows down this list: a module imports from its own folder and from what stands above it.
# A module that is not named stands just below the lowest thing it imports.
ORDER = ["spec", "streams", "losses", "data", "networks", "attacks", "coordinates", "training"]
ORDER += ["plan", "sweep", "experiment", "theory", "plot", "papers", "report", "cli", "__main__"]

LONGEST = 400


def named(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a file takes from `benign`, wherever the import stands."""
    package = ["benign", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "benign" and name != "benign.__version__":
                yield node.lineno, name


def home(path: Path) -> str:
    """The top-level module or folder of `benign` a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def target(dotted: str) -> str:
    """The top-level module or folder an imported name belongs to."""
    return dotted.split(".")[1] if "." in dotted else ""


@cache
def rank(top: str) -> float:
    """Where a top-level module stands; the root, with every name it exports, stands below all."""
    if top in ORDER:
        return ORDER.index(top)
    files = [path for path in MODULES if home(path) == top]
    if top == "__init__" or not files:
        return inf
    used = {target(name) for path in files for _, name in imports(path)} - {top}
    return max(map(rank, used), default=-1) + 0.01


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_a_module_imports_only_from_above_itself(path: Path):
    here = home(path)
    wrong = [
        f"line {line}: {name}"
        for line, name in imports(path)
        if target(name) != here and rank(target(name)) >= rank(here)
    ]
    assert here == "__init__" or not wrong, f"{named(path)} imports from below itself: {wrong}"


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_modules_are_short_and_say_what_they_are(path: Path):
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    assert lines <= LONGEST, f"{named(path)} has {lines} lines: give its second idea a module"
    private = any(re.match(r"_(?!_)", part) for part in path.relative_to(SOURCE).parts)
    assert private or ast.get_docstring(ast.parse(text)), f"{named(path)} needs a docstring"


def test_importing_benign_loads_nothing_heavy():
    heavy = ("torch", "matplotlib", "pydantic", "xarray", "scipy")
    code = f"import benign, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_tests_see_this_checkout():
    assert Path(str(benign.__file__)).parent == SOURCE, "run `make clean`: .venv was made elsewhere"


def texts() -> Iterator[tuple[str, str]]:
    """Name and text of the files git has or would take up."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not a git checkout: {error}")
    for name in filter(None, done.stdout.split("\0")):
        try:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # a picture, or a file just removed


def test_no_file_knows_a_machine_or_a_registry():
    machine = re.compile(
        r"(?<![\w./-])/(?:root|home|work|tmp|opt|mnt|Users)\b|file:/{2}|[A-Z]:\\Users"
    )
    registry = re.compile(
        r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|download\.pytorch\.org|--(?:extra-)?index-url"
    )
    found = [
        f"{name}:{number}: {match[0]}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        for match in [*machine.finditer(line), *registry.finditer(line)]
    ]
    assert not found, "\n".join(found)


def test_the_version_is_told_once_and_everywhere_the_same():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^#+ .*{re.escape(benign.__version__)}(?![\w.])"
    assert re.search(heading, changelog, re.MULTILINE), "CHANGELOG.md has no entry for this version"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == benign.__version__


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pinned}


def named_in_pyproject() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    named = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    return [Requirement(text) for text in [*named, *(text for extra in extras for text in extra)]]


def test_every_pin_satisfies_the_ranges_of_pyproject():
    pinned = pins()
    assert pinned["torch"] == "2.13.0"
    for requirement in named_in_pyproject():
        if requirement.name != "benign":
            version = pinned.get(canonicalize_name(requirement.name))
            assert version, f"{requirement.name} is not pinned in constraints.txt"
            assert requirement.specifier.contains(version), f"{requirement} against {version}"


def test_what_dependencies_need_is_pinned_too():
    """Walk the metadata of what is installed; what is not installed here has nothing to tell."""
    pinned = pins()
    waiting, seen = named_in_pyproject(), set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name == "benign" or (name, *requirement.extras) in seen:
            continue
        seen.add((name, *requirement.extras))
        assert name in pinned, f"{name} is not pinned in constraints.txt"
        try:
            needed = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:
            continue
        for extra in ["", *requirement.extras]:
            waiting += [r for r in needed if not r.marker or r.marker.evaluate({"extra": extra})]
