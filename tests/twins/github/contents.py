"""What there is on the twin, put there and looked at by tests: repositories, issues, tokens, Apps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.twins.github import discussed, refs, smart_http
from tests.twins.github.about_pulls import merge_pull
from tests.twins.github.access import WRITES, Actor, App, Keys, Kind, new_key
from tests.twins.github.state import Comment, Issue, Pull, Repository, Ruleset, World

Json = dict[str, Any]


class Contents:
    """Repositories are named `owner/name`; KeyError for one, or for an issue's number, that there is not.

    Safe to call from any thread. `login` is the account of the first token.
    """

    def __init__(self, world: World, keys: Keys, login: str) -> None:
        self._world, self._keys, self._login = world, keys, login

    # What there is

    def add_repository(
        self,
        name: str,
        *,
        source: Path | None = None,
        private: bool = False,
        archived: bool = False,
        organization: bool = False,
        collaborators: Collection[str] = (),
        teams: Collection[str] = (),
        drafts: bool = True,
        has_issues: bool = True,
        fork_of: str | None = None,
    ) -> Path:
        """A new one with all of `source`, a bare repository, or one commit; returns where it lives. `collaborators`
        may write; `teams` are those of the organisation that owns it."""
        owner, _, short = name.partition("/")
        with self._world.lock:
            parent = self._repository(fork_of) if fork_of is not None else None
            path = self._world.place(name)
            refs.make(path, source or (parent.path if parent is not None else None))
            it = Repository(
                self._world.new_id(),
                self._world.person(owner, "Organization" if organization else "User"),
                short,
                path,
                private=private,
                archived=archived,
                drafts=drafts,
                has_issues=has_issues,
                parent=parent,
                teams=set(teams),
                people={login.lower(): "write" for login in (self._login, *collaborators)},
            )
            self._world.repositories.append(it)
            return path

    def add_issue(
        self,
        repository: str,
        title: str,
        body: str | None = None,
        *,
        labels: Collection[str] = (),
        author: str = "ada",
        state: str = "open",
        locked: bool = False,
        comments: Sequence[tuple[str, str]] = (),
        milestone: str = "",
    ) -> int:
        """A new one with `comments`, (login, text) each; returns its number."""
        with self._world.lock:
            it, world = self._repository(repository), self._world
            issue = Issue(world.new_id(), it.next_number(), title, body, world.person(author), locked=locked)
            issue.milestone = milestone
            issue.labels = [world.label(it, label) for label in labels]
            issue.comments = [Comment(world.new_id(), world.person(who), text) for who, text in comments]
            if state == "closed":
                issue.close(issue.author)
            it.issues[issue.number] = issue
            return issue.number

    def add_comment(self, repository: str, number: int, author: str, text: str) -> int:
        """Returns its id."""
        with self._world.lock:
            comment = Comment(self._world.new_id(), self._world.person(author), text)
            self._issue(repository, number).comments.append(comment)
            return comment.id

    def add_pull(
        self,
        repository: str,
        head: str,
        base: str = "main",
        *,
        title: str = "A change",
        body: str | None = None,
        author: str = "ada",
        fork: str | None = None,
        draft: bool = False,
    ) -> int:
        """Somebody's pull request for a branch that is there, of a `fork` if one is named; returns its number."""
        with self._world.lock:
            it = self._repository(repository)
            source = self._repository(fork) if fork is not None else it
            ids = (self._world.new_id(), it.next_number(), title, body, self._world.person(author))
            pull = Pull(*ids, head=head, base=base, head_repository=source, draft=draft)
            discussed.refresh(it, pull)
            if pull.state != "open":
                raise KeyError(f"{head} or {base}")
            it.issues[pull.number] = pull
            return pull.number

    def add_token(
        self,
        token: str,
        *,
        login: str = "perdure-bot",
        scopes: Sequence[str] = ("repo",),
        permissions: Mapping[str, str] | None = None,
        kind: str = "classic",
        grants: Mapping[str, str] | None = None,
    ) -> None:
        """`permissions`: the account's role by repository, write everywhere without; a fine-grained token reaches only
        those. `grants`: what a fine-grained one may do ({"issues": "write"}); by default what its best role needs."""
        roles = {name.lower(): level for name, level in permissions.items()} if permissions is not None else None
        weak = roles is not None and not {"write", "maintain", "admin"} & set(roles.values())
        usual = dict.fromkeys(WRITES, "read") if weak else WRITES
        fine = kind == Kind.FINE_GRAINED
        actor = Actor(token, self._world.person(login), Kind(kind), () if fine else tuple(scopes), roles)
        if fine:
            actor.grants = {"metadata": "read", **grants} if grants is not None else usual
        self._keys.add(actor)

    def revoke(self, token: str) -> None:
        """From now on it is none."""
        self._keys.actors.pop(token, None)

    def add_app(
        self,
        number: int = 1234,
        *,
        slug: str = "perdure-app",
        repositories: Collection[str] = (),
        permissions: Mapping[str, str] = WRITES,
    ) -> str:
        """A GitHub App, installed on `repositories`; returns its private key (PEM)."""
        public, pem = new_key()
        world, names = self._world, {name.lower() for name in repositories}
        bot = world.person(f"{slug}[bot]", "Bot")
        owner = world.person(self._login)
        app = App(number, slug, owner, bot, public, dict(permissions), names, installation=number + 1)
        self._keys.apps[number] = app
        return pem

    def end_tokens(self) -> None:
        """The hour of every installation's token is over."""
        for actor in self._keys.actors.values():
            if actor.kind is Kind.INSTALLATION:
                actor.ends = 0.0

    # What happens to it

    def merge(self, repository: str, number: int, *, by: str | None = None) -> str:
        """As with the button, by the owner unless told; returns the new commit. Problem when it cannot be merged."""
        with self._world.lock:
            it, pull = self._repository(repository), self._issue(repository, number)
            assert isinstance(pull, Pull)
            return merge_pull(self._world, it, pull, self._world.person(by) if by else it.owner)

    def close(self, repository: str, number: int, *, by: str = "ada") -> None:
        with self._world.lock:
            self._issue(repository, number).close(self._world.person(by))

    def rename(self, old: str, new: str) -> None:
        """Its old name leads to the new one; where it lives stays the same."""
        with self._world.lock:
            it = self._repository(old)
            it.names.add(it.full_name.lower())
            owner, _, it.name = new.partition("/")
            it.owner = self._world.person(owner, it.owner.kind)

    def protect(self, repository: str, *patterns: str, rules: bool = False) -> None:
        """Nobody may push to branches that match (`perdure/**`)."""
        with self._world.lock:
            it = self._repository(repository)
            it.protected += patterns
            smart_http.protect(it.path, *it.protected, rules=rules)

    def add_ruleset(self, repository: str, *patterns: str, rules: Sequence[Json], bypass: Collection[str] = ()) -> int:
        """Rules for branches that match, as the API tells them; returns the ruleset's id. They are told, and do not
        bind a push: protect() does."""
        with self._world.lock:
            it = self._repository(repository)
            above = frozenset(login.lower() for login in bypass)
            made = Ruleset(self._world.new_id(), "rules", patterns, tuple(map(dict, rules)), above)
            it.rulesets.append(made)
            return made.id

    def archive(self, repository: str, archived: bool = True) -> None:
        self._repository(repository).archived = archived

    def delete_issue(self, repository: str, number: int) -> None:
        self._issue(repository, number).deleted = True

    def transfer_issue(self, repository: str, number: int, to: str) -> int:
        """To another repository; returns its number there."""
        with self._world.lock:
            issue, there = self._issue(repository, number), self._repository(to)
            moved = self.add_issue(to, issue.title, issue.body, author=issue.author.login)
            issue.moved = (there, moved)
            return moved

    def suspend_app(self, number: int = 1234, suspended: bool = True) -> None:
        self._keys.apps[number].suspended = suspended

    # What it looks like now, as the API shows it

    def path(self, repository: str) -> Path:
        """Where the bare repository lives."""
        return self._repository(repository).path

    def pulls(self, repository: str) -> list[Json]:
        """Open or not, oldest first."""
        with self._world.lock:
            it = self._repository(repository)
            return [discussed.pull(self._world, it, pull, None) for pull in it.pulls]

    def issue(self, repository: str, number: int) -> Json:
        with self._world.lock:
            return discussed.issue(self._world, self._repository(repository), self._issue(repository, number))

    def comments(self, repository: str, number: int) -> list[Json]:
        """Oldest first."""
        with self._world.lock:
            it, issue = self._repository(repository), self._issue(repository, number)
            return [discussed.comment(self._world, it, issue, each) for each in issue.comments]

    def _repository(self, name: str) -> Repository:
        found = self._world.repository(name)
        if found is None:
            raise KeyError(name)
        return found

    def _issue(self, repository: str, number: int) -> Issue:
        return self._repository(repository).issues[number]
