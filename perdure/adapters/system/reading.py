"""Files of a repository nobody vouches for: read bounded, absent when unreadable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.adapters.system.bounded import parse_json, parse_toml
from perdure.models.limits import PROJECT_FILE_BYTES

_BYTES = 4 * 1024 * 1024  # a large lock file; enough to recognise a toolchain


def read(path: Path, limit: int = _BYTES) -> str:
    """At most `limit` bytes of a regular file as text; empty when there is none (a FIFO would block for ever)."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", errors="replace")
    except OSError:
        return ""


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's table, empty when there is none that parses."""
    try:
        return parse_toml(read(path, PROJECT_FILE_BYTES + 1))
    except ValueError:
        return {}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object, empty when there is none that parses."""
    try:
        data = parse_json(read(path, PROJECT_FILE_BYTES + 1))
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
