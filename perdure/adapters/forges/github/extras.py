"""Labels and reviewers: welcome, never worth a delivery. What GitHub does not take is a note."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perdure.adapters.forges.github.errors import of_status, words
from perdure.models.errors import ForgeUnavailable

if TYPE_CHECKING:
    from github.PullRequest import PullRequest as Pull


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
