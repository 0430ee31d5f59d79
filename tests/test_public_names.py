"""The names of `benign` itself: few, lazy, and told to type checkers as they are."""

import ast
import importlib
from pathlib import Path

import pytest

import benign

SOURCE = ast.parse(Path(benign.__file__).read_text())


def told_to_type_checkers() -> dict[str, str]:
    """Name -> module, from the imports under TYPE_CHECKING."""
    block = next(node for node in SOURCE.body if isinstance(node, ast.If))
    return {
        name.asname or name.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }


def test_type_checkers_see_the_lazy_names():
    lazy = {name: f"benign.{module}" for name, module in benign._HOME.items()}
    assert lazy == told_to_type_checkers()


@pytest.mark.parametrize("name", sorted(benign._HOME))
def test_a_name_is_what_its_module_defines(name: str):
    module = importlib.import_module(f"benign.{benign._HOME[name]}")
    assert getattr(benign, name) is getattr(module, name)
    assert name in dir(benign)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Atention'"):
        _ = benign.Atention
