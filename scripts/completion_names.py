"""Writes the names that shells complete: `python scripts/completion_names.py`, after adding a recipe or a claim."""

import json
from typing import Any

from benign.claims.study import SCALES
from benign.cli.completion import NAMES
from benign.data.sources import KNOWN
from benign.papers.claims import claims
from benign.papers.recipes import recipes


def names() -> dict[str, Any]:
    """Every name of the package, as `completion.json` holds them."""
    return {
        "scales": list(SCALES),
        "image_sets": list(KNOWN),
        "recipes": {
            name: {
                "title": recipe.title,
                "questions": {each.name: list(each.answers) for each in recipe.questions},
            }
            for name, recipe in sorted(recipes().items())
        },
        "claims": sorted(claims()),
    }


if __name__ == "__main__":
    NAMES.write_text(json.dumps(names(), indent=1) + "\n", encoding="utf-8")
