"""The layout of the code base: order of imports, docstrings, versions, pins."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
import words
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import benign
from tests import layout
from tests.layout import Sources

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "benign"
MODULES = sorted(SOURCE.rglob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


SOURCES = {named(path): path.read_text(encoding="utf-8") for path in MODULES}
RULES = [
    layout.unnamed,
    layout.upward,
    layout.between_papers,
    layout.outside,
    layout.dynamic,
    layout.paper_components,
    layout.training_claims,
    layout.circles,
]
CLAIM = "papers/wang/claims/errors.py"
BROKEN: list[tuple[Callable[[Sources], list[str]], str, str]] = [
    (layout.unnamed, "attic.py", ""),
    (layout.upward, "streams.py", "import benign.cli.main"),
    (layout.upward, "losses.py", "def f():\n    from benign import sweep"),
    (layout.between_papers, "papers/wang/theory.py", "from benign.papers.li import figures"),
    (layout.between_papers, "papers/li/figures.py", "from ..wang.theory import f"),
    (layout.outside, "streams.py", "import matplotlib.pyplot as plt"),
    (layout.outside, "cli/main.py", "from pandas import DataFrame"),
    (layout.dynamic, "streams.py", "import importlib\nimportlib.import_module('benign.cli.main')"),
    (layout.dynamic, "spec/yaml.py", "eval('1')"),
    (layout.paper_components, "training/engine.py", "from benign.data.mixture import Mixture"),
    (layout.paper_components, "sweep/own_code.py", "def f():\n    from benign.data import images"),
    (layout.paper_components, "reduction/modes.py", "from ..networks.attention import Attention"),
    (layout.paper_components, "training/metrics/metric.py", "import benign.networks.two_layer"),
    (layout.paper_components, "training/metrics/audit.py", "from benign.data.images import Images"),
    (layout.training_claims, CLAIM, "from benign.training.descent import descend"),
    (layout.training_claims, CLAIM, "from benign.training import descent"),
    (layout.training_claims, CLAIM, "def f():\n    from benign.sweep.plan import runs_of"),
    (layout.training_claims, CLAIM, "Batch.start(setup, streams)"),
    (layout.training_claims, CLAIM, "Streams([], 'cpu')"),
    (layout.circles, "data/model.py", "def f():\n    from benign.data.mixture import Mixture"),
    (layout.circles, "sweep/store.py", "from benign.sweep import runner"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_imports_keep_the_rules(rule: Callable[[Sources], list[str]]):
    assert not rule(SOURCES)


@pytest.mark.parametrize(
    ("rule", "path", "text"), BROKEN, ids=[f"{rule.__name__}-{path}" for rule, path, _ in BROKEN]
)
def test_a_planted_violation_is_found(rule: Callable[[Sources], list[str]], path: str, text: str):
    planted = SOURCES | {path: f"{SOURCES.get(path, '')}\n{text}\n"}
    assert len(rule(planted)) == 1


def test_every_exception_is_still_needed():
    for path in layout.DYNAMIC:
        assert any(call in SOURCES[path] for call in layout.DYNAMIC_CALLS), path
    used = {
        (name.split(".")[0], layout.home(path))
        for path, text in SOURCES.items()
        for _, name in layout.imports(path, text)
    }
    assert {(package, home) for package, homes in layout.OUTSIDE.items() for home in homes} <= used


def test_the_map_is_the_order():
    assert (
        layout.drawn((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
        == layout.ORDER
    )
    swapped = (
        "src/benign/\n  spec.py   base\n           more of it\n  data/     samples\n```\n  no.py"
    )
    assert layout.drawn(swapped) == ["spec", "data"]


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_every_module_has_a_docstring(path: Path):
    private = any(re.match(r"_(?!_)", part) for part in path.relative_to(SOURCE).parts)
    text = path.read_text(encoding="utf-8")
    assert private or ast.get_docstring(ast.parse(text)), f"{named(path)} needs a docstring"


def test_importing_benign_loads_nothing_heavy():
    heavy = ("torch", "matplotlib", "pydantic", "xarray", "scipy")
    code = (
        f"import benign, benign.plot, sys; print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_plot_imports_matplotlib():
    """The rules above cover the package; this covers examples, scripts and benchmarks."""
    drawing = re.compile(r"^\s*(?:import|from) matplotlib", re.MULTILINE)
    allowed = ("src/benign/plot/", "tests/")
    assert not [
        name for name, text in texts() if drawing.search(text) and not name.startswith(allowed)
    ]


def test_the_tests_import_this_checkout():
    assert Path(str(benign.__file__)).parent == SOURCE, "run `make clean`: .venv was made elsewhere"


def texts() -> Iterator[tuple[str, str]]:
    """Yield name and text of the files that git tracks or would add."""
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


def test_no_file_names_a_machine_or_a_registry():
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


def test_there_are_no_private_words():
    """`python scripts/words.py PATHS` prints the same lines; its first lines say which words these are."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    lines = words.refused(words.paths())
    assert not lines, "\n".join(["say these in words of the field:", *lines])


def test_the_version_is_the_same_everywhere():
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
    """Walk the metadata of the installed packages; the metadata of others are unknown here."""
    pinned = pins()
    waiting, visited = named_in_pyproject(), set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name == "benign" or (name, *requirement.extras) in visited:
            continue
        visited.add((name, *requirement.extras))
        assert name in pinned, f"{name} is not pinned in constraints.txt"
        try:
            needed = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:
            continue
        for extra in ["", *requirement.extras]:
            waiting += [r for r in needed if not r.marker or r.marker.evaluate({"extra": extra})]
