"""Checks of fields that a delivery's request and a backlog's have in common."""

from __future__ import annotations

from typing import Any

from perdure.models.base import json_type_name
from perdure.models.issue import IssueName
from perdure.models.limits import PLACE_CHARS, REQUEST_BYTES


def drop_nulls(raw: Any) -> Any:
    """Return a JSON object without fields that are null: programs in Go and Java write null for a field that nobody
    set.

    A null `repository` stays, and a null `request` becomes empty. Anything but an object is returned as it is.
    """
    if not isinstance(raw, dict):
        return raw
    kept = {name: value for name, value in raw.items() if value is not None or name == "repository"}
    return kept | ({"request": ""} if "request" in raw and "request" not in kept else {})


def require_bool(value: Any) -> Any:
    """Return the value, or raise ValueError for all but true and false: pydantic would convert words and numbers."""
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value


def check_text_size(text: str | None) -> str | None:
    """Return the text, or raise ValueError where it has more than REQUEST_BYTES, as much as history holds."""
    if text is not None and len(text.encode()) > REQUEST_BYTES:
        raise ValueError(f"is {len(text.encode())} bytes, at most {REQUEST_BYTES} (64 KiB) fit: shorten it")
    return text


def check_issue(issue: Any) -> Any:
    """Return the value of field `issue`, or raise ValueError where it names no issue; None is allowed."""
    if issue is not None:
        if isinstance(issue, bool) or not isinstance(issue, int | str):
            raise ValueError(f"is {json_type_name(issue)}: write 12, #12 or https://…/issues/12")
        if len(str(issue)) > PLACE_CHARS:
            raise ValueError(f"is {len(str(issue))} characters long, at most {PLACE_CHARS} fit")
        IssueName.parse(issue)
    return issue
