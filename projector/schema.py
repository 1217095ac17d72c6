"""The vocabulary as JSON Schema: for whoever writes events in another language, or checks them before they are sent."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from projector.events import BODIES

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def vocabulary_schema() -> dict[str, Any]:
    """A schema of one event, `{"type", "data"}`; `$defs` has the body of each type by its name.

    Types that are not in it are legal, and so are more fields in a body. Source: JSON Schema 2020-12.
    """
    bodies = {name: _schema_of(body) for name, body in BODIES.items()}
    kinds = [
        {"properties": {"type": {"const": name}, "data": {"$ref": f"#/$defs/{name}"}}, "required": ["type", "data"]}
        for name in bodies
    ]
    others = {"properties": {"type": {"not": {"enum": [*bodies]}}, "data": {"type": "object"}}, "required": ["type", "data"]}
    return {
        "$schema": _DIALECT,
        "title": "An event of a conversation",
        "type": "object",
        "oneOf": [*kinds, others],
        "$defs": bodies,
    }


def _schema_of(body: type[msgspec.Struct]) -> dict[str, Any]:
    """Fields of free form may be absent, which msgspec has no schema for."""
    fields = [_without_default(field) for field in msgspec.structs.fields(body)]
    plain = msgspec.defstruct(body.__name__, fields, kw_only=True)
    _, found = msgspec.json.schema_components([plain])
    schema: dict[str, Any] = found[body.__name__]
    return schema | {"description": (body.__doc__ or "").strip()}


def _without_default(field: msgspec.structs.FieldInfo) -> tuple[str, Any] | tuple[str, Any, Any]:
    is_free = field.type is msgspec.Raw
    kind = Any if is_free else field.type
    if field.required:
        return field.encode_name, kind
    return field.encode_name, kind, msgspec.UNSET if is_free else field.default
