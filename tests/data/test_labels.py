"""What an axis of a picture is called: by the data model it belongs to, shortly."""

import re

import pytest

from benign.data.mixture import Mixture
from benign.data.model import DataModel
from benign.experiment import Experiment
from benign.sweep.dataset import assemble, short_name
from tests.tiny import tiny


def models(of: type[DataModel] = DataModel) -> list[type[DataModel]]:
    """Every data model of the package."""
    below = [each for cls in of.__subclasses__() for each in (cls, *models(cls))]
    return [each for each in below if each.__module__.startswith("benign.")]


NUMERIC = [
    (model, name)
    for model in models()
    for name, field in model.model_fields.items()
    if re.search(r"\b(int|float)\b", f"{field.annotation}")
]


@pytest.mark.parametrize(("model", "name"), NUMERIC, ids=[f"{m.__name__}.{n}" for m, n in NUMERIC])
def test_the_name_of_a_numeric_field_is_one_short_phrase(model, name):
    label = short_name(model, name)
    assert label
    assert not re.search(r"[,;:`]", label)
    assert label.count("(") == label.count(")")
    assert len(label) <= 70


def test_there_are_numeric_fields_of_every_model():
    assert {model for model, _ in NUMERIC} == set(models())


def test_axes_are_named_by_their_own_data_model():
    mixture = Experiment.from_dict(
        {
            **tiny().as_dict(),
            "data": {"kind": "mixture", "samples": 4, "dim": [4, 8], "signal": [1.0, 2.0]},
            "network": {"kind": "linear"},
        }
    )
    result = assemble(mixture, [])
    assert not any("token" in result[name].attrs["long_name"] for name in ("dim", "signal"))
    assert not any("token" in short_name(Mixture, name) for name in ("dim", "samples", "signal"))
    norms = tiny("data.snr=null", "data.signal=[1, 2]", "data.dim=[8, 16]")
    result = assemble(norms, [])
    assert "|mu|" in result.signal.attrs["long_name"]
    assert "snr" not in result.signal.attrs["long_name"]
    assert "token" in result.dim.attrs["long_name"]
