"""The type of the fixture that makes small repositories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

Files = Callable[[Mapping[str, str]], Path]
