"""Room for one more delivery of a repository: limits over all its deliveries and backlogs, and who counts."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.models.base import ContractHash, Recorded


class RoomInput(Recorded):
    """Is there room for this delivery, which is prepared and has paid nothing? `repository`: as its request names it;
    `waits`: fail, to be tried again, as long as there is none."""

    delivery: str
    contract: ContractHash
    workflow_id: str
    repository: str
    waits: bool = False


class Room(Recorded):
    """`words`: why there is none, in one line; empty: there is."""

    words: str = ""


@dataclass(frozen=True)
class Other:
    """Another delivery of the repository that runs, as the server's list shows it.

    phase     empty: it is prepared and stands in the line for room
    waits     for a person, for its turn to land, for a forge
    item      of a backlog, which opens the pull request
    proposed  its own is open already
    before    it began before the one that asks
    """

    phase: str
    waits: bool = False
    item: bool = False
    proposed: bool = False
    before: bool = False


def full(deliveries: int | None, pulls: int | None, others: tuple[Other, ...], opened: int) -> str:
    """Say why there is no room, in one line; empty: there is. Who stands in the line goes by age.

    deliveries  of the repository that may run at once, those that wait for something apart; None: any number
    pulls       that may be open at once, those in the making too; None: any number; opened: those that are
    """
    runs = sum(1 for one in others if (one.phase and not one.waits) or (not one.phase and one.before))
    if deliveries is not None and runs >= deliveries:
        more = "1 delivery of this repository runs" if runs == 1 else f"{runs} deliveries of this repository run"
        return f"{more} or {'is' if runs == 1 else 'are'} before this one (limit {deliveries})"
    coming = sum(1 for one in others if not (one.item or one.proposed) and (one.phase or one.before))
    if pulls is None or opened + coming < pulls:
        return ""
    there = f"{opened} pull request{' is' if opened == 1 else 's are'} open" if opened or not coming else ""
    made = f"{coming} {'is' if coming == 1 else 'are'} in the making" if coming else ""
    words = " and ".join(filter(None, (there, made)))
    return f"{words if there else 'pull requests: ' + words} (limit {pulls})"
