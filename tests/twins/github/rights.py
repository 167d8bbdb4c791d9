"""What each operation asks of a token, and how GitHub says no."""

from __future__ import annotations

from dataclasses import dataclass

from tests.twins.github.access import Actor, Kind
from tests.twins.github.answers import Problem, archived, must_be_admin, not_found
from tests.twins.github.description import Operation
from tests.twins.github.state import LEVELS, Repository


@dataclass(frozen=True)
class Right:
    """`grants`: any of these permissions at `level`, for tokens that have permissions; `role`: of the account."""

    grants: tuple[str, ...]
    level: str = "read"
    role: str = "read"

    @property
    def header(self) -> str:
        return "; ".join(f"{grant}={self.level}" for grant in self.grants)


_EITHER = ("issues", "pull_requests")
RIGHTS = {
    "issues/add-labels": Right(_EITHER, "write", "triage"),
    "issues/create-comment": Right(_EITHER, "write"),
    "issues/delete-comment": Right(_EITHER, "write"),
    "issues/get": Right(_EITHER),
    "issues/list-comments": Right(_EITHER),
    "issues/update-comment": Right(_EITHER, "write"),
    "pulls/create": Right(("pull_requests",), "write"),
    "pulls/get": Right(("pull_requests",)),
    "pulls/list": Right(("pull_requests",)),
    "pulls/request-reviewers": Right(("pull_requests",), "write", "write"),
    "pulls/update": Right(("pull_requests",), "write"),
    "repos/get": Right(("metadata",)),
    "repos/get-branch": Right(("contents",)),
    "repos/get-branch-rules": Right(("metadata",)),
    "repos/get-repo-ruleset": Right(("metadata",)),
    "search/issues-and-pull-requests": Right(("metadata",)),
}
BY_APP = ("apps/get-authenticated", "apps/get-repo-installation", "apps/create-installation-access-token")
"""Only an App itself may ask for these, with its JWT."""


def sees(actor: Actor | None, repository: Repository) -> bool:
    """Whether somebody may know that a repository is there."""
    if not repository.private:
        return True
    if actor is None or actor.level(repository) == "none":
        return False
    return actor.reaches(repository) if actor.limited else "repo" in actor.scopes


def check_kind(operation: Operation, actor: Actor | None) -> None:
    """Problem when this kind of token is not for this operation at all."""
    if operation.id in BY_APP and (actor is None or actor.kind is not Kind.APP):
        raise Problem(401, "A JSON web token could not be decoded")
    if operation.id not in BY_APP and actor is not None and actor.kind is Kind.APP:
        raise Problem(403, "Resource not accessible by integration")


def check(operation: Operation, actor: Actor | None, repository: Repository, *, pull: bool) -> None:
    """Problem when somebody may not do this in a repository that they see. `pull`: it is about a pull request."""
    right = RIGHTS.get(operation.id)
    if right is None:
        return
    if actor is None:
        if operation.writes or right.role != "read":
            raise Problem(401, "Requires authentication")
        return
    if actor.limited:
        wanted = ["pull_requests" if pull else "issues"] if right.grants == _EITHER else list(right.grants)
        allowed = actor.reaches(repository) and any(actor.granted(grant, right.level) for grant in wanted)
        public = not repository.private and right.level == "read" and right.role == "read"
        if not (allowed or public):
            whom = "integration" if actor.kind is Kind.INSTALLATION else "personal access token"
            raise Problem(403, f"Resource not accessible by {whom}")
    elif operation.writes and not set(actor.scopes) & ({"repo"} if repository.private else {"repo", "public_repo"}):
        raise not_found()
    if operation.writes and repository.archived:
        raise archived()
    everybodys = not repository.private and right.role == "read"
    by_permissions = actor.kind is Kind.INSTALLATION  # an App has no role
    if not (everybodys or by_permissions) and LEVELS.index(actor.level(repository)) < LEVELS.index(right.role):
        raise must_be_admin()


def headers(operation: Operation | None, actor: Actor | None) -> dict[str, str]:
    """What GitHub says about a token beside each answer."""
    if actor is None or operation is None:
        return {}
    right = RIGHTS.get(operation.id)
    if actor.kind is Kind.CLASSIC:
        return {
            "X-OAuth-Scopes": ", ".join(actor.scopes),
            "X-Accepted-OAuth-Scopes": "repo" if operation.id.startswith("repos/") else "",
        }
    return {"X-Accepted-GitHub-Permissions": right.header} if right is not None and actor.limited else {}
