"""An issue, read as a request, and the one comment on it that says how its delivery stands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from typing import TYPE_CHECKING

from perdure.models.errors import ForgeRefused, ForgeUnavailable, InvalidRequest
from perdure.models.issue import ForgeIssue, IssueComment
from perdure.models.limits import FORGE_TEXT_CHARS

if TYPE_CHECKING:
    from github.Issue import Issue as GitHubIssue
    from github.IssueComment import IssueComment as Comment
    from github.Repository import Repository

FORGE_COMMENTS = 200
FORGE_COMMENTS_BYTES = 200_000
"""Of one issue's comments, the newest: longer discussions have lost their subject, and would fill a prompt."""


STATUS = "<!-- perdure:status="
"""The beginning of every status comment of ours, before the delivery's id."""

Login = Callable[[], str]


def status_marker(delivery: str) -> str:
    return f"{STATUS}{delivery} -->"


def read_issue(repository: Repository, number: int, me: Login) -> ForgeIssue:
    """An open issue of this repository, with its newest comments; ours about deliveries are not part of it.

    InvalidRequest for one that is not there, closed, locked, moved away, or a pull request. `me`: our login, asked
    for only when some comment claims to be ours.
    """
    found = _open_issue(repository, number)
    return ForgeIssue(
        number=found.number,
        title=found.title,
        url=found.html_url,
        text=found.body or "",
        author=_author(found),
        labels=tuple(label.name for label in found.labels),
        comments=_comments(found, me),
    )


def tell(repository: Repository, number: int, delivery: str, text: str, me: Login) -> str:
    """Make our one comment for the delivery say `text`; returns its address. The oldest one is it: younger ones,
    of attempts that ran at the same time, are removed. ForgeRefused for an issue that is in another repository now."""
    from github import UnknownObjectException

    body = f"{status_marker(delivery)}\n{text}"
    if len(body) > FORGE_TEXT_CHARS:
        body = body[: FORGE_TEXT_CHARS - 1] + "…"
    issue = repository.get_issue(number)
    if not _is_here(issue, repository):
        raise ForgeRefused(f"issue #{number} has moved to another repository", where=issue.html_url)
    mine = _ours(issue, delivery, me)
    if not mine:
        created = issue.create_comment(body)
        mine = _ours(issue, delivery, me) or [created]  # lists lag
    first = mine[0]
    try:
        if first.body.replace("\r\n", "\n").strip() != body.strip():
            first.edit(body)
    except UnknownObjectException:
        raise ForgeUnavailable("our comment was removed while we wrote it", where=first.html_url) from None
    for younger in mine[1:]:
        try:
            younger.delete()
        except UnknownObjectException:
            continue  # somebody else's attempt was faster
    return first.html_url


_IN_WORDS = 'say in words what to do: perdure deliver "…"'


def _open_issue(repository: Repository, number: int) -> GitHubIssue:
    from github import GithubException

    name = f"issue #{number} of {repository.full_name}"
    where = f"{repository.html_url}/issues/{number}"
    try:
        found = repository.get_issue(number)
    except GithubException as error:
        if error.status in (404, 410) and not repository.has_issues:
            what = f"{repository.full_name} has its issues switched off"
            raise InvalidRequest(what, where=where, fix=_IN_WORDS) from None
        if error.status == 410:
            raise InvalidRequest(f"{name} has been deleted", where=where, fix=_IN_WORDS) from None
        if error.status == 404:
            fix = f"look at {repository.html_url}/issues for the number"
            raise InvalidRequest(f"there is no {name}", where=where, fix=fix) from None
        raise
    if found.pull_request is not None:
        fix = "name an issue, or say in words what to do"
        raise InvalidRequest(
            f"#{number} of {repository.full_name} is a pull request, not an issue", where=where, fix=fix
        )
    if not _is_here(found, repository):
        fix = "deliver it there"
        raise InvalidRequest(f"{name} has moved to another repository", where=found.html_url, fix=fix)
    if found.state != "open":
        raise InvalidRequest(f"{name} is closed", where=where, fix="open it again, or say in words what to do")
    if found.locked:
        raise InvalidRequest(f"{name} is locked", where=where, fix="unlock it, or say in words what to do")
    return found


def _is_here(issue: GitHubIssue, repository: Repository) -> bool:
    """GitHub leads from a transferred issue to where it is now: that may be anybody's."""
    return issue.html_url.lower().startswith(repository.html_url.lower() + "/")


def _comments(issue: GitHubIssue, me: Login) -> tuple[IssueComment, ...]:
    """The newest within the limits, oldest first; before them a word about those left out, by nobody."""
    pages = issue.get_comments()
    per_page = issue.requester.per_page
    first = max(0, (issue.comments - FORGE_COMMENTS) // per_page)  # what is older is not even fetched
    listed: list[Comment] = []
    page = first
    while True:
        got = pages.get_page(page)
        listed += got
        if len(got) < per_page:
            break
        page += 1
    claimed = [c for c in listed if (c.body or "").lstrip().startswith(STATUS)]
    ours = {c.id for c in claimed if _is_by(c, me)}
    kept: list[IssueComment] = []
    room = FORGE_COMMENTS_BYTES
    people = [c for c in listed if c.id not in ours]
    for comment in reversed(people):
        room -= len((comment.body or "").encode())
        if len(kept) == FORGE_COMMENTS or room < 0:
            break
        kept.append(_comment(comment))
    left_out = first * per_page + len(people) - len(kept)
    if left_out:
        said = f"{left_out} earlier comment{'s are' if left_out > 1 else ' is'} left out."
        kept.append(IssueComment(author="", text=said))
    return tuple(reversed(kept))


def _comment(comment: Comment) -> IssueComment:
    written = comment.created_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return IssueComment(author=_author(comment), text=comment.body or "", written_at=written)


def _ours(issue: GitHubIssue, delivery: str, me: Login) -> list[Comment]:
    """By marker and by author, oldest first: anybody can paste a marker."""
    begins = status_marker(delivery)
    marked = [c for c in issue.get_comments() if (c.body or "").lstrip().startswith(begins)]
    return sorted((c for c in marked if _is_by(c, me)), key=lambda c: c.id)


def _is_by(comment: Comment, me: Login) -> bool:
    return bool(author := _author(comment)) and author.lower() == me().lower()


def _author(written: Comment | GitHubIssue) -> str:
    """A login; empty for an account that is gone."""
    return written.user.login if written.user is not None else ""
