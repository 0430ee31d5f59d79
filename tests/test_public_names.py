"""The names of `benign`, `benign.parts` and `benign.plot`: few, lazy, known to type checkers, with examples."""

import ast
import dataclasses
import importlib
import inspect
import itertools
from pathlib import Path
from types import ModuleType

import pytest

import benign
from benign import parts, plot
from benign.spec.base import Spec, descriptions
from tests.says import says

ONE_SCREEN = 64
MODULES = [benign, parts, plot]
NAMES = [(module, name) for module in MODULES for name in module.__all__]


def names_for_type_checkers(module: ModuleType) -> dict[str, str]:
    """Return the module of each name, from the imports under TYPE_CHECKING."""
    source = ast.parse(inspect.getsource(module))
    block = next(node for node in source.body if isinstance(node, ast.If))
    return {
        name.name: f"benign.{name.name}" if node.module == "benign" else str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_type_checkers_see_the_lazy_names(module: ModuleType):
    lazy = {name: f"benign.{home}" for name, home in module._HOME.items()}
    assert lazy == names_for_type_checkers(module)
    assert module.__all__ == dir(module) == sorted(module._HOME)


def test_the_public_names_fit_on_a_screen_and_are_listed_once():
    assert len(benign.__all__) <= ONE_SCREEN
    names = [name for _, name in NAMES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("module", "name"), NAMES, ids=lambda each: getattr(each, "__name__", each)
)
def test_a_name_is_what_its_module_defines(module: ModuleType, name: str):
    home = importlib.import_module(f"benign.{module._HOME[name]}")
    assert getattr(module, name) is getattr(home, name, home)


@pytest.mark.parametrize("name", benign.__all__)
def test_a_public_name_has_an_example(name: str):
    """Doctests run with the others, from the modules that define the names (`--doctest-modules`)."""
    assert ">>>" in (getattr(benign, name).__doc__ or ""), f"`benign.{name}` has no example"


@pytest.mark.parametrize("name", benign.__all__)
def test_every_field_of_a_public_name_says_what_it_is(name: str):
    part = getattr(benign, name)
    if isinstance(part, type) and issubclass(part, Spec):
        assert descriptions(part).keys() == part.model_fields.keys()


@pytest.mark.parametrize("name", [name for name in plot.__all__ if not name.endswith("_figure")])
def test_what_draws_a_result_has_an_example(name: str):
    drawn = getattr(plot, name)
    assert dataclasses.is_dataclass(drawn) or ">>>" in drawn.__doc__


RECORDS = [
    getattr(module, name)
    for module in (parts, plot)
    for name in module.__all__
    if dataclasses.is_dataclass(getattr(module, name))
]


@pytest.mark.parametrize("described", RECORDS, ids=lambda record: record.__name__)
def test_every_field_of_a_part_says_what_it_is(described: type):
    """The reference leaves out a field without a docstring."""
    [record] = ast.parse(inspect.getsource(described)).body
    assert isinstance(record, ast.ClassDef)
    undocumented = [
        ast.unparse(field)
        for field, after in itertools.pairwise([*record.body, ast.Pass()])
        if isinstance(field, ast.AnnAssign)
        and not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
    ]
    assert undocumented == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_an_unknown_name_is_an_attribute_error(module: ModuleType):
    with pytest.raises(AttributeError, match=says(f"'{module.__name__}'", "'Atention'")):
        _ = module.Atention


def test_the_names_of_parts_do_not_load_torch_before_they_are_used():
    source = Path(str(parts.__file__)).read_text(encoding="utf-8")
    outside = [
        node for node in ast.parse(source).body if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    assert [ast.unparse(node) for node in outside] == [
        "from typing import TYPE_CHECKING",
        "from benign._lazy import lazily",
    ]
