"""Issues on GitHub: one is fetched as a request, and the one comment on it that says how its delivery stands is created
or edited. `github.forge` calls it with PyGithub's repository; searches for several issues are there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from typing import TYPE_CHECKING

from perdure.models.errors import ForgeRefused, ForgeUnavailable, InvalidRequest
from perdure.models.issue import ForgeIssue, IssueComment
from perdure.models.limits import FORGE_TEXT_CHARS
from perdure.text import shorten

if TYPE_CHECKING:
    from github.Issue import Issue as GitHubIssue
    from github.IssueComment import IssueComment as Comment
    from github.Repository import Repository

FORGE_COMMENTS = 200
FORGE_COMMENTS_BYTES = 200_000
"""The most comments of one issue that are read, the newest, and their bytes: longer discussions have lost their
subject, and would fill a prompt."""


STATUS_MARKER_START = "<!-- perdure:status="
"""The beginning of every status comment of ours, before the delivery's id."""

LoginGetter = Callable[[], str]


def status_marker(delivery: str) -> str:
    """Return the hidden first line of a delivery's status comment."""
    return f"{STATUS_MARKER_START}{delivery} -->"


def fetch_issue(repository: Repository, number: int, own_login: LoginGetter) -> ForgeIssue:
    """Fetch an open issue of this repository with its newest comments, without our own status comments.

    `own_login` returns our login; called only when some comment claims to be ours. Raises InvalidRequest for an issue
    that does not exist, is closed, locked, moved away, or a pull request; else what PyGithub raises.
    """
    issue = _fetch_open_issue(repository, number)
    return ForgeIssue(
        number=issue.number,
        title=issue.title,
        url=issue.html_url,
        text=issue.body or "",
        author=_author_login(issue),
        labels=tuple(label.name for label in issue.labels),
        comments=_newest_comments(issue, own_login),
    )


def write_status_comment(repository: Repository, number: int, delivery: str, text: str, own_login: LoginGetter) -> str:
    """Create or edit our one comment for the delivery on an issue so that it says `text`; return its address. No
    request is sent for a comment that says so already.

    The oldest one is kept; younger ones, made by attempts that ran at the same time, are deleted. Raises ForgeRefused
    for an issue that is in another repository now, ForgeUnavailable when the comment was deleted meanwhile; else what
    PyGithub raises.
    """
    from github import UnknownObjectException

    body = shorten(f"{status_marker(delivery)}\n{text}", FORGE_TEXT_CHARS)
    issue = repository.get_issue(number)
    if not _is_in_repository(issue, repository):
        raise ForgeRefused(f"issue #{number} has moved to another repository", where=issue.html_url)
    own_comments = _own_status_comments(issue, delivery, own_login)
    if not own_comments:
        created = issue.create_comment(body)
        own_comments = _own_status_comments(issue, delivery, own_login) or [
            created
        ]  # a new comment may not be listed yet
    oldest = own_comments[0]
    try:
        if oldest.body.replace("\r\n", "\n").strip() != body.strip():
            oldest.edit(body)
    except UnknownObjectException:
        raise ForgeUnavailable("our comment was removed while we wrote it", where=oldest.html_url) from None
    for younger in own_comments[1:]:
        try:
            younger.delete()
        except UnknownObjectException:
            continue  # somebody else's attempt was faster
    return oldest.html_url


_IN_WORDS = 'say in words what to do: perdure deliver "…"'


def _fetch_open_issue(repository: Repository, number: int) -> GitHubIssue:
    """Fetch an issue that can be worked on, and return it.

    Raises InvalidRequest, with what to do, for one that does not exist, was deleted, is a pull request, has moved, is
    closed or locked, or where issues are switched off; else what PyGithub raises.
    """
    from github import GithubException

    name = f"issue #{number} of {repository.full_name}"
    where = f"{repository.html_url}/issues/{number}"
    try:
        issue = repository.get_issue(number)
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
    if issue.pull_request is not None:
        fix = "name an issue, or say in words what to do"
        raise InvalidRequest(
            f"#{number} of {repository.full_name} is a pull request, not an issue", where=where, fix=fix
        )
    if not _is_in_repository(issue, repository):
        fix = "deliver it there"
        raise InvalidRequest(f"{name} has moved to another repository", where=issue.html_url, fix=fix)
    if issue.state != "open":
        raise InvalidRequest(f"{name} is closed", where=where, fix="open it again, or say in words what to do")
    if issue.locked:
        raise InvalidRequest(f"{name} is locked", where=where, fix="unlock it, or say in words what to do")
    return issue


def _is_in_repository(issue: GitHubIssue, repository: Repository) -> bool:
    """Return True when an issue is in this repository. GitHub leads from a transferred issue to where it is now, which
    may be anybody's."""
    return issue.html_url.lower().startswith(repository.html_url.lower() + "/")


def _newest_comments(issue: GitHubIssue, own_login: LoginGetter) -> tuple[IssueComment, ...]:
    """Return the newest comments of other people, oldest first, at most FORGE_COMMENTS and FORGE_COMMENTS_BYTES
    together. Where older ones are left out, the first entry, without an author, says how many."""
    pages = issue.get_comments()
    per_page = issue.requester.per_page
    first_page = max(0, (issue.comments - FORGE_COMMENTS) // per_page)  # what is older is not even fetched
    listed: list[Comment] = []
    page = first_page
    while True:
        fetched = pages.get_page(page)
        listed += fetched
        if len(fetched) < per_page:
            break
        page += 1
    marked = [c for c in listed if (c.body or "").lstrip().startswith(STATUS_MARKER_START)]
    ours = {c.id for c in marked if _is_written_by(c, own_login)}
    newest: list[IssueComment] = []
    remaining_bytes = FORGE_COMMENTS_BYTES
    people = [c for c in listed if c.id not in ours]
    for comment in reversed(people):
        remaining_bytes -= len((comment.body or "").encode())
        if len(newest) == FORGE_COMMENTS or remaining_bytes < 0:
            break
        newest.append(_to_issue_comment(comment))
    left_out = first_page * per_page + len(people) - len(newest)
    if left_out:
        note = f"{left_out} earlier comment{'s are' if left_out > 1 else ' is'} left out."
        newest.append(IssueComment(author="", text=note))
    return tuple(reversed(newest))


def _to_issue_comment(comment: Comment) -> IssueComment:
    """Convert a comment of GitHub's to ours, with its time in UTC."""
    written = comment.created_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return IssueComment(author=_author_login(comment), text=comment.body or "", written_at=written)


def _own_status_comments(issue: GitHubIssue, delivery: str, own_login: LoginGetter) -> list[Comment]:
    """Return our status comments for a delivery, oldest first: those with its marker that our account wrote, since
    anybody can paste a marker."""
    status_line = status_marker(delivery)
    marked = [c for c in issue.get_comments() if (c.body or "").lstrip().startswith(status_line)]
    return sorted((c for c in marked if _is_written_by(c, own_login)), key=lambda c: c.id)


def _is_written_by(comment: Comment, own_login: LoginGetter) -> bool:
    """Return True when our account wrote the comment; False for an account that is gone."""
    return bool(author := _author_login(comment)) and author.lower() == own_login().lower()


def _author_login(written: Comment | GitHubIssue) -> str:
    """Return the login of who wrote an issue or comment; empty for an account that is gone."""
    return written.user.login if written.user is not None else ""
