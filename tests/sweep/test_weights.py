"""Final weights that were kept are those that the run ended with."""

from itertools import product

import pytest
import torch
from safetensors.torch import load, save

import benign as bo
from tests.says import says


def sweep() -> bo.Experiment:
    return bo.Experiment(
        data=bo.Images(source="digits", samples=[12, 20], classes=(0, 1), labels="signed"),
        network=bo.TwoLayer(width=4, activation="relu", preset="torch_default"),
        training=bo.SGD(rate=0.1, epochs=3, batch=6),
        evaluation=bo.Evaluation(samples=10),
        seeds=2,
    )


def test_kept_weights_are_those_of_the_replayed_run(tmp_path):
    sweep().run(tmp_path, keep_weights=True)
    found = bo.weights(tmp_path, samples=20, seed=1)
    expected = sweep().replay(samples=20, seed=1).last.batch.params
    assert found.keys() == expected.keys()
    for name, part in expected.items():
        torch.testing.assert_close(found[name], part, rtol=1e-6, atol=1e-7)


def test_weights_are_kept_only_where_asked_for(tmp_path):
    sweep().run(tmp_path)
    assert not (tmp_path / "weights").exists()
    message = says(str(tmp_path), "weights", "keep_weights=True", "--keep-weights")
    with pytest.raises(ValueError, match=message):
        bo.weights(tmp_path, samples=12)


def cut(data: bytes) -> bytes:
    return data[:-8]


def flipped(data: bytes) -> bytes:
    """With the lowest bit of the last weight's exponent flipped."""
    return data[:-1] + bytes([data[-1] ^ 1])


def unsigned(data: bytes) -> bytes:
    """The same weights as 0.1.0 wrote them, without a checksum."""
    return save(load(data), {"note": "these runs"})


@pytest.mark.parametrize("damage", [cut, flipped, unsigned])
def test_damaged_weights_are_reported_and_never_read_as_other_numbers(damage, tmp_path, run):
    sweep().run(tmp_path, keep_weights=True)
    assert run("store", "check", tmp_path)[0] == 0
    sound, *others = sorted((tmp_path / "weights").iterdir())
    for path in others:
        path.write_bytes(damage(path.read_bytes()))
    refused = 0
    for samples, seed in product((12, 20), range(2)):
        try:
            bo.weights(tmp_path, samples=samples, seed=seed)
        except ValueError:
            refused += 1
    assert refused == len(others) == 3
    code, out, _ = run("store", "check", tmp_path)
    assert code == 1
    assert [str(path) in out for path in (sound, *others)] == [False, True, True, True]
    assert run("store", "check", tmp_path, "--remove")[0] == 1
    assert [*(tmp_path / "weights").iterdir()] == [sound]
    assert run("store", "check", tmp_path)[0] == 0


def test_a_link_among_the_weights_is_not_followed(tmp_path, run):
    folder, path = tmp_path / "run", tmp_path / "other.safetensors"
    sweep().run(folder, keep_weights=True)
    path.write_bytes(b"of somebody else")
    (folder / "weights" / path.name).symlink_to(path)
    assert run("store", "check", folder, "--remove")[0] == 0
    assert path.exists()


def test_weights_of_other_numerics_are_not_those_of_today(tmp_path, monkeypatch):
    sweep().run(tmp_path, keep_weights=True)
    monkeypatch.setattr("benign.sweep.folders.NUMERICS", 77)
    with pytest.raises(ValueError, match="numerics"):
        bo.weights(tmp_path, samples=12)
