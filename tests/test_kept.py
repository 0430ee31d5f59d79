"""Final weights that were kept are those that the run ended with."""

import pytest
import torch

import benign as bo


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
    with pytest.raises(
        ValueError, match="holds no weights of this run: they are kept by keep_weights=True"
    ):
        bo.weights(tmp_path, samples=12)


def test_a_damaged_file_of_weights_is_told(tmp_path):
    sweep().run(tmp_path, keep_weights=True)
    for path in (tmp_path / "weights").iterdir():
        path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="cannot be read"):
        bo.weights(tmp_path, samples=12)
