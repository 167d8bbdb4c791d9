"""Claims about a delivery, judged by its vault: where it began, its checkpoints, its commits."""

from __future__ import annotations

from itertools import pairwise

from perdure.cli.look.evidence import Evidence, Judged, Unknown, no, unknown, yes
from perdure.cli.words import count, short
from perdure.models.verify import CommitFact


def begins(evidence: Evidence) -> Judged:
    """A delivery begins with its base's files: one more in its first checkpoint would be in no turn, and ship."""
    host = evidence.host
    if isinstance(host, Unknown):
        return unknown(host.why)
    start = short(evidence.told.start)
    if host.begun is None:
        return unknown(f"prepare's checkpoint, or the commit {start} it began on, is not in the vault")
    if host.begun:
        return no([f"prepare's checkpoint differs from {start} in {', '.join(host.begun)}"])
    return yes(f"prepare's checkpoint holds the files of {start}, byte for byte")


def commits(evidence: Evidence) -> Judged:
    host, told, result = evidence.host, evidence.told, evidence.result
    if isinstance(host, Unknown):
        return unknown(host.why)
    if not (told.commits or told.tasks):
        return yes("it made none, says history") if told.complete else unknown("the first runs' history is gone")
    if not host.tree:
        return no([f"commit {short(result.head_sha or '')} is not in the vault any more"])
    if not host.commits:
        made = len(told.commits) + len(told.tasks)
        return no([f"{short(result.head_sha or '')} has none of the {made} that history tells of"])
    all_made = [fact.commit for fact in host.commits]
    head = told.forked.head if told.forked else ""
    inherited = all_made.index(head) + 1 if head in all_made else 0
    own = host.commits[inherited:]
    problems = [f"{short(fact.commit)} {wrong}" for fact in own if (wrong := _wrong(evidence, fact))]
    if problems:
        return no(problems[:3])
    mine = len(own) - len(told.tasks)
    said = f"{count(mine, 'commit')} with this delivery's trailers, each the files of its checkpoint"
    said += f", {len(told.tasks)} by its plan's tasks with theirs" if told.tasks else ""
    said += f", after {inherited} of {told.forked.delivery}" if told.forked and inherited else ""
    return yes(said)


def _wrong(evidence: Evidence, fact: CommitFact) -> str:
    if evidence.told.tasks.get(fact.commit) == fact.delivery:
        return ""  # by a task of its plan, which has a proof of its own
    if fact.delivery != evidence.delivery:
        return f"carries the trailer of {fact.delivery}" if fact.delivery else "does not carry the delivery's trailer"
    made_from, step = evidence.told.commits.get(fact.commit, ("", ""))
    if not made_from:
        return "is not in history" if evidence.told.complete else ""
    if fact.step != step:
        return f"says it is of {fact.step}, history says {step}"
    if not fact.checkpoint:
        return f"was made from checkpoint {short(made_from)}, which is not in the vault"
    if fact.differs:
        return f"differs from checkpoint {short(made_from)} in {', '.join(fact.differs)}"
    return ""


def _inherited(evidence: Evidence) -> int | None:
    """Checkpoints before the one it was forked at; None where that is not among them."""
    forked, there = evidence.told.forked, [fact.commit for fact in evidence.checkpoints]
    if forked is None:
        return 0
    return there.index(forked.checkpoint) if forked.checkpoint in there else None


def checkpoints(evidence: Evidence) -> Judged:
    host, told, chain = evidence.host, evidence.told, evidence.checkpoints
    if isinstance(host, Unknown):
        return unknown(host.why)
    if host.broken:
        return no([f"a hole: {host.broken}"])
    problems = []
    if told.first and chain[0].commit != told.first:
        problems.append(f"they begin at {short(chain[0].commit)}, prepare's is {short(told.first)}")
    inherited = _inherited(evidence)
    if inherited is None:
        return no([f"they do not go on from {short(told.forked.checkpoint if told.forked else '')}"])
    chain = chain[inherited:]
    known = {turn.after: turn for turn in told.turns}
    for before, fact in pairwise(chain):
        turn = known.get(fact.commit)
        place = f"{fact.step} {fact.attempt}, turn {fact.turn}"
        if turn is None:
            problems += [f"{short(fact.commit)} ({place}) is not in history"] if told.complete else []
        elif turn.before != before.commit:
            problems.append(f"{short(fact.commit)} follows {short(before.commit)}, in history {short(turn.before)}")
        elif (turn.step, turn.attempt, turn.turn) != (fact.step, fact.attempt, fact.turn):
            problems.append(f"{short(fact.commit)} is {place}, in history {turn.step} {turn.attempt}, turn {turn.turn}")
    there = {fact.commit for fact in chain}
    lost = [turn for turn in told.turns[len(told.turns) - told.newest :] if turn.after not in there]
    problems += [f"{turn.step} {turn.attempt}, turn {turn.turn} has no checkpoint" for turn in lost]
    mine = chain[1:] if told.forked else chain
    problems += [f"{short(fact.commit)} is {fact.delivery}'s" for fact in mine if fact.delivery != evidence.delivery]
    if len(chain) > 1 and not host.held:
        problems.append(f"no ref keeps the last one, {short(chain[-1].commit)}")
    if problems:
        return no(problems[:3])
    if not told.complete:
        return unknown(f"{len(chain)} without a hole; the first runs' history is gone, so they cannot be compared")
    turns, whose = count(len(chain) - 1, "turn"), told.forked.delivery if told.forked else "prepare"
    return yes(f"{len(chain)} without a hole, from {whose}'s {short(chain[0].commit)} over {turns} that history has")
