"""The artifact branch: plan, tests, review, findings, receipt and screenshots of every delivery rendered as files that
a person can read, and pushed where its pull request can link to them, by `activities.forge`. The same texts are
sections of the pull request, whose whole text is made in `forges.body`.

It is a branch of the target repository without history in common with the others (docs/adr/0007): one directory a
delivery, one commit for each time something is published. Links name the commit, so that what they show never changes.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from perdure.adapters.forges.markdown import (
    Addresses,
    code_span,
    neutral_line,
    neutral_span,
    picture_addresses,
    quote_block,
)
from perdure.adapters.git.command import redact
from perdure.adapters.git.objects import TREE, TreeEntry
from perdure.adapters.git.publish import push_commit
from perdure.adapters.git.vault import Vault
from perdure.models.checks.report import (
    ChangedTest,
    CommandResult,
    Findings,
    Review,
    Screenshots,
    Severity,
    TestCase,
    TestReport,
)
from perdure.models.checks.verdict_text import (
    ChangedPromise,
    ReviewPoint,
    case_name,
    changed_promises,
    count_outcomes,
    experiment_notes,
    find_faults,
    review_points,
    verdict_of,
)
from perdure.models.delivery.result import Receipt
from perdure.models.delivery.result_text import change_line, count_severities
from perdure.models.delivery.steps import Plan
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from perdure.text import span, visible

_OUTCOME_MARKS = {"passed": "✓", "failed": "✗", "errored": "✗", "skipped": "–"}


def artifact_files(
    plan: Plan | None,
    review: Review | None,
    report: TestReport | None,
    receipt: Receipt | None,
    findings: Findings | None = None,
    screenshots: Screenshots | None = None,
    pictures: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Return name → content of the files to publish, for what there is: plan.md, review.md, tests.md, findings.md,
    receipt.json, page-1.png…; nothing is written.

    Texts in them are neutralised. `pictures` come from markdown.picture_files with the same `screenshots`; review.md
    shows only those.
    """
    pictures = pictures or {}
    addresses = {
        page: name for page, name in picture_addresses(screenshots, {}, same_directory=True).items() if name in pictures
    }
    texts = {
        "plan.md": _render_plan(plan) if plan else "",
        "review.md": _render_review(review, addresses) if review else "",
        "tests.md": _render_tests(report, review) if report else "",
        "findings.md": _render_findings(findings) if findings else "",
        "receipt.json": receipt.model_dump_json(indent=2) if receipt else "",
    }
    return {name: f"{text}\n".encode(errors="replace") for name, text in texts.items() if text} | dict(pictures)


def bullet_list(lines: Iterable[str]) -> str:
    """Return texts as the lines of a Markdown list."""
    return "\n".join(f"- {text}" for text in lines)


def _render_plan(plan: Plan) -> str:
    """Render a plan as Markdown: problem, solution, files, tasks and how to check."""
    tasks = [
        _join_paragraphs(
            f"### {number}. {neutral_line(task.title)}{task.title_suffix}",
            quote_block(task.details),
            bullet_list(code_span(path) for path in task.files),
        )
        for number, task in enumerate(plan.tasks, 1)
    ]
    files = bullet_list(code_span(path) for path in plan.relevant_files)
    checks = bullet_list(neutral_line(check) for check in plan.validation)
    return _join_paragraphs(
        f"# Plan: {neutral_line(plan.title)}",
        f"## Problem\n\n{quote_block(plan.problem)}",
        f"## Solution\n\n{quote_block(plan.solution)}",
        f"## Files\n\n{files}" if files else "",
        *(["## Tasks", *tasks] if tasks else []),
        f"## How to check\n\n{checks}" if checks else "",
    )


def _render_review(review: Review, addresses: Addresses) -> str:
    """Render a review as Markdown: its summary, then each point, or that nothing was found. `addresses`: of pictures by
    page."""
    sections = [_render_point(point, addresses) for point in review_points(review, None)]
    return _join_paragraphs("# Review", quote_block(review.summary), *(sections or ["Nothing was found."]))


def _render_point(point: ReviewPoint, addresses: Addresses) -> str:
    """Render one point of a review or of the findings as a Markdown section: severity and title, place, description,
    suggestion, pictures."""
    return _join_paragraphs(
        f"## {_severity_label(point.severity).capitalize()}: {neutral_line(point.title)}",
        code_span(point.place) if point.file.strip() else "",
        quote_block(point.description),
        f"Suggestion:\n\n{quote_block(point.suggestion)}" if point.suggestion.strip() else "",
        *(f"![Screenshot]({addresses[page]})" for page in dict.fromkeys(point.screenshots) if page in addresses),
    )


def _render_tests(report: TestReport, review: Review | None) -> str:
    """Render a test report as Markdown: the tree, the experiment, tests that were fixed, and each command. `review`
    justifies changed promises."""
    comparison = f", compared with {code_span(report.base)}" if report.base else ""
    fixed = bullet_list(neutral_line(name) for name in report.fixed)
    return _join_paragraphs(
        "# Tests",
        f"On tree `{report.tree}`, which is commit `{report.commit}`{comparison}.",
        neutral_line(report.note) if report.note.strip() else "",
        *experiment_parts(report, review),
        f"Failed on {code_span(report.base) or 'the base'} and pass now:\n\n{fixed}" if fixed else "",
        *(_render_command(command) for command in report.commands),
    )


def _render_command(command: CommandResult) -> str:
    """Render one test command as a Markdown section: its verdict, time, reason and counts, each failure, the end of its
    output unless it passed, and all cases."""
    failures = [case for case in command.cases if case.outcome in ("failed", "errored")]
    totals = count_outcomes(command.cases)
    return _join_paragraphs(
        f"## {neutral_line(command.name)}",
        f"{code_span(command.command)}: {neutral_line(verdict_of(command))}, {span(command.duration_s)}.",
        neutral_line(command.reason) if command.reason.strip() else "",
        f"{totals}." if totals else "",
        *(_render_failure(case) for case in failures),
        f"### Last lines\n\n{fence_text(command.tail)}" if command.tail.strip() and command.verdict != "passed" else "",
        f"### All\n\n{bullet_list(_render_case(case) for case in command.cases)}" if command.cases else "",
    )


def _render_failure(case: TestCase) -> str:
    """Render a failed test as Markdown: name, message, and the command that runs it again."""
    rerun = f"Again: {code_span(case.command)}" if case.command else ""
    return _join_paragraphs(
        f"### ✗ {neutral_line(case_name(case))}", fence_text(case.message) if case.message.strip() else "", rerun
    )


def _render_case(case: TestCase) -> str:
    """Render a test case as one line: mark, name, and whether it is flaky or fails on the base as well."""
    notes = [word for word, holds in (("as on the base", case.known), ("flaky", case.flaky)) if holds]
    return f"{_OUTCOME_MARKS.get(case.outcome, '·')} {neutral_line(case_name(case))}" + (
        f" ({', '.join(notes)})" if notes else ""
    )


def fence_text(text: str) -> str:
    """Return output unchanged in a Markdown code fence that it cannot end; only invisible characters are removed and
    tabs replaced."""
    visible_text = visible(text).replace("\t", "    ")
    longest = max((len(ticks) for ticks in re.findall(r"`+", visible_text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{visible_text.strip(chr(10))}\n{fence}"


_FINDINGS_SHOWN = 30
"""The most findings in a pull request's text; findings.md has all of them."""


def findings_section(findings: Findings | None) -> str:
    """Return the findings as a Markdown list, the worst first, at most _FINDINGS_SHOWN and how many more; empty when
    nothing was found."""
    all_points = review_points(None, findings)
    lines = [
        f"- **{_severity_label(point.severity)}** {neutral_line(point.title)}"
        + (f" ({place})" if point.file.strip() and (place := neutral_span(point.place)) else "")
        for point in all_points[:_FINDINGS_SHOWN]
    ]
    if len(all_points) > _FINDINGS_SHOWN:
        lines.append(f"- and {len(all_points) - _FINDINGS_SHOWN} more")
    return "\n".join(lines)


def findings_line(findings: Findings) -> str:
    """Return the findings in one line: `2 blockers, 1 tech debt, +48 −7 in 3 files`."""
    counts = Counter(finding.severity for finding in findings.findings)
    severities = count_severities(*(counts[severity] for severity in Severity)) or "nothing found"
    return f"{severities}, {change_line(findings.files, findings.added, findings.deleted)}"


def _render_findings(findings: Findings) -> str:
    """Render all findings of the engine as Markdown, and the tests that check something else than before."""
    parts = [
        "# Found by the engine",
        f"From `{findings.base}` to `{findings.head}`: {findings_line(findings)}.",
        *(_render_point(point, {}) for point in review_points(None, findings)),
    ]
    if findings.changed_tests:
        parts += [
            "## Tests that check something else now",
            *(_render_changed_test(test) for test in findings.changed_tests),
        ]
    return _join_paragraphs(*parts)


def _render_changed_test(test: ChangedTest) -> str:
    """Render a test that checks something else now as Markdown: name, place, its text before and now."""
    place = code_span(test.file + (f":{test.line}" if test.line else ""))
    before = f"Before:\n\n{quote_block(test.before)}" if test.before.strip() else ""
    after = f"Now:\n\n{quote_block(test.after)}" if test.after.strip() else ""
    return _join_paragraphs(f"### {neutral_line(test.name)}", place, before, after)


def _join_paragraphs(*parts: str) -> str:
    """Join parts of Markdown with an empty line between; empty parts are left out."""
    return "\n\n".join(part for part in parts if part)


def _severity_label(severity: Severity) -> str:
    """Return a severity as people read it: `tech debt`."""
    return severity.replace("_", " ")


_PROMISES_SHOWN = 10
"""The most changed promises in a pull request's text; tests.md has all of them."""


def promises_section(report: TestReport | None, review: Review | None) -> str:
    """Return the changed promises as Markdown: each test of the base that fails on the change, why that is right, and
    both versions. At most _PROMISES_SHOWN and how many more; empty without any."""
    promises = changed_promises(report, review)
    if not promises:
        return ""
    base = neutral_line(_base_label(report))
    heading = f"These tests of {base} fail on this change. Each was justified by words of the request, or is a blocker."
    more = [f"- and {len(promises) - _PROMISES_SHOWN} more"] if len(promises) > _PROMISES_SHOWN else []
    return "\n\n".join([heading, *(_render_promise(promise) for promise in promises[:_PROMISES_SHOWN]), *more])


def experiment_parts(report: TestReport, review: Review | None) -> list[str]:
    """Return the parts of tests.md about the experiment: its line, signs of tampering and other remarks, every changed
    promise. Empty without an experiment."""
    experiment = report.experiment
    if experiment is None:
        return []
    remarks = [*(f"tampered: {fault.title}" for fault in find_faults(report)), *experiment_notes(experiment)]
    parts = [neutral_line(experiment.summary_line), "\n".join(f"- {neutral_line(remark)}" for remark in remarks)]
    if promises := changed_promises(report, review):
        parts += ["## Changed promises", *(_render_promise(promise, with_failure=True) for promise in promises)]
    return [part for part in parts if part]


def _render_promise(change: ChangedPromise, *, with_failure: bool = False) -> str:
    """Render a changed promise as Markdown: name, justification and both versions of the test; `with_failure` adds the
    message it fails with."""
    head = f"- **{neutral_line(change.name)}**: {neutral_line(change.justification)}"
    message = change.promise.message.strip() if with_failure else ""
    parts = [quote_block(text) for text in (message, _indent_versions(change.versions)) if text]
    return "\n\n".join([head, *parts])


def _indent_versions(versions: tuple[str, ...]) -> str:
    """Return the lines of both versions of a test, indented by four: a quotation shows them as they are, and they can
    end nothing."""
    return "\n".join(f"    {text}" for text in versions)


def _base_label(report: TestReport | None) -> str:
    """Return the name of the branch that the experiment took as the base, or `the base`."""
    return (report.experiment.branch if report and report.experiment else "") or "the base"


ARTIFACT_BYTES = 5_000_000
"""The most bytes of one published file: some 50,000 lines. Whoever wants more has the command to run it again; every
clone of the repository carries these files."""

ARTIFACT_ATTEMPTS = 12
ARTIFACT_PAUSE_S = 0.25
"""The number of times a push to the artifact branch is tried while other deliveries are faster, and the longest pause
between."""


__all__ = ["artifact_files", "permalink", "publish_artifacts"]

_TRAILER = "Perdure-Artifacts: 1"
_README = """\
# Artifacts of Perdure

Plans, test reports, reviews and screenshots that pull requests of this repository link to, one directory a delivery.
The branch has nothing in common with the others and is never merged. It can be deleted: the links then end, and the
next delivery begins it anew.
"""
_CUT = b"\n\n(cut here: the file is too large to be shown)\n"
_BUSY = re.compile(r"\block|failed to update ref|stale info|fetch first|incorrect old value")
"""The messages of a remote that refuses a push because another push of the same branch is about to arrive."""
_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,200}")


def publish_artifacts(vault: Vault, url: str, branch: str, delivery: str, files: Mapping[str, bytes]) -> str:
    """Publish files as the directory `delivery` of the artifact branch and return the commit of the branch that holds
    them.

    Pushes to the repository `url`, which is the one of the vault, with `vault.keys`. The directory holds exactly these
    files afterwards; other deliveries' directories stay. When the branch has it already, nothing is pushed and its tip
    is returned, so this can be repeated after a crash. When other deliveries push at the same time, it pauses and tries
    again, up to ARTIFACT_ATTEMPTS times. Files are cut at ARTIFACT_BYTES.

    Raises ForgeRefused when the branch's name is not allowed, Perdure did not begin a branch of that name (it is left
    alone), or the remote refuses; ForgeUnavailable when it does not answer, or others are faster each time; ValueError
    for a name that no file or directory may have here.
    """
    _check_branch_name(vault, url, branch)
    if invalid_names := [name for name in (delivery, *files) if not _NAME.fullmatch(name)]:
        raise ValueError(f"{invalid_names[0]!r} is no name for a file or directory here")
    store = vault.objects
    directory = store.write_tree(TreeEntry(name, store.write_blob(_cut_file(data))) for name, data in files.items())
    for attempt in range(ARTIFACT_ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0, ARTIFACT_PAUSE_S))  # noqa: S311  # who is next, not a secret
        tip = vault.fetch_branch(branch)
        entries = _branch_entries(vault, url, branch, tip)
        if tip is not None and entries.get(delivery) == TreeEntry(delivery, directory, TREE):
            return tip
        entries[delivery] = TreeEntry(delivery, directory, TREE)
        message = f"Artifacts of {delivery}\n\n{_TRAILER}\nPerdure-Delivery: {delivery}"
        commit = store.write_commit(store.write_tree(entries.values()), [tip] if tip else [], message)
        try:
            push_commit(vault, url, commit, branch, tip)
        except ForgeRefused as refusal:
            if vault.fetch_branch(branch) == tip and not _BUSY.search(str(refusal)):
                raise
            continue  # another delivery was faster
        return commit
    raise ForgeUnavailable(f"{ARTIFACT_ATTEMPTS} times another delivery was faster on {branch}", where=redact(url))


def permalink(web_url: str, commit: str, delivery: str, name: str) -> str:
    """Return the web address that shows a published file as it is in `commit`, for good. `web_url`: the page of the
    repository."""
    return f"{web_url.rstrip('/')}/blob/{commit}/{quote(delivery)}/{quote(name)}"


def _check_branch_name(vault: Vault, url: str, branch: str) -> None:
    """Raise ForgeRefused when git does not allow `branch` as the name of a branch. `url` is shown as the place."""
    if vault.git.execute("check-ref-format", f"refs/heads/{branch}", ok=(0, 1)).returncode:
        what, fix = f"{branch!r} is no name for a branch", "correct [artifacts] branch in perdure.toml"
        raise ForgeRefused(what, where=redact(url), fix=fix)


def _branch_entries(vault: Vault, url: str, branch: str, tip: str | None) -> dict[str, TreeEntry]:
    """Return the entries at the top of the artifact branch's commit `tip`, by name. For None (no such branch yet) a
    README alone, which is written to the vault.

    Raises ForgeRefused when somebody else began the branch: a first commit of it lacks Perdure's trailer.
    """
    if tip is None:
        return {"README.md": TreeEntry("README.md", vault.objects.write_blob(_README.encode()))}
    root_trailers = vault.git.text("log", "--max-parents=0", "--format=%(trailers:key=Perdure-Artifacts)%x00", tip)
    if any(root.strip() != _TRAILER for root in root_trailers.split("\0")[:-1]):
        raise ForgeRefused(
            f"the branch {branch} was not begun by Perdure, so nothing is published there",
            where=redact(url),
            fix='give [artifacts] branch in perdure.toml another name, or "" for none',
        )
    entries = {}
    for line in vault.git.execute("ls-tree", "-z", tip).names:
        facts, _, name = line.partition("\t")
        mode, _, sha = facts.split(" ")
        entries[name] = TreeEntry(name, sha, mode.lstrip("0"))
    return entries


def _cut_file(data: bytes) -> bytes:
    """Return a file's content, cut to ARTIFACT_BYTES with a note at the end that says so; no character is cut in
    two."""
    if len(data) <= ARTIFACT_BYTES:
        return data
    return data[: ARTIFACT_BYTES - len(_CUT)].decode(errors="ignore").encode() + _CUT
