"""The output of a command: the same texts everywhere; colour and live lines only where a terminal shows them, similar
plain characters where it cannot show Perdure's marks.

Rich is imported only where there is a terminal: it takes longer to load than most output takes to print. Used by every
command and by the demo.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from perdure.models.errors import BadInput
from perdure.models.limits import MESSAGE_BYTES
from perdure.models.patch import label_lines
from perdure.text import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text


PLAIN_ERRORS = "perdure.plain"
"""Name of the error handler for encoding: needed in a C locale without UTF-8 mode, or an old 8-bit one."""

_SUBSTITUTES = dict(zip("✓✗↻▸–−—·│─╭╮╰╯“”‘’×", "vx@>---||-++++\"\"''x", strict=True)) | {"→": "->", "…": "..."}


def _substitute(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_SUBSTITUTES.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def as_json(value: Any, stream: TextIO, indent: int | None = None) -> str:
    """Return a value as JSON text for a stream; a string is taken as JSON already.

    Where the stream is not UTF-8, everything beyond ASCII is escaped: a substitute for a quotation mark would end a
    string.
    """
    if (stream.encoding or "utf-8").lower().startswith("utf"):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=indent)
    return json.dumps(json.loads(value) if isinstance(value, str) else value, indent=indent)


codecs.register_error(PLAIN_ERRORS, _substitute)


_COLOURS = {"✓": "green", "✗": "red", "!": "yellow", "↻": "yellow", "▸": "cyan", "–": "dim"}
_DIFF = {"added": "green", "gone": "red", "place": "cyan", "file": "bold"}


class Screen:
    """The output of one command.

    json       only JSON goes to standard output; everything else goes to standard error
    to_stderr  what happens meanwhile goes to standard error: standard output is for the one text that was asked for
    """

    def __init__(self, *, json: bool = False, to_stderr: bool = False) -> None:
        self.json = json
        self.to_stderr = to_stderr
        stream = sys.stderr if to_stderr else sys.stdout
        self.is_terminal = not json and stream.isatty() and os.environ.get("TERM") not in ("dumb", "")

    @cached_property
    def console(self) -> Console:
        """Return Rich's console, made at first use; it honours NO_COLOR."""
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=self.to_stderr)

    @property
    def width(self) -> int:
        """Return the terminal's width; without a terminal the usual WIDTH."""
        from perdure.render.step_lines import WIDTH

        return self.console.width if self.is_terminal else WIDTH

    @property
    def table_width(self) -> int | None:
        """Return how wide a table may be: the terminal's width; None where nothing needs to be cut, as in a pipe."""
        return self.console.width if self.is_terminal else None

    @contextmanager
    def live_display(self) -> Iterator[Live | None]:
        """Show lines that change in their place while the context is open, and remove them at its end.

        Yields Rich's display, to be updated by the caller; None where there is no terminal.
        """
        if not self.is_terminal:
            yield None
            return
        from rich.live import Live

        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            yield live
            live.update("", refresh=True)

    def print_line(self, text: str = "") -> None:
        """Print one line of the command's output; its first character, a mark, is coloured on a terminal."""
        if self.is_terminal:
            self.console.print(self.colour_mark(text))
        else:
            print(text, file=sys.stderr if self.to_stderr else None, flush=True)

    def print_lines(self, texts: Iterable[str]) -> None:
        """Print each text as one line."""
        for text in texts:
            self.print_line(text)

    def say(self, text: str) -> None:
        """Print one line about what happens meanwhile (what is started, what is waited for); with `json` to standard
        error."""
        if self.json:
            print(text, file=sys.stderr, flush=True)
        else:
            self.print_line(text)

    def print_json(self, value: Any) -> None:
        """Print a JSON document on standard output. A string is taken as JSON already."""
        print(as_json(value, sys.stdout, 2), flush=True)

    def print_diff(self, patch: str) -> None:
        """Print what a person sees of a patch, coloured on a terminal."""
        if not self.is_terminal:
            print(visible(patch), end="", flush=True)
            return
        from rich.text import Text

        data = patch.encode(errors="replace")
        for kind, start, end in label_lines(data):
            line = data[start:end].decode().removesuffix("\r")
            self.console.print(Text(visible(line), style=_DIFF.get(kind, "")))

    def colour_mark(self, text: str) -> Text:
        """Return the text for Rich, with the mark at its beginning in that mark's colour."""
        from rich.text import Text

        coloured = Text(text)
        if colour := _COLOURS.get(text[:1]):
            coloured.stylize(colour, 0, 1)
        return coloured


def text_or_stdin(text: str, most_bytes: int = MESSAGE_BYTES) -> str:
    """Return the text that was typed, or for `-` what standard input holds, waiting for its end, up to one byte more
    than such a text may have. Raises BadInput for bytes that are no text."""
    if text != "-":
        return text
    from perdure.adapters.system.bounded import decode_text, unreadable_reason

    data = sys.stdin.buffer.read(most_bytes + 1)
    try:
        return data.decode(errors="replace") if len(data) > most_bytes else decode_text(data, most_bytes)
    except UnicodeDecodeError as error:
        raise BadInput(unreadable_reason(error), where="standard input", fix="save it as UTF-8") from None
