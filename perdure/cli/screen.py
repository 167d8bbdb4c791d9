"""The output of a command: the same texts everywhere, colour and live lines only where a terminal shows them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perdure.cli.plain import as_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

_COLOURS = {"✓": "green", "✗": "red", "!": "yellow", "↻": "yellow", "▸": "cyan", "–": "dim"}
_DIFF = {"+": "green", "-": "red", "@": "cyan"}


class Screen:
    """One command's output.

    json   only JSON goes to standard output; what is said besides goes to standard error
    aside  what happens is told on standard error: standard output is for the one text that was asked for
    """

    def __init__(self, *, json: bool = False, aside: bool = False) -> None:
        self.json = json
        self.aside = aside
        told = sys.stderr if aside else sys.stdout
        self.terminal = not json and told.isatty() and os.environ.get("TERM") not in ("dumb", "")

    @cached_property
    def console(self) -> Console:
        """Rich's console; honours NO_COLOR."""
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=self.aside)

    @property
    def width(self) -> int:
        from perdure.cli.look.chapters import WIDTH

        return self.console.width if self.terminal else WIDTH

    @property
    def room(self) -> int | None:
        """For a table: the width of the terminal; None where nothing needs to be cut, as in a pipe."""
        return self.console.width if self.terminal else None

    @contextmanager
    def live(self) -> Iterator[Live | None]:
        """Lines that change in their place, gone at the end; None where there is no terminal."""
        if not self.terminal:
            yield None
            return
        from rich.live import Live

        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            yield live
            live.update("", refresh=True)

    def line(self, text: str = "") -> None:
        """One line of the answer."""
        if self.terminal:
            self.console.print(self.painted(text))
        else:
            print(text, file=sys.stderr if self.aside else None, flush=True)

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    def say(self, text: str) -> None:
        """Something on the way: what is being started, what is waited for."""
        if self.json:
            print(text, file=sys.stderr, flush=True)
        else:
            self.line(text)

    def data(self, value: Any) -> None:
        """A JSON document on standard output. Strings are taken as JSON already."""
        print(as_json(value, sys.stdout, 2), flush=True)

    def diff(self, text: str) -> None:
        """A patch, coloured on a terminal."""
        if not self.terminal:
            print(text, end="", flush=True)
            return
        from rich.text import Text

        for line in text.splitlines():
            heading = line.startswith(("+++", "---", "diff ", "index "))
            self.console.print(Text(line, style="bold" if heading else _DIFF.get(line[:1], "")))

    def painted(self, text: str) -> Text:
        """The mark at the beginning in its colour."""
        from rich.text import Text

        painted = Text(text)
        if colour := _COLOURS.get(text[:1]):
            painted.stylize(colour, 0, 1)
        return painted
