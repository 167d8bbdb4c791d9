"""The scenario of the demo: where its request comes from and its pull request goes, a directory, or, in a clone,
GitHub's twin."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.command import Git
from perdure.demo.environment import PACKAGE, DemoDirectories
from perdure.local.places import worker_script
from perdure.models.errors import BadInput
from perdure.text import one_line, visible

_MAX_BODY_LINES = 6


@dataclass(frozen=True)
class DemoOutcome:
    """The outcome of a demo. `is_complete`: exactly what should be there is there, once. `lines`: about it, for people.
    `pages`: name → address for a browser."""

    is_complete: bool
    lines: list[str]
    pages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DemoScenario:
    """The setting of a demo: the source of its request, the target of its pull request, and the texts about both.

    id            of the delivery
    input_kind    request or issue
    submission    what a client sends
    repository    its description, for the header, of which `header_rows` are further rows: name, text
    twin_lines    who was played here, and by what
    commands      what a person types to have the same with the real ones
    find_outcome  looks at what there is now; blocks on git
    variables     what the worker's environment has besides, the token among it
    """

    id: str
    input_kind: str
    submission: Mapping[str, Any]
    repository: str
    header_rows: tuple[tuple[str, str], ...]
    twin_lines: tuple[str, ...]
    commands: tuple[str, ...]
    find_outcome: Callable[[], DemoOutcome]
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


def scenario_for(*, github: bool) -> Callable[[DemoDirectories], AbstractAsyncContextManager[DemoScenario]]:
    """Return the function that opens a scenario in the demo's directories and serves it until its context ends: that of
    a local repository, or with `github` that of GitHub's twin.

    GitHub's twin is a tool of the tests: a clone has it, whose directory is then added to the import path; an
    installation does not. Raises BadInput where there is none.
    """
    if not github:
        return _open_local_scenario
    clone = worker_script().parent
    if not (clone / "tests" / "twins").is_dir():
        raise BadInput(
            "GitHub's twin is not part of an installation",
            where="--github",
            fix="make demo ARGS=--github in a clone of Perdure",
        )
    sys.path.insert(0, str(clone))
    open_scenario: Callable[[DemoDirectories], AbstractAsyncContextManager[DemoScenario]] = import_module(
        "tests.twins.demo"
    ).on_github
    return open_scenario


@asynccontextmanager
async def _open_local_scenario(directories: DemoDirectories) -> AsyncIterator[DemoScenario]:
    """Yield the scenario of a request in words, whose pull request is kept in the repository itself."""
    yield DemoScenario(
        id=f"{PACKAGE}-1h30m",
        input_kind="request",
        submission={"repository": str(directories.origin), "request": directories.request()},
        repository=f"{PACKAGE}, a small Python package, fresh in {directories.origin}",
        header_rows=(("request", directories.request().partition("\n")[0]),),
        twin_lines=(
            "The model was scripted: its replies came from examples/durations.toml. Everything else was real:",
            "Temporal, HTTP, git, the sandbox, the tests, the kills. The same with a real model, in your repository:",
        ),
        commands=("export ANTHROPIC_API_KEY=…", 'perdure deliver "what you want" --repo PATH'),
        find_outcome=lambda: _local_outcome(directories.origin),
    )


def _local_outcome(origin: Path) -> DemoOutcome:
    """Return the pull requests that a bare repository keeps, as lines; complete where there is exactly one."""
    forge = LocalForge(str(origin))
    pull_requests = forge.list_pulls()
    lines = ["No pull request was opened"] if not pull_requests else []
    for pull, _ in pull_requests:
        details = forge.pull_details(pull.number)
        lines += [
            f"Pull request #{pull.number}  {one_line(pull.title)}",
            f"  take it  {visible(details.take)}",
            *pull_request_lines(origin, details.head_sha, details.body),
        ]
    return DemoOutcome(len(pull_requests) == 1, lines)


def pull_request_lines(bare: Path, head: str, body: str) -> list[str]:
    """Return a pull request as lines: its changed files, and the first lines of its text."""
    stat = Git(git_dir=bare).text("diff", "--stat=72", f"main...{head}")
    lines = [line for line in visible(body).splitlines() if line.strip()][:_MAX_BODY_LINES]
    return [
        *(f"  {line}" for line in visible(stat).splitlines()),
        *(f"  │ {one_line(line, 100)}" for line in [*lines, "…"]),
    ]
