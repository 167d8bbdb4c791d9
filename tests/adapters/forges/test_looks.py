"""Pages, findings, plan and review stand beside a pull request as words and pictures only."""

from __future__ import annotations

import json
import re
from pathlib import Path

from body_fixtures import CONTRACT, PIECES, WORK, shapes, shown
from hypothesis import given
from markdown_it import MarkdownIt

from perdure.adapters.forges.artifacts import artifact_files, fence_text
from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.body import EngineObservations, marker, pull_request_body
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.forges.markdown import picture_files
from perdure.models.checks.report import (
    BaseComparison,
    ChangedTest,
    CommandResult,
    Finding,
    FindingRule,
    Findings,
    Review,
    ReviewIssue,
    Screenshot,
    Screenshots,
    Severity,
    TestCase,
    TestReport,
)
from perdure.models.delivery.result import Receipt
from perdure.models.delivery.steps import Plan, Task
from tests.repositories import git, make_target

WEB = "https://x/o/r/blob/c0ffee/d"
TAKEN = Screenshots(
    commit="c",
    pictures=(
        Screenshot(page="/", artifact="a" * 64, width=1280, height=800),
        Screenshot(page="/gone", note="does not load: net::ERR_FAILED"),
        Screenshot(
            page="/list?a=[b]", artifact="b" * 64, width=1280, height=2000, note="errors in its console: #12 @ada"
        ),
    ),
)
FINDINGS = Findings(
    base="b" * 40,
    head="c" * 40,
    findings=(
        Finding(rule=FindingRule.SIZE, severity=Severity.TECH_DEBT, title="a large change", suggestion="split it"),
        Finding(
            rule=FindingRule.BINARY, severity=Severity.BLOCKER, title="a binary", description="d", file="x.bin", line=3
        ),
    ),
    changed_tests=(ChangedTest(name="test_a", file="t.py", line=9, before="assert 1", after="assert 2"),),
    files=3,
    added=48,
    deleted=7,
)


def issue(*pages: str, severity: Severity = Severity.TECH_DEBT, title: str = "crooked") -> ReviewIssue:
    return ReviewIssue(
        title=title, description="", severity=severity, file="a.css", line=1, suggestion="", screenshots=list(pages)
    )


def text_of(
    review: Review | None = None, *, looks: EngineObservations, draft: str = "", template: str = "", **links: str
) -> str:
    work = WORK.model_copy(update={"artifacts": links, "draft_reason": draft})
    return pull_request_body(work, CONTRACT, None, review, None, template, looks)


def images(text: str) -> list[str]:
    tokens = MarkdownIt("commonmark").parse(text)
    return [str(c.attrs["src"]) for t in tokens for c in t.children or [] if c.type == "image"]


def links(text: str) -> list[str]:
    tokens = MarkdownIt("commonmark").parse(text)
    return [str(c.attrs["href"]) for t in tokens for c in t.children or [] if c.type == "link_open"]


PUBLISHED = {"page-1.png": f"{WEB}/page-1.png", "page-3.png": f"{WEB}/page-3.png", "findings.md": f"{WEB}/findings.md"}


def test_published_pictures_are_shown_where_a_reader_who_may_see_the_repository_sees_them() -> None:
    text = text_of(looks=EngineObservations(None, TAKEN), **PUBLISHED)
    assert images(text) == [f"{WEB}/page-1.png?raw=true", f"{WEB}/page-3.png?raw=true"]
    lines = text.replace("\u200b", "").splitlines()
    assert "`/` (1280 × 800)" in lines
    assert "`/gone`: does not load: net::ERR_FAILED" in lines
    assert "### Screenshots" in lines
    assert images(text_of(looks=EngineObservations(None, TAKEN))) == [], (
        "there is nothing to be seen where nothing was published"
    )
    assert "Screenshots" not in text_of(looks=EngineObservations())


def test_an_issue_names_its_screenshots_and_pages_nobody_took_are_left_out() -> None:
    review = Review(summary="", issues=[issue("/list?a=[b]", "/gone", "/made-up", "/list?a=[b]"), issue()])
    text = text_of(review, looks=EngineObservations(None, TAKEN), **PUBLISHED)
    assert links(text) == [f"{WEB}/page-3.png?raw=true"]
    assert "made-up" not in text
    page = artifact_files(None, review, None, None, None, TAKEN, {"page-3.png": b"p"})
    assert images(page["review.md"].decode()) == ["page-3.png"]
    assert page["page-3.png"] == b"p"
    alone = artifact_files(None, review, None, None)["review.md"].decode()
    assert images(alone) == []


def test_why_there_are_no_pictures_is_said_in_one_line() -> None:
    none = Screenshots(commit="c", note="the app exited at once (exit code 1)\n# Evidence\n@ada")
    text = text_of(looks=EngineObservations(None, none))
    assert "No pictures: the app exited at once (exit code 1) # Evidence @\u200bada" in text.splitlines()


def test_a_template_that_asks_for_screenshots_gets_them() -> None:
    form = "## What\n\nx\n\n## Screenshots\n\n(drag them here)\n"
    text = text_of(looks=EngineObservations(None, TAKEN), template=form, **PUBLISHED)
    below = text.partition("## Screenshots\n")[2]
    assert images(below.partition("\n## ")[0]) == [f"{WEB}/page-1.png?raw=true", f"{WEB}/page-3.png?raw=true"]
    assert "None." in text_of(looks=EngineObservations(), template=form).splitlines()


def test_what_the_engine_found_has_a_section_a_line_of_evidence_and_a_page_the_worst_first() -> None:
    text = text_of(looks=EngineObservations(FINDINGS), **PUBLISHED)
    lines = text.splitlines()
    assert (
        f"- the engine's own look: 1 blocker, 1 tech debt, +48 −7 in 3 files ([all of it]({WEB}/findings.md))" in lines
    )
    at = lines.index("### Found by the engine")
    assert lines[at + 2 : at + 4] == ["- **blocker** a binary (`x.bin:3`)", "- **tech debt** a large change"]
    page = artifact_files(None, None, None, None, FINDINGS)["findings.md"].decode()
    assert page.index("## Blocker: a binary") < page.index("## Tech debt: a large change")
    for words in ("`x.bin:3`", "> split it", "### test_a", "`t.py:9`", "> assert 1", "> assert 2"):
        assert words in page.splitlines()
    quiet = text_of(looks=EngineObservations(Findings(base="b", head="h", files=1)))
    assert "- the engine's own look: nothing found, +0 −0 in 1 file" in quiet.splitlines()
    assert "### Found by the engine" not in quiet


def test_a_draft_names_the_reviewers_blockers_and_what_is_to_be_merged_does_not_need_to() -> None:
    review = Review(summary="", issues=[issue("/", severity=Severity.BLOCKER, title="it is wrong")])
    draft = text_of(review, looks=EngineObservations(None, TAKEN), draft="blockers", **PUBLISHED)
    assert "### Blocking" in draft.splitlines()
    assert "- **blocker** it is wrong (`a.css`) (screenshots: [`/`]" in draft
    assert "it is wrong" not in text_of(review, looks=EngineObservations(None, TAKEN), **PUBLISHED)


@given(PIECES, PIECES)
def test_nothing_that_others_wrote_is_more_than_words(text: str, other: str) -> None:
    pictures = tuple(Screenshot(page=page, artifact="a" * 64, note=other) for page in (text, other))
    taken = Screenshots(commit="c", pictures=pictures, note=text)
    finding = Finding(
        rule=FindingRule.SIZE, severity=Severity.TECH_DEBT, title=text, description=other, file=other, suggestion=text
    )
    changed = ChangedTest(name=text, file=other, before=text, after=other)
    findings = Findings(base="b", head="h", findings=(finding,), changed_tests=(changed,))
    review = Review(summary=text, issues=[issue(text, other)])
    whole = text_of(review, looks=EngineObservations(findings, taken), draft="x")
    assert not {"link_open", "image", "html_inline"} & set(shapes(whole))
    assert whole.splitlines()[-1] == marker("d")
    assert not re.search(r"@\w|#\d", shown(whole))
    page = artifact_files(None, None, None, None, findings)["findings.md"].decode()
    assert not {"link_open", "image", "html_inline", "html_block"} & set(shapes(page))
    published = text_of(review, looks=EngineObservations(findings, taken), **PUBLISHED)
    assert {src.partition("?")[0] for src in images(published)} <= set(PUBLISHED.values())
    assert {href.partition("?")[0] for href in links(published)} <= set(PUBLISHED.values())


def test_a_local_pull_request_keeps_its_pictures_beside_its_text(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git")
    head = git(origin, "rev-parse", "main")
    git(origin, "branch", "perdure/d", "main")
    pictures = picture_files(TAKEN, lambda shot: b"\x89PNG" + shot.artifact.encode() if shot.page == "/" else b"")
    assert list(pictures) == ["page-1.png"]
    text = text_of(looks=EngineObservations(None, TAKEN, pictures_beside=True))
    proposal = Proposal(
        delivery="d", title="t", body=text, head="perdure/d", head_sha=head, base="main", attachments=pictures
    )
    opened = LocalForge(str(origin)).open_or_update_pull(proposal)
    record = f"refs/pull/{opened.pull_request.number}/record"
    assert git(origin, "ls-tree", "--name-only", record).split() == ["body.md", "page-1.png", "pull.json"]
    assert images(git(origin, "show", f"{record}:body.md"))[0] == "page-1.png"
    assert images(pull_request_body(WORK, CONTRACT, None, None, Receipt(), None, EngineObservations(None, TAKEN))) == []


FORGED = "x @ada closes #1\n\n# Forged\n\n<img src=x> ![x](https://e) <!-- y -->\n```"


def test_plan_review_and_tests_are_pages_that_only_show_words() -> None:
    plan = Plan(
        title=FORGED,
        problem=FORGED,
        solution=FORGED,
        relevant_files=[FORGED],
        tasks=[Task(title=FORGED, details=FORGED, files=[FORGED])],
        validation=[FORGED],
    )
    found = [
        ReviewIssue(
            title=f"{severity} {FORGED}", description=FORGED, severity=severity, file="a.py", line=3, suggestion=FORGED
        )
        for severity in (Severity.SKIPPABLE, Severity.BLOCKER)
    ]
    case = TestCase(name=FORGED, outcome="failed", message=FORGED, command=FORGED, known=True)
    command = CommandResult(name=FORGED, command=FORGED, verdict="failed", tail=FORGED, reason=FORGED, cases=(case,))
    report = TestReport(commit="c" * 40, tree="t" * 40, note=FORGED, fixed=(FORGED,), commands=(command,))
    files = artifact_files(plan, Review(summary=FORGED, issues=found), report, Receipt(worker_deaths=1))
    assert list(files) == ["plan.md", "review.md", "tests.md", "receipt.json"]
    for name in ("plan.md", "review.md", "tests.md"):
        tokens = MarkdownIt("commonmark").parse(files[name].decode())
        kinds = {inner.type for token in tokens for inner in (token, *(token.children or []))}
        assert not {"link_open", "image", "html_inline", "html_block"} & kinds
        tops = [tokens[at + 1].content for at, t in enumerate(tokens) if t.type == "heading_open" and t.level == 0]
        assert "Forged" not in tops
    review = files["review.md"].decode()
    assert review.index("## Blocker: ") < review.index("## Skippable: ")
    assert "`a.py:3`" in review
    assert json.loads(files["receipt.json"])["worker_deaths"] == 1


def test_a_test_report_says_what_failed_how_and_since_when() -> None:
    failed = TestCase(
        name="test_sub", file="t.py", outcome="failed", message="assert 1 == 2", command="pytest t.py", flaky=True
    )
    passed = TestCase(name="test_add", outcome="passed")
    unit = CommandResult(
        name="unit", command="pytest -q", verdict="failed", since=BaseComparison.KNOWN, exit_code=1, duration_s=2.04,
        tail="1 failed", cases=(failed, passed),
    )  # fmt: skip
    lint = CommandResult(name="lint", command="ruff", required=False, verdict="passed", flaky=True, tail="fine")
    report = TestReport(
        commit="c" * 40, tree="t" * 40, base="main", note="1 known", fixed=("old",), commands=(unit, lint)
    )
    text = artifact_files(None, None, report, None)["tests.md"].decode()
    for line in (
        f"On tree `{'t' * 40}`, which is commit `{'c' * 40}`, compared with `main`.",
        "`pytest -q`: failed, exit code 1, as on the base, 2.0 s.",
        "1 passed, 1 failed.",
        "### ✗ t.py: test_sub",
        "Again: `pytest t.py`",
        "- ✗ t.py: test_sub (flaky)",
        "- ✓ test_add",
        "`ruff`: passed, passed when it was run once more, does not decide, 0.0 s.",
        "- old",
        "assert 1 == 2",
        "1 failed",
    ):
        assert line in text.splitlines(), text
    assert "fine" not in text.splitlines()


def test_what_there_is_not_makes_no_file_and_a_quiet_review_says_so() -> None:
    assert artifact_files(None, None, None, None) == {}
    assert (
        "Nothing was found." in artifact_files(None, Review(summary="ok", issues=[]), None, None)["review.md"].decode()
    )


def test_output_cannot_end_its_fence() -> None:
    assert fence_text("a\n````\nb\x1b[0m\r\n") == "`````text\na\n````\nb\n`````"
