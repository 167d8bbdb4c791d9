"""A turn of an agent as people read it: its words, its tool calls with their output, and what it changed; bounded where
it is made, on the delivery's host, and sent from there to the page as one line of JSON."""

from __future__ import annotations

from pydantic import BaseModel


class ConversationBlock(BaseModel):
    """A text, or a tool call with its output.

    text       what the agent says, or where `engine` is True the engine says to it; empty for a call
    tool       the name of the tool; empty for a text
    arguments  what it was called with: a command, a path, or JSON
    output     what it answered; failed: the answer is an error
    change     of a call that writes one file: the diff of what it wrote, its beginning where that is long
    """

    text: str = ""
    engine: bool = False
    tool: str = ""
    arguments: str = ""
    output: str = ""
    failed: bool = False
    change: str = ""


class ConversationTurn(BaseModel):
    """All that one turn said and did.

    checkpoint  the one it ended with
    omitted     blocks that are left out behind these
    diff        the change of the turn, its beginning where it is long; changed: its files
    all_changed   files that differ from the delivery's base after the turn
    """

    checkpoint: str
    blocks: tuple[ConversationBlock, ...] = ()
    omitted: int = 0
    diff: str = ""
    changed: tuple[str, ...] = ()
    all_changed: tuple[str, ...] = ()
