"""Plugins: papers and components that are not part of this package.

A user names Python files and folders (`--plugin PATH`, `BENIGN_PLUGINS`, `benign.load`), and installed packages name
themselves by an entry point of the group `benign.papers`. A folder is a package like those of `benign.papers`: its
docstring names the paper, its module `figures` has a list `RECIPES`. A file may hold recipes, components or metrics.
Loading a plugin runs it; a folder of results never names one.
"""

import importlib
import importlib.util
import os
import sys
import traceback
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

VARIABLE = "BENIGN_PLUGINS"
"""an environment variable with paths for a whole session of the command line, separated as in PATH"""
GROUP = "benign.papers"
"""the group of entry points by which installed packages name their papers"""

OPTION_HELP = (
    "Load a Python file or folder of your own: recipes, components, metrics. Repeatable, also after "
    f"the command; {VARIABLE}=PATH does it for a session."
)

_loaded: dict[Path | str, ModuleType] = {}
"""plugins in the order of loading: a user's own by path, those of installed packages by the name of the module"""
_distributions: dict[str, str] = {}
"""name and version of the distribution of every installed plugin, by the name of its module"""


class PluginError(ValueError):
    """A file or folder that cannot be loaded; the message says where and why."""


class PluginWarning(UserWarning):
    """An installed paper that cannot be used; the message names its distribution, the reason and the remedy."""


def load(path: str | os.PathLike[str]) -> ModuleType:
    """Import a Python file, or a folder with an `__init__.py`, and return the module; the same path, the same module.

    `recipe` then finds its recipes, and files and folders may name its components by their kind.

    >>> import pathlib, tempfile
    >>> import benign as bo
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "my_own_paper.py")
    ...     _ = file.write_text("WORD = 'loaded'")
    ...     bo.load(file).WORD
    'loaded'
    """
    given = Path(path).resolve()
    if given not in _loaded:
        try:
            _loaded[given] = _imported(given)
        except PluginError as error:
            raise PluginError(f"{path}: {error}") from error.__cause__
    return _loaded[given]


def load_installed() -> None:
    """Load the papers of installed packages; warn of those that cannot be loaded.

    This searches the metadata of every installed package, once a process. Only questions about papers and about
    unknown kinds call it.
    """
    for module, distribution in _entry_points().items():
        if module in _distributions:
            continue
        _distributions[module] = distribution
        try:
            _loaded[module] = _with_figures(importlib.import_module(module))
        except Exception as error:
            warn_of(module, error)


@cache
def _entry_points() -> dict[str, str]:
    """Return the modules of the entry points, each with name and version of its distribution."""
    from importlib.metadata import entry_points

    return {
        entry.module: f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
        for entry in entry_points(group=GROUP)
    }


def warn_of(module: str, error: Exception) -> None:
    """Forget an installed plugin that cannot be used, and say so."""
    _loaded.pop(module, None)
    distribution = _distributions[module]
    name = distribution.partition(" ")[0]
    reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    warnings.warn(
        f"the paper {module!r} of the installed package {distribution} is left out: {reason}; "
        f"update the package, or remove it with `pip uninstall {name}`",
        PluginWarning,
        stacklevel=3,
    )


def loaded() -> list[Path | str]:
    """Return all plugins in the order of loading, for other processes to load."""
    return list(_loaded)


def load_all(plugins: Iterable[Path | str]) -> None:
    """Load plugins: paths, and names of modules of installed packages."""
    for plugin in plugins:
        if isinstance(plugin, Path):
            load(plugin)
        elif plugin not in _loaded:
            _loaded[plugin] = _with_figures(importlib.import_module(plugin))


def named() -> list[Path]:
    """Return the paths that the environment variable holds."""
    return [Path(path) for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]


def loading_hint(paper: str) -> str:
    """Return how to load a paper if a folder or file of that name is here; else an empty string."""
    sources = {os.path.join(paper, "figures.py"): paper, f"{paper}.py": f"{paper}.py"}
    for file, source in sources.items():
        if paper and os.path.isfile(file):
            return f"\nto load {source}: `benign --plugin {source} ...`"
    return ""


def in_front(arguments: list[str]) -> list[str]:
    """Return a command line with every `--plugin PATH` first, where the program reads it; users write it anywhere."""
    front, rest, waiting = [], [], iter(arguments)
    for word in waiting:
        if word == "--plugin":
            path = next(waiting, None)
            if path is None:
                return [word]  # refused: it requires an argument
            front += [word, path]
        else:
            (front if word.startswith("--plugin=") else rest).append(word)
    return front + rest


def papers() -> dict[Path | str, ModuleType]:
    """Return the plugins that hold recipes, by path or by the name of the module of an installed package."""
    return {
        plugin: module
        for plugin, module in _loaded.items()
        if hasattr(module, "RECIPES") or f"{module.__name__}.figures" in sys.modules
    }


def origin(plugin: Path | str) -> str:
    """Return where a plugin comes from, for messages."""
    if isinstance(plugin, Path):
        return str(plugin)
    return f"the installed package {_distributions.get(plugin, plugin)}"


def _imported(given: Path) -> ModuleType:
    file = given / "__init__.py" if given.is_dir() else given
    if file.suffix != ".py" or not file.is_file():
        raise PluginError("name a Python file, or a folder with an __init__.py")
    name = given.stem
    if not name.isidentifier():
        raise PluginError(f"rename it, {name!r} cannot be the name of a module")
    if other := _other_origin(name, file):
        if distribution := _installed_as(name):
            raise PluginError(
                f"the paper {name!r} of the installed package {distribution} is loaded already, from {other}: leave "
                f"out `--plugin`, or remove the package with `pip uninstall {distribution.partition(' ')[0]}`"
            )
        raise PluginError(f"rename it, there is a module {name!r} already, {other}")
    try:
        return _with_figures(sys.modules.get(name) or _executed(name, file))
    except Exception as error:
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[module]  # so that a corrected file is read anew
        raise PluginError(f"{type(error).__name__}: {error}{place(error, given)}") from error


def _with_figures(module: ModuleType) -> ModuleType:
    """Return the module after importing its `figures`, if it has any."""
    if any(Path(folder, "figures.py").is_file() for folder in getattr(module, "__path__", ())):
        importlib.import_module(f"{module.__name__}.figures")
    return module


def _other_origin(name: str, file: Path) -> str | None:
    """Return where another module of that name comes from, or None.

    The file itself may have been imported before, or be on Python's path.
    """
    known = sys.modules.get(name)
    if known is None and name in sys.stdlib_module_names:
        return "of Python itself"
    spec = known.__spec__ if known else importlib.util.find_spec(name)
    if spec is None and known is None:
        return None
    origin = getattr(known, "__file__", None) or (spec and spec.origin) or "built in"
    return None if Path(origin).resolve() == file else origin


def _installed_as(name: str) -> str | None:
    """Return name and version of the distribution whose paper is the module of that name, or None."""
    return next(
        (
            distribution
            for module, distribution in _entry_points().items()
            if module.partition(".")[0] == name
        ),
        None,
    )


def _executed(name: str, file: Path) -> ModuleType:
    folder = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folder)
    assert spec is not None  # a .py file always has one
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def place(error: Exception, given: Path) -> str:
    """Return the last line of the user's own code before the error; a syntax error names its place itself."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(given)]
    if not own or isinstance(error, SyntaxError):
        return ""
    return f" ({own[-1].filename}, line {own[-1].lineno})"
