"""Figure files: the numbers of one figure as a small file, `NAME.json.gz`.

The file is gzipped JSON that names everything it holds, so that any language reads it:

    format     "benign figure 1"
    made       how the numbers were made: command, scale, reading, numerics, device, ... (`papers/published.py`)
    attrs      attributes of the dataset
    sizes      length of each dimension
    coords     name -> {dims, type, values, attrs}; values of all dimensions are one flat list, the last one fastest
    variables  the same
    left_out   variables that the file had no space for

Variables have `DIGITS` significant digits, whole numbers and coordinates are exact; null is NaN. Every number of a run
is kept, then curves along training, at fewer steps if need be, while the file is smaller than `LARGEST`.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from benign.sweep.records import replacing
from benign.sweep.text import shown

FORMAT = "benign figure 1"
ENDING = ".json.gz"
LARGEST = 300_000
"""bytes of a file"""
SPARE = 10_000
"""bytes of it for the names of variables that are left out"""
LARGEST_TEXT = 30_000_000
"""bytes of its JSON: numbers that compress better than 100 to 1 are none of ours"""
DIGITS = 4
STEPS = (50, 30, 20)
"""points of a curve along training: as many as the file has space for"""
FIRST = ("test_", "robust_", "train_")
"""first words of the variables that are kept first"""

Fields = dict[str, Any]
_NAME = re.compile(r"[A-Za-z_][\w.]{0,99}")
_TYPES = {"float": float, "int": np.int64, "bool": bool, "text": str}


class FigureFileError(ValueError):
    """A file is no figure file, or is damaged; the message says in what."""


def encode(result: xr.Dataset, made: Mapping[str, Any]) -> bytes:
    """Return a dataset as the content of a figure file, with as many of its variables as fit."""
    content, left_out = _encoded(result, made, STEPS[0])
    for count in STEPS[1:]:
        if left_out:
            content, left_out = _encoded(result, made, count)
    if len(content) > LARGEST:
        raise FigureFileError(f"{len(content):,} bytes, {LARGEST:,} are allowed: too many axes")
    return content


def _encoded(result: xr.Dataset, made: Mapping[str, Any], count: int) -> tuple[bytes, list[str]]:
    """Return the content of a file with at most so many steps, and the variables that do not fit."""
    thin = _thinned(result, count)
    before = thin.attrs.get("left_out", [])
    head = {
        "format": FORMAT,
        "made": dict(made),
        "attrs": _attributes({k: v for k, v in thin.attrs.items() if k != "left_out"}),
        "sizes": {str(dim): size for dim, size in thin.sizes.items()},
        "coords": {str(name): _values(part, exact=True) for name, part in thin.coords.items()},
    }
    start = _json(head)[1:-1]
    texts, left_out = _fitting(thin, LARGEST - SPARE - _size(start))
    variables = ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items())
    end = f'"variables":{{{variables}}},"left_out":{_json([*before, *left_out])}'
    return gzip.compress(f"{{{start},{end}}}\n".encode(), 9, mtime=0), left_out


def decode(content: bytes) -> tuple[xr.Dataset, Fields]:
    """Return the dataset of a figure file and how it was made. The file may come from anybody."""
    try:
        fields = json.loads(_unfolded(content), parse_constant=_refuse)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise FigureFileError(f"its format is not {FORMAT!r}")
        sizes = {_name(dim): max(0, int(size)) for dim, size in fields["sizes"].items()}
        parts = [
            {_name(name): _array(part, sizes) for name, part in fields[group].items()}
            for group in ("variables", "coords")
        ]
        result = xr.Dataset(parts[0], parts[1], _attributes(fields["attrs"]))
        result.attrs["left_out"] = [_name(name) for name in fields["left_out"]]
        return result, dict(fields["made"])
    except FigureFileError:
        raise
    except (
        *(ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError),
        *(OSError, EOFError, zlib.error),
    ) as error:
        raise FigureFileError(f"it is damaged ({type(error).__name__}: {error})") from error


def write(file: Path, content: bytes) -> None:
    """Write a figure file; it appears whole or not at all."""
    with replacing(file) as output:
        output.write(content)


def read(file: Path) -> tuple[xr.Dataset, Fields]:
    """Return the dataset of a figure file and how it was made."""
    with open(file, "rb") as opened:
        content = opened.read(LARGEST + 1)
    try:
        return decode(content)
    except FigureFileError as error:
        raise FigureFileError(f"{shown(file)} is no figure file: {error}") from error


def _unfolded(content: bytes) -> bytes:
    if len(content) > LARGEST:
        raise FigureFileError(f"it is larger than {LARGEST:,} bytes")
    unfolder = zlib.decompressobj(wbits=31)  # gzip, with its checksum
    text = unfolder.decompress(content, LARGEST_TEXT)
    if not unfolder.eof or unfolder.unused_data:
        raise FigureFileError(f"it is cut short, or unfolds to more than {LARGEST_TEXT:,} bytes")
    return text


def _refuse(constant: str) -> None:
    raise FigureFileError(f"it has the number {constant}")


def _name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FigureFileError(f"it has a variable called {name!r:.60}")
    return name


def _thinned(result: xr.Dataset, count: int) -> xr.Dataset:
    """Return the dataset with at most `count` of its steps, evenly spread, with the first and the last."""
    if "step" not in result.dims or result.sizes["step"] <= count:
        return result
    places = np.unique(np.linspace(0, result.sizes["step"] - 1, count).round().astype(int))
    return result.isel(step=places)


def _fitting(result: xr.Dataset, space: int) -> tuple[dict[str, str], list[str]]:
    """Return the JSON of the variables that fit, in the order of the dataset, and the names of the others."""
    names = sorted(
        map(str, result),
        key=lambda n: (len(result[n].dims), n != "status", not n.startswith(FIRST)),
    )
    texts = {}
    for name in names:
        if result[name].size * 2 > LARGEST_TEXT:
            continue
        text = _json(_values(result[name]))
        if (size := _size(text)) <= space:
            texts[name], space = text, space - size
    order = [str(name) for name in result]
    return {n: texts[n] for n in order if n in texts}, [n for n in order if n not in texts]


def _size(text: str) -> int:
    return len(gzip.compress(text.encode(), 9))


def _values(array: xr.DataArray, exact: bool = False) -> Fields:
    kind = {"f": "float", "i": "int", "u": "int", "b": "bool"}.get(array.dtype.kind, "text")
    convert = {"float": float if exact else _rounded, "int": int, "bool": bool, "text": str}[kind]
    return {
        "dims": [str(dim) for dim in array.dims],
        "type": kind,
        "attrs": _attributes(array.attrs),
        "values": [convert(each) for each in array.values.ravel().tolist()],
    }


def _rounded(value: float) -> float | int | str | None:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.{DIGITS}g}")


def _array(
    part: Mapping[str, Any], sizes: Mapping[str, int]
) -> tuple[list[str], np.ndarray, Fields]:
    dims, kind, values = [_name(dim) for dim in part["dims"]], part["type"], part["values"]
    allowed = {"float": (int, float, str, type(None)), "int": int, "bool": bool, "text": str}[kind]
    if not isinstance(values, list) or not all(isinstance(each, allowed) for each in values):
        raise FigureFileError(f"it has values that are no {kind}")
    if kind == "float":
        values = [math.nan if each is None else float(each) for each in values]
    shape = [sizes[dim] for dim in dims]
    return dims, np.array(values, dtype=_TYPES[kind]).reshape(shape), _attributes(part["attrs"])


def _attributes(attrs: Mapping[Any, Any]) -> Fields:
    """Return attributes as plain data: texts, numbers and lists of them."""
    return {str(name): _plain(value) for name, value in attrs.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(each) for each in value]
    if isinstance(value, (str, int, float)):
        return value
    raise FigureFileError(f"{value!r:.60} is no plain attribute")


def _json(value: Mapping[str, Any] | Iterable[str]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
