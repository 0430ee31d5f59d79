"""The JSON schema of specifications: with it editors complete fields, explain them and mark mistakes.

It knows every component that is loaded, those of a user's own too. Rules across fields are not in it: `benign show`
checks them.
"""

import re
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from benign.experiment import SPECIFICATION, Experiment
from benign.spec.registry import Component


class _Generator(GenerateJsonSchema):
    """Without a title for every field, which would repeat its name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def experiment_schema() -> dict[str, Any]:
    """The schema of a file that holds an experiment."""
    families = Component.families
    parts = [*families, *(part for choices in families.values() for part in choices.values())]
    wanted: Any = [(part, "validation") for part in (Experiment, *parts)]
    places, made = models_json_schema(wanted, schema_generator=_Generator)
    models = made["$defs"]
    names = {model: place["$ref"].rpartition("/")[2] for (model, _), place in places.items()}
    for model in models.values():
        model["description"] = _without_examples(model.get("description", ""))
    for family, choices in families.items():
        for kind, part in choices.items():
            told = {"const": kind, "description": models[names[part]]["description"]}
            models[names[part]]["properties"] = {"kind": told, **models[names[part]]["properties"]}
        models[names[family]] = {
            "description": models[names[family]]["description"],
            "anyOf": [
                _choice(names[part], needed=kind != family.default_kind)
                for kind, part in choices.items()
            ],
        }
    whole = models.pop(names[Experiment])
    version = {"const": SPECIFICATION, "description": "version of the format of this file"}
    whole["properties"] = {"benign": version, **whole["properties"]}
    return {"$schema": _Generator.schema_dialect, **whole, "$defs": models}


def _choice(name: str, needed: bool) -> dict[str, Any]:
    """A component in place of its family; a file says which by its `kind`, which only a default may leave out."""
    part: dict[str, Any] = {"$ref": f"#/$defs/{name}"}
    return {"allOf": [part, {"required": ["kind"]}]} if needed else part


def _without_examples(docstring: str) -> str:
    return re.split(r"\n\s*>>>", docstring)[0].strip()
