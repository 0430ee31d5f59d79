"""Papers and components from outside the package: Python files and folders that a person names.

A folder is a room like those of `benign.papers`: its docstring names the paper, its module `figures`
has a list `RECIPES`. A file may hold recipes, components or probes. Naming it runs it; nothing that
is found in a folder of results is ever run.
"""

import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

VARIABLE = "BENIGN_PLUGINS"
"""holds paths for a whole session of the command line, separated as in PATH"""

OPTION_HELP = (
    "Load a Python file or folder of your own: recipes, components, probes. Repeatable, also after "
    f"the command; {VARIABLE}=PATH does it for a session."
)

_loaded: dict[Path, ModuleType] = {}


class OutsideError(ValueError):
    """A file or folder that cannot be loaded; the message says where and why."""


def load(path: str | os.PathLike[str]) -> ModuleType:
    """Import a Python file, or a folder with an `__init__.py`, under its own name; again: the same module.

    Its recipes are then found by `recipe`, its components by files and folders that name their kind.

    >>> import pathlib, tempfile
    >>> import benign as bo
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "my_own_room.py")
    ...     _ = file.write_text("WORD = 'loaded'")
    ...     bo.load(file).WORD
    'loaded'
    """
    given = Path(path).resolve()
    if given not in _loaded:
        try:
            _loaded[given] = _imported(given)
        except OutsideError as error:
            raise OutsideError(f"{path}: {error}") from error.__cause__
    return _loaded[given]


def load_all(paths: Iterable[str | os.PathLike[str]]) -> None:
    for path in paths:
        load(path)


def named() -> list[str]:
    """The paths that the environment variable holds."""
    return [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]


def in_front(arguments: list[str]) -> list[str]:
    """A command line with every `--plugin PATH` first, where the program reads it; a person types it anywhere."""
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


def loaded() -> list[Path]:
    """What was loaded, in its order: other processes load the same."""
    return list(_loaded)


def papers() -> dict[str, ModuleType]:
    """The loaded modules that hold recipes, by name."""
    return {module.__name__: module for module in _loaded.values() if figures(module) is not None}


def figures(room: ModuleType) -> ModuleType | None:
    """The module with the list `RECIPES`: a folder's `figures`, or a file itself."""
    inner = sys.modules.get(f"{room.__name__}.figures")
    return inner or (room if hasattr(room, "RECIPES") else None)


def _imported(given: Path) -> ModuleType:
    file = given / "__init__.py" if given.is_dir() else given
    if file.suffix != ".py" or not file.is_file():
        raise OutsideError("name a Python file, or a folder with an __init__.py")
    name = given.stem
    if not name.isidentifier():
        raise OutsideError(f"rename it, {name!r} cannot be the name of a module")
    if taken := _taken(name, file):
        raise OutsideError(f"rename it, there is a module {name!r} already, {taken}")
    try:
        module = sys.modules.get(name) or _executed(name, file)
        if (given / "figures.py").is_file():
            importlib.import_module(f"{name}.figures")
    except Exception as error:
        for each in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[each]  # so that a mended file is read anew
        raise OutsideError(f"{type(error).__name__}: {error}{place(error, given)}") from error
    return module


def _taken(name: str, file: Path) -> str | None:
    """Where another module of that name comes from; the same file may have been imported, or be on Python's path."""
    known = sys.modules.get(name)
    if known is None and name in sys.stdlib_module_names:
        return "of Python itself"
    spec = known.__spec__ if known else importlib.util.find_spec(name)
    if spec is None and known is None:
        return None
    origin = getattr(known, "__file__", None) or (spec and spec.origin) or "built in"
    return None if Path(origin).resolve() == file else origin


def _executed(name: str, file: Path) -> ModuleType:
    folder = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folder)
    assert spec is not None  # a .py file always has one
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def place(error: Exception, given: Path) -> str:
    """The last line of the person's own code before the error; a syntax error tells its place itself."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(given)]
    if not own or isinstance(error, SyntaxError):
        return ""
    return f" ({own[-1].filename}, line {own[-1].lineno})"
