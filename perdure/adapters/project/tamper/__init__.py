"""The tamper gate: does a change make the repository's tests say less than they did? Decided from files and reports."""

from __future__ import annotations

from perdure.adapters.project.tamper.files import Files
from perdure.adapters.project.tamper.gate import judged, tampering
from perdure.adapters.project.tamper.inventory import Tampered

__all__ = ["Files", "Tampered", "judged", "tampering"]
