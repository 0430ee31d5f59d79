"""No test vanishes without a reason: the list of 2026-11-18, before names and folders changed, is accounted for."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "scripts" / "restructure"


def defined(folder: Path) -> set[str]:
    """Names of the functions and classes below a folder."""
    return {
        node.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }


def without_parameters(test: str) -> str:
    return test.partition("[")[0]


def test_every_earlier_test_is_there_or_renamed_with_a_reason():
    renamed = {
        without_parameters(line.split("\t")[0])
        for table in sorted(LISTS.glob("renamed_tests/*.tsv"))
        for line in table.read_text("utf-8").splitlines()
    }
    there = defined(ROOT / "tests") | defined(ROOT / "src") | {"plot"}  # the doctest of a package
    lost = [
        test
        for test in (LISTS / "tests.txt").read_text("utf-8").splitlines()
        if without_parameters(test) not in renamed
        and without_parameters(test).replace(".", "::").split("::")[-1] not in there
    ]
    assert lost == []
