"""The rules about imports, as functions of sources: what breaks a rule comes back as lines of text.

Sources are texts by path below `src/benign`, so that tests/test_layout.py can break every rule on purpose.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter

Sources = dict[str, str]

# Data flows down this list: a module imports from its own folder and from what stands above it.
ORDER = [
    "_lazy",
    "spec",
    "streams",
    "bartlett",
    "losses",
    "data",
    "networks",
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
    "experiment.py": {"sweep"},  # `Experiment.run` and its like are short forms of the runner
    "spec/schema.py": {"experiment"},
    "papers/verify.py": {"cli"},
    "sweep/status_text.py": {"cli"},
    "testing/components.py": {"sweep"},
}
"""imports from below that are allowed, by module"""
ENDS = ["__init__", "__main__"]
"""below all: the root, with every name it exports, and the module that starts the command line"""

ROOMS_MAY_USE = {
    "compare": {"zhang"},  # the linear mode is Zhang's
    "zhang": {"jiang"},  # Zhang's Theorems 1 and 2 are stated beside those of Jiang
    "inside.py": {"jiang", "wang", "zhang"},  # the solver knows the conditions of every theorem
    "advice.py": {"jiang", "wang", "zhang", "li"},  # and so does advice
    "numbers.py": {"jiang", "zhang"},  # initial weights in the middle of what conditions allow
}
"""which rooms of `papers` a room, or a module beside the rooms, imports"""

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
    "typer": {"cli"},
}
"""where a package of others may be imported"""

DYNAMIC = {
    "_lazy.py",
    "spec/registry.py",
    "spec/plugins.py",
    "papers/recipes.py",
    "papers/claims.py",
}
"""modules that may import by a name made at run time: public names, components, files of a user's own, recipes"""
DYNAMIC_CALLS = {"import_module", "__import__", "exec", "eval", "run_path", "exec_module"}


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def imports(path: str, text: str) -> list[tuple[int, str]]:
    """Line and dotted name of everything a file imports, wherever the import stands."""
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
    """The same without `benign.` for what it takes from the package."""
    for line, name in imports(path, text):
        if name.startswith("benign.") and name != "benign.__version__":
            yield line, name.removeprefix("benign.")


def home(path: str) -> str:
    """The top-level module or folder a file belongs to."""
    return path.split("/")[0].removesuffix(".py")


def unnamed(sources: Sources) -> list[str]:
    """Top-level modules that `ORDER` does not name, and names in it that are no modules."""
    homes = {home(path) for path in sources} - set(ENDS)
    return [f"{name}: name it in ORDER" for name in sorted(homes - set(ORDER))] + [
        f"{name}: ORDER names it, but it is not there" for name in sorted(set(ORDER) - homes)
    ]


def upward(sources: Sources) -> list[str]:
    """Imports from below."""
    rank = {name: place for place, name in enumerate([*ORDER, *ENDS])}
    return [
        f"{path}, line {line}: {name} stands below"
        for path, text in sources.items()
        if home(path) != "__init__"
        for line, name in _inner(path, text)
        if home(path) in rank
        and (target := name.split(".")[0]) != home(path)
        and rank.get(target, len(rank)) > rank[home(path)]
        and target not in EXCEPTIONS.get(path, ())
    ]


def between_rooms(sources: Sources) -> list[str]:
    """Imports of one paper's room by another that are not listed."""
    rooms = {path.split("/")[1] for path in sources if re.match(r"papers/\w+/", path)}
    papers = {path: text for path, text in sources.items() if home(path) == "papers"}
    return [
        f"{path}, line {line}: {name} is another room's"
        for path, text in papers.items()
        for line, name in _inner(path, text)
        if name.startswith("papers.") and (room := name.split(".")[1]) in rooms
        if (here := path.split("/")[1]) != room and room not in ROOMS_MAY_USE.get(here, ())
    ]


def outside(sources: Sources) -> list[str]:
    """Imports of other people's packages where they are not listed."""
    ours = {*sys.stdlib_module_names, "benign", *EVERYWHERE}
    return [
        f"{path}, line {line}: {name} is not for this module"
        for path, text in sources.items()
        for line, name in imports(path, text)
        if (package := name.split(".")[0]) not in ours
        if home(path) not in OUTSIDE.get(package, ())
    ]


def dynamic(sources: Sources) -> list[str]:
    """Calls that import or execute what a string names, where they are not listed."""
    return [
        f"{path}, line {line}: {name}"
        for path, text in sources.items()
        if path not in DYNAMIC
        for line, name in _names(text)
        if name in DYNAMIC_CALLS
    ]


def _names(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of what is used; `module.eval()` is torch's, so not as an attribute."""
    for node in ast.walk(_tree(text)):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and node.attr not in {"eval", "exec"}:
            yield node.lineno, node.attr


TRAINS = {
    "training.descent": {"Batch", "Status", "Step"},
    "training.engine": set(),
    "streams": {"Streams"},
    "sweep.plan": {"Run"},
    "sweep.replay": set(),
}
"""what trains or draws, and the names of it that a claim may import, as types"""


def training_claims(sources: Sources) -> list[str]:
    """Claims that train runs or draw numbers by themselves, and not by `claims/replays` or `claims/identity`."""
    rooms = {path: text for path, text in sources.items() if re.match(r"papers/\w+/claims/", path)}
    imported = [
        f"{path}, line {line}: {name} trains or draws"
        for path, text in rooms.items()
        for line, name in _inner(path, text)
        for module, types in TRAINS.items()
        if _beyond(name, module, types)
    ]
    called = [
        f"{path}, line {node.lineno}: {ast.unparse(node.func)}() trains or draws"
        for path, text in rooms.items()
        for node in ast.walk(_tree(text))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"Batch", "Batch.start", "Streams", "Run"}
    ]
    return imported + called


def _beyond(name: str, module: str, types: set[str]) -> bool:
    """Whether an imported name is of a module, and none of its types; the module itself is."""
    origin, _, last = name.rpartition(".")
    return name == module or (origin == module and last not in types)


def circles(sources: Sources) -> list[str]:
    """Modules that import themselves over others, lazy imports included."""
    modules = {path.removesuffix(".py").replace("/", "."): path for path in sources}
    graph = {
        module: {_module(name, modules) for _, name in _inner(path, sources[path])}
        for module, path in modules.items()
        if module != "__init__"
    }
    try:
        TopologicalSorter({module: used - {module, ""} for module, used in graph.items()}).prepare()
    except CycleError as error:
        return [" imports ".join(reversed(error.args[1]))]
    return []


def _module(name: str, modules: dict[str, str]) -> str:
    """The module a dotted name is taken from; empty for names of the root."""
    parts = name.split(".")
    prefixes = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    known = [each for prefix in prefixes for each in (prefix, f"{prefix}.__init__")]
    return next((each for each in known if each in modules), "")


def drawn(map_text: str) -> list[str]:
    """The top-level modules in the tree of docs/architecture.md, from top to bottom."""
    tree = map_text.split("src/benign/\n")[1].split("\n```")[0]
    return re.findall(r"^  (\w+)(?:\.py|/)", tree, re.MULTILINE)
