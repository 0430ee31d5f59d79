"""Formulas of a user, such as `1 / (rate * stop_loss * signal**2)`, computed without Python's eval."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

OPERATIONS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log": np.log,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "min": np.minimum,
    "max": np.maximum,
}
ARGUMENTS = {"log": 1, "sqrt": 1, "exp": 1, "min": 2, "max": 2}


def names_in(text: str) -> list[str]:
    """The names a formula uses, but for functions, in their order.

    >>> names_in("samples * max(snr, 1)**2 / log(dim)")
    ['samples', 'snr', 'dim']
    """
    tree = _parsed(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    named = [
        node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called
    ]
    in_order = sorted(named, key=lambda node: (node.lineno, node.col_offset))
    return list(dict.fromkeys(node.id for node in in_order))


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """A formula of names, numbers, + - * / **, and log, sqrt, exp, min, max; anything else is refused.

    Values are numbers, arrays or labelled arrays, so a formula may be computed over a grid.

    >>> float(evaluate("2 * sqrt(n) - 1", {"n": 9.0}))
    5.0
    """
    return _value(_parsed(text), values, text)


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is not a formula: write it as in Python") from None


def _value(node: ast.expr, values: Mapping[str, Any], text: str) -> Any:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            return float(number)  # of whole numbers a power could grow without end
        case ast.Name(id=name):
            if name in values:
                return values[name]
            raise ValueError(f"{text!r} names `{name}`, known are: {', '.join(sorted(values))}")
        case ast.BinOp(left, op, right) if type(op) in OPERATIONS:
            left, right = _value(left, values, text), _value(right, values, text)
            return OPERATIONS[type(op)](left, right)
        case ast.UnaryOp(op, operand) if type(op) in OPERATIONS:
            return OPERATIONS[type(op)](_value(operand, values, text))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            if len(args) != ARGUMENTS[name]:
                raise ValueError(f"{text!r}: {name} takes {ARGUMENTS[name]}, got {len(args)}")
            return FUNCTIONS[name](*(_value(each, values, text) for each in args))
    raise ValueError(
        f"{text!r}: `{ast.unparse(node)}` is not allowed; a formula has names, numbers, + - * / **, "
        f"{', '.join(FUNCTIONS)}"
    )
