"""The lines of a receipt, each judged by what history, git, ledger and forge say now; pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.cli.look.claims_of_vault import begins, checkpoints, commits
from perdure.cli.look.evidence import Evidence, Judged, Unknown, no, unknown, yes
from perdure.cli.words import count, money, short
from perdure.models.result import SUCCESSES, ReviewStatus, Status, TestsStatus
from perdure.models.verify import Claim, LedgerFact

_NOTHING = 5e-7
"""Amounts are kept in millionths of a dollar: less is the arithmetic's."""

_COUNTS = (
    ("worker_deaths", "journal"),
    ("turns_redone", "journal"),
    ("replies_paid_twice", "spend log"),
    ("replies_cut", "spend log"),
)
"""Fields of Receipt and LedgerFact alike, and what they are counted from."""


def claims(evidence: Evidence) -> Iterator[Claim]:
    """Every line but the two that need work of their own (replay, tests run again); what does not apply is left out."""
    yield _claim("ended as it says", _ended(evidence))
    yield _claim("one pull request" if evidence.result.pull_request else "no pull request", _pulls(evidence))
    if evidence.result.tests.status in (TestsStatus.GREEN, TestsStatus.RED):
        yield _claim("tested tree", _tree(evidence))
    if _tried_at_all(evidence):
        yield _claim("experiment", _tried(evidence))
    if evidence.told.prepared is None:  # ended before there was a workspace: there is nothing to be counted
        return
    yield _claim("begins at the base", begins(evidence))
    yield _claim("commits", commits(evidence))
    yield _claim("checkpoints", checkpoints(evidence))
    yield from _receipt(evidence)
    yield _claim("cost", _cost(evidence))


def _claim(name: str, judged: Judged) -> Claim:
    return Claim(mark=judged[0], claim=name, said=judged[1])


def _ended(evidence: Evidence) -> Judged:
    result, told = evidence.result, evidence.told
    meant = "completed" if result.status in SUCCESSES else "cancelled" if result.status == "cancelled" else "failed"
    problems = [f"it says {result.status}, the workflow is {evidence.ended}"] if evidence.ended != meant else []
    number = result.pull_request.number if result.pull_request else None
    if number != told.shipped and (told.complete or told.shipped is not None):
        problems.append(f"it names pull request {_hash(number)}, history has {_hash(told.shipped)}")
    if result.status in SUCCESSES and result.head_sha and told.head not in ("", result.head_sha):
        problems.append(f"it names commit {short(result.head_sha)}, history's last one is {short(told.head)}")
    if result.status == Status.DELIVERED and result.tests.status == TestsStatus.RED:
        if not result.tests.accepted:
            problems.append("it says delivered, and its tests are red")
        elif told.accepted != result.tests.accepted and (told.complete or told.shipped is not None):
            problems.append(f"it says that a person let red tests through, history has {told.accepted or 'nobody'}")
    if result.status == Status.DELIVERED and result.review.status == ReviewStatus.BLOCKED:
        problems.append(f"it says delivered, and {count(result.review.blockers, 'blocker')} remained")
    if problems:
        return no(problems)
    why = f" ({result.reason})" if result.reason else ""
    return yes(f"{result.status}{why}, and the workflow is {evidence.ended}")


def _pulls(evidence: Evidence) -> Judged:
    result, found = evidence.result, evidence.outside
    branch = result.branch or (evidence.told.prepared.branch if evidence.told.prepared else "")
    if not branch:
        return yes("it ended before it had a branch")
    if isinstance(found, Unknown):
        return unknown(found.why)
    if not found.forge:
        return unknown("no forge that Perdure speaks to keeps this repository's pull requests")
    wanted = result.pull_request.number if result.pull_request else None
    ours = [pull for pull in found.pulls if pull.ours and pull.state == "open"]
    others = [pull for pull in found.pulls if pull.state == "open" and not pull.ours]
    if wanted is None:
        return (
            no([f"#{pull.number} is open" for pull in ours]) if ours else yes(f"the forge has none of it for {branch}")
        )
    mine = next((pull for pull in found.pulls if pull.number == wanted), None)
    problems = [f"#{wanted} is not there any more"] if mine is None else []
    if mine is not None and mine.head not in ("", result.head_sha):
        problems.append(f"#{wanted} proposes {short(mine.head)}, not {short(result.head_sha or '')}")
    second = [f"#{pull.number}" for pull in [*ours, *others] if pull.number != wanted]
    if second:
        problems.append(f"{', '.join(second)} {'is' if len(second) == 1 else 'are'} open for {branch}, too")
    if problems or mine is None:
        return no(problems)
    return yes(f"#{wanted} of {branch} is {mine.state} and proposes {short(mine.head)}, as the result says; no other")


def _tree(evidence: Evidence) -> Judged:
    """Of the newest commit: in the vault, in the report, and where a pull request was opened on the remote."""
    result, host = evidence.result, evidence.host
    tests, head = result.tests, result.head_sha or ""
    if isinstance(host, Unknown):
        return unknown(host.why)
    tree, problems = tests.tree_sha or "", []
    if not host.tree:
        problems.append(f"commit {short(head)} is not in the vault any more")
    elif host.tree != tree:
        problems.append(f"{short(head)} holds tree {short(host.tree)}, the tests ran on {short(tree)}")
    if evidence.told.tested not in ("", tree):
        problems.append(f"history's last tests ran on {short(evidence.told.tested)}")
    if host.report is None:
        problems.append("the report is missing or was changed: it is not what its hash says")
    elif (host.report.tree, host.report.status) != (tree, tests.status):
        problems.append(f"the report says {host.report.status} on tree {short(host.report.tree)}")
    elif (host.report.passed, host.report.failed) != (tests.passed, tests.failed):
        problems.append(f"the report has {_counts(host.report.passed, host.report.failed)}")
    remote, moved = _on_the_remote(evidence, head)
    problems += [moved] if moved else []
    if problems:
        return no(problems)
    found = f"{short(tree)} in the vault's {short(head)} and in the report ({tests.status})"
    if isinstance(evidence.outside, Unknown) and result.pull_request is not None:
        return unknown(f"{found}; the remote is unknown: {evidence.outside.why}")
    return yes(found + remote)


def _tried_at_all(evidence: Evidence) -> bool:
    """False of a release that did not, of red tests, and where there was nothing to compare with."""
    host = evidence.host
    there = None if isinstance(host, Unknown) or host.report is None else host.report.tried
    return bool(evidence.result.tests.experiment or there)


def _tried(evidence: Evidence) -> Judged:
    """The base's tests on the change, its tests without it, canaries: added up again from the report's lists."""
    result, host = evidence.result, evidence.host
    if isinstance(host, Unknown):
        return unknown(host.why)
    found = host.report.tried if host.report is not None else None
    if found is None:
        return no(["the report has none, or is missing"])
    problems = [] if found.line == result.tests.experiment else [f"the report comes to {found.line}"]
    if found.promises != result.tests.promises:
        said = count(found.promises, "changed promise")
        problems.append(f"the report has {said}, the result {result.tests.promises}")
    if result.receipt.experiment != result.tests.experiment:
        problems.append(f"the receipt says {result.receipt.experiment or 'nothing'}")
    if found.tampered and result.tests.status == TestsStatus.GREEN:
        problems.append("it says green, and the report that tests were bent")
    if problems:
        return no(problems)
    promises = f", {count(found.promises, 'changed promise')}" if found.promises else ""
    return yes(f"{found.line}{promises}, added up from the report")


def _on_the_remote(evidence: Evidence, head: str) -> tuple[str, str]:
    """(where the commit was found, what was found instead). A branch that nobody proposed may go where it likes; one
    whose pull request is merged or closed, or that is deleted, is the vault's to show."""
    outside, result = evidence.outside, evidence.result
    if isinstance(outside, Unknown):
        return "", ""
    if outside.tip == head:
        return f", and {result.branch} on the remote is there", ""
    pull = result.pull_request
    if outside.tip is None:
        return (f"; {result.branch} is deleted on the remote" if pull else ""), ""
    if pull is None or any(found.number == pull.number and found.state != "open" for found in outside.pulls):
        return f"; {result.branch} on the remote has moved on since", ""
    return "", f"{result.branch} is at {short(outside.tip)} on the remote, the tests ran on {short(head)}"


def _receipt(evidence: Evidence) -> Iterator[Claim]:
    """Each count of the receipt against journal, spend log and history."""
    host = evidence.host
    for field, source in _COUNTS:
        name, said = field.replace("_", " "), getattr(evidence.result.receipt, field)
        if isinstance(host, Unknown):
            yield _claim(name, unknown(host.why))
            continue
        found = getattr(host.ledger, field)
        problems = [f"the receipt says {said}, the {source} {found}"] if found != said else []
        if (written := evidence.told.receipt) is not None and getattr(written, field) != said:
            problems.append(f"{getattr(written, field)} were written down when it ended")
        also = ""
        if field == "worker_deaths":
            also = ", and history tells of no other"
            if host.ledger.unheard:
                problems.append(f"history tells of a death that the journal has not: {', '.join(host.ledger.unheard)}")
        yield _claim(name, no(problems) if problems else yes(f"{found}, counted again from the {source}{also}"))


def _cost(evidence: Evidence) -> Judged:
    result, host = evidence.result, evidence.host
    if isinstance(host, Unknown):
        return unknown(host.why)
    ledger, usage = host.ledger, result.usage
    if usage.cost_usd is None or ledger.spend.usd is None:
        if usage.cost_usd is not None or ledger.spend.usd is not None:
            return no([f"the result says {money(usage.cost_usd)}, the ledger {money(ledger.spend.usd)}"])
        return unknown("the price of a model is not known")
    paid = ledger.spend.usd
    problems = (
        [] if _same(paid, usage.cost_usd) else [f"the result says {_usd(usage.cost_usd)}, the ledger {_usd(paid)}"]
    )
    if not _same(ledger.spend.at_risk_usd, usage.at_risk_usd):
        problems.append(f"{_usd(usage.at_risk_usd)} at risk, in the ledger {_usd(ledger.spend.at_risk_usd)}")
    if not host.broken:
        problems += _steps(evidence, ledger, paid)
    if problems:
        return no(problems)
    settled = count(ledger.settled, "settled reply", "settled replies")
    tasks = evidence.told.tasks_usd
    besides = paid - tasks - (ledger.kept.cost_usd or 0.0)
    more = f", {_usd(besides)} of it for turns that were not kept" if besides > _NOTHING else ""
    more += f", {_usd(tasks)} of it for its plan's tasks" if tasks else ""
    return yes(f"{_usd(paid)}: {settled} in the ledger, the result, and the sum of the steps{more}")


def _steps(evidence: Evidence, ledger: LedgerFact, paid: float) -> list[str]:
    """Money of the steps against the turns in the vault, and of these against the ledger."""
    result, kept = evidence.result, ledger.kept.cost_usd or 0.0
    paid -= evidence.told.tasks_usd  # each task has steps and turns of its own
    again = evidence.told.again or result.status not in SUCCESSES
    steps = sum(step.cost_usd or 0.0 for step in result.steps)
    problems = [f"no settled reply for {', '.join(ledger.unpaid)}"] if ledger.unpaid else []
    # What was taken twice, in a run that was rewound or began again, was paid twice and is kept once.
    if not _same(steps, kept) and not (again and kept <= steps <= paid + _NOTHING):
        problems.append(f"the steps cost {_usd(steps)}, the turns in the vault {_usd(kept)}")
    if paid - kept > _NOTHING and not again:
        problems.append(f"the ledger has {_usd(paid - kept)} more than the turns in the vault")
    return problems


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= _NOTHING


def _usd(amount: float) -> str:
    """To the millionth where cents hide the difference."""
    return f"${amount:.6f}".rstrip("0").ljust(5, "0") if round(amount, 2) != round(amount, 6) else f"${amount:.2f}"


def _counts(passed: int | None, failed: int | None) -> str:
    return f"{passed} passed and {failed} failed" if passed is not None else "no counts"


def _hash(number: int | None) -> str:
    return f"#{number}" if number is not None else "none"
