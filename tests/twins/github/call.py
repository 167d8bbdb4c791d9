"""One request to the API, understood: what a handler works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.twins.github.access import Actor, Keys
from tests.twins.github.answers import Problem, Reply, not_found
from tests.twins.github.description import Operation
from tests.twins.github.state import LEVELS, Issue, Person, Pull, Repository, World

Json = dict[str, Any]

PER_PAGE = 30
MOST_PER_PAGE = 100


@dataclass
class Call:
    """`path` and `query` are the parameters, converted; `body` is the JSON, {} without one. `stale`: a list leaves
    its newest entry out."""

    world: World
    keys: Keys
    operation: Operation
    path: Json
    query: Json
    body: Any
    actor: Actor | None
    repository: Repository | None = None
    stale: bool = False

    @property
    def where(self) -> Repository:
        assert self.repository is not None
        return self.repository

    @property
    def who(self) -> Person:
        assert self.actor is not None
        return self.actor.person

    @property
    def named(self) -> Issue | None:
        """The issue or pull request of the path's number, if there is one."""
        return self.where.issues.get(self.path.get("issue_number") or self.path.get("pull_number") or 0)

    def may(self, level: str) -> bool:
        """Whether the account has that role here; an App has what its permissions say, and they were looked at."""
        assert self.actor is not None
        return LEVELS.index(self.actor.level(self.where)) >= LEVELS.index(level)

    def issue(self) -> Issue:
        """The one that the path names. Problem when it is not there, deleted, moved away, or issues are off."""
        found = self.named
        if found is None:
            raise not_found()
        if found.deleted:
            raise Problem(410, "This issue was deleted")
        if found.moved is not None:
            there, its_number = found.moved
            to = f"{self.world.api}/repositories/{there.id}/issues/{its_number}"
            raise moved(self.operation, to)
        if not isinstance(found, Pull) and not self.where.has_issues:
            raise Problem(410, "Issues has been disabled in this repository.")
        return found

    def pull(self) -> Pull:
        found = self.named
        if not isinstance(found, Pull):
            raise not_found()
        return found

    def page(self, items: list[Any]) -> Reply:
        """The part of a list that was asked for, with GitHub's links to the other ones."""
        size, number = self.query.get("per_page", PER_PAGE), max(self.query.get("page", 1), 1)
        size = min(max(size, 1), MOST_PER_PAGE)
        last = max(-(-len(items) // size), 1)
        pages: dict[str, int] = {}
        if number > 1:
            pages |= {"prev": min(number - 1, last), "first": 1}
        if number < last:
            pages |= {"next": number + 1, "last": last}
        links = ", ".join(f'<{self._link(page)}>; rel="{name}"' for name, page in pages.items())
        return Reply(200, items[(number - 1) * size : number * size], {"Link": links} if links else {})

    def _link(self, number: int) -> str:
        path = self.operation.path.removeprefix("/repos/{owner}/{repo}")
        for name, value in self.path.items():
            path = path.replace(f"{{{name}}}", str(value))
        query = urlencode({**self.query, "page": number})
        return f"{self.world.api}/repositories/{self.where.id}{path}?{query}"


def moved(operation: Operation, to: str) -> Problem:
    """GitHub's redirects: permanent for reading; for writing such that the method is kept."""
    status = 307 if operation.writes else 301
    return Problem(status, "Moved Permanently", headers={"Location": to}, more={"url": to})
