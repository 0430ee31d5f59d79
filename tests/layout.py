"""Rules about imports: each is a function that returns one line of text per violation.

Its argument is the text of every module by its path below `src/benign`, so that tests/test_layout.py can plant a
violation of each rule.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter

Sources = dict[str, str]

# A module imports from its own folder and from the entries above it.
ORDER = [
    "_lazy",
    "spec",
    "streams",
    "bartlett",
    "losses",
    "data",
    "networks",
    "kernels",
    "attacks",
    "reduction",
    "training",
]
ORDER += [
    "testing",
    "experiment",
    "sweep",
    "stats",
    "plot",
    "claims",
    "papers",
    "parts",
    "report",
    "cli",
]
EXCEPTIONS = {
    "experiment.py": {
        "sweep"
    },  # `Experiment.run`, `replay`, `units` and `result_in` are short forms
    "spec/schema.py": {"experiment"},
    "testing/components.py": {"sweep"},
}
"""allowed imports from below, by module"""
ENDS = ["__init__", "__main__"]
"""the last: the root, with every name it exports, and the module that starts the command line"""

PAPERS_MAY_USE = {
    "compare": {"zhang"},  # the linear mode is Zhang's
    "zhang": {"jiang"},  # Zhang's Theorems 1 and 2 are stated next to Jiang's
    "inside.py": {"jiang", "wang", "zhang"},  # the solver knows the conditions of every theorem
    "advice.py": {"jiang", "wang", "zhang", "li"},  # so does advice
    "numbers.py": {
        "jiang",
        "zhang",
    },  # initial weights in the middle of the range that conditions allow
}
"""papers that a paper, or a module of papers/, may import"""

EVERYWHERE = {"numpy", "torch", "jaxtyping", "pydantic", "pydantic_core"}
OUTSIDE = {
    "matplotlib": {"plot"},
    "pandas": {"sweep"},
    "scipy": {"bartlett", "stats", "claims", "papers"},
    "xarray": {"experiment", "sweep", "stats", "plot", "claims", "papers", "report", "cli"},
    "jinja2": {"report"},
    "markupsafe": {"report"},
    "plotly": {"report"},
    "nicegui": {"report"},
    "mlflow": {"sweep"},
    "sqlalchemy": {"sweep"},
    "yaml": {"spec"},
    "dask": {"sweep"},
    "distributed": {"sweep"},
    "dask_jobqueue": {"sweep"},
    "rich": {"sweep"},
    "safetensors": {"networks", "training"},
    "timm": {"networks"},
    "torchvision": {"data"},
    "triton": {"attacks", "kernels"},
    "typer": {"cli"},
}
"""folders that may import a third-party package"""

DYNAMIC = {
    "_lazy.py",
    "spec/registry.py",
    "spec/plugins.py",
    "papers/registry.py",
}
"""modules that may import by a name made at run time: public names, components, files of users, recipes"""
DYNAMIC_CALLS = {"import_module", "__import__", "exec", "eval", "run_path", "exec_module"}


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def imports(path: str, text: str) -> list[tuple[int, str]]:
    """Return line and dotted name of every import of a file, also inside functions."""
    package = ["benign", *path.split("/")[:-1]]
    found = []
    for node in ast.walk(_tree(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [(node.lineno, name) for name in names]
    return found


def _inner(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name, without `benign.`, of every import from the package."""
    for line, name in imports(path, text):
        if name.startswith("benign.") and name != "benign.__version__":
            yield line, name.removeprefix("benign.")


def home(path: str) -> str:
    """Return the top-level module or folder of a file."""
    return path.split("/")[0].removesuffix(".py")


def unnamed(sources: Sources) -> list[str]:
    """List top-level modules that `ORDER` lacks, and entries of `ORDER` that are no modules."""
    homes = {home(path) for path in sources} - set(ENDS)
    return [f"{name}: name it in ORDER" for name in sorted(homes - set(ORDER))] + [
        f"{name}: ORDER names it, but it does not exist" for name in sorted(set(ORDER) - homes)
    ]


def upward(sources: Sources) -> list[str]:
    """List imports from below."""
    rank = {name: place for place, name in enumerate([*ORDER, *ENDS])}
    return [
        f"{path}, line {line}: {name} is below"
        for path, text in sources.items()
        if home(path) != "__init__"
        for line, name in _inner(path, text)
        if home(path) in rank
        and (target := name.split(".")[0]) != home(path)
        and rank.get(target, len(rank)) > rank[home(path)]
        and target not in EXCEPTIONS.get(path, ())
    ]


def between_papers(sources: Sources) -> list[str]:
    """List imports of one paper by another that `PAPERS_MAY_USE` lacks."""
    papers = {path.split("/")[1] for path in sources if re.match(r"papers/\w+/", path)}
    modules = {path: text for path, text in sources.items() if home(path) == "papers"}
    return [
        f"{path}, line {line}: {name} belongs to another paper"
        for path, text in modules.items()
        for line, name in _inner(path, text)
        if name.startswith("papers.") and (paper := name.split(".")[1]) in papers
        if (here := path.split("/")[1]) != paper and paper not in PAPERS_MAY_USE.get(here, ())
    ]


def outside(sources: Sources) -> list[str]:
    """List imports of third-party packages that `OUTSIDE` does not allow."""
    ours = {*sys.stdlib_module_names, "benign", *EVERYWHERE}
    return [
        f"{path}, line {line}: {name} is not for this module"
        for path, text in sources.items()
        for line, name in imports(path, text)
        if (package := name.split(".")[0]) not in ours
        if home(path) not in OUTSIDE.get(package, ())
    ]


def dynamic(sources: Sources) -> list[str]:
    """List calls that import or execute what a string names, outside the modules of `DYNAMIC`."""
    return [
        f"{path}, line {line}: {name}"
        for path, text in sources.items()
        if path not in DYNAMIC
        for line, name in _names(text)
        if name in DYNAMIC_CALLS
    ]


def _names(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of every name used; `module.eval()` belongs to torch and does not count."""
    for node in ast.walk(_tree(text)):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and node.attr not in {"eval", "exec"}:
            yield node.lineno, node.attr


GENERIC = re.compile(
    r"reduction/|sweep/|training/\w+\.py$|training/fast/"
    r"|training/metrics/(?!attention|attacked_patches|features|image_features|two_layer)\w+\.py$|testing/"
)
"""modules that know no component of a paper by its class, but the base classes and protocols of components. The other
modules of training/metrics/ each measure one architecture (`attention` measures `Attention`) and name it; the generic
modules reach them through the registry of metrics only"""
BASE_MODULES = {
    "data.model",
    "networks.network",
    "networks.products",
    "networks.module",  # a user's torch module as a network
    "networks.compiled",
}
"""modules of data/ and networks/ that define base classes and protocols"""


def paper_components(sources: Sources) -> list[str]:
    """List imports of a component of a paper by a generic module."""
    return [
        f"{path}, line {line}: {name} is the component of a paper"
        for path, text in sources.items()
        if GENERIC.match(path)
        for line, name in _inner(path, text)
        if name.split(".")[0] in {"data", "networks"}
        and ".".join(name.split(".")[:2]) not in BASE_MODULES
    ]


TRAINS = {
    "training.descent": {"Batch", "Status", "Step"},
    "training.engine": set(),
    "streams": {"Streams"},
    "sweep.plan": {"Run"},
    "sweep.replay": set(),
}
"""modules that train or draw, with the types that a claim may import from each"""


def training_claims(sources: Sources) -> list[str]:
    """List claims that train runs or draw numbers without `claims/replays` or `claims/identity`."""
    claims = {path: text for path, text in sources.items() if re.match(r"papers/\w+/claims/", path)}
    imported = [
        f"{path}, line {line}: {name} trains or draws"
        for path, text in claims.items()
        for line, name in _inner(path, text)
        for module, types in TRAINS.items()
        if _beyond(name, module, types)
    ]
    called = [
        f"{path}, line {node.lineno}: {ast.unparse(node.func)}() trains or draws"
        for path, text in claims.items()
        for node in ast.walk(_tree(text))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"Batch", "Batch.start", "Streams", "Run"}
    ]
    return imported + called


def _beyond(name: str, module: str, types: set[str]) -> bool:
    """Return whether an imported name is the module itself or a name in it outside `types`."""
    origin, _, last = name.rpartition(".")
    return name == module or (origin == module and last not in types)


def circles(sources: Sources) -> list[str]:
    """List modules that import themselves through others, also lazily, but for the short forms of `Experiment`."""
    modules = {path.removesuffix(".py").replace("/", "."): path for path in sources}
    graph = {
        module: {
            _module(name, modules)
            for _, name in _inner(path, sources[path])
            if not (path == "experiment.py" and name.startswith("sweep."))
        }
        for module, path in modules.items()
        if module != "__init__"
    }
    try:
        TopologicalSorter({module: used - {module, ""} for module, used in graph.items()}).prepare()
    except CycleError as error:
        return [" imports ".join(reversed(error.args[1]))]
    return []


def _module(name: str, modules: dict[str, str]) -> str:
    """Return the module that defines a dotted name, or an empty string for names of the root."""
    parts = name.split(".")
    prefixes = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    known = [each for prefix in prefixes for each in (prefix, f"{prefix}.__init__")]
    return next((each for each in known if each in modules), "")


def drawn(map_text: str) -> list[str]:
    """Return the top-level modules in the tree of docs/architecture.md, from top to bottom."""
    tree = map_text.split("src/benign/\n")[1].split("\n```")[0]
    return re.findall(r"^  (\w+)(?:\.py|/)", tree, re.MULTILINE)
