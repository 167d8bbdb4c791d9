"""A twin with one repository, the real git beside it, and PyGithub as its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import github
import pytest
from aiohttp import ClientResponse, ClientSession
from github import Auth

from tests.twins.github import GitHubTwin, refs

TOKEN = "ghp_" + "0123456789abcdef" * 2
AGENT = {"User-Agent": "tests", "Accept": "application/vnd.github+json"}
NAME = "me/calc"
T = TypeVar("T")


@dataclass
class Told:
    """An answer: `body` is its JSON, or its text."""

    status: int
    headers: dict[str, str]
    body: Any


@dataclass
class GitHub:
    """The twin, and what tests do to it. Branches are made in its bare repository as a push would have made them."""

    twin: GitHubTwin
    session: ClientSession

    @property
    def bare(self) -> Path:
        return self.twin.path(NAME)

    def branch(self, name: str, text: str = "x\n", *, of: str = "main", file: str = "x.txt", where: str = NAME) -> str:
        """A branch one commit ahead of another; returns its tip."""
        bare = self.twin.path(where)
        base = refs.tip(bare, of) or ""
        blob = refs.git(bare, "hash-object", "-w", "--stdin", text=text)
        rest = [line for line in refs.git(bare, "ls-tree", base).splitlines() if not line.endswith(f"\t{file}")]
        tree = refs.git(bare, "mktree", text="\n".join([*rest, f"100644 blob {blob}\t{file}", ""]))
        made = refs.git(bare, "commit-tree", tree, "-p", base, "-m", f"Change {file}")
        refs.git(bare, "update-ref", f"refs/heads/{name}", made)
        return made

    def client(self, token: str | None = TOKEN, auth: Any = None, **options: Any) -> github.Github:
        """PyGithub, which neither waits nor tries again."""
        auth = auth or (Auth.Token(token) if token else None)
        options = {"seconds_between_requests": None, "seconds_between_writes": None, "per_page": 100, **options}
        return github.Github(auth=auth, base_url=f"{self.twin.url}/api/v3", retry=None, timeout=30, **options)

    async def do(self, work: Callable[[Any], T], token: str | None = TOKEN, name: str = NAME) -> T:
        """`work` with PyGithub's repository, in a thread."""
        return await asyncio.to_thread(lambda: work(self.client(token).get_repo(name)))

    async def refused(self, work: Callable[[Any], Any], **options: Any) -> Told:
        """What GitHub said no with."""
        with pytest.raises(github.GithubException) as caught:
            await self.do(work, **options)
        return Told(caught.value.status, dict(caught.value.headers or {}), caught.value.data)

    async def ask(self, method: str, path: str, body: Any = None, token: str | None = TOKEN, **headers: str) -> Told:
        """One raw request to the API; `_` in a header's name is `-`."""
        given = AGENT | ({"Authorization": f"Bearer {token}"} if token else {})
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        address = f"{self.twin.url}/api/v3{path}"
        async with self.session.request(method, address, json=body, headers=given, allow_redirects=False) as answer:
            return await _told(answer)

    async def page(self, path: str) -> Told:
        async with self.session.get(self.twin.url + path, allow_redirects=False) as answer:
            return await _told(answer)


async def _told(answer: ClientResponse) -> Told:
    json = answer.content_type == "application/json" and answer.status != 204
    return Told(answer.status, dict(answer.headers), await (answer.json() if json else answer.text()))


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[GitHub]:
    """Whoever breaks GitHub's description fails the test, unless the test has emptied `violations`."""
    async with (
        GitHubTwin(tmp_path / "github", token=TOKEN) as twin,
        ClientSession(skip_auto_headers=["User-Agent"]) as http,
    ):
        twin.add_repository(NAME, collaborators=("carol",))
        yield GitHub(twin, http)
        assert twin.violations == []
