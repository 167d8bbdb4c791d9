"""What the twin knows: people, repositories, issues, pull requests, comments, labels. Branches are in git, on disk."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

LEVELS = ("none", "read", "triage", "write", "maintain", "admin")
"""What somebody may do in a repository; each includes those before it."""


def now() -> str:
    """As GitHub writes times: whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Person:
    """An account: `kind` is User, Organization or Bot."""

    id: int
    login: str
    kind: str = "User"


@dataclass(frozen=True)
class Label:
    id: int
    name: str
    color: str = "ededed"


@dataclass(eq=False)
class Comment:
    id: int
    author: Person
    body: str
    app: str | None = None
    created: str = field(default_factory=now)
    updated: str = field(default_factory=now)


@dataclass(eq=False)
class Issue:
    """Pull requests are issues too, and share their numbers. `moved`: where it has been transferred to; `milestone`:
    a title that searches know."""

    id: int
    number: int
    title: str
    body: str | None
    author: Person
    state: str = "open"
    state_reason: str | None = None
    locked: bool = False
    deleted: bool = False
    moved: tuple[Repository, int] | None = None
    labels: list[Label] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    assignees: list[Person] = field(default_factory=list)
    created: str = field(default_factory=now)
    updated: str = field(default_factory=now)
    closed: str | None = None
    closed_by: Person | None = None
    milestone: str = ""

    def touch(self) -> None:
        self.updated = now()

    def close(self, by: Person | None, reason: str | None = "completed") -> None:
        self.state, self.state_reason, self.closed, self.closed_by = "closed", reason, now(), by
        self.touch()

    def reopen(self) -> None:
        self.state, self.state_reason, self.closed, self.closed_by = "open", "reopened", None, None
        self.touch()


@dataclass(eq=False)
class Pull(Issue):
    """`head` and `base` are branches; the shas are what they pointed at when the pull request was last open."""

    head: str = ""
    base: str = ""
    head_repository: Repository | None = None
    head_sha: str = ""
    base_sha: str = ""
    draft: bool = False
    maintainer_can_modify: bool = False
    merged: str | None = None
    merged_by: Person | None = None
    merge_sha: str | None = None
    reviewers: list[Person] = field(default_factory=list)
    teams: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Ruleset:
    """`rules` as the API shows them, for branches that match one of `patterns`; `bypass`: logins in lower case that
    stand above them."""

    id: int
    name: str
    patterns: tuple[str, ...]
    rules: tuple[dict[str, Any], ...]
    bypass: frozenset[str] = frozenset()


@dataclass(eq=False)
class Repository:
    """`path` is the bare repository; it keeps its place when the repository gets another name.

    people      login in lower case → level; the owner is an admin
    protected   patterns of branches to which nobody may push
    drafts      whether drafts are part of the owner's plan
    """

    id: int
    owner: Person
    name: str
    path: Path
    private: bool = False
    archived: bool = False
    has_issues: bool = True
    drafts: bool = True
    parent: Repository | None = None
    names: set[str] = field(default_factory=set)
    people: dict[str, str] = field(default_factory=dict)
    teams: set[str] = field(default_factory=set)
    protected: list[str] = field(default_factory=list)
    rulesets: list[Ruleset] = field(default_factory=list)
    labels: dict[str, Label] = field(default_factory=dict)
    issues: dict[int, Issue] = field(default_factory=dict)
    created: str = field(default_factory=now)

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"

    @property
    def pulls(self) -> list[Pull]:
        return [each for each in self.issues.values() if isinstance(each, Pull)]

    def next_number(self) -> int:
        return max(self.issues, default=0) + 1

    def is_protected(self, branch: str) -> bool:
        return any(fnmatchcase(branch, pattern) for pattern in self.protected)

    def may(self, person: Person, level: str) -> bool:
        """Whether somebody has been given at least that."""
        has = "admin" if person == self.owner else self.people.get(person.login.lower(), "none")
        return LEVELS.index(has) >= LEVELS.index(level)


class World:
    """Everything on one server. `url` is known once it listens."""

    def __init__(self, root: Path) -> None:
        self.root, self.url = root, ""
        self.people: dict[str, Person] = {}
        self.repositories: list[Repository] = []
        self.lock = threading.RLock()
        self._ids = itertools.count(1)

    def new_id(self) -> int:
        return next(self._ids)

    @property
    def api(self) -> str:
        return f"{self.url}/api/v3"

    def person(self, login: str, kind: str = "User") -> Person:
        """The one of that name, who begins to exist when first spoken of."""
        return self.people.setdefault(login.lower(), Person(self.new_id(), login, kind))

    def repository(self, full_name: str) -> Repository | None:
        """By the name it has, else by one that it had."""
        wanted = full_name.lower()
        for each in self.repositories:
            if each.full_name.lower() == wanted:
                return each
        return next((each for each in self.repositories if wanted in each.names), None)

    def by_id(self, number: int) -> Repository | None:
        return next((each for each in self.repositories if each.id == number), None)

    def place(self, full_name: str) -> Path:
        """Where a new bare repository goes: an empty directory's path, whose parents exist."""
        owner, _, name = full_name.partition("/")
        path = self.root / owner / f"{name}.git"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def label(self, repository: Repository, name: str) -> Label:
        """The repository's label of that name; GitHub makes those it does not know."""
        return repository.labels.setdefault(name.lower(), Label(self.new_id(), name))

    def comments(self, repository: Repository) -> Iterator[tuple[Issue, Comment]]:
        for issue in repository.issues.values():
            for comment in issue.comments:
                yield issue, comment
