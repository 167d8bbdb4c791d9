"""The claims of a receipt, each judged by what history, git, vault, ledger and forge say now; pure functions.

`perdure verify` prints them. A judgement is (verified, contradicted or unknown; the explanation). The host is the
machine that worked on the delivery; `verifying` beside this reads its facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from perdure.cli.look.evidence import Evidence, Judgement, UnknownFacts, contradicted, unknown, verified
from perdure.models.delivery.result import SUCCESSES, ReviewStatus, Status, TestsStatus
from perdure.models.delivery.verify import Claim, CommitFact, LedgerFact
from perdure.text import format_count, format_money, short_sha


def check_start(evidence: Evidence) -> Judgement:
    """Judge whether prepare's checkpoint holds exactly the files of the commit that the delivery began on.

    A file more in that checkpoint would come from no turn, and be shipped. Unknown when the host's facts are, or one of
    the two commits is not in the vault.
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
    """Judge whether each commit of the branch is one of this delivery or of its plan's tasks, is in history, and holds
    the files of its checkpoint.

    Commits from the delivery that it was forked from are left out. Verified, too, when history has none. Unknown when
    the host's facts are, or history has none and its first runs are gone. Contradicted with at most three problems.
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
    summary = f"{format_count(own_count, 'commit')} with this delivery's trailers, each the files of its checkpoint"
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
    """Judge whether the checkpoints are a chain without a hole, one for each turn in history, all this delivery's, and
    the last kept by a ref.

    Those from the delivery that it was forked from are left out. Unknown when the host's facts are, or Temporal does
    not have the first runs any more and no problem is found. Contradicted with at most three problems.
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
    turns, origin = format_count(len(chain) - 1, "turn"), history.forked.delivery if history.forked else "prepare"
    return verified(
        f"{len(chain)} without a hole, from {origin}'s {short_sha(chain[0].commit)} over {turns} that history has"
    )


_ROUNDING_USD = 5e-7
"""Amounts are kept in millionths of a dollar: a smaller difference comes from arithmetic."""

_COUNTS = (
    ("worker_deaths", "journal"),
    ("turns_redone", "journal"),
    ("replies_paid_twice", "spend log"),
    ("replies_cut", "spend log"),
)
"""Fields that both Receipt and LedgerFact have, and what the host counts them from."""


def check_claims(evidence: Evidence) -> Iterator[Claim]:
    """Judge the claims of a receipt and yield each as it is judged, those left out that do not apply to this delivery.

    One that ended before it had a workspace has only the first few. The two that need work of their own, the replay and
    the tests that are run again, are not among them.
    """
    yield _make_claim("ended as it says", _check_status(evidence))
    yield _make_claim(
        "one pull request" if evidence.result.pull_request else "no pull request", _check_pull_requests(evidence)
    )
    if evidence.result.tests.status in (TestsStatus.GREEN, TestsStatus.RED):
        yield _make_claim("tested tree", _check_tested_tree(evidence))
    if _has_experiment(evidence):
        yield _make_claim("experiment", _check_experiment(evidence))
    if evidence.history.prepared is None:  # It ended before it had a workspace: there is nothing to count.
        return
    yield _make_claim("begins at the base", check_start(evidence))
    yield _make_claim("commits", check_commits(evidence))
    yield _make_claim("checkpoints", check_checkpoints(evidence))
    yield from _check_counts(evidence)
    yield _make_claim("cost", _check_cost(evidence))


def _make_claim(name: str, judgement: Judgement) -> Claim:
    """Return a claim with its status and the explanation."""
    return Claim(mark=judgement[0], claim=name, explanation=judgement[1])


def _check_status(evidence: Evidence) -> Judgement:
    """Judge whether the result's status fits the way the workflow ended, and its pull request, last commit and accepted
    red tests fit history.

    It is contradicted, too, when it says delivered although its tests are red and nobody let them through, or blockers
    remained. Never unknown.
    """
    result, history = evidence.result, evidence.history
    expected = "completed" if result.status in SUCCESSES else "cancelled" if result.status == "cancelled" else "failed"
    problems = (
        [f"it says {result.status}, the workflow is {evidence.workflow_status}"]
        if evidence.workflow_status != expected
        else []
    )
    number = result.pull_request.number if result.pull_request else None
    if number != history.pull_request_number and (history.complete or history.pull_request_number is not None):
        problems.append(
            f"it names pull request {_format_number(number)}, history has {_format_number(history.pull_request_number)}"
        )
    if result.status in SUCCESSES and result.head_sha and history.head not in ("", result.head_sha):
        problems.append(
            f"it names commit {short_sha(result.head_sha)}, history's last one is {short_sha(history.head)}"
        )
    if result.status == Status.DELIVERED and result.tests.status == TestsStatus.RED:
        if not result.tests.accepted:
            problems.append("it says delivered, and its tests are red")
        elif history.accepted != result.tests.accepted and (
            history.complete or history.pull_request_number is not None
        ):
            problems.append(f"it says that a person let red tests through, history has {history.accepted or 'nobody'}")
    if result.status == Status.DELIVERED and result.review.status == ReviewStatus.BLOCKED:
        problems.append(f"it says delivered, and {format_count(result.review.blockers, 'blocker')} remained")
    if problems:
        return contradicted(problems)
    reason = f" ({result.reason})" if result.reason else ""
    return verified(f"{result.status}{reason}, and the workflow is {evidence.workflow_status}")


def _check_pull_requests(evidence: Evidence) -> Judgement:
    """Judge whether the pull request which the result names exists, proposes the result's commit, and is the only open
    one of the branch.

    When the result names none, none of Perdure's may be open. Verified when the delivery ended before it had a branch;
    unknown when no forge could be asked.
    """
    result, published = evidence.result, evidence.published
    branch = result.branch or (evidence.history.prepared.branch if evidence.history.prepared else "")
    if not branch:
        return verified("it ended before it had a branch")
    if isinstance(published, UnknownFacts):
        return unknown(published.reason)
    if not published.forge:
        return unknown("no forge that Perdure speaks to keeps this repository's pull requests")
    expected_number = result.pull_request.number if result.pull_request else None
    own_open = [pull for pull in published.pulls if pull.ours and pull.state == "open"]
    other_open = [pull for pull in published.pulls if pull.state == "open" and not pull.ours]
    if expected_number is None:
        return (
            contradicted([f"#{pull.number} is open" for pull in own_open])
            if own_open
            else verified(f"the forge has none of it for {branch}")
        )
    own_pull = next((pull for pull in published.pulls if pull.number == expected_number), None)
    problems = [f"#{expected_number} is not there any more"] if own_pull is None else []
    if own_pull is not None and own_pull.head not in ("", result.head_sha):
        problems.append(
            f"#{expected_number} proposes {short_sha(own_pull.head)}, not {short_sha(result.head_sha or '')}"
        )
    extra = [f"#{pull.number}" for pull in [*own_open, *other_open] if pull.number != expected_number]
    if extra:
        problems.append(f"{', '.join(extra)} {'is' if len(extra) == 1 else 'are'} open for {branch}, too")
    if problems or own_pull is None:
        return contradicted(problems)
    return verified(
        f"#{expected_number} of {branch} is {own_pull.state} and proposes {short_sha(own_pull.head)}, "
        "as the result says; no other"
    )


def _check_tested_tree(evidence: Evidence) -> Judgement:
    """Judge whether the tests ran on the tree of the newest commit: by the vault, by history, by the test report and by
    the remote.

    The report's counts have to be the result's. Unknown when the host cannot be asked, and when there is a pull request
    and the remote cannot.
    """
    result, host = evidence.result, evidence.host
    tests, head = result.tests, result.head_sha or ""
    if isinstance(host, UnknownFacts):
        return unknown(host.reason)
    tree, problems = tests.tree_sha or "", []
    if not host.tree:
        problems.append(f"commit {short_sha(head)} is not in the vault any more")
    elif host.tree != tree:
        problems.append(f"{short_sha(head)} holds tree {short_sha(host.tree)}, the tests ran on {short_sha(tree)}")
    if evidence.history.tested_tree not in ("", tree):
        problems.append(f"history's last tests ran on {short_sha(evidence.history.tested_tree)}")
    if host.report is None:
        problems.append("the report is missing or was changed: it is not what its hash says")
    elif (host.report.tree, host.report.status) != (tree, tests.status):
        problems.append(f"the report says {host.report.status} on tree {short_sha(host.report.tree)}")
    elif (host.report.passed, host.report.failed) != (tests.passed, tests.failed):
        problems.append(f"the report has {_format_counts(host.report.passed, host.report.failed)}")
    remote_text, remote_problem = _compare_remote(evidence, head)
    problems += [remote_problem] if remote_problem else []
    if problems:
        return contradicted(problems)
    agreement = f"{short_sha(tree)} in the vault's {short_sha(head)} and in the report ({tests.status})"
    if isinstance(evidence.published, UnknownFacts) and result.pull_request is not None:
        return unknown(f"{agreement}; the remote is unknown: {evidence.published.reason}")
    return verified(agreement + remote_text)


def _has_experiment(evidence: Evidence) -> bool:
    """Return whether the result or the test report tells of an experiment.

    There is none from old releases, of red tests, and where there was nothing to compare with.
    """
    host = evidence.host
    experiment = None if isinstance(host, UnknownFacts) or host.report is None else host.report.experiment
    return bool(evidence.result.tests.experiment or experiment)


def _check_experiment(evidence: Evidence) -> Judgement:
    """Judge the line about the experiments in result and receipt by the test report, from whose lists it is added up
    again.

    The experiments are the base's tests on the change, its tests without it, and tests that must fail. Contradicted,
    too, when the report has none, or says that tests were bent although the result is green. Unknown when the host's
    facts are.
    """
    result, host = evidence.result, evidence.host
    if isinstance(host, UnknownFacts):
        return unknown(host.reason)
    experiment = host.report.experiment if host.report is not None else None
    if experiment is None:
        return contradicted(["the report has none, or is missing"])
    problems = [] if experiment.line == result.tests.experiment else [f"the report comes to {experiment.line}"]
    if experiment.promises != result.tests.promises:
        reported = format_count(experiment.promises, "changed promise")
        problems.append(f"the report has {reported}, the result {result.tests.promises}")
    if result.receipt.experiment != result.tests.experiment:
        problems.append(f"the receipt says {result.receipt.experiment or 'nothing'}")
    if experiment.tampered and result.tests.status == TestsStatus.GREEN:
        problems.append("it says green, and the report that tests were bent")
    if problems:
        return contradicted(problems)
    promises = f", {format_count(experiment.promises, 'changed promise')}" if experiment.promises else ""
    if not experiment.line:
        return verified(f"the report has no number either{promises}: only exit codes were asked")
    return verified(f"{experiment.line}{promises}, added up from the report")


def _compare_remote(evidence: Evidence, head: str) -> tuple[str, str]:
    """Compare the branch on the remote with the tested commit: return (a text that agrees, a text that contradicts), at
    most one of them filled.

    Only a branch whose pull request is open has to be at that commit. One without a pull request may move on; where the
    pull request is merged or closed, or the branch is deleted, it is enough that the vault has the commit.
    """
    published, result = evidence.published, evidence.result
    if isinstance(published, UnknownFacts):
        return "", ""
    if published.tip == head:
        return f", and {result.branch} on the remote is there", ""
    pull = result.pull_request
    if published.tip is None:
        return (f"; {result.branch} is deleted on the remote" if pull else ""), ""
    if pull is None or any(fact.number == pull.number and fact.state != "open" for fact in published.pulls):
        return f"; {result.branch} on the remote has moved on since", ""
    return "", f"{result.branch} is at {short_sha(published.tip)} on the remote, the tests ran on {short_sha(head)}"


def _check_counts(evidence: Evidence) -> Iterator[Claim]:
    """Judge how many worker deaths, redone turns, replies paid twice and cut replies the receipt says; yield a claim
    for each.

    Each is compared with the host's journal or spend log, and with the receipt in history; unknown when the host's are
    not here. A death that history tells and the journal has not contradicts the receipt too.
    """
    host = evidence.host
    for field, source in _COUNTS:
        name, receipt_count = field.replace("_", " "), getattr(evidence.result.receipt, field)
        if isinstance(host, UnknownFacts):
            yield _make_claim(name, unknown(host.reason))
            continue
        counted = getattr(host.ledger, field)
        problems = [f"the receipt says {receipt_count}, the {source} {counted}"] if counted != receipt_count else []
        if (recorded := evidence.history.receipt) is not None and getattr(recorded, field) != receipt_count:
            problems.append(f"{getattr(recorded, field)} were written down when it ended")
        addition = ""
        if field == "worker_deaths":
            addition = ", and history tells of no other"
            if host.ledger.unknown_deaths:
                problems.append(
                    f"history tells of a death that the journal has not: {', '.join(host.ledger.unknown_deaths)}"
                )
        yield _make_claim(
            name,
            contradicted(problems) if problems else verified(f"{counted}, counted again from the {source}{addition}"),
        )


def _check_cost(evidence: Evidence) -> Judgement:
    """Judge whether the cost and the amount at risk in the result are the ledger's, and whether these fit the steps and
    turns.

    The latter only when the chain of checkpoints is whole. Unknown when the host's facts are, or neither result nor
    ledger know a model's price; contradicted when only one of them does.
    """
    result, host = evidence.result, evidence.host
    if isinstance(host, UnknownFacts):
        return unknown(host.reason)
    ledger, usage = host.ledger, result.usage
    if usage.cost_usd is None or ledger.spend.usd is None:
        if usage.cost_usd is not None or ledger.spend.usd is not None:
            return contradicted(
                [f"the result says {format_money(usage.cost_usd)}, the ledger {format_money(ledger.spend.usd)}"]
            )
        return unknown("the price of a model is not known")
    paid = ledger.spend.usd
    problems = (
        []
        if _is_same_amount(paid, usage.cost_usd)
        else [f"the result says {_format_usd(usage.cost_usd)}, the ledger {_format_usd(paid)}"]
    )
    if not _is_same_amount(ledger.spend.at_risk_usd, usage.at_risk_usd):
        problems.append(
            f"{_format_usd(usage.at_risk_usd)} at risk, in the ledger {_format_usd(ledger.spend.at_risk_usd)}"
        )
    if not host.broken:
        problems += _find_cost_problems(evidence, ledger, paid)
    if problems:
        return contradicted(problems)
    settled = format_count(ledger.settled, "settled reply", "settled replies")
    tasks_usd = evidence.history.tasks_usd
    unkept_usd = paid - tasks_usd - (ledger.kept_usage.cost_usd or 0.0)
    additions = f", {_format_usd(unkept_usd)} of it for turns that were not kept" if unkept_usd > _ROUNDING_USD else ""
    additions += f", {_format_usd(tasks_usd)} of it for its plan's tasks" if tasks_usd else ""
    return verified(f"{_format_usd(paid)}: {settled} in the ledger, the result, and the sum of the steps{additions}")


def _find_cost_problems(evidence: Evidence, ledger: LedgerFact, paid: float) -> list[str]:
    """Find contradictions between the cost of the steps, the cost of the turns in the vault, and `paid`, the ledger's;
    empty: none."""
    result, kept_usd = evidence.result, ledger.kept_usage.cost_usd or 0.0
    paid -= evidence.history.tasks_usd  # Each task has steps and turns of its own.
    is_repeated = evidence.history.has_repeats or result.status not in SUCCESSES
    steps_usd = sum(step.cost_usd or 0.0 for step in result.steps)
    problems = [f"no settled reply for {', '.join(ledger.unpaid)}"] if ledger.unpaid else []
    # A turn that was taken twice, in a run that was rewound or began again, was paid twice and is kept once.
    if not _is_same_amount(steps_usd, kept_usd) and not (is_repeated and kept_usd <= steps_usd <= paid + _ROUNDING_USD):
        problems.append(f"the steps cost {_format_usd(steps_usd)}, the turns in the vault {_format_usd(kept_usd)}")
    if paid - kept_usd > _ROUNDING_USD and not is_repeated:
        problems.append(f"the ledger has {_format_usd(paid - kept_usd)} more than the turns in the vault")
    return problems


def _is_same_amount(a: float, b: float) -> bool:
    """Return whether two amounts are equal but for rounding."""
    return abs(a - b) <= _ROUNDING_USD


def _format_usd(amount: float) -> str:
    """Return an amount in dollars, to the millionth where cents would hide the difference."""
    return f"${amount:.6f}".rstrip("0").ljust(5, "0") if round(amount, 2) != round(amount, 6) else f"${amount:.2f}"


def _format_counts(passed: int | None, failed: int | None) -> str:
    """Return how many tests passed and failed, in words."""
    return f"{passed} passed and {failed} failed" if passed is not None else "no counts"


def _format_number(number: int | None) -> str:
    """Return a pull request's number as `#12`, or `none`."""
    return f"#{number}" if number is not None else "none"
