"""Cuts the operations that the twin knows out of GitHub's own description of its REST API.

    python tests/twins/github/extract.py api.github.com.json > tests/twins/github/description.json

The big file is `generated/api.github.com.json` of the npm package @octokit/openapi (MIT; `npm pack @octokit/openapi`).
Words and examples go; every schema stays as strict as it was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OPERATIONS = (
    "apps/create-installation-access-token",
    "apps/get-authenticated",
    "apps/get-repo-installation",
    "issues/add-labels",
    "issues/create-comment",
    "issues/delete-comment",
    "issues/get",
    "issues/list-comments",
    "issues/update-comment",
    "pulls/create",
    "pulls/get",
    "pulls/list",
    "pulls/request-reviewers",
    "pulls/update",
    "repos/get",
    "repos/get-branch",
    "repos/get-branch-rules",
    "repos/get-repo-ruleset",
    "search/issues-and-pull-requests",
    "users/get-authenticated",
)
WORDS = ("description", "summary", "externalDocs", "tags", "title", "deprecated", "x-github-breaking-changes")
EXAMPLES = ("example", "examples", "default")
ERRORS = ("basic-error", "validation-error", "validation-error-simple")
NAMED = ("properties", "schemas", "parameters", "responses")
"""Under these, keys are names and not keywords: a property may be called `description`."""
LABELS = {"type": "array", "minItems": 1, "items": {"type": "string"}}
"""The description says in words alone that labels may also be sent as a bare array, as most clients do."""


def extract(big: dict[str, Any]) -> dict[str, Any]:
    """version, license, and by operation its method, path, parameters, body and replies; then the schemas."""
    components = big["components"]
    operations: dict[str, Any] = {}
    for path, item in big["paths"].items():
        for method, operation in item.items():
            if isinstance(operation, dict) and operation.get("operationId") in OPERATIONS:
                operations[operation["operationId"]] = _operation(method, path, operation, components)
    operations["issues/add-labels"]["body"]["schema"]["oneOf"].append(LABELS)
    missing = set(OPERATIONS) - operations.keys()
    if missing:
        raise SystemExit(f"not in this description: {', '.join(sorted(missing))}")
    schemas: dict[str, Any] = {}
    wanted = {*ERRORS, *_references(operations)}
    while wanted:
        name = wanted.pop()
        schemas[name] = _trim(components["schemas"][name])
        wanted |= _references(schemas[name]) - schemas.keys()
    return {
        "source": f"@octokit/openapi {big['info']['version']}, generated/api.github.com.json",
        "license": "MIT License, Copyright (c) 2020 Octokit contributors; see NOTICE beside this file",
        "operations": dict(sorted(operations.items())),
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _operation(method: str, path: str, operation: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    parameters = [_resolve(parameter, components) for parameter in operation.get("parameters", [])]
    found: dict[str, Any] = {
        "method": method.upper(),
        "path": path,
        "parameters": [
            {
                "name": parameter["name"],
                "in": parameter["in"],
                "required": parameter.get("required", False),
                "schema": _trim(parameter["schema"]),
            }
            for parameter in parameters
        ],
        "responses": {},
    }
    if "requestBody" in operation:
        body = _resolve(operation["requestBody"], components)
        found["body"] = {
            "required": body.get("required", False),
            "schema": _trim(body["content"]["application/json"]["schema"]),
        }
    for status, response in operation["responses"].items():
        content = _resolve(response, components).get("content", {})
        found["responses"][status] = _trim(content["application/json"]["schema"]) if content else None
    return found


def _resolve(value: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in value:
        _, _, kind, name = value["$ref"].split("/")
        value = components[kind][name]
    return value


def _trim(value: Any, names: bool = False) -> Any:
    if isinstance(value, dict):
        if not names and value.get("nullable"):
            # GitHub means null to be one of them; a validator wants it said.
            null: dict[str, Any] = {"enum": None, "oneOf": {"enum": [None]}, "anyOf": {"enum": [None]}}
            value |= {word: [*value[word], null[word]] for word in null if word in value}
        return {
            key: _trim(inner, key in NAMED and not names)
            for key, inner in value.items()
            if names or not (key in WORDS or key in EXAMPLES)
        }
    return [_trim(inner) for inner in value] if isinstance(value, list) else value


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"].rpartition("/")[2]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_references(inner) for inner in value.values()))
    return set().union(*map(_references, value)) if isinstance(value, list) else set()


if __name__ == "__main__":
    json.dump(extract(json.loads(Path(sys.argv[1]).read_text())), sys.stdout, separators=(",", ":"), sort_keys=False)
    print()
