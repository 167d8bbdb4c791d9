"""The one pull request of a head branch: found, adopted, or opened.

GitHub allows one open pull request for a head and a base, and says 422 to a second one. What it does not do is answer
for sure, or list at once what it has just created: so we look before and after.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from perdure.adapters.forges.base import Opened, Proposal, Pulled
from perdure.adapters.forges.body import OURS, issues_of, marker
from perdure.adapters.forges.github.errors import of_status, problems, words
from perdure.adapters.forges.parts import beside_others
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from perdure.models.limits import FORGE_TEXT_CHARS
from perdure.models.result import PullRequest

if TYPE_CHECKING:
    from github.GithubException import GithubException
    from github.PullRequest import PullRequest as Pull
    from github.Repository import Repository


_LOOK_S = 1.0
"""From writing a part of a shared text until a look whether it stayed. GitHub changes no text only if it is still the
one that was read, so who read it before we wrote may write after us; in between they take less than this."""

_LOOKS = 8
"""Then the activity is tried again, as after any failure of the forge."""


def published(pull: Pull) -> PullRequest:
    return PullRequest(number=pull.number, url=pull.html_url, title=pull.title, draft=bool(pull.draft))


def pulled(pull: Pull, delivery: str) -> Pulled:
    """`delivery` is whose marker makes it ours."""
    state = "merged" if pull.merged_at else pull.state
    ours = marker(delivery) in (pull.body or "")
    return Pulled(number=pull.number, state=state, head_sha=pull.head.sha, ours=ours, base=pull.base.ref)


def of_head(repository: Repository, head: str, state: str) -> list[Pull]:
    """The pull requests of a branch of this very repository, oldest first: a fork may have one of the same name."""
    listed = repository.get_pulls(state=state, head=f"{repository.owner.login}:{head}", sort="created", direction="asc")
    return sorted((pull for pull in listed if _is_here(pull, repository, head)), key=lambda pull: pull.number)


def open_ours(repository: Repository, but: str, most: int) -> int:
    """Open ones with the mark of a delivery, that of `but` apart; counted up to `most`. A fork's are nobody's of us,
    whatever their text says."""
    bodies = (pull.body or "" for pull in _open_here(repository))
    return sum(1 for _ in islice((body for body in bodies if OURS in body and marker(but) not in body), most))


def proposed(repository: Repository) -> dict[int, int]:
    """By the number of the issue, that of the open pull request of ours that is about it."""
    return {issue: pull.number for pull in _open_here(repository) for issue in issues_of(pull.body or "")}


def _open_here(repository: Repository) -> Iterator[Pull]:
    return (pull for pull in repository.get_pulls(state="open") if _is_here(pull, repository, pull.head.ref))


def open_one(repository: Repository, proposal: Proposal) -> Opened:
    """Adopt what is there, or create it; never a second one. GitHub's errors leave as PyGithub raises them."""
    adopted = _adopt(repository, proposal)
    if adopted is None:
        created = _create(repository, proposal)
        adopted = _adopt(repository, proposal, created)
    if adopted is None:
        raise ForgeUnavailable(
            "GitHub says that the pull request exists, and does not show it yet", where=repository.html_url
        )
    return adopted


def _adopt(repository: Repository, proposal: Proposal, created: Pull | None = None) -> Opened | None:
    """The pull request that is this delivery's, brought up to date: our open one, somebody else's open one, or ours
    of this very commit that somebody has closed or merged."""
    listed = of_head(repository, proposal.head, "all")
    if created is not None and created.number not in {pull.number for pull in listed}:
        listed.append(created)  # lists lag
    ours = [pull for pull in listed if marker(proposal.delivery) in (pull.body or "")]
    if proposal.shares and not any(pull.state == "open" for pull in ours):
        ours += [
            pull
            for pull in listed
            if pull.state == "open" and pull.base.ref == proposal.base and OURS in (pull.body or "")
        ][:1]
    if open_ours := [pull for pull in ours if pull.state == "open"]:
        first = open_ours[0]
        told = beside_others(proposal, first.title, first.body or "") if proposal.shares else proposal
        notes = _close(open_ours[1:], first) + _bring_up_to_date(first, told)
        if told is not proposal:
            _stays(first, proposal)
        return _dressed(first, told, notes)
    others = [pull for pull in listed if pull.state == "open" and pull not in ours]
    for pull in others:
        if pull.base.ref == proposal.base:
            said = (
                f"pull request #{pull.number} for this branch is not Perdure's: its title and text are left as they are"
            )
            return Opened(published(pull), (said,))
    for pull in ours:
        if pull.head.sha == proposal.head_sha:
            how = "merged" if pull.merged_at else "closed"
            said = f"pull request #{pull.number} of this very commit has been {how} meanwhile: no second one is opened"
            return Opened(published(pull), (said,))
    return None


def _create(repository: Repository, proposal: Proposal) -> Pull | None:
    """None: GitHub says that there is one."""
    from github import GithubException

    try:
        return repository.create_pull(
            proposal.base, proposal.head, title=proposal.title, body=_bounded(proposal), draft=proposal.draft
        )
    except GithubException as error:
        if error.status != 422:
            raise
        _explain(error, repository, proposal)
        return None


def _explain(error: GithubException, repository: Repository, proposal: Proposal) -> None:
    """A 422 in words: returns when one exists already, raises otherwise."""
    where = repository.html_url
    for field, code, message in problems(error.data):
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


def _bring_up_to_date(pull: Pull, proposal: Proposal) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    if pull.base.ref != proposal.base:
        notes = (f"pull request #{pull.number} was into {pull.base.ref}: it is into {proposal.base} again",)
        pull.edit(base=proposal.base)
    if pull.title != proposal.title or _plain(pull.body) != _plain(_bounded(proposal)):
        pull.edit(title=proposal.title, body=_bounded(proposal))
    if bool(pull.draft) != proposal.draft:
        fix = "mark it ready for review" if pull.draft else "convert it to a draft"
        notes += (f"pull request #{pull.number} is {'still' if pull.draft else 'not'} a draft: {fix} yourself",)
    return notes


def _stays(pull: Pull, proposal: Proposal) -> None:
    """See to it that its part of a shared text stays there; whoever else's is missing sees to theirs."""
    for _ in range(_LOOKS):
        time.sleep(_LOOK_S * random.uniform(0.5, 1.5))  # noqa: S311 - no secret; not in step with the others
        pull.update()
        told = beside_others(proposal, pull.title, pull.body or "")
        if _plain(pull.body) == _plain(_bounded(told)):
            return
        pull.edit(title=told.title, body=_bounded(told))
    raise ForgeUnavailable("others write to the text of the same pull request all the time", where=pull.html_url)


def _close(younger: Sequence[Pull], first: Pull) -> tuple[str, ...]:
    for pull in younger:
        pull.create_issue_comment(f"Opened twice by mistake; #{first.number} is the one. Closed by Perdure.")
        pull.edit(state="closed")
    return tuple(f"pull request #{pull.number} was a second one for this branch and is closed" for pull in younger)


def _dressed(pull: Pull, proposal: Proposal, notes: tuple[str, ...]) -> Opened:
    notes += add_labels(pull, proposal.labels) + ask_reviewers(pull, proposal.reviewers)
    return Opened(published(pull), notes)


def _is_here(pull: Pull, repository: Repository, head: str) -> bool:
    """Looked at again here: a list that came unfiltered must not make somebody's pull request ours."""
    return pull.head.ref == head and pull.head.repo is not None and pull.head.repo.id == repository.id


def _bounded(proposal: Proposal) -> str:
    """The body as long as GitHub takes it, with the marker in it: without that we would not know it again."""
    mark = marker(proposal.delivery)
    if len(proposal.body) <= FORGE_TEXT_CHARS and mark in proposal.body:
        return proposal.body
    end = f"\n\n{mark}\n"
    room = FORGE_TEXT_CHARS - len(end) - 1
    return (proposal.body if len(proposal.body) <= room else proposal.body[:room] + "…") + end


def _plain(text: str | None) -> str:
    return (text or "").replace("\r\n", "\n").strip()


def add_labels(pull: Pull, labels: Sequence[str]) -> tuple[str, ...]:
    """Those that are missing; GitHub makes the ones that it does not know. Returns notes."""
    there = {label.name.lower() for label in pull.labels}
    missing = [label for label in labels if label.lower() not in there]
    if not missing:
        return ()
    notes: list[str] = []
    with _noted(notes, f"the label{'s' if missing[1:] else ''} {', '.join(missing)} could not be set"):
        pull.add_to_labels(*missing)
    return tuple(notes)


def ask_reviewers(pull: Pull, reviewers: Sequence[str]) -> tuple[str, ...]:
    """People by login and teams as `org/team`, those not asked yet, one at a time: one unknown name must not keep
    the others from being asked. Returns notes."""
    asked = {user.login.lower() for user in pull.requested_reviewers}
    asked_teams = {team.slug.lower() for team in pull.requested_teams}
    notes: list[str] = []
    for name in (name.removeprefix("@") for name in reviewers):
        _, slash, team = name.rpartition("/")
        if (team if slash else name).lower() in (asked_teams if slash else asked):
            continue
        with _noted(notes, f"{name} could not be asked for a review"):
            if slash:
                pull.create_review_request(team_reviewers=[team])
            else:
                pull.create_review_request(reviewers=[name])
    return tuple(notes)


@contextmanager
def _noted(notes: list[str], what: str) -> Iterator[None]:
    """A refusal becomes a note; a GitHub that is away raises: what was not done is then done in the next attempt."""
    from github import GithubException

    try:
        yield
    except GithubException as error:
        meaning = of_status(error.status, error.data, error.headers or {}, "", "")
        if isinstance(meaning, ForgeUnavailable) or error.status == 401:
            raise
        notes.append(f"{what}: {words(error.data).rstrip('.')}")
