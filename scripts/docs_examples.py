"""Docstrings as the site shows them: examples as code, `<w, x>` as it stands and not as a tag."""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Readable(Extension):
    """Plain docstrings to markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Fence the examples, escape angle brackets everywhere else."""
    parts, end = [], 0
    for match in EXAMPLE.finditer(text):
        parts += [escaped(text[end : match.start()]), f"```pycon\n{match[0]}\n```"]
        end = match.end()
    return "".join([*parts, escaped(text[end:])])


def escaped(text: str) -> str:
    """Markdown in which `<w, x>` outside code is no tag; comments stay."""
    spans = re.split(r"(```.*?```|`[^`]*`)", text, flags=re.DOTALL)
    tags = re.compile(r"<(?!!--)")
    return "".join(each if each.startswith("`") else tags.sub("&lt;", each) for each in spans)
