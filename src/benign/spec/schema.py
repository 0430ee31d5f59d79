"""The JSON schema of specifications, with which editors complete fields, explain them and mark mistakes.

It is a module of its own because it needs the whole experiment, which stands above spec/. The schema contains every
loaded component, also those of plugins. Rules across fields are not in it: `benign show` checks them.
"""

import re
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from benign.experiment import SPECIFICATION, Experiment
from benign.spec.base import descriptions
from benign.spec.registry import Component


class _Generator(GenerateJsonSchema):
    """With the docstring of every field, and without its title, which would repeat its name."""

    def model_schema(self, schema: Any) -> Any:
        made = super().model_schema(schema)
        for name, text in descriptions(schema["cls"]).items():
            if name in made["properties"]:
                made["properties"][name]["description"] = text
        return made

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def experiment_schema() -> dict[str, Any]:
    """Return the schema of a file that holds an experiment."""
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
            model = models[names[part]]
            constant = {"const": kind, "description": model["description"]}
            model["properties"] = {"kind": constant, **model["properties"]}
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
    """Return the schema of one choice of a family; only the default kind may leave out `kind`."""
    part: dict[str, Any] = {"$ref": f"#/$defs/{name}"}
    return {"allOf": [part, {"required": ["kind"]}]} if needed else part


def _without_examples(docstring: str) -> str:
    return re.split(r"\n\s*>>>", docstring)[0].strip()
