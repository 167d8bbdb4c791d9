"""Who may fetch from and push to which repository."""

from __future__ import annotations

from pathlib import Path

from tests.twins.github import smart_http
from tests.twins.github.access import Actor, Keys, Kind
from tests.twins.github.rights import sees
from tests.twins.github.smart_http import Moved, Refusal, Visit
from tests.twins.github.state import LEVELS, Repository, World


class Doorman:
    """Lets git in by the same tokens as the API: the password of Basic authentication, whatever the name."""

    def __init__(self, world: World, keys: Keys) -> None:
        self._world, self._keys = world, keys

    def allowed(self, visit: Visit) -> Path | Refusal | Moved:
        actor: Actor | None = None
        if visit.password is not None:
            actor = self._keys.by_token(visit.password)
            if actor is None:
                return smart_http.BAD_CREDENTIALS
        it = self._world.repository(visit.repository)
        if it is None or not sees(actor, it) or (it.private and actor is not None and not _may(actor, it, "read")):
            return Refusal(401, smart_http.NOT_FOUND.text) if actor is None else smart_http.NOT_FOUND
        if visit.write and actor is None:
            return smart_http.ASK
        if it.full_name.lower() != visit.repository.lower():
            return Moved(it.full_name)
        if visit.write and it.archived:
            return smart_http.ARCHIVED
        if visit.write and actor is not None and not _may(actor, it, "write"):
            return smart_http.NO_WRITE
        return it.path


def _may(actor: Actor, it: Repository, level: str) -> bool:
    """The account's role, and what its token is good for."""
    if actor.limited and not (actor.reaches(it) and actor.granted("contents", level)):
        return False
    if not actor.limited and not set(actor.scopes) & ({"repo"} if it.private else {"repo", "public_repo"}):
        return False
    app = actor.kind is Kind.INSTALLATION
    return app or LEVELS.index(actor.level(it)) >= LEVELS.index(level)
