"""JSON Schema (draft 2020-12) of everything that is sent to a delivery, and of everything that comes out of it."""

from __future__ import annotations

from schemas.catalogue import SHAPES, Shape
from schemas.generate import files, schema

__all__ = ["SHAPES", "Shape", "files", "schema"]
