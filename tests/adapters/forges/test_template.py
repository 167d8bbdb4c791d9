"""The repository's own template is found where GitHub finds it and honoured; it cannot hide what is ours."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from perdure.adapters.forges.body import marker, pull_request_body
from perdure.adapters.forges.template import NOT_FILLED_IN, clean_template, read_template
from perdure.adapters.git.repository import Repository
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.publishing import ShipInput
from perdure.models.delivery.result import Receipt, TestsStatus
from perdure.models.delivery.steps import Plan, Task
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import TestVerdict
from perdure.models.issue import ForgeIssue
from tests.costs import untraced

ISSUE = ForgeIssue(number=12, title="Sub", url="https://x/o/r/issues/12")
CONTRACT = Contract(
    delivery="d",
    repository="r",
    request="add sub",
    base="main",
    base_sha="b" * 40,
    branch="perdure/d",
    config=RepositoryConfig(version=1),
    issue=ISSUE,
)
PLAN = Plan(
    title="Add sub",
    problem="no sub",
    solution="a sub",
    relevant_files=[],
    tasks=[Task(title="write sub", details="", files=[])],
    validation=["call sub"],
)
TESTS = TestVerdict(status=TestsStatus.GREEN, tree="c0ffee" * 7, summary="4 green")
WORK = ShipInput(
    delivery="d",
    contract="p",
    workflow_id="d",
    base="main",
    branch="perdure/d",
    head="a" * 40,
    title="Add sub",
    tests=TESTS,
)


def filled(
    template: str | None, work: ShipInput = WORK, contract: Contract = CONTRACT, plan: Plan | None = PLAN
) -> str:
    return pull_request_body(work, contract, plan, None, Receipt(), template)


def headings(text: str) -> list[str]:
    """Those that are seen as headings, not those within a quotation, fence or HTML."""
    pairs = pairwise(MarkdownIt("commonmark").parse(text))
    return [f"{one.markup} {words.content}" for one, words in pairs if (one.type, one.level) == ("heading_open", 0)]


def below(text: str, heading: str) -> list[str]:
    """The lines below a heading up to the next, without empty ones."""
    lines = text.splitlines()
    found: list[str] = []
    for line in lines[lines.index(heading) + 1 :]:
        if line.startswith("#") or line == "---":
            break
        found += [line] if line else []
    return found


USUAL = """\
<!-- Thanks for your contribution!
Please fill in: -->
## Summary

<!-- what does it do? -->
Please describe the change.

## Motivation and Context

Why is it needed?

## Related issue

Fixes #(issue)

## How has this been tested?

Please describe the tests.

## Screenshots (if appropriate)

## Type of change

- [ ] Bug fix
- [ ] Feature

## Rollout plan

Say how it is deployed.

## Checklist:

- [ ] I have read the [guide](CONTRIBUTING.md)
- [x] I agree
"""


def test_known_headings_hold_what_they_ask_for_and_the_others_are_left_as_they_are() -> None:
    text = filled(USUAL)
    assert headings(text) == [
        "## Summary",
        *("### Problem", "### Solution", "### Tasks"),
        "## Motivation and Context",
        "## Related issue",
        "## How has this been tested?",
        *("### Evidence", "### How to check"),
        "## Screenshots (if appropriate)",
        "## Type of change",
        "## Rollout plan",
        "## Checklist:",
        "## Receipt",
    ]
    assert below(text, "### Problem") == ["> no sub"]
    assert below(text, "## Motivation and Context") == ["From #12", "> add sub"]
    assert below(text, "## Related issue") == ["Closes #12"]
    assert below(text, "### Evidence")[0] == "- tests: 4 green, on tree `c0ffeec0ffee`"
    assert below(text, "## Screenshots (if appropriate)") == ["None."]
    assert below(text, "## Type of change") == ["- [ ] Bug fix", "- [ ] Feature"]
    assert below(text, "## Rollout plan") == ["Say how it is deployed.", NOT_FILLED_IN]
    assert below(text, "## Checklist:") == ["- [ ] I have read the [guide](CONTRIBUTING.md)", "- [x] I agree"]
    for gone in ("Please describe", "Thanks for", "(issue)", "<!-- what"):
        assert gone not in text
    assert text.splitlines()[-1] == marker("d")


def test_windows_line_endings_and_a_byte_order_mark_make_no_difference() -> None:
    assert filled("\ufeff" + USUAL.replace("\n", "\r\n")) == filled(USUAL)


@pytest.mark.parametrize("template", [None, "", "  \n\n", "<!-- only\ninstructions -->", "---\nname: x\n---\n"])
def test_without_a_template_the_text_is_what_it_always_was(template: str | None) -> None:
    assert filled(template) == filled(None)
    assert headings(filled(None))[0] == "### Request"


def test_a_template_without_headings_comes_first_and_all_of_ours_follows() -> None:
    text = filled("Please read the guide.\n\nCloses #99, fixes https://x/o/r/issues/98\n\n- [ ] signed\n")
    assert text.startswith("Please read the guide.\n")
    assert "#99" not in text
    assert "fixes https:" not in text
    assert headings(text) == [
        *("### Request", "### Problem", "### Solution", "### Tasks"),
        *("### How to check", "### Evidence", "### Receipt"),
    ]
    assert "Closes #12" in text.splitlines()


def test_headings_of_every_form_and_their_groups_are_understood() -> None:
    text = filled(
        "My project\n===\n\n# 📝 Details\n\n### What?\n\n### Why?\n\n#### Testing\n- [ ] ran it\n\n### Problem\n"
    )
    assert headings(text)[:3] == ["= My project", "# 📝 Details", "### What?"]
    assert below(text, "### What?") == []
    assert headings(text)[3:6] == ["#### Problem", "#### Solution", "#### Tasks"]
    assert below(text, "### Why?") == ["From #12", "> add sub"]
    assert below(text, "#### Testing") == ["- [ ] ran it"]
    assert "##### Evidence" in text.splitlines()
    assert below(text, "### Problem") == ["See above."]
    assert below(text, "## Issue") == ["Closes #12"]


def test_a_heading_leaves_to_those_within_it_what_they_ask_for() -> None:
    text = filled(
        "## Description\n\nSay what.\n\n### Problem\n\n### Tests\n\n## Overview\n\n### Solution\n\n#### Problem\n"
    )
    assert headings(text)[:2] == ["## Description", "### Solution"]
    assert below(text, "### Problem") == ["> no sub"]
    assert "Say what." not in text


@pytest.mark.parametrize(
    ("title", "first"),
    [
        ("Description", "### Problem"),
        ("What does this PR do?", "### Problem"),
        ("Proposed changes", "### Problem"),
        ("What issue does it fix?", "Closes #12"),
        ("Fixes", "Closes #12"),
        ("Linked tickets", "Closes #12"),
        ("Test plan", "### Evidence"),
        ("Verification", "### Evidence"),
        ("Background", "From #12"),
        ("Solution", "### Solution"),
        ("Breaking changes", NOT_FILLED_IN),
        ("Changelog", NOT_FILLED_IN),
        ("Release notes", NOT_FILLED_IN),
        ("Additional context", NOT_FILLED_IN),
        ("Latest", NOT_FILLED_IN),
    ],
)
def test_a_heading_is_known_by_its_words(title: str, first: str) -> None:
    lines = [line for line in filled(f"## {title}\n\n").splitlines() if line]
    assert lines[lines.index(f"## {title}") + 1] == first


def test_a_heading_whose_answer_does_not_exist_says_so() -> None:
    alone = CONTRACT.model_copy(update={"issue": None})
    text = filled("## Issue\n\nFixes #\n\n## Summary\n", contract=alone, plan=None)
    assert below(text, "## Issue") == ["None."]
    assert below(text, "## Summary") == [NOT_FILLED_IN]


def test_a_draft_says_so_before_the_template_does_anything() -> None:
    work = WORK.model_copy(update={"draft_reason": "tests are red"})
    assert filled(USUAL, work).startswith("> **Draft:** tests are red\n\n## Summary\n")


HIDING = [
    "```\n## Summary",
    "~~~~md\n```\n",
    "- ```\n  code",
    "> ```\n> code",
    "## Summary\n\n<details><summary>more</summary>\n",
    "<pre>\n\n## Testing\n",
    "<!-- never closed\n## Summary",
    "<script>",
    "<![CDATA[",
    "<?php",
    "<!<!-- x -->-- hidden",
    "<<b>!-- hidden",
    "<div>\n```\n</div>\n",
    "\\`<details>\\`\n",
    "text `code\n\n```` \n`<div>` ``` x",
    "    <!-- indented",
    f"```\n{marker('other')}\n{marker('d')}\n```",
    "[ref]: https://x\n\n| a |\n|---|",
    "1. [ ] one\n\n   ```\n   x",
    "## Tests\n- [ ] a\n  ```\n",
    *("`" * 3, "```\n```\n```", "\\", "a\\\n"),
]
MARKS = [
    "<b>",
    "</b>",
    "<",
    ">",
    "-->",
    "<!--",
    "`",
    "``",
    "```",
    "~~~",
    "\\",
    *("===", "---", "\t", "\r", "\n", "  ", "    "),
]
WORDS = ["## What\n", "# Why", "### Testing\n\n", "- [ ] x\n", "> ", "- ", "text", "<https://x.org>", "<x"]
RED = WORK.model_copy(update={"draft_reason": "red"})
PIECES = st.sampled_from([*HIDING, *MARKS, *WORDS])


def check_unhidden(text: str) -> None:
    """Draft line, evidence, receipt and marker are where a reader sees them, and the marker is one."""
    tokens = MarkdownIt("commonmark").parse(text)
    assert text.startswith("> **Draft:** red\n\n")
    assert text.splitlines()[-1] == marker("d")
    assert text.count("<!--") == 1
    assert [token.content.strip() for token in tokens if token.type == "html_block"] == [marker("d")]
    assert not [child for token in tokens for child in token.children or [] if child.type == "html_inline"]
    assert tokens[-1].type == "html_block"
    seen = [token.content for token in tokens if token.type == "inline"]
    assert [words for words in seen if words == "0 worker deaths"] == ["0 worker deaths"]
    assert [words for words in seen if words.startswith("tests: 4 green")]
    assert [words for words in seen if words == "Closes #12"]
    assert len(text) <= 60_000


@pytest.mark.parametrize("template", [*HIDING, "# a\n" * 8000, "`" * 30_000, "<" * 30_000, "[" * 9000, "#1" * 15_000])
def test_no_template_hides_what_is_ours(template: str) -> None:
    with untraced():
        check_unhidden(filled(template, RED))


@given(st.lists(PIECES, max_size=10).map("".join))
def test_no_mixture_of_them_does_either(template: str) -> None:
    check_unhidden(filled(template, RED))


def test_html_is_taken_out_and_what_only_looks_like_it_stays() -> None:
    text = clean_template(
        "Use `a<b>` &amp; <https://x.org>, List<T>, a < b, <img src=x>done<br/>\n\n```\nif a < b\n```\n"
    )
    assert text == "Use `a<\u200bb>` &amp; <https://x.org>, List<\u200bT>, a < b, done\n\n```\nif a < b\n```"


def repository(root: Path, *files: tuple[str, bytes]) -> tuple[Repository, str]:
    """A bare repository with these files, written as blobs: also names that this file system could not hold apart."""
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(root)}
    environment |= {f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def git(*args: str, data: bytes = b"") -> str:
        done = subprocess.run(
            ["git", "--git-dir", str(root / "r.git"), *args],
            input=data, capture_output=True, env=environment, check=True, timeout=30,
        )  # fmt: skip
        return done.stdout.decode().strip()

    git("init", "-q", "--bare", str(root / "r.git"))
    listing = b""
    for path, data in files:
        mode, sha = ("120000" if data == b"link" else "100644"), git("hash-object", "-w", "--stdin", data=data)
        listing += f"{mode} {sha}\t{path}\n".encode()
    git("update-index", "--index-info", data=listing)
    return Repository(root / "r.git"), git("commit-tree", git("write-tree"), "-m", "x")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([(".github/PULL_REQUEST_TEMPLATE.md", b"a"), ("pull_request_template.md", b"b")], "a"),
        ([("docs/Pull_Request_Template.txt", b"c"), ("README.md", b"no")], "c"),
        ([("PULL_REQUEST_TEMPLATE.md", b"b"), ("docs/pull_request_template.md", b"c")], "b"),
        ([(".github/PULL_REQUEST_TEMPLATE/default.md", b"only one")], "only one"),
        ([("PULL_REQUEST_TEMPLATE/a.md", b"a"), ("PULL_REQUEST_TEMPLATE/b.md", b"b")], None),
        ([(".github/pull_request_template.md", b"link"), ("docs/pull_request_template.md", b"c")], "c"),
        ([(".github/pull_request_template.md", b" \n"), ("pull_request_template.md", b"b")], "b"),
        ([("pull_request_template.md", b"x" * 32_769)], None),
        ([("pull_request_template.md", b"x" * 32_768)], "x" * 32_768),
        ([("pull_request_template.md", b"caf\xe9")], "caf\ufffd"),
        ([("src/pull_request_template.md", b"x"), ("my_pull_request_template.md", b"x")], None),
    ],
)
def test_the_template_is_found_where_github_finds_it(
    tmp_path: Path, files: list[tuple[str, bytes]], expected: str | None
) -> None:
    stored, commit = repository(tmp_path, *files)
    assert read_template(stored, commit) == expected
