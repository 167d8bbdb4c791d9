"""Signals and updates of names that no workflow here has, and notes about messages that did not count."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from perdure.text import shorten


class UnknownMessages:
    """Takes signals and updates whose name is none of the workflow's own, from any client."""

    @workflow.signal(dynamic=True)
    def unknown_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Ignore a signal of an unknown name, with a note for people."""
        self.note_message(f"signal {self._describe_unknown(name, workflow.get_signal_handler)}, and was ignored")

    @workflow.update(dynamic=True)
    def unknown_update(self, name: str, args: Sequence[RawValue]) -> None:
        """Take no update: its validator refuses each."""

    @unknown_update.validator
    def _validate_unknown_update(self, name: str, args: Sequence[RawValue]) -> None:
        """Raise ApplicationError NotCounted, which names the updates that there are."""
        reason = f"update {self._describe_unknown(name, workflow.get_update_handler)}"
        raise ApplicationError(reason, type="NotCounted", non_retryable=True)

    def note_message(self, note: str) -> None:
        """Write to the worker's log that a message did not count; a workflow that shows notes shows it."""
        workflow.logger.warning(note)

    def _describe_unknown(self, name: str, find_handler: Callable[[str], Callable[..., Any] | None]) -> str:
        """Return `'aprove' is not known here (did you mean approve?)`, or with all names that have a handler."""
        known = [method for method in dir(type(self)) if find_handler(method) is not None]
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(known) or 'none'}"
        return f"{shorten(name, 60)!r} is not known here ({hint})"
