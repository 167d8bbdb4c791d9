"""JSON Schema (draft 2020-12) of everything that is sent to a delivery, and of everything that comes out of it."""

from __future__ import annotations

from schemas.catalogue import SHAPES, PublishedShape
from schemas.generate import build_files, build_schema

__all__ = ["SHAPES", "PublishedShape", "build_files", "build_schema"]
