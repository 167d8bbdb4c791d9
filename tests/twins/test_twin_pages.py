"""The twin's pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.models.errors import BadInput
from tests.twins.github import GitHubTwin
from tests.twins.github.html import markdown

EVIL = "<script>alert(1)</script> [x](javascript:alert(1)) <!-- perdure:status=1 -->"


async def test_an_issue_and_its_pull_request_can_be_read(hub: Any) -> None:
    issue = hub.twin.add_issue("me/calc", "Add sub", "**Please**", labels=("bug",), comments=(("bob", "Yes, see #2"),))
    hub.branch("work", "one\ntwo\n")
    pull = hub.twin.add_pull("me/calc", "work", title="feat: add sub", body=f"Closes #{issue}", draft=True)
    page = (await hub.page(f"/me/calc/issues/{issue}")).body
    for words in ("Add sub", "<strong>Please</strong>", ">bug<", "bob", 'href="/me/calc/issues/2">#2</a>', ">Open<"):
        assert words in page
    page = (await hub.page(f"/me/calc/pull/{pull}")).body
    for words in ("feat: add sub", ">Draft<", "<code>work</code> into <code>main</code>", "x.txt", "+two", "1 commit"):
        assert words in page
    assert (await hub.page(f"/me/calc/issues/{pull}")).headers["Location"] == f"/me/calc/pull/{pull}"


async def test_a_merged_pull_request_and_its_issue_say_so(hub: Any) -> None:
    issue = hub.twin.add_issue("me/calc", "Add sub")
    hub.branch("work")
    pull = hub.twin.add_pull("me/calc", "work", body=f"Fixes #{issue}")
    hub.twin.merge("me/calc", pull)
    assert ">Merged<" in (await hub.page(f"/me/calc/pull/{pull}")).body
    assert ">Closed<" in (await hub.page(f"/me/calc/issues/{issue}")).body


async def test_nothing_that_strangers_write_runs(hub: Any) -> None:
    hub.twin.add_issue("me/calc", EVIL, EVIL, labels=(EVIL.replace(",", ""),), author="<b>", comments=(("<i>", EVIL),))
    told = await hub.page("/me/calc/issues/1")
    assert "<script>" not in told.body
    assert 'href="javascript' not in told.body
    assert "<b>" not in told.body
    assert told.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "perdure:status" not in markdown(EVIL, "me/calc")


def test_comments_are_hidden_outside_of_code_only() -> None:
    shown = markdown("before <!-- hidden\n --> after\n```\n<!-- shown -->\n```\n", "me/calc")
    assert "hidden" not in shown
    assert "&lt;!-- shown --&gt;" in shown


async def test_private_missing_and_renamed_repositories_answer_as_githubs_pages_do(hub: Any) -> None:
    hub.twin.add_repository("me/secret", private=True)
    hub.twin.add_issue("me/secret", "Hidden")
    hub.twin.add_issue("me/calc", "Shown")
    for path in ("/me/secret/issues/1", "/me/gone/issues/1", "/me/calc/issues/9", "/a/b/c/d"):
        assert (await hub.page(path)).status == 404
    hub.twin.rename("me/calc", "me/sums")
    assert (await hub.page("/me/calc/issues/1")).headers["Location"] == "/me/sums/issues/1"


async def test_a_port_that_is_taken_is_said_in_words(hub: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot listen"):
        async with GitHubTwin(tmp_path, token="t", port=int(hub.twin.url.rpartition(":")[2])):
            pass
