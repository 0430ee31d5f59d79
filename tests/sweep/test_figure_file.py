"""Figure files: small, exact enough, and read with bounds, since they may come from anybody."""

import gzip
import json
import re

import numpy as np
import pytest
import xarray as xr

from benign.sweep import figure_file
from benign.sweep.figure_file import FigureFileError, decode, encode

MADE = {"target": "own/fig1", "scale": "quick"}


def dataset(steps: int = 7, curves: int = 2, runs: int = 12) -> xr.Dataset:
    noise = np.random.default_rng(0)
    finals = {
        "status": (("snr", "seed"), np.full((runs, 3), 2, np.int8), {"flag_values": [0, 1, 2]}),
        "steps": (("snr", "seed"), np.full((runs, 3), 12345.0)),
        "test_loss": (("snr", "seed"), np.exp(9 * noise.normal(size=(runs, 3))), {"units": "nats"}),
    }
    named = {
        f"score_{n}_curve": (("snr", "seed", "step"), noise.normal(size=(runs, 3, steps)))
        for n in range(curves)
    }
    coords = {
        "snr": ("snr", np.geomspace(0.1, 10, runs), {"symbol": "SNR"}),
        "seed": range(3),
        "step": range(steps),
        "model": ("snr", [f"model {n}" for n in range(runs)]),
    }
    return xr.Dataset({**finals, **named}, coords, {"runs": 3 * runs, "devices": "cpu"})


def test_what_is_read_is_what_was_written_to_four_digits():
    result = dataset()
    result["test_loss"][0, 0], result["test_loss"][1, 0] = np.nan, np.inf
    found, made = decode(encode(result, MADE))
    assert made == MADE
    assert found.attrs == {**result.attrs, "left_out": []}
    for name, coordinate in result.coords.items():
        assert coordinate.identical(found[name]), "coordinates are exact, so that results align"
    for name, array in result.items():
        assert array.attrs == found[name].attrs
        np.testing.assert_allclose(found[name].values, array.values, rtol=5.001e-4)
        assert array.dtype.kind == found[name].dtype.kind
    assert (found.steps == 12345).all(), "whole numbers are exact"
    digits = re.sub(r"e.*|[-.]", "", repr(float(found.test_loss[3, 0]))).strip("0")
    assert len(digits) <= figure_file.DIGITS
    assert decode(encode(found, MADE))[0].identical(found), "nothing is lost twice"


def test_a_large_result_keeps_every_run_and_fewer_curves():
    result = dataset(steps=900, curves=12, runs=300)
    content = encode(result, MADE)
    found, _ = decode(content)
    assert len(content) <= figure_file.LARGEST
    assert {"status", "steps", "test_loss"} <= set(found)
    assert found.sizes["step"] == figure_file.STEPS[-1]
    assert [found.step.values[0], found.step.values[-1]] == [0, 899]
    left_out = found.attrs["left_out"]
    assert 0 < len(left_out) < 12
    assert set(left_out) == set(result) - set(found)
    assert decode(encode(found, MADE))[0].attrs["left_out"] == left_out


def test_a_result_with_too_many_axes_is_refused():
    with pytest.raises(FigureFileError, match="300,000 are allowed"):
        encode(xr.Dataset(coords={"x": np.random.default_rng(0).normal(size=60_000)}), MADE)


def changed(**parts: object) -> bytes:
    fields = json.loads(gzip.decompress(encode(dataset(), MADE)))
    return gzip.compress(json.dumps({**fields, **parts}).encode())


def variable(**parts: object) -> dict[str, object]:
    whole = {"dims": ["snr"], "type": "float", "attrs": {}, "values": [0.0] * 12}
    return {"test_loss": {**whole, **parts}}


WRONG = {
    "nothing": b"",
    "no gzip": b"{}",
    "no JSON": gzip.compress(b"\x93NUMPY"),
    "a list": gzip.compress(b"[]"),
    "deep": gzip.compress(b"[" * 100_000),
    "a bomb": gzip.compress(b" " * (figure_file.LARGEST_TEXT + 1)),
    "large": bytes(figure_file.LARGEST + 1),
    "cut": encode(dataset(), MADE)[:-9],
    "flipped": bytes([*encode(dataset(), MADE)[:500], 7, *encode(dataset(), MADE)[501:]]),
    "two files": encode(dataset(), MADE) * 2,
    "another format": changed(format="benign figure 2"),
    "NaN": gzip.compress(b'{"format": "benign figure 1", "sizes": NaN}'),
    "no sizes": changed(sizes=[]),
    "huge sizes": changed(sizes={"snr": 10**12, "seed": 10**12, "step": 7}),
    "a negative size": changed(sizes={"snr": -1, "seed": 3, "step": 7}),
    "no dimension": changed(variables=variable(dims=["nowhere"])),
    "too few values": changed(variables=variable(values=[0.0])),
    "words for numbers": changed(variables=variable(values=["a"] * 12)),
    "lists for numbers": changed(variables=variable(values=[[0.0]] * 12)),
    "an unknown type": changed(variables=variable(type="object")),
    "a large integer": changed(variables=variable(type="int", values=[2**70] * 12)),
    "an odd name": changed(variables={"../x": variable()["test_loss"]}),
    "an odd attribute": changed(attrs={"a": {"b": 1}}),
    "no record": changed(made=3),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG.keys())
def test_a_file_of_a_stranger_is_refused_in_one_sentence(content: bytes, tmp_path):
    with pytest.raises(FigureFileError):
        decode(content)
    (tmp_path / "theirs.json.gz").write_bytes(content)
    with pytest.raises(FigureFileError, match="is no figure file: "):
        figure_file.read(tmp_path / "theirs.json.gz")
