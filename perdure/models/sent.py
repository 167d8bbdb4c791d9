"""Checks of fields that a delivery's request and a backlog's have in common."""

from __future__ import annotations

from typing import Any

from perdure.models.base import kind_of
from perdure.models.issue import IssueName
from perdure.models.limits import PLACE_CHARS, REQUEST_BYTES


def left_out(raw: Any) -> Any:
    """Without what is null: programs in Go and Java write it for a field that they have and nobody set."""
    if not isinstance(raw, dict):
        return raw
    kept = {name: value for name, value in raw.items() if value is not None or name == "repository"}
    return kept | ({"request": ""} if "request" in raw and "request" not in kept else {})


def a_switch(value: Any) -> Any:
    """Itself, before pydantic would take words or a number for it."""
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value


def bounded(text: str | None) -> str | None:
    """Itself: as much of it as a history holds."""
    if text is not None and len(text.encode()) > REQUEST_BYTES:
        raise ValueError(f"is {len(text.encode())} bytes, at most {REQUEST_BYTES} (64 KiB) fit: shorten it")
    return text


def an_issue(issue: Any) -> Any:
    """Itself, where it names an issue."""
    if issue is not None:
        if isinstance(issue, bool) or not isinstance(issue, int | str):
            raise ValueError(f"is {kind_of(issue)}: write 12, #12 or https://…/issues/12")
        if len(str(issue)) > PLACE_CHARS:
            raise ValueError(f"is {len(str(issue))} characters long, at most {PLACE_CHARS} fit")
        IssueName.parse(issue)
    return issue
