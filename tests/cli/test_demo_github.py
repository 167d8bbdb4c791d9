"""The demo from an issue to a pull request, on the twin of GitHub that it brings along."""

from __future__ import annotations

import json
import os
import re
import urllib.request

import pytest

from tests.cli.shows import Show, show, visitor

__all__ = ["show", "visitor"]


def opened(page: str) -> str:
    with urllib.request.urlopen(page, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.long
@pytest.mark.timeout(180)
def test_an_issue_becomes_one_pull_request_and_its_pages_can_be_opened(show: Show, visitor: int) -> None:
    show.start("--fast", "--github", terminal=visitor)
    issue = show.until(
        r'issue +#1 "Make parse_duration accept \'1h30m\'" · (http://127\.0\.0\.1:\d+/me/durations/issues/1)'
    )
    show.until("GitHub +a twin of it on this machine")
    assert "parse_duration" in opened(issue[1])
    show.until("✗ worker [0-9]+ killed in the middle of implement, turn 2")
    show.until("✗ worker [0-9]+ killed in the middle of fix_tests, turn 3")
    delivered = show.until(r"Delivered +(http://127\.0\.0\.1:\d+/me/durations/pull/2)")[1]
    show.until("receipt  2 worker deaths · 2 turns redone · 0 replies paid twice")
    show.until(r"Pull request #2  feat: accept compound durations")
    show.until("perdure-bot: .*#2")
    show.until("1 comment, [0-9]+ requests to GitHub")
    show.until("GitHub and the model were twins")
    show.until("perdure deliver --issue 12")
    show.until("These pages stay until you press Enter:")
    page, pull, web = (show.until(rf"{name} +(http://\S+)")[1] for name in ("issue #1", "pull request #2", "Web UI"))
    assert (page, pull) == (issue[1], delivered)
    assert re.search(r"Closes (<a [^>]*>)?#1\b", opened(pull))
    assert "#2" in opened(page)
    assert opened(web)
    os.write(show._reading, b"\n")
    assert show.end() == 0, show.seen
    assert re.findall(r"Pull request #(\d+)  ", show.seen) == ["2"]
    assert "ghp_" not in show.seen
    show.check_nothing_runs()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_for_a_program_the_answer_is_the_result_and_the_story_is_told_besides(show: Show) -> None:
    show.start("--fast", "--github", "--no-kill", "--json", apart=True)
    assert show.end() == 0, show.told
    result = json.loads(show.seen)
    assert result["delivery_id"] == "durations-issue-1"
    assert result["status"] == "delivered"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/me/durations/pull/2", result["pull_request"]["url"])
    assert "GitHub and the model were twins" in show.told
    show.check_nothing_runs()
