"""A stack of pull requests: what a backlog asks about them, and is told."""

from __future__ import annotations

from datetime import datetime

from perdure.models.base import Recorded


class StackPull(Recorded):
    """The pull request of one item. `delivery`: the key by which it is ours; `to`: the branch it has to be into, where
    that is another than it is now; empty: it is only looked at. `reopen`: it was closed with the branch it is into, and
    is opened again once that is back."""

    item: str
    delivery: str
    branch: str
    to: str = ""
    reopen: bool = False


class StackInput(Recorded):
    """`said`: the backlog's request without its items."""

    backlog: str
    repository: str
    pulls: tuple[StackPull, ...]
    said: dict[str, object] = {}


class Seen(Recorded):
    """`state`: open, merged or closed; `into`: its base now; `base_gone`: that branch is not there."""

    state: str
    into: str
    base_gone: bool = False


class StackSeen(Recorded):
    """By item, as far as there is a pull request of its."""

    seen: dict[str, Seen] = {}


class StackLeft(Recorded):
    """A stack to follow: by the backlog of that id, its request without items, its state. `until`: empty at first."""

    backlog: str
    said: dict[str, object]
    state: dict[str, object]
    until: datetime | None = None
