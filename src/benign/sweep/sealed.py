"""Small JSON files of a store that carry a checksum of their content."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from benign.sweep.records import DamagedRecord, canonical_json


def sealed(content: Mapping[str, Any]) -> bytes:
    """The bytes of a file with this content."""
    return canonical_json({**content, "sha256": _checksum(content)}).encode()


def unsealed(data: bytes, required: bool = True) -> dict[str, Any]:
    """The content of a file; DamagedRecord unless it is as it was written.

    The checksum may be missing where it is not `required`.
    """
    try:
        content = json.loads(data)
        checksum = content.pop("sha256", None)
        intact = checksum == _checksum(content) or (checksum is None and not required)
    # Nothing but these bytes went in: RecursionError of brackets, OverflowError of numbers, and many more.
    except Exception as error:
        raise DamagedRecord(f"is damaged ({error})") from error
    if not intact:
        raise DamagedRecord("is damaged (its checksum does not fit its content)")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(dict(content)).encode()).hexdigest()
