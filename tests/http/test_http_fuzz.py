"""Whatever is sent to any endpoint: the status that its description declares, never a 5xx, and a log that stays whole."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import CHECKS, load_all_checks

from tests.http.clients import HTTP
from tests.serving import serve
from tests.talk import finished, said, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.serving import Served

LEFT_OUT: Final = (
    "positive_data_acceptance",  # a conversation that does not exist is no mistake of form
    "use_after_free",
    "ensure_resource_availability",
    "missing_required_header",
    "ignored_auth",  # nobody is asked here
)
KNOWN: Final = {"id": "c1", "run": "r2", "path": "s1"}
ENDLESS: Final = "text/event-stream"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all that is thrown at it; what it keeps is looked through at the end."""
    with serve(tmp_path_factory.mktemp("fuzz") / "talks.db") as server:
        for number in range(3):
            url = f"{server.url}/v1/conversations/c{number}/events"
            talk = [started("r1"), *said("r1", "r1.1", "hello"), finished("r1"), started("r2", "r1.1")]
            events = [{"type": event.type, "data": json.loads(event.data)} for event in talk]
            HTTP.post(url, json=events).raise_for_status()
        stream = {"Content-Type": "text/plain"}
        HTTP.put(f"{server.url}/v1/stream/s1", content=b"text", headers=stream).raise_for_status()
        yield server
        assert HTTP.get(f"{server.url}/v1/conversations").status_code == 200
        assert server.stop() == 0
        command = [sys.executable, "-m", "ledger.admin", "--data", server.database, "verify", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def operations(served: Served) -> list[tuple[str, str]]:
    paths = HTTP.get(f"{served.url}/v1/openapi.json").json()["paths"]
    return [(path, method) for path, there in paths.items() for method in there if method != "parameters"]


def is_endless(operation: dict[str, Any]) -> bool:
    return any(ENDLESS in answer.get("content", ()) for answer in operation["responses"].values())


def fuzz(served: Served, examples: int) -> Counter[tuple[str, int]]:
    """How often each operation answered with which status."""
    load_all_checks()
    seen = Counter[tuple[str, int]]()
    checks: list[Any] = [check for check in CHECKS.get_all() if check.__name__ not in LEFT_OUT]
    schema = schemathesis.openapi.from_url(f"{served.url}/v1/openapi.json")
    for found, mode in itertools.product(schema.get_all_operations(), schemathesis.GenerationMode):
        operation = found.ok()
        if is_endless(operation.definition.raw):
            continue

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(known=st.booleans(), case=operation.as_strategy(generation_mode=mode))
        def attempt(known: bool, case: schemathesis.Case[Any]) -> None:  # noqa: FBT001 - drawn by chance
            if known:
                case.path_parameters.update({name: KNOWN[name] for name in case.path_parameters})
            answered = case.call_and_validate(base_url=served.url, checks=checks, timeout=20)
            seen[case.operation.label, answered.status_code] += 1

        with contextlib.suppress(Unsatisfiable) if mode.is_negative else contextlib.nullcontext():  # where any text will do
            attempt()
    return seen


@pytest.mark.heavy
def test_every_endpoint_answers_as_it_declares(served: Served) -> None:
    seen = fuzz(served, 15)
    assert {label for label, status in seen if status < 300} > {
        "GET /v1/conversations/{id}/transcript", "POST /v1/conversations/{id}/runs/{run}/cancel", "POST /v1/tickets",
    }  # fmt: skip
    assert seen["POST /v1/conversations/{id}/events", 422], "what is wrong was not tried"


@settings(max_examples=60)
@given(
    name=st.binary(min_size=1, max_size=20), after=st.binary(max_size=25), life=st.binary(max_size=10),
    last=st.from_regex(rb"[!-~\x80-\xff]{1,25}", fullmatch=True),
)  # fmt: skip
def test_whatever_position_a_follower_says_he_gets_events_or_why_not(
    served: Served, name: bytes, after: bytes, last: bytes, life: bytes
) -> None:
    """Of a conversation that is there, and of one by any name."""
    for path in (b"c1", quote(name, safe="").encode()):
        query = f"after={quote(after, safe='')}&incarnation={quote(life, safe='')}".encode()
        url = httpx.URL(served.url).copy_with(raw_path=b"/v1/conversations/%s/events?%s" % (path.replace(b".", b"%2E"), query))
        for headers in ({}, {b"Last-Event-ID": last}):
            with HTTP.stream("GET", url, headers=headers) as answer:
                assert answer.status_code in (200, 400, 404)
                assert answer.status_code != 404 or path != b"c1"


@pytest.mark.heavy
def test_every_endpoint_answers_as_it_declares_for_long(served: Served) -> None:
    fuzz(served, 400)
