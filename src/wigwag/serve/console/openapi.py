"""The API of the console as an OpenAPI document, from one table. A test compares the table with what is served."""

from __future__ import annotations

from typing import Any, NamedTuple

from wigwag.version import __version__


class ApiOperation(NamedTuple):
    """One operation: what it returns, its parameters, and the members of its body."""

    method: str
    summary: str
    query: tuple[str, ...] = ()
    body: tuple[str, ...] = ()


_KEY = "key: the key of the flag"
_CONTEXTS = "contexts: a list of evaluation contexts, at most 10000"
AGENT: dict[str, ApiOperation] = {
    "": ApiOperation("get", "The face, its version, the views that it has, and the snapshot that is served"),
    "/flags": ApiOperation("get", "All flags as rows: key, type, state, default, rule in words, source, last change"),
    "/flag": ApiOperation(
        "get",
        "One flag: definition, rule in words, what it hides, findings, history",
        (_KEY, "set: its flag set, if several have the key"),
    ),
    "/evaluations": ApiOperation("get", "Evaluations by key and variant: in total, and in samples of 10 seconds"),
    "/try": ApiOperation(
        "post", "What a context gets, why, and what it got in earlier snapshots", (), (_KEY, "context: an object")
    ),
    "/distribution": ApiOperation("post", "How contexts spread over the variants of a flag", (), (_KEY, _CONTEXTS)),
    "/whatif": ApiOperation(
        "post",
        "What a document would change: findings, difference, shares and contexts that move. Nothing is written",
        (),
        ("document: JSON or YAML, as text", "source: the source that it replaces; none: on top of all", _CONTEXTS),
    ),
    "/sources": ApiOperation("get", "Each source: state, age, last error, and the flags that it contributes and hides"),
    "/streams": ApiOperation("get", "Open sync streams: who, which selector, which snapshot was sent last"),
    "/snapshots": ApiOperation("get", "The snapshots that are kept, the newest first"),
    "/diff": ApiOperation(
        "get", "What differs between two snapshots", ("from: number, id, current or previous", "to: the same")
    ),
    "/findings": ApiOperation("get", "What is wrong with the flags, the worst first"),
    "/events": ApiOperation("get", "Server-sent events: snapshot, status, evaluations; each says what to fetch again"),
    "/openapi.json": ApiOperation("get", "This document"),
}


def openapi() -> dict[str, Any]:
    """Return the document."""
    info = {
        "title": "wigwag console",
        "version": __version__,
        "description": "What the console of an agent shows. Reads only. Errors are {'error': text}.",
    }
    paths = {f"/console/api/v1{path}": {each.method: _described(each)} for path, each in AGENT.items()}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


def _described(operation: ApiOperation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": operation.summary,
        "responses": {
            "200": {"description": operation.summary},
            "400": {"description": "the request makes no sense; the error says what is wrong with it"},
            "401": {"description": "a token is needed"},
            "403": {"description": "not from this machine, or not with this token"},
        },
    }
    if operation.query:
        described["parameters"] = [
            {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
            for name, text in map(_split, operation.query)
        ]
    if operation.body:
        properties = {name: {"description": text} for name, text in map(_split, operation.body)}
        schema = {"type": "object", "properties": properties}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described


def _split(text: str) -> tuple[str, str]:
    name, _, rest = text.partition(": ")
    return name, rest
