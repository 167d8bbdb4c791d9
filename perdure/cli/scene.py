"""Where the demo's request comes from and its pull request goes to: a directory, or GitHub's twin."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.door import Git
from perdure.cli.chapters import BAD
from perdure.cli.stage import PACKAGE, Stage
from perdure.cli.words import clean, count, one_line

if TYPE_CHECKING:
    from perdure.rehearsal.github import GitHubTwin

_REPOSITORY = f"me/{PACKAGE}"
_BODY_LINES = 6


@dataclass(frozen=True)
class Outcome:
    """What came out of it. `whole`: exactly what should be there, once. `pages`: name → address for a browser."""

    whole: bool
    lines: list[str]
    pages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scene:
    """
    id           of the delivery
    wanted       request or issue
    submission   what a client sends
    repository   in words, for the header, of which `facts` are further rows: name, text
    twins        who was played here, and by what
    typed        what a person types to have the same with the real ones
    outcome      looks at what there is now; blocks on git
    variables    what the worker's environment has besides, the token among it
    """

    id: str
    wanted: str
    submission: Mapping[str, Any]
    repository: str
    facts: tuple[tuple[str, str], ...]
    twins: tuple[str, ...]
    typed: tuple[str, ...]
    outcome: Callable[[], Outcome]
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


@asynccontextmanager
async def scene(stage: Stage, *, github: bool) -> AsyncIterator[Scene]:
    """The one that was asked for; what it serves ends with the context."""
    if not github:
        yield _local(stage)
        return
    from perdure.rehearsal.github import GitHubTwin

    token = f"ghp_{secrets.token_hex(18)}"
    async with GitHubTwin(stage.root / "github", token=token) as twin:
        twin.add_repository(_REPOSITORY, source=stage.origin)
        title, _, text = stage.request().partition("\n")
        title = title.strip().rstrip(".")
        issue = twin.add_issue(_REPOSITORY, title, text.strip(), labels=("enhancement",), author="ada")
        yield _github(stage, twin, token, issue, title)


def _local(stage: Stage) -> Scene:
    """The request in words, the pull request in the repository itself."""
    return Scene(
        id=f"{PACKAGE}-1h30m",
        wanted="request",
        submission={"repository": str(stage.origin), "request": stage.request()},
        repository=f"{PACKAGE}, a small Python package, fresh in {stage.origin}",
        facts=(("request", stage.request().partition("\n")[0]),),
        twins=(
            "The model was scripted: its replies came from examples/durations.toml. Everything else was real:",
            "Temporal, HTTP, git, the sandbox, the tests, the kills. The same with a real model, in your repository:",
        ),
        typed=("export ANTHROPIC_API_KEY=…", 'perdure deliver "what you want" --repo PATH'),
        outcome=lambda: _in_directory(stage.origin),
    )


def _in_directory(origin: Path) -> Outcome:
    forge = LocalForge(str(origin))
    found = forge.list()
    lines = ["No pull request was opened"] if not found else []
    for pull, _ in found:
        details = forge.show(pull.number)
        lines += [
            f"Pull request #{pull.number}  {one_line(pull.title)}",
            f"  take it  {clean(details.take)}",
            *_shown(origin, details.head_sha, details.body),
        ]
    return Outcome(len(found) == 1, lines)


def _github(stage: Stage, twin: GitHubTwin, token: str, issue: int, title: str) -> Scene:
    """An issue, and a pull request that closes it."""
    url = f"{twin.url}/{_REPOSITORY}"
    return Scene(
        id=f"{PACKAGE}-issue-{issue}",
        wanted="issue",
        submission={"repository": url, "issue": issue},
        repository=f"{url}, a small Python package, fresh",
        facts=(
            ("issue", f'#{issue} "{title}" · {url}/issues/{issue}'),
            ("GitHub", "a twin of it on this machine: no account, no network; it takes nothing that GitHub would not"),
        ),
        twins=(
            "GitHub and the model were twins on this machine: one held every request against GitHub's own description",
            "of its API, the other's replies came from examples/durations.toml. Everything else was real: Temporal,",
            "HTTP, git, the sandbox, the tests, the kills. The same with the real ones, in a repository of yours:",
        ),
        typed=("export ANTHROPIC_API_KEY=… GH_TOKEN=…", "perdure deliver --issue 12"),
        outcome=lambda: _on_github(stage.root / "github" / f"{_REPOSITORY}.git", twin, url, issue),
        variables={"PERDURE_GITHUB_URL": twin.url, "PERDURE_GITHUB_TOKEN": token},
    )


def _on_github(bare: Path, twin: GitHubTwin, url: str, issue: int) -> Outcome:
    pulls, comments = twin.pulls(_REPOSITORY), twin.comments(_REPOSITORY, issue)
    lines = ["No pull request was opened"] if not pulls else []
    for pull in pulls:
        lines += [
            f"Pull request #{pull['number']}  {one_line(pull['title'])}",
            f"  page     {url}/pull/{pull['number']}",
            *_shown(bare, pull["head"]["sha"], pull["body"] or ""),
        ]
    lines += [f"Issue #{issue}  {url}/issues/{issue}"]
    lines += [f"  {comment['user']['login']}: {_headline(comment['body'])}" for comment in comments]
    wrong = [f"{BAD} against GitHub's description: {one_line(str(each))}" for each in twin.violations]
    lines += [f"  {count(len(comments), 'comment')}, {count(len(twin.calls), 'request')} to GitHub", *wrong]
    pages = {f"issue #{issue}": f"{url}/issues/{issue}"}
    pages |= {f"pull request #{pull['number']}": f"{url}/pull/{pull['number']}" for pull in pulls}
    return Outcome((len(pulls), len(comments), len(wrong)) == (1, 1, 0), lines, pages)


def _headline(comment: str) -> str:
    """The first line that a reader of a comment sees."""
    shown = (line.strip(" *#") for line in clean(comment).splitlines() if not line.startswith("<!--"))
    return one_line(next(filter(None, shown), ""), 100)


def _shown(bare: Path, head: str, body: str) -> list[str]:
    stat = Git(git_dir=bare).text("diff", "--stat=72", f"main...{head}")
    lines = [line for line in clean(body).splitlines() if line.strip()][:_BODY_LINES]
    return [
        *(f"  {line}" for line in clean(stat).splitlines()),
        *(f"  │ {one_line(line, 100)}" for line in [*lines, "…"]),
    ]
