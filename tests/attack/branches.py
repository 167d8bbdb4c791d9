"""Names of branches, by a hostile repository's `[git] branch`, an issue's title or a request: none is another's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from perdure.adapters.git.remote import remote_heads
from perdure.adapters.git.vault import Vault
from perdure.adapters.repository.terms import BranchBase as Standing
from perdure.adapters.repository.terms import branch_names, check_branch
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.errors import InvalidRequest
from perdure.models.issue import ForgeIssue
from tests.attack.table import Case, Ground, Seen, held
from tests.repositories import git, heads, make_target

GROUP = "branch names"


def _vault(at: Ground) -> Vault:
    """Of a repository with the branches main and topic, topic one commit further."""
    target = make_target(Path(tempfile.mkdtemp(dir=at.root)) / "calc.git")
    work = target.with_name("calc.git-work")
    git(work, "switch", "-qc", "topic")
    git(work, "commit", "-q", "--allow-empty", "-m", "somebody's work")
    git(work, "push", "-q", str(target), "topic")
    vault = Vault.open_or_create(at.home, str(target))
    vault.fetch()
    vault.fetch_branch("topic")
    return vault


def _settled(at: Ground, template: str, title: str = "Add sub") -> str:
    vault = at.once(_vault)
    base, base_sha = vault.fetch()
    standing = Standing(vault, remote_heads(vault.url), base, base_sha, "calc-issue-1")
    issue = ForgeIssue(number=1, title=title, text="", author="eve", url="")
    request = DeliveryRequest(repository=vault.url, issue=1)
    return branch_names(template, "calc-issue-1", request, issue, "perdure.toml", standing)[""]


def _template(template: str) -> Callable[[Ground], Seen]:
    def attack(at: Ground) -> Seen:
        if (good := _settled(at, "perdure/{id}")) != "perdure/calc-issue-1":
            return Seen("MISSED", f"proves nothing: a good name becomes {good}")
        try:
            return Seen("MISSED", f"taken: {_settled(at, template)}")
        except InvalidRequest as error:
            return held(True, f"refused: {error.what}")

    return attack


def _title(title: str) -> Callable[[Ground], Seen]:
    """Where the template is `{slug}`, a stranger's words are all there is."""

    def attack(at: Ground) -> Seen:
        name = _settled(at, "{slug}", title)
        there = heads(Path(at.once(_vault).url))
        plain = set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and not name.startswith("-")
        return held(plain and name not in there and name != "HEAD", name)

    return attack


def _asked(branch: str, base: str = "main") -> Callable[[Ground], Seen]:
    """`branch` of a request: work upon a branch that is there, to be pushed."""

    def attack(at: Ground) -> Seen:
        vault = at.once(_vault)
        _, base_sha = vault.fetch(base)
        try:
            request = DeliveryRequest(repository=vault.url, request="x", base=base, branch=branch)
            head = vault.fetch_branch(branch)
            if head is None:
                return held(True, "no such branch")
            check_branch(vault, request, ("build", "ship"), base, base_sha, head, "main")
        except (InvalidRequest, ValueError) as error:
            return held(True, f"refused: {error}")
        return Seen("MISSED", "taken")

    return attack


_TEMPLATES = {
    "the base branch": "main",
    "another's branch": "topic",
    "a name below another's branch": "topic/{id}",
    "HEAD": "HEAD",
    "a whole ref": "refs/heads/main",
    "the ref of checkpoints": "refs/perdure/{id}/run",
    "an option": "--force",
    "a range": "a..b/{id}",
    "an ancestor": "{issue}~1",
    "a refspec": "x:main",
    "a pattern": "*",
    "a lock": "x/{id}.lock",
    "a reflog": "main@{1}",
    "a newline": "x\n{id}",
    "nothing": "",
}

CASES = (
    *(Case(GROUP, f"[git] branch is {what}", "refused", _template(name)) for what, name in _TEMPLATES.items()),
    *(Case(GROUP, f"an issue is called {title!r}", "a name of its own", _title(title))
      for title in ("main", "Main!", "HEAD", "topic", "refs/heads/main", "--force", "../../x", "@{-1}", "")),
    Case(GROUP, "a request works on the base itself", "refused", _asked("main")),
    Case(GROUP, "a request pushes to the default branch, with another base", "refused", _asked("main", "topic")),
    *(Case(GROUP, f"a request works on {name}", "refused", _asked(name)) for name in (
        "HEAD", "refs/heads/main", "--upload-pack=x", "topic:main", "*", "refs/perdure/x/run", "topic~0", "@",
    )),
)  # fmt: skip
