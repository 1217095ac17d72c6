"""Shows the OpenAPI document to programs, and as a plain page, that loads nothing from elsewhere, to people."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from stream.http.openapi import Content, Listed, describe, make_document
from stream.http.routes import Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}}
code,pre{{font:14px/1.4 ui-monospace,monospace;background:#f4f4f4}}code{{padding:.1em .3em}}pre{{padding:.7em;overflow:auto}}
td{{padding:.1em .8em .1em 0;vertical-align:top}}h3{{margin-top:2.2rem;border-top:1px solid #ddd;padding-top:1rem}}
@media(prefers-color-scheme:dark){{body{{color:#ddd;background:#181818}}code,pre{{background:#262626}}}}</style></head>
<body><h1>{title} {version}</h1><p>The same for programs: <a href="openapi.json">openapi.json</a></p>{body}</body></html>
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Documentation:
    """The endpoints that say what the others do."""

    def __init__(self, title: str, version: str, endpoints: Sequence[Listed]) -> None:
        self.endpoints = [Endpoint("/v1/openapi.json", {"GET": self.document}), Endpoint("/v1/docs", {"GET": self.page})]
        made = make_document(title, version, [*endpoints, *self.endpoints])
        self._document = msgspec.json.encode(made)
        self._page = write_page(made).encode()

    @describe("documentation", "What this server serves, for programs", is_open=True,
              answers={200: Content("An OpenAPI 3.1 document.", {"type": "object"})})  # fmt: skip
    async def document(self, _: Request) -> Response:
        """The OpenAPI document."""
        return Response(self._document, media_type="application/json")

    @describe("documentation", "What this server serves, for people", is_open=True,
              answers={200: Content("A page.", {"type": "string"}, "text/html")})  # fmt: skip
    async def page(self, _: Request) -> Response:
        """The same as a page."""
        return Response(self._page, media_type="text/html", headers={"Content-Security-Policy": _POLICY})


def write_page(document: dict[str, Any]) -> str:
    """The document as a page of plain HTML."""
    parts = []
    for path, there in document["paths"].items():
        named = there["parameters"]
        for method, operation in there.items():
            if method != "parameters":
                parts.append(_section(path, method, operation, named))
    told = {name: html.escape(text) for name, text in document["info"].items()}
    return _PAGE.format(body="\n".join(parts), **told)


def _section(path: str, method: str, operation: dict[str, Any], named: list[dict[str, Any]]) -> str:
    lines = [f'<h3 id="{html.escape(operation["operationId"])}"><code>{method.upper()} {html.escape(path)}</code></h3>']
    lines.append(f"<p>{html.escape(operation['summary'])}.</p>")
    lines += [f"<p>{html.escape(part)}</p>" for part in operation.get("description", "").split("\n\n") if part]
    rows = [
        (f"<code>{html.escape(each['name'])}</code>", each["in"], html.escape(each.get("description", "")))
        for each in [*named, *operation["parameters"]]
    ]
    if "requestBody" in operation:
        body = operation["requestBody"]
        rows.append(("body", html.escape(", ".join(body["content"])), html.escape(body["description"])))
    rows += [
        (f"<code>{status}</code>", html.escape(", ".join(answer.get("content", ()))), html.escape(answer["description"]))
        for status, answer in operation["responses"].items()
    ]
    cells = "".join(f"<tr><td>{a}</td><td>{b}</td><td>{c}</td></tr>" for a, b, c in rows)
    return "\n".join([*lines, f"<table>{cells}</table>"])
