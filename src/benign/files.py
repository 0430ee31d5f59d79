"""Specifications as files: YAML read with care, because a file may come from a stranger."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

LARGEST_FILE = 2**20
DEEPEST = 20


class FileError(ValueError):
    """A file or an override that cannot be read; the message says where and what would be accepted."""


class _Loader(yaml.SafeLoader):
    """YAML without tags, aliases and repeated keys, and with 1e9 read as a number as in YAML 1.2."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", self.peek_event().start_mark)
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.composer.ComposerError(
                None, None, f"nested deeper than {DEEPEST} levels", self.peek_event().start_mark
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        names = [self.construct_object(key, deep=deep) for key, _ in node.value]
        for name in names:
            if not isinstance(name, str):
                raise yaml.constructor.ConstructorError(None, None, f"field {name!r} is not a word", node.start_mark)
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"field `{name}` given twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)
# Whole numbers stay whole: PyYAML tries the resolvers of a first character in order, so put them in front of the floats.
for _first, _resolvers in list(_Loader.yaml_implicit_resolvers.items()):
    _Loader.yaml_implicit_resolvers[_first] = sorted(_resolvers, key=lambda item: item[0].endswith(":float"))


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that holds fields and values."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror})") from None
    if len(data) > LARGEST_FILE:
        raise FileError(f"{path} has {len(data):,} bytes; a specification has at most {LARGEST_FILE:,}")
    try:
        content = parse_yaml(data.decode())
    except (yaml.YAMLError, ValueError) as error:
        raise FileError(f"{path} is not plain YAML: {_where(error)}") from None
    if not isinstance(content, dict):
        raise FileError(f"{path} must hold fields such as `data:` and `network:`, got {type(content).__name__}")
    return content


def parse_yaml(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def with_overrides(fields: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of plain fields with `a.b=value` applied; values are YAML, so a list makes an axis."""
    result = fields
    for text in overrides:
        path, found, value = text.partition("=")
        if not found or not path:
            raise FileError(f"--set {text!r}: write field=value, for example training.rate=0.05")
        try:
            parsed = parse_yaml(value)
        except (yaml.YAMLError, ValueError) as error:
            raise FileError(f"--set {text!r}: the value is not plain YAML: {_where(error)}") from None
        result = _set(result, path.split("."), parsed, text)
    return result


def _set(fields: Any, path: list[str], value: Any, text: str) -> Any:
    if not isinstance(fields, dict):
        raise FileError(f"--set {text!r}: the part before `{path[0]}` has no fields")
    if path[0] not in fields and len(path) > 1:
        raise FileError(f"--set {text!r}: no field `{path[0]}`; fields here: {', '.join(fields)}")
    inner = value if len(path) == 1 else _set(fields[path[0]], path[1:], value, text)
    return {**fields, path[0]: inner}


def _where(error: Exception) -> str:
    """What went wrong in one line, with its place in the file."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{problem} (line {mark.line + 1})" if mark else problem
