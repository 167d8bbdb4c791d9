"""The bench of this directory's tests."""

from __future__ import annotations

from turn_fixtures import bench

__all__ = ["bench"]
