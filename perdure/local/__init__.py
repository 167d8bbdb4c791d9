"""The embedded Temporal server and the supervised worker of one PERDURE_HOME."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Callback that shows one line of progress to the person who waits."""
