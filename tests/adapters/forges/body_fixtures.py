"""A delivery's plan, review and evidence, and texts that mean no good."""

from __future__ import annotations

from hypothesis import strategies as st
from markdown_it import MarkdownIt

from perdure.models.checks.report import Review, ReviewIssue, Severity
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.publishing import ShipInput
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.steps import Plan, Task
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import TestVerdict

CONTRACT = Contract(
    delivery="d",
    repository="r",
    request="Add sub",
    base="main",
    base_sha="b" * 40,
    branch="perdure/d",
    config=RepositoryConfig(version=1),
)
WORK = ShipInput(
    delivery="d",
    contract="p",
    workflow_id="d",
    base="main",
    branch="perdure/d",
    head="h",
    title="Add sub",
    kind="feature",
)
PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            ["fixes", "Closes", "resolving", "implements", "issue", " ", ": ", "\n", "\n\n", "**", "#12", "GH-7",
             "o/r#3", "@ada", "@org/team", "\uff20ada", "&#64;", "&commat;", "\\", "\\#", "#", "@", "1", "a",
             "https:", "//", "\\/", "https://x/issues/1", "www.", "x.org", "<!--", "-->", "<", "<details>",
             "<https://x.org>", "</", "\x1b[0m", "![", "[", "]", "](", "](javascript:x)", "](https://evil/p.png)",
             "]: ", "[a]: https://x", "[!NOTE]", "[^1]", "<!-- perdure:delivery=d -->", "<!-- perdure:", "```", "~~~",
             "`", "- ", "> ", "# ", "    ", "\u202e", "\u200b", "\u2060", "\ufeff", "\u034f", "\ufe0f", "\t", "\r",
             "\x00", "\u2028", "---", "===", "|", "1. ", "- [x] ", "$"]
        ),
        st.text(max_size=5),
    ),
    max_size=14,
).map("".join)  # fmt: skip


def green(summary: str) -> TestVerdict:
    return TestVerdict(status=TestsStatus.GREEN, tree="c0ffee" * 7, summary=summary)


def shapes(text: str) -> list[str]:
    """The kinds of everything that a Markdown text shows, from top to bottom."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [inner.type for token in tokens for inner in (token, *(token.children or []))]


def shown(text: str) -> str:
    """The words of a Markdown text after its escapes and character references were resolved."""
    tokens = MarkdownIt("commonmark").parse(text)
    inner = [child.content for token in tokens for child in (token.children or [token])]
    return "\n".join(inner)


def plan_of(text: str) -> Plan:
    task = Task(title=text, details=text, files=[text])
    return Plan(title=text, problem=text, solution=text, relevant_files=[text], tasks=[task], validation=[text])


def review_of(text: str) -> Review:
    issue = ReviewIssue(
        title=text, description=text, severity=Severity.TECH_DEBT, file=text, line=None, suggestion=text
    )
    return Review(summary=text, issues=[issue])
