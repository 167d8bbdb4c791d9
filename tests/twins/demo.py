"""The demo's scene on GitHub's twin: an issue, and a pull request that closes it (perdure/demo/scenario.py)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.demo.environment import PACKAGE, DemoDirectories
from perdure.demo.scenario import DemoOutcome, DemoScenario, pull_request_lines
from perdure.render.step_lines import BAD
from perdure.text import format_count, one_line, visible
from tests.twins.github import GitHubTwin

_REPOSITORY = f"me/{PACKAGE}"


@asynccontextmanager
async def on_github(stage: DemoDirectories) -> AsyncIterator[DemoScenario]:
    """The twin serves until the context ends."""
    token = f"ghp_{secrets.token_hex(18)}"
    async with GitHubTwin(stage.root / "github", token=token) as twin:
        twin.add_repository(_REPOSITORY, source=stage.origin)
        title, _, text = stage.request().partition("\n")
        title = title.strip().rstrip(".")
        issue = twin.add_issue(_REPOSITORY, title, text.strip(), labels=("enhancement",), author="ada")
        yield _scene(stage, twin, token, issue, title)


def _scene(stage: DemoDirectories, twin: GitHubTwin, token: str, issue: int, title: str) -> DemoScenario:
    url = f"{twin.url}/{_REPOSITORY}"
    return DemoScenario(
        id=f"{PACKAGE}-issue-{issue}",
        input_kind="issue",
        submission={"repository": url, "issue": issue},
        repository=f"{url}, a small Python package, fresh",
        header_rows=(
            ("issue", f'#{issue} "{title}" · {url}/issues/{issue}'),
            ("GitHub", "a twin of it on this machine: no account, no network; it takes nothing that GitHub would not"),
        ),
        twin_lines=(
            "GitHub and the model were twins on this machine: one held every request against GitHub's own description",
            "of its API, the other's replies came from examples/durations.toml. Everything else was real: Temporal,",
            "HTTP, git, the sandbox, the tests, the kills. The same with the real ones, in a repository of yours:",
        ),
        commands=("export ANTHROPIC_API_KEY=… GH_TOKEN=…", "perdure deliver --issue 12"),
        find_outcome=lambda: _on_github(stage.root / "github" / f"{_REPOSITORY}.git", twin, url, issue),
        variables={"PERDURE_GITHUB_URL": twin.url, "PERDURE_GITHUB_TOKEN": token},
    )


def _on_github(bare: Path, twin: GitHubTwin, url: str, issue: int) -> DemoOutcome:
    pulls, comments = twin.pulls(_REPOSITORY), twin.comments(_REPOSITORY, issue)
    lines = ["No pull request was opened"] if not pulls else []
    for pull in pulls:
        lines += [
            f"Pull request #{pull['number']}  {one_line(pull['title'])}",
            f"  page     {url}/pull/{pull['number']}",
            *pull_request_lines(bare, pull["head"]["sha"], pull["body"] or ""),
        ]
    lines += [f"Issue #{issue}  {url}/issues/{issue}"]
    lines += [f"  {comment['user']['login']}: {_headline(comment['body'])}" for comment in comments]
    wrong = [f"{BAD} against GitHub's description: {one_line(str(each))}" for each in twin.violations]
    lines += [
        f"  {format_count(len(comments), 'comment')}, {format_count(len(twin.calls), 'request')} to GitHub",
        *wrong,
    ]
    pages = {f"issue #{issue}": f"{url}/issues/{issue}"}
    pages |= {f"pull request #{pull['number']}": f"{url}/pull/{pull['number']}" for pull in pulls}
    return DemoOutcome((len(pulls), len(comments), len(wrong)) == (1, 1, 0), lines, pages)


def _headline(comment: str) -> str:
    """The first line that a reader of a comment sees."""
    shown = (line.strip(" *#") for line in visible(comment).splitlines() if not line.startswith("<!--"))
    return one_line(next(filter(None, shown), ""), 100)
