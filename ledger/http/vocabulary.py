"""The vocabulary of events as JSON Schema, for those who send them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from projector.schema import vocabulary_schema
from stream.http.openapi import Content, describe

if TYPE_CHECKING:
    from starlette.requests import Request

    from stream.http.routes import Handler

_SCHEMA_JSON = "application/schema+json"


class Vocabulary:
    """The endpoint."""

    def __init__(self) -> None:
        self._schema = msgspec.json.encode(vocabulary_schema())

    def routes(self) -> list[tuple[str, Handler, list[str]]]:
        """Path, endpoint, methods."""
        return [("/v1/schema.json", self.schema, ["GET"])]

    @describe(
        "documentation", "What the bodies of events hold", is_open=True,
        answers={200: Content("A JSON Schema of one event.", {"type": "object"}, _SCHEMA_JSON)},
    )  # fmt: skip
    async def schema(self, _: Request) -> Response:
        """The schema."""
        return Response(self._schema, media_type=_SCHEMA_JSON)
