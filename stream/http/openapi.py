"""What the endpoints say of themselves, as one OpenAPI document: each description stands at its endpoint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from stream.http.problems import MEDIA_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

F = TypeVar("F", bound="Callable[..., Any]")

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
TEXT: Final[dict[str, Any]] = {"type": "string"}
_DESCRIBED: Final = "described"
_SECURITY: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token out of the server's file."},
    "ticket": {"type": "apiKey", "in": "query", "name": "ticket", "description": "Leave to read one stream: `/v1/tickets`."},
}
_WHYS: Final = {
    400: "What was sent can't be read.",
    401: "Nobody has said who is asking, or he is not known.",
    403: "He may not do that.",
    404: "There is no such thing.",
    409: "Something else has happened first.",
    410: "It is gone.",
    413: "More was sent than is taken at once.",
    415: "The body is of another type.",
    421: "The request was meant for another server.",
    422: "What was sent is not as it must be.",
    503: "Not right now: try again.",
    507: "There is no room left.",
}


class Listed(Protocol):
    """A route that can be described: its path, and what each method of it does."""

    path: str
    handlers: dict[str, Callable[..., Any]]


class ProblemBody(msgspec.Struct):
    """Why something was not done (RFC 9457). `error` is a word for programs; some have more fields."""

    status: int
    title: str
    error: str
    detail: str


class Parameter(msgspec.Struct, frozen=True):
    """Of the query or, with `is_header`, of the headers. `schema` is JSON Schema."""

    name: str
    description: str
    schema: dict[str, Any]
    is_header: bool = False


class Content(msgspec.Struct, frozen=True):
    """A body, sent or answered. `shape` is a type that msgspec knows, or JSON Schema."""

    description: str
    shape: Any = None
    media_type: str = JSON
    headers: dict[str, str] = {}
    example: Any = None


class Description(msgspec.Struct, frozen=True):
    """One operation. `problems` are the statuses it may answer with beside those that every one may."""

    tag: str
    summary: str
    detail: str
    parameters: tuple[Parameter, ...]
    body: Content | None
    is_body_needed: bool
    answers: dict[int, Content]
    problems: tuple[int, ...]
    is_open: bool


def describe(
    tag: str, summary: str, *, answers: Mapping[int, Content], detail: str = "", parameters: Iterable[Parameter] = (),
    body: Content | None = None, is_body_needed: bool = True, problems: Iterable[int] = (), is_open: bool = False,
) -> Callable[[F], F]:  # fmt: skip
    """Says of the endpoint below what it does. `is_open`: nobody is asked who he is."""
    return described_as(
        Description(tag, summary, detail, tuple(parameters), body, is_body_needed, dict(answers), tuple(problems), is_open)
    )


def described_as(described: Description) -> Callable[[F], F]:
    """Says so of the endpoint below."""

    def mark(handler: F) -> F:
        setattr(handler, _DESCRIBED, described)
        return handler

    return mark


def description_of(handler: Callable[..., Any]) -> Description | None:
    """What an endpoint says of itself."""
    return getattr(handler, _DESCRIBED, None)


def make_document(title: str, version: str, endpoints: Iterable[Listed]) -> dict[str, Any]:
    """The document. Source: OpenAPI 3.1.0."""
    operations = [
        (endpoint.path, method, described)
        for endpoint in endpoints
        for method, handler in endpoint.handlers.items()
        if (described := description_of(handler)) is not None
    ]
    shapes = _Shapes([described for _, _, described in operations])
    paths: dict[str, dict[str, Any]] = {}
    for path, method, described in operations:
        there = paths.setdefault(_plain(path), {"parameters": _path_parameters(path)})
        there[method.lower()] = _operation(path, method, described, shapes)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": shapes.components, "securitySchemes": _SECURITY},
    }


class _Shapes:
    def __init__(self, described: Iterable[Description]) -> None:
        contents = [content for one in described for content in (one.body, *one.answers.values()) if content is not None]
        kinds = [ProblemBody, *(each.shape for each in contents if each.shape is not None and not isinstance(each.shape, dict))]
        unique = list({id(kind): kind for kind in kinds}.values())
        found, self.components = msgspec.json.schema_components(unique, ref_template="#/components/schemas/{name}")
        self._schemas = {id(kind): schema for kind, schema in zip(unique, found, strict=True)}

    def of(self, shape: Any) -> dict[str, Any]:
        return shape if isinstance(shape, dict) else {} if shape is None else self._schemas[id(shape)]


def _operation(path: str, method: str, described: Description, shapes: _Shapes) -> dict[str, Any]:
    answers = {
        str(status): {
            "description": content.description,
            "headers": {name: {"description": why, "schema": TEXT} for name, why in content.headers.items()},
            **({"content": _content(content, shapes)} if content.shape is not None or content.media_type != JSON else {}),
        }
        for status, content in described.answers.items()
    }
    usual = (400, 421, 503) if described.is_open else (400, 401, 403, 421, 503)
    for status in sorted({*usual, *described.problems}):
        problem = Content(_WHYS.get(status, "It could not be done."), ProblemBody, MEDIA_TYPE)
        answers[str(status)] = {"description": problem.description, "content": _content(problem, shapes)}
    operation: dict[str, Any] = {
        "operationId": _operation_id(path, method),
        "tags": [described.tag],
        "summary": described.summary,
        "parameters": [
            {"name": each.name, "in": "header" if each.is_header else "query", "description": each.description,
             "required": False, "schema": each.schema}
            for each in described.parameters
        ],
        "responses": answers,
    }  # fmt: skip
    if described.detail:
        operation["description"] = described.detail
    if not described.is_open:
        operation["security"] = [{}, {"bearer": []}] + ([{"ticket": []}] if method == "GET" and "{" in path else [])
    if described.body is not None:
        operation["requestBody"] = {
            "description": described.body.description, "required": described.is_body_needed,
            "content": _content(described.body, shapes),
        }  # fmt: skip
    return operation


def _content(content: Content, shapes: _Shapes) -> dict[str, Any]:
    example = {} if content.example is None else {"example": content.example}
    return {content.media_type: {"schema": shapes.of(content.shape), **example}}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in _names(path)]


def _names(path: str) -> list[str]:
    return re.findall(r"\{(\w+)(?::\w+)?\}", path)


def _plain(path: str) -> str:
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def _operation_id(path: str, method: str) -> str:
    words = [word for word in re.split(r"\W+", path.removeprefix("/v1")) if word]
    return "_".join([method.lower(), *words])
