"""Pull requests on GitHub: the one of a head branch is found and updated, or opened; with its labels and reviewers.
Every function takes PyGithub's repository or pull request, which `github.forge` has fetched.

GitHub allows one open pull request for a head and a base, and answers 422 to a second one. But an answer may be lost,
and what was just created may not be listed yet: so we look before and after.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from perdure.adapters.forges.base import Proposal, ProposedPullRequest, PullRequestSnapshot
from perdure.adapters.forges.body import MARKER_START, issue_numbers, marker, merge_part
from perdure.adapters.forges.github.errors import error_message, status_error, validation_errors
from perdure.models.delivery.result import PullRequest
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from perdure.models.limits import FORGE_TEXT_CHARS
from perdure.text import shorten

if TYPE_CHECKING:
    from github.GithubException import GithubException
    from github.PullRequest import PullRequest as Pull
    from github.Repository import Repository


_CHECK_PAUSE_S = 1.0
"""The pause from writing a part of a shared text to the check that it stayed. GitHub cannot change a text only if it is
still the one that was read, so whoever read it before we wrote may write after us; they take less than this in between.
"""

_CHECKS = 8
"""The number of such checks. After them the activity is tried again, as after any failure of the forge."""


def to_pull_request(pull: Pull) -> PullRequest:
    """Convert a pull request of PyGithub to our model."""
    return PullRequest(number=pull.number, url=pull.html_url, title=pull.title, draft=bool(pull.draft))


def to_pull_request_snapshot(pull: Pull, delivery: str) -> PullRequestSnapshot:
    """Convert a pull request of PyGithub to its state as Forge has it; it is `ours` when its text has the marker of
    `delivery`."""
    state = "merged" if pull.merged_at else pull.state
    ours = marker(delivery) in (pull.body or "")
    return PullRequestSnapshot(number=pull.number, state=state, head_sha=pull.head.sha, ours=ours, base=pull.base.ref)


def pulls_of_branch(repository: Repository, head: str, state: str) -> list[Pull]:
    """Return the pull requests of a branch of this very repository in one `state` (open, closed or all), oldest first.
    A fork may have a branch of the same name: its are left out."""
    listed = repository.get_pulls(state=state, head=f"{repository.owner.login}:{head}", sort="created", direction="asc")
    return sorted((pull for pull in listed if _is_from_branch(pull, repository, head)), key=lambda pull: pull.number)


def count_open_pulls(repository: Repository, except_delivery: str, limit: int) -> int:
    """Count the open pull requests with a delivery's marker, without that of `except_delivery`; stop counting at
    `limit`. Those from a fork do not count, whatever their text says."""
    bodies = (pull.body or "" for pull in _open_pulls(repository))
    return sum(
        1
        for _ in islice(
            (body for body in bodies if MARKER_START in body and marker(except_delivery) not in body), limit
        )
    )


def issue_pull_requests(repository: Repository) -> dict[int, int]:
    """Return the open pull requests of ours that are about issues: issue number → pull request number."""
    return {issue: pull.number for pull in _open_pulls(repository) for issue in issue_numbers(pull.body or "")}


def _open_pulls(repository: Repository) -> Iterator[Pull]:
    """Return the open pull requests of branches of this very repository, none from a fork, fetched page by page as they
    are read."""
    return (pull for pull in repository.get_pulls(state="open") if _is_from_branch(pull, repository, pull.head.ref))


def open_or_update_pull(repository: Repository, proposal: Proposal) -> ProposedPullRequest:
    """Return the pull request of the proposal's head branch, with notes for a person: an existing one brought up to
    date, else a new one, never a second. Labels and reviewers of the proposal are added to a pull request of ours, and
    further open ones of this delivery are closed; one of somebody else is left as it is.

    Waits until our part of a shared text has stayed there. Raises ForgeUnavailable when GitHub says that one exists and
    does not list it yet, does not see the branch yet, or others keep removing our part of a shared text; ForgeRefused
    when GitHub refuses one for a reason that is known; else what PyGithub raises.
    """
    notes: tuple[str, ...] = ()
    result = _adopt_existing(repository, proposal)
    if result is None:
        created = _create_pull(repository, proposal)
        if created is not None and proposal.draft and not created.draft:
            proposal = replace(proposal, draft=False)
            notes = ("this repository has no draft pull requests: it is an ordinary one",)
        result = _adopt_existing(repository, proposal, created)
    if result is None:
        raise ForgeUnavailable(
            "GitHub says that the pull request exists, and does not show it yet", where=repository.html_url
        )
    return replace(result, notes=(*result.notes, *notes))


def _adopt_existing(
    repository: Repository, proposal: Proposal, created: Pull | None = None
) -> ProposedPullRequest | None:
    """Return the existing pull request that serves for this delivery, with notes, or None when one has to be created.

    First choice is the delivery's own open one, by its marker: it is updated, gets the proposal's labels and reviewers,
    and any further open one of its own is closed. Where the proposal shares a text and no own one is open, the first
    open one of another delivery into the same base takes its place; it is never closed. Next is an open one of somebody
    else into the same base, which is left as it is, with a note. Last is an own one for this very commit that somebody
    has closed or merged, with a note. `created` was opened just now and may not be listed yet. Raises ForgeUnavailable
    when others keep removing our part of a shared text; else what PyGithub raises.
    """
    listed = pulls_of_branch(repository, proposal.head, "all")
    if created is not None and created.number not in {pull.number for pull in listed}:
        listed.append(created)  # a new one may not be listed yet
    ours = [pull for pull in listed if marker(proposal.delivery) in (pull.body or "")]
    if proposal.shares_body and not any(pull.state == "open" for pull in ours):
        ours += [
            pull
            for pull in listed
            if pull.state == "open" and pull.base.ref == proposal.base and MARKER_START in (pull.body or "")
        ][:1]
    if open_ours := [pull for pull in ours if pull.state == "open"]:
        first = open_ours[0]
        shared = merge_part(proposal, first.title, first.body or "") if proposal.shares_body else proposal
        notes = _close_duplicates(open_ours[1:], first) + _update_pull(first, shared)
        if shared is not proposal:
            _ensure_part_stays(first, proposal)
        return _add_people_and_labels(first, shared, notes)
    others = [pull for pull in listed if pull.state == "open" and pull not in ours]
    for pull in others:
        if pull.base.ref == proposal.base:
            note = (
                f"pull request #{pull.number} for this branch is not Perdure's: its title and text are left as they are"
            )
            return ProposedPullRequest(to_pull_request(pull), (note,))
    for pull in ours:
        if pull.head.sha == proposal.head_sha:
            how = "merged" if pull.merged_at else "closed"
            note = f"pull request #{pull.number} of this very commit has been {how} meanwhile: no second one is opened"
            return ProposedPullRequest(to_pull_request(pull), (note,))
    return None


def _create_pull(repository: Repository, proposal: Proposal) -> Pull | None:
    """Create the pull request on GitHub and return it; None when GitHub says that there is one already. One that only
    a setting wants as a draft is an ordinary one where the repository has no drafts.

    Raises ForgeRefused or ForgeUnavailable for a reason that is known (see _raise_unless_exists), else what PyGithub
    raises.
    """
    from github import GithubException

    try:
        return repository.create_pull(
            proposal.base, proposal.head, title=proposal.title, body=_bounded_body(proposal), draft=proposal.draft
        )
    except GithubException as error:
        if error.status != 422:
            raise
        has_drafts = not any("draft" in message.lower() for _, _, message in validation_errors(error.data))
        if proposal.draft and not proposal.draft_reason and not has_drafts:
            return _create_pull(repository, replace(proposal, draft=False))
        _raise_unless_exists(error, repository, proposal)
        return None


def _raise_unless_exists(error: GithubException, repository: Repository, proposal: Proposal) -> None:
    """Raise the error that GitHub's answer 422 to a new pull request means; return when it means that one exists
    already.

    Raises ForgeRefused where there is nothing to propose, drafts are not supported or the base branch is missing;
    ForgeUnavailable where GitHub does not see the head branch yet; else `error` itself.
    """
    where = repository.html_url
    for field, code, message in validation_errors(error.data):
        if "already exists" in message:
            return
        if message.startswith("No commits between"):
            what = f"there is nothing to propose: {proposal.base} has everything that {proposal.head} has"
            raise ForgeRefused(what, where=where, fix="look at the branch; was it merged already?")
        if "draft" in message.lower():
            fix = "set [ship] allow_untested = true, or on_failure = none, or use a plan that has drafts"
            raise ForgeRefused("this repository does not support draft pull requests", where=where, fix=fix)
        if field == "base" and code == "invalid":
            raise ForgeRefused(f"the base branch {proposal.base} is not there", where=where)
        if field == "head" and code == "invalid":
            # It was pushed a moment ago: GitHub has not seen it yet, or it was deleted and is pushed again.
            raise ForgeUnavailable(f"GitHub does not see the branch {proposal.head} yet", where=where)
    raise error


def _update_pull(pull: Pull, proposal: Proposal) -> tuple[str, ...]:
    """Edit base, title and text of an open pull request on GitHub where they differ from the proposal, without a
    request where they do not. Return notes: that its base was set back, and that it is or is not a draft, which only a
    person can change."""
    notes: tuple[str, ...] = ()
    if pull.base.ref != proposal.base:
        notes = (f"pull request #{pull.number} was into {pull.base.ref}: it is into {proposal.base} again",)
        pull.edit(base=proposal.base)
    if pull.title != proposal.title or _normalise_text(pull.body) != _normalise_text(_bounded_body(proposal)):
        pull.edit(title=proposal.title, body=_bounded_body(proposal))
    if bool(pull.draft) != proposal.draft:
        fix = "mark it ready for review" if pull.draft else "convert it to a draft"
        notes += (f"pull request #{pull.number} is {'still' if pull.draft else 'not'} a draft: {fix} yourself",)
    return notes


def _ensure_part_stays(pull: Pull, proposal: Proposal) -> None:
    """Wait until our part of a shared text has stayed there over a pause, and write it again where it is missing.
    Another delivery whose part is missing does the same for its own.

    Raises ForgeUnavailable when it does not stay in _CHECKS checks.
    """
    for _ in range(_CHECKS):
        time.sleep(_CHECK_PAUSE_S * random.uniform(0.5, 1.5))  # noqa: S311 - no secret; not in step with the others
        pull.update()
        merged = merge_part(proposal, pull.title, pull.body or "")
        if _normalise_text(pull.body) == _normalise_text(_bounded_body(merged)):
            return
        pull.edit(title=merged.title, body=_bounded_body(merged))
    raise ForgeUnavailable("others write to the text of the same pull request all the time", where=pull.html_url)


def _close_duplicates(younger: Sequence[Pull], kept: Pull) -> tuple[str, ...]:
    """Close further open pull requests of this delivery for the same branch, each with a comment that names the one
    kept; return a note for each."""
    for pull in younger:
        pull.create_issue_comment(f"Opened twice by mistake; #{kept.number} is the one. Closed by Perdure.")
        pull.edit(state="closed")
    return tuple(f"pull request #{pull.number} was a second one for this branch and is closed" for pull in younger)


def _add_people_and_labels(pull: Pull, proposal: Proposal, notes: tuple[str, ...]) -> ProposedPullRequest:
    """Add the proposal's labels and reviewers to a pull request on GitHub; return it with all notes."""
    notes += add_labels(pull, proposal.labels) + request_reviewers(pull, proposal.reviewers)
    return ProposedPullRequest(to_pull_request(pull), notes)


def _is_from_branch(pull: Pull, repository: Repository, head: str) -> bool:
    """Return True when a pull request is from this branch of this very repository. Checked although the list was
    filtered: a list that came unfiltered must not make somebody's pull request ours."""
    return pull.head.ref == head and pull.head.repo is not None and pull.head.repo.id == repository.id


def _bounded_body(proposal: Proposal) -> str:
    """Return the proposal's text, cut to FORGE_TEXT_CHARS, always with the marker in it: without that we would not know
    the pull request again."""
    mark = marker(proposal.delivery)
    if len(proposal.body) <= FORGE_TEXT_CHARS and mark in proposal.body:
        return proposal.body
    end = f"\n\n{mark}\n"
    return shorten(proposal.body, FORGE_TEXT_CHARS - len(end)) + end


def _normalise_text(text: str | None) -> str:
    """Return a text of GitHub's with plain line ends and no space around it, for comparison; empty for None."""
    return (text or "").replace("\r\n", "\n").strip()


def add_labels(pull: Pull, labels: Sequence[str]) -> tuple[str, ...]:
    """Add the labels that a pull request lacks; GitHub creates those that it does not know. Return a note when GitHub
    refuses them, else nothing. Raises what PyGithub raises when GitHub is away or does not accept the token."""
    existing = {label.name.lower() for label in pull.labels}
    missing = [label for label in labels if label.lower() not in existing]
    if not missing:
        return ()
    notes: list[str] = []
    with _note_refusal(notes, f"the label{'s' if missing[1:] else ''} {', '.join(missing)} could not be set"):
        pull.add_to_labels(*missing)
    return tuple(notes)


def request_reviewers(pull: Pull, reviewers: Sequence[str]) -> tuple[str, ...]:
    """Ask people by login and teams as `org/team` for a review, without those that were asked already; return a note
    for each that GitHub refuses.

    One request for each: an unknown name must not keep the others from being asked. Raises what PyGithub raises when
    GitHub is away or does not accept the token.
    """
    requested = {user.login.lower() for user in pull.requested_reviewers}
    requested_teams = {team.slug.lower() for team in pull.requested_teams}
    notes: list[str] = []
    for name in (name.removeprefix("@") for name in reviewers):
        _, slash, team = name.rpartition("/")
        if (team if slash else name).lower() in (requested_teams if slash else requested):
            continue
        with _note_refusal(notes, f"{name} could not be asked for a review"):
            if slash:
                pull.create_review_request(team_reviewers=[team])
            else:
                pull.create_review_request(reviewers=[name])
    return tuple(notes)


@contextmanager
def _note_refusal(notes: list[str], what: str) -> Iterator[None]:
    """Append a note to `notes` when GitHub refuses what the block does. The error is raised when GitHub is away or does
    not accept the token, so that the next attempt does what was not done."""
    from github import GithubException

    try:
        yield
    except GithubException as error:
        forge_error = status_error(error.status, error.data, error.headers or {}, "", "")
        if isinstance(forge_error, ForgeUnavailable) or error.status == 401:
            raise
        notes.append(f"{what}: {error_message(error.data).rstrip('.')}")
