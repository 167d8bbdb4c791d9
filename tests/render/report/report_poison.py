"""A delivery in which every word of a model, a test or a stranger is hostile."""

from __future__ import annotations

from report_samples import sample

from perdure.models.checks.report import (
    CommandResult,
    Finding,
    FindingRule,
    Findings,
    Review,
    ReviewIssue,
    Screenshot,
    Screenshots,
    Severity,
    Tampering,
    TamperingHit,
    TestCase,
    TestReport,
)
from perdure.models.delivery.result import AttemptResult, PullRequest, StepRecord
from perdure.models.delivery.steps import Plan, Task
from perdure.render.report.facts import DeliveryReport

EVIL = "</title></style></script></pre></textarea>--><script>window.hacked=1</script>"
EVIL += "<img src=http://evil.test/x onerror=hacked=1>"
EVIL += "\"' onload=hacked=1 style=position:fixed \u202e\u2066\u200b{{ 7*7 }} <svg onload=hacked=1> &#60;b&#62;"


def poisoned() -> DeliveryReport:
    """Everything that a model, a test or a stranger can write, hostile."""
    case = TestCase(name=EVIL, file=EVIL, outcome="failed", message=EVIL, command=EVIL)
    skipped = TestCase(name=EVIL, file=EVIL, outcome="skipped", message=EVIL)
    flaky = TestCase(name=EVIL, file=EVIL, outcome="passed", message=EVIL, flaky=True)
    command = CommandResult(name=EVIL, command=EVIL, verdict=EVIL, tail=EVIL, reason=EVIL, cases=(case, skipped, flaky))
    hit = TamperingHit(rule=Tampering.GONE, title=EVIL, file=EVIL, line=1, evidence=EVIL)
    finding = Finding(
        rule=FindingRule.SYMLINK, severity=Severity.BLOCKER, title=EVIL, description=EVIL, file=EVIL, suggestion=EVIL
    )
    issue = ReviewIssue(
        title=EVIL, description=EVIL, severity=Severity.TECH_DEBT, file=EVIL, line=2, suggestion=EVIL,
        screenshots=[EVIL],
    )  # fmt: skip
    plan = Plan(
        title=EVIL, problem=EVIL, solution=EVIL, relevant_files=[EVIL], validation=[EVIL],
        tasks=[Task(title=EVIL, details=EVIL, files=[EVIL])],
    )  # fmt: skip
    good = sample()
    (name, _) = good.pictures
    records = tuple(record.model_copy(update={"summary": EVIL}) for record in good.steps)
    return sample(
        delivery_id=EVIL, run_id=EVIL, status=EVIL, reason=EVIL, message=EVIL, waiting=EVIL, repository=EVIL,
        request=EVIL, issue=EVIL, base=EVIL, base_sha=EVIL, branch=EVIL, head_sha=EVIL, kind=EVIL, title=EVIL,
        attempts=(AttemptResult(number=1, delivery=EVIL, branch=EVIL, head=EVIL, failure=EVIL, chosen=True),),
        pull_request=PullRequest(number=1, url="javascript:hacked=1", title=EVIL), unread=(EVIL,), plan=plan,
        steps=(*records, StepRecord(step=EVIL, status=EVIL, started_at=EVIL, commit=EVIL)),
        turns=tuple(turn.model_copy(update={"summary": EVIL, "transcript": EVIL, "step": EVIL}) for turn in good.turns),
        test_report=TestReport(
            commit=EVIL, tree=EVIL, base=EVIL, note=EVIL, fixed=(EVIL,), tampering=(hit,), commands=(command,)
        ),
        reviewed=Review(summary=EVIL, issues=[issue]),
        findings=Findings(base=EVIL, head=EVIL, findings=(finding,)),
        screenshots=Screenshots(commit=EVIL, note=EVIL, pictures=(Screenshot(page=EVIL, artifact=name, note=EVIL),)),
    )  # fmt: skip
