"""The claims of a receipt, each checked against what history, git, ledger and forge say now; pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.cli.formatting import money, pluralise, short_sha
from perdure.cli.look.claims_of_vault import check_checkpoints, check_commits, check_start
from perdure.cli.look.evidence import Evidence, Judgement, UnknownFacts, contradicted, unknown, verified
from perdure.models.result import SUCCESSES, ReviewStatus, Status, TestsStatus
from perdure.models.verify import Claim, LedgerFact

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
    """Check the claims of a receipt and yield each as it is judged, those left out that do not apply to this delivery.

    The two that need work of their own, the replay and the tests that are run again, are not among them.
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
    """Check that the result's status fits the way the workflow ended, and its pull request, last commit and accepted
    red tests fit history.

    It is contradicted, too, where it says delivered although its tests are red and nobody let them through, or blockers
    remained.
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
        problems.append(f"it says delivered, and {pluralise(result.review.blockers, 'blocker')} remained")
    if problems:
        return contradicted(problems)
    reason = f" ({result.reason})" if result.reason else ""
    return verified(f"{result.status}{reason}, and the workflow is {evidence.workflow_status}")


def _check_pull_requests(evidence: Evidence) -> Judgement:
    """Check that the pull request which the result names exists, proposes the result's commit, and is the only open one
    of the branch.

    Where the result names none, no open one may be ours. Unknown where no forge could be asked.
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
    """Check that the tests ran on the tree of the newest commit: by the vault, by history, by the test report and by
    the remote.

    The report's counts have to be the result's. Unknown where the host cannot be asked, and where there is a pull
    request and the remote cannot.
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
    """Check the line about the experiments in result and receipt against the report, from whose lists it was added up
    again.

    The experiments are the base's tests on the change, its tests without it, and canaries.
    """
    result, host = evidence.result, evidence.host
    if isinstance(host, UnknownFacts):
        return unknown(host.reason)
    experiment = host.report.experiment if host.report is not None else None
    if experiment is None:
        return contradicted(["the report has none, or is missing"])
    problems = [] if experiment.line == result.tests.experiment else [f"the report comes to {experiment.line}"]
    if experiment.promises != result.tests.promises:
        reported = pluralise(experiment.promises, "changed promise")
        problems.append(f"the report has {reported}, the result {result.tests.promises}")
    if result.receipt.experiment != result.tests.experiment:
        problems.append(f"the receipt says {result.receipt.experiment or 'nothing'}")
    if experiment.tampered and result.tests.status == TestsStatus.GREEN:
        problems.append("it says green, and the report that tests were bent")
    if problems:
        return contradicted(problems)
    promises = f", {pluralise(experiment.promises, 'changed promise')}" if experiment.promises else ""
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
    """Check each count of the receipt against journal or spend log of the host, and against the receipt in history;
    yield the claims."""
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
    """Check the cost and the amount at risk in the result against the ledger's, and these against the steps and turns.

    The latter only where the chain of checkpoints is whole. Unknown where the price of a model is not known.
    """
    result, host = evidence.result, evidence.host
    if isinstance(host, UnknownFacts):
        return unknown(host.reason)
    ledger, usage = host.ledger, result.usage
    if usage.cost_usd is None or ledger.spend.usd is None:
        if usage.cost_usd is not None or ledger.spend.usd is not None:
            return contradicted([f"the result says {money(usage.cost_usd)}, the ledger {money(ledger.spend.usd)}"])
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
    settled = pluralise(ledger.settled, "settled reply", "settled replies")
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
