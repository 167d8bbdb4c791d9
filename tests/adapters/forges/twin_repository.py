"""The adapter pointed at a local GitHub, and a repository for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.github.forge import GitHub
from perdure.adapters.forges.select import Forges
from tests.repositories import git

if TYPE_CHECKING:
    from tests.twins.github import GitHubTwin

TOKEN = "ghp_0123456789abcdefghij0123456789abcdef"
HEAD = "perdure/d-1"


class TwinRepository:
    """`hub`: the local GitHub; `sha`: what the branch HEAD of me/calc points at, one commit above main."""

    def __init__(self, hub: GitHubTwin, sha: str) -> None:
        self.hub, self.sha = hub, sha

    def forge(self, token: str = TOKEN, name: str = "me/calc", **environ: str) -> GitHub:
        given = {"PERDURE_GITHUB_URL": self.hub.url, **({"PERDURE_GITHUB_TOKEN": token} if token else {}), **environ}
        forge = Forges.from_environment(given).forge(f"{self.hub.url}/{name}.git")
        assert isinstance(forge, GitHub)
        return forge

    def proposal(self, **other: Any) -> Proposal:
        given: dict[str, Any] = {
            "delivery": "d-1",
            "title": "feat: add sub",
            "body": "What and why.\n\n<!-- perdure:delivery=d-1 -->\n",
            "head": HEAD,
            "head_sha": self.sha,
            "base": "main",
        }
        return Proposal(**(given | other))

    def made(self, operation: str) -> int:
        """How often an operation was asked for, whatever the answer."""
        return sum(call[2] == operation for call in self.hub.calls)


def make_source(tmp_path: Path) -> Path:
    """main and `release` at one commit, HEAD and `perdure/d-2` one above it."""
    where = tmp_path / "source.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(where))
    empty = git(where, "hash-object", "-w", "-t", "tree", "/dev/null")
    first = git(where, "commit-tree", "-m", "first", empty)
    blob = git(where, "hash-object", "-w", "/dev/null")
    tree = git(where, "mktree", stdin=f"100644 blob {blob}\tsub.py\n")
    second = git(where, "commit-tree", "-p", first, "-m", "second", tree)
    for name, commit in (("main", first), ("release", first), (HEAD, second), ("perdure/d-2", second)):
        git(where, "update-ref", f"refs/heads/{name}", commit)
    return where
