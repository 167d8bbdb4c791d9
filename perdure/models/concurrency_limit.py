"""Limits over all deliveries and backlogs of a repository: whether one more may go on, and which others count. Also
Temporal's priority and fairness keys, by which a server orders the work of those that run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.models.base import ContractHash, HistoryModel


class ConcurrencyCheckInput(HistoryModel):
    """Ask whether this delivery, which is prepared and has paid nothing, may go on beside the repository's others.

    repository  as its request names it
    waits       fail while the limit is reached, so that Temporal tries it again
    """

    delivery: str
    contract: ContractHash
    workflow_id: str
    repository: str
    waits: bool = False


class ConcurrencyCheckResult(HistoryModel):
    """The answer to whether a delivery may go on. `reason`: why not, in one line; empty: it may."""

    reason: str = ""


@dataclass(frozen=True)
class OtherDelivery:
    """Another running delivery of the repository, as the server's list shows it.

    phase             empty: it is prepared and waits for the limit itself
    waits             for a person, for its turn to land, for a forge
    is_item           of a backlog, which opens the pull request
    has_pull_request  its own is open already
    began_earlier     it began before the one that asks
    """

    phase: str
    waits: bool = False
    is_item: bool = False
    has_pull_request: bool = False
    began_earlier: bool = False


def limit_reason(
    max_deliveries: int | None,
    max_pull_requests: int | None,
    others: tuple[OtherDelivery, ...],
    open_pull_requests: int,
) -> str:
    """Return why a delivery must wait for others of its repository, in one line; empty: it may go on. The limit on
    deliveries is checked first.

    Of deliveries that wait for a limit themselves, only those that began earlier count, so that they go by age.

    max_deliveries      how many may run at once, not counting those that wait for something else; None: any number
    max_pull_requests   how many may be open at once, with those that running deliveries will open; None: any number
    others              the repository's other running deliveries and backlogs
    open_pull_requests  how many are open now
    """
    running = sum(
        1 for other in others if (other.phase and not other.waits) or (not other.phase and other.began_earlier)
    )
    if max_deliveries is not None and running >= max_deliveries:
        more = "1 delivery of this repository runs" if running == 1 else f"{running} deliveries of this repository run"
        return f"{more} or {'is' if running == 1 else 'are'} before this one (limit {max_deliveries})"
    upcoming = sum(
        1 for other in others if not (other.is_item or other.has_pull_request) and (other.phase or other.began_earlier)
    )
    if max_pull_requests is None or open_pull_requests + upcoming < max_pull_requests:
        return ""
    open_text = (
        f"{open_pull_requests} pull request{' is' if open_pull_requests == 1 else 's are'} open"
        if open_pull_requests or not upcoming
        else ""
    )
    upcoming_text = f"{upcoming} {'is' if upcoming == 1 else 'are'} in the making" if upcoming else ""
    reasons = " and ".join(filter(None, (open_text, upcoming_text)))
    return f"{reasons if open_text else 'pull requests: ' + reasons} (limit {max_pull_requests})"


FAIRNESS_KEY_BYTES = 64
"""A server accepts no longer fairness key."""

MIDDLE_PRIORITY = 3
"""Temporal's priorities are 1 (first) to 5; work without a priority has this one."""


def temporal_priority(priority: int) -> int | None:
    """Return Temporal's priority key for an item's priority of -100 to 100: 1 above 50, 2 above 0, 4 below 0, 5 below
    -50.

    None for 0: the work then has the priority of the workflow that it is a part of, or the default, MIDDLE_PRIORITY.
    """
    step = 1 if abs(priority) <= 50 else 2
    return (MIDDLE_PRIORITY - step if priority > 0 else MIDDLE_PRIORITY + step) if priority else None


def fairness_key(id: str, raw: Mapping[str, Any], *, backlog: bool = False) -> str | None:
    """Return the fairness key of a workflow: its backlog's id, or its repository when it is in no backlog, or its own
    id when it names neither or is a backlog itself; the last FAIRNESS_KEY_BYTES of it. None for a task of a delivery's
    plan, which has that delivery's key.

    The server hands out work to each key in turn, however much waits under another.

    id, raw  the workflow's id and its request as it was sent; backlog: it is a backlog itself
    """
    landing = raw.get("landing")
    if isinstance(landing, Mapping) and landing.get("within"):
        return None
    sharer = id if backlog else landing.get("backlog") if isinstance(landing, Mapping) else raw.get("repository")
    return str(sharer or id).encode()[-FAIRNESS_KEY_BYTES:].decode(errors="ignore")
