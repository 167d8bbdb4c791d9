"""Claims about a delivery that its vault decides: the commit it began on, its checkpoints, its commits."""

from __future__ import annotations

from itertools import pairwise

from perdure.cli.formatting import pluralise, short_sha
from perdure.cli.look.evidence import Evidence, Judgement, UnknownFacts, contradicted, unknown, verified
from perdure.models.verify import CommitFact


def check_start(evidence: Evidence) -> Judgement:
    """Check that prepare's checkpoint holds exactly the files of the commit that the delivery began on.

    A file more in that checkpoint would come from no turn, and be shipped.
    """
    host = evidence.host
    if isinstance(host, UnknownFacts):
        return unknown(host.reason)
    start = short_sha(evidence.history.start_commit)
    if host.start_differences is None:
        return unknown(f"prepare's checkpoint, or the commit {start} it began on, is not in the vault")
    if host.start_differences:
        return contradicted([f"prepare's checkpoint differs from {start} in {', '.join(host.start_differences)}"])
    return verified(f"prepare's checkpoint holds the files of {start}, byte for byte")


def check_commits(evidence: Evidence) -> Judgement:
    """Check that each commit of the branch is one of this delivery or of its plan's tasks, is in history, and holds the
    files of its checkpoint.

    Commits from the delivery that it was forked from are not judged.
    """
    host, history, result = evidence.host, evidence.history, evidence.result
    if isinstance(host, UnknownFacts):
        return unknown(host.reason)
    if not (history.commits or history.task_commits):
        return (
            verified("it made none, says history") if history.complete else unknown("the first runs' history is gone")
        )
    if not host.tree:
        return contradicted([f"commit {short_sha(result.head_sha or '')} is not in the vault any more"])
    if not host.commits:
        made_count = len(history.commits) + len(history.task_commits)
        return contradicted([f"{short_sha(result.head_sha or '')} has none of the {made_count} that history tells of"])
    hashes = [fact.commit for fact in host.commits]
    inherited_head = history.forked.head if history.forked else ""
    inherited = hashes.index(inherited_head) + 1 if inherited_head in hashes else 0
    own = host.commits[inherited:]
    problems = [
        f"{short_sha(fact.commit)} {problem}" for fact in own if (problem := _find_commit_problem(evidence, fact))
    ]
    if problems:
        return contradicted(problems[:3])
    own_count = len(own) - len(history.task_commits)
    summary = f"{pluralise(own_count, 'commit')} with this delivery's trailers, each the files of its checkpoint"
    summary += f", {len(history.task_commits)} by its plan's tasks with theirs" if history.task_commits else ""
    summary += f", after {inherited} of {history.forked.delivery}" if history.forked and inherited else ""
    return verified(summary)


def _find_commit_problem(evidence: Evidence, fact: CommitFact) -> str:
    """Find what is wrong with a commit: its trailers, that it is not in history, or files that its checkpoint does not
    have; empty: nothing."""
    if evidence.history.task_commits.get(fact.commit) == fact.delivery:
        return ""  # by a task of its plan, which has a proof of its own
    if fact.delivery != evidence.delivery:
        return f"carries the trailer of {fact.delivery}" if fact.delivery else "does not carry the delivery's trailer"
    from_checkpoint, step = evidence.history.commits.get(fact.commit, ("", ""))
    if not from_checkpoint:
        return "is not in history" if evidence.history.complete else ""
    if fact.step != step:
        return f"says it is of {fact.step}, history says {step}"
    if not fact.checkpoint:
        return f"was made from checkpoint {short_sha(from_checkpoint)}, which is not in the vault"
    if fact.differs:
        return f"differs from checkpoint {short_sha(from_checkpoint)} in {', '.join(fact.differs)}"
    return ""


def _count_inherited_checkpoints(evidence: Evidence) -> int | None:
    """Count the checkpoints before the one that the delivery was forked at; 0 where it is no fork.

    None where the checkpoint it was forked at is not in the chain.
    """
    forked, hashes = evidence.history.forked, [fact.commit for fact in evidence.checkpoints]
    if forked is None:
        return 0
    return hashes.index(forked.checkpoint) if forked.checkpoint in hashes else None


def check_checkpoints(evidence: Evidence) -> Judgement:
    """Check that the checkpoints are a chain without a hole, one for each turn in history, all this delivery's, and the
    last kept by a ref.

    Those from the delivery that it was forked from are left out. Unknown where Temporal does not have the first runs
    any more.
    """
    host, history, chain = evidence.host, evidence.history, evidence.checkpoints
    if isinstance(host, UnknownFacts):
        return unknown(host.reason)
    if host.broken:
        return contradicted([f"a hole: {host.broken}"])
    problems = []
    if history.first_checkpoint and chain[0].commit != history.first_checkpoint:
        problems.append(
            f"they begin at {short_sha(chain[0].commit)}, prepare's is {short_sha(history.first_checkpoint)}"
        )
    inherited = _count_inherited_checkpoints(evidence)
    if inherited is None:
        return contradicted(
            [f"they do not go on from {short_sha(history.forked.checkpoint if history.forked else '')}"]
        )
    chain = chain[inherited:]
    turn_by_checkpoint = {turn.after: turn for turn in history.turns}
    for previous, fact in pairwise(chain):
        turn = turn_by_checkpoint.get(fact.commit)
        label = f"{fact.step} {fact.attempt}, turn {fact.turn}"
        if turn is None:
            problems += [f"{short_sha(fact.commit)} ({label}) is not in history"] if history.complete else []
        elif turn.before != previous.commit:
            problems.append(
                f"{short_sha(fact.commit)} follows {short_sha(previous.commit)}, in history {short_sha(turn.before)}"
            )
        elif (turn.step, turn.attempt, turn.turn) != (fact.step, fact.attempt, fact.turn):
            problems.append(
                f"{short_sha(fact.commit)} is {label}, in history {turn.step} {turn.attempt}, turn {turn.turn}"
            )
    present = {fact.commit for fact in chain}
    missing_turns = [
        turn for turn in history.turns[len(history.turns) - history.newest_turns :] if turn.after not in present
    ]
    problems += [f"{turn.step} {turn.attempt}, turn {turn.turn} has no checkpoint" for turn in missing_turns]
    own = chain[1:] if history.forked else chain
    problems += [f"{short_sha(fact.commit)} is {fact.delivery}'s" for fact in own if fact.delivery != evidence.delivery]
    if len(chain) > 1 and not host.is_referenced:
        problems.append(f"no ref keeps the last one, {short_sha(chain[-1].commit)}")
    if problems:
        return contradicted(problems[:3])
    if not history.complete:
        return unknown(f"{len(chain)} without a hole; the first runs' history is gone, so they cannot be compared")
    turns, origin = pluralise(len(chain) - 1, "turn"), history.forked.delivery if history.forked else "prepare"
    return verified(
        f"{len(chain)} without a hole, from {origin}'s {short_sha(chain[0].commit)} over {turns} that history has"
    )
