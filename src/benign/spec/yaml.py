"""Specifications as YAML files, which are read safely because a file may come from a stranger."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from benign.spec.base import SpecError

LARGEST_FILE = 2**16
"""bytes; PyYAML takes about 2 s for this many"""
DEEPEST = 20
WIDTH = 100
"""of a line that is written"""


class FileError(ValueError):
    """A file or an override cannot be read; the message has the place and the accepted form."""


class _Loader(yaml.SafeLoader):
    """YAML without aliases and repeated fields, with the plain values of YAML 1.2.

    PyYAML alone reads 1e9 as a word, 010 as eight, 1:30 as ninety and `no` as false.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        mark = self.peek_event().start_mark
        if self.check_event(yaml.AliasEvent):
            raise ComposerError(None, None, "aliases are not allowed", mark)
        self.depth += 1
        if self.depth > DEEPEST:
            problem = f"nested deeper than {DEEPEST} levels"
            raise ComposerError(None, None, problem, mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=deep)
            if not isinstance(name, str) or name in names:
                twice = f"field `{name}` given twice"
                problem = twice if isinstance(name, str) else f"field {name!r} is not a word"
                raise ConstructorError(None, None, problem, key.start_mark)
            names.add(name)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes each word that this or another reader would take for another type, such as `1e5` and `no`."""


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_kind}", re.compile(f"(?:{_pattern})$"), _first
        )


@dataclass(frozen=True)
class Source:
    """The text of a specification, and its name in messages."""

    name: str
    text: str

    def fields(self) -> dict[str, Any]:
        """Return its fields and values. Raise FileError if it is not plain YAML."""
        if len(self.text) > LARGEST_FILE:
            raise _too_large(self.name)
        try:
            content = parse_yaml(self.text)
        except (yaml.YAMLError, ValueError) as error:
            raise FileError(f"{self.name} is not plain YAML: {_where(error)}") from None
        if not isinstance(content, dict):
            problem = (
                f"must hold fields such as `data:` and `network:`, got {type(content).__name__}"
            )
            raise FileError(f"{self.name} {problem}")
        return content

    def line_of(self, path: str) -> int | None:
        """Return the line of a field such as `data.snr`, or of the innermost part of the path that exists, or None."""
        node, line = self._tree, None
        for name in path.split("."):
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            pair = next((pair for pair in pairs if pair[0].value == name), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        return line

    @cached_property
    def _tree(self) -> Any:
        return yaml.compose(self.text, _Loader)

    @contextmanager
    def naming_lines(self, elsewhere: Sequence[str] = ()) -> Iterator[None]:
        """Add the line of its field to every problem of a SpecError, except for fields that were set `elsewhere`."""
        try:
            yield
        except SpecError as error:
            problems = [
                (path, text + self._place(path, elsewhere)) for path, text in error.problems
            ]
            raise SpecError(problems) from None

    def _place(self, path: str, elsewhere: Sequence[str]) -> str:
        line = None if any(_within(path, part) for part in elsewhere) else self.line_of(path)
        return f" ({self.name}, line {line})" if line else ""


def source_of(given: str | os.PathLike[str]) -> Source:
    """Return the source of a path, or of a text: a string with a line break or `: ` is no path."""
    if isinstance(given, str) and ("\n" in given or ": " in given):
        return Source("the text", given)
    return read_source(Path(given))


def read_source(path: Path) -> Source:
    """Return the text of a file. Raise FileError if it cannot be read or is too large."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise FileError(f"{path} is no file but a device or a pipe: save it as a file")
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror})") from None
    if len(data) > LARGEST_FILE:
        raise _too_large(str(path))
    try:
        return Source(str(path), data.decode())
    except UnicodeDecodeError:
        raise FileError(f"{path} is not text in UTF-8: save it so") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the fields and values of a YAML file."""
    return read_source(path).fields()


def parse_yaml(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def yaml_text(fields: dict[str, Any]) -> str:
    """Return fields and values as the text of a file that `read_yaml` reads."""
    return yaml.dump(fields, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=WIDTH)


def with_overrides(fields: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of plain fields with `a.b=value` applied; values are YAML, so a list makes an axis."""
    result = fields
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise FileError(f"--set {text!r}: write field=value, for example training.rate=0.05")
        try:
            parsed = parse_yaml(value)
        except (yaml.YAMLError, ValueError) as error:
            raise FileError(
                f"--set {text!r}: the value is not plain YAML: {_where(error)}"
            ) from None
        result = _set(result, path.split("."), parsed, text)
    return result


def _set(fields: Any, path: list[str], value: Any, text: str) -> Any:
    name = path[0]
    if fields is None:
        problem = f"`{name}` belongs to a part that is not given: set that part as a whole"
        raise FileError(f"--set {text!r}: {problem}")
    if not isinstance(fields, dict):
        raise FileError(f"--set {text!r}: the part before `{name}` has no fields")
    if name not in fields and len(path) > 1:
        raise FileError(f"--set {text!r}: no field `{name}`; fields here: {', '.join(fields)}")
    inner = value if len(path) == 1 else _set(fields[name], path[1:], value, text)
    return {**fields, name: inner}


def _within(path: str, part: str) -> bool:
    return path == part or path.startswith(f"{part}.")


def _too_large(name: str) -> FileError:
    return FileError(f"{name} is larger than a specification may be, {LARGEST_FILE:,} bytes")


def _where(error: Exception) -> str:
    """Return the message of an error in one line, with its place in the file."""
    mark = getattr(error, "problem_mark", None)
    parts = (getattr(error, "context", None), getattr(error, "problem", None))
    problem = ", ".join(filter(None, parts)) or str(error).splitlines()[0]
    return f"{problem} (line {mark.line + 1})" if mark else problem
