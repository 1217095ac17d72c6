"""What a server says of itself: every endpoint is described, the page loads nothing, the schema fits the vocabulary."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import jsonschema_rs
import pytest

from ledger.http import make_app
from projector.events import BODIES
from projector.schema import vocabulary_schema
from projector.validation import validate
from stream import InvalidEvent, NewEvent
from stream.http.durable.app import StreamRoute
from stream.http.openapi import description_of
from stream.http.routes import Endpoint
from tests.talk import conversation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger import Ledger

LEDGERS = ["memory"]


@pytest.fixture
async def client(ledger: Ledger) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_app(ledger, cors_origins=("*",)))
    async with httpx.AsyncClient(transport=transport, base_url="http://served") as found:
        yield found


@pytest.mark.anyio
async def test_every_endpoint_that_is_served_is_described(ledger: Ledger, client: httpx.AsyncClient) -> None:
    served = [route for route in make_app(ledger).routes if isinstance(route, Endpoint | StreamRoute)]
    silent = [
        (route.path, method) for route in served for method, handler in route.handlers.items() if not description_of(handler)
    ]
    assert not silent
    document = (await client.get("/v1/openapi.json")).json()
    listed = {(path, method.upper()) for path, there in document["paths"].items() for method in there if method != "parameters"}
    assert listed == {(route.path.replace(":path}", "}"), method) for route in served for method in route.handlers}
    assert document["openapi"] == "3.1.0"
    ids = [
        operation["operationId"]
        for there in document["paths"].values()
        for name, operation in there.items()
        if name != "parameters"
    ]
    assert len(ids) == len(set(ids))
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert named <= set(document["components"]["schemas"])


@pytest.mark.anyio
async def test_the_page_loads_nothing_and_runs_nothing(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    page = answer.text
    assert "/v1/conversations/{id}/events" in page
    assert not re.search(r"<script|<img|<link|<iframe|@import|url\(|https?://|\son\w+=", page)


@pytest.mark.anyio
async def test_the_schema_of_the_vocabulary_is_served(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/schema.json")
    assert answer.headers["content-type"] == "application/schema+json"
    assert answer.json() == vocabulary_schema()
    assert set(answer.json()["$defs"]) == set(BODIES)


def test_the_schema_takes_what_the_ledger_takes_and_refuses_what_it_refuses() -> None:
    schema = vocabulary_schema()
    jsonschema_rs.meta.validate(schema)
    check = jsonschema_rs.validator_for(schema)
    events = [{"type": event.type, "data": json.loads(event.data)} for event in conversation()]
    wrong: list[dict[str, Any]] = [
        {"type": "run.started", "data": {}}, {"type": "run.started", "data": []}, {"type": "message.started"},
        {"type": "message.started", "data": {"run_id": "r", "message_id": "m", "role": "king"}},
        {"type": "block.delta", "data": {"message_id": "m", "block": "1", "text": "t"}}, {"type": "custom", "data": 1},
    ]  # fmt: skip
    for event in [*events, {"type": "custom", "data": {"a": 1}}]:
        assert check.is_valid(event), event
        validate([NewEvent(event["type"], json.dumps(event["data"]).encode())])
    for event in wrong:
        assert not check.is_valid(event), event
        with pytest.raises(InvalidEvent):
            validate([NewEvent(event["type"], json.dumps(event.get("data")).encode())])
