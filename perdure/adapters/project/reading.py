"""Files of a repository nobody vouches for: read bounded, absent when unreadable."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

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
        return tomllib.loads(read(path))
    except tomllib.TOMLDecodeError:
        return {}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object, empty when there is none that parses."""
    try:
        data = json.loads(read(path))
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
