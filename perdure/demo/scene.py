"""The origin of the demo's request and the place of its pull request: a directory, or, in a clone, GitHub's twin."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.door import Git
from perdure.demo.stage import PACKAGE, DemoDirectories
from perdure.local.places import worker_script
from perdure.models.errors import BadInput
from perdure.text import one_line, visible

_BODY_LINES = 6


@dataclass(frozen=True)
class DemoOutcome:
    """The outcome. `whole`: exactly what should be there, once. `pages`: name → address for a browser."""

    whole: bool
    lines: list[str]
    pages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DemoScene:
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
    outcome: Callable[[], DemoOutcome]
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


def scene_for(*, github: bool) -> Callable[[DemoDirectories], AbstractAsyncContextManager[DemoScene]]:
    """Return the maker of a stage's scene, which serves until its context ends. BadInput where there is no twin.

    GitHub's twin is a tool of the tests: a clone has it, an installation does not.
    """
    if not github:
        return _local
    clone = worker_script().parent
    if not (clone / "tests" / "twins").is_dir():
        raise BadInput(
            "GitHub's twin is not part of an installation",
            where="--github",
            fix="make demo ARGS=--github in a clone of Perdure",
        )
    sys.path.insert(0, str(clone))
    made: Callable[[DemoDirectories], AbstractAsyncContextManager[DemoScene]] = import_module(
        "tests.twins.demo"
    ).on_github
    return made


@asynccontextmanager
async def _local(stage: DemoDirectories) -> AsyncIterator[DemoScene]:
    """The request in words, the pull request in the repository itself."""
    yield DemoScene(
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


def _in_directory(origin: Path) -> DemoOutcome:
    forge = LocalForge(str(origin))
    found = forge.list()
    lines = ["No pull request was opened"] if not found else []
    for pull, _ in found:
        details = forge.show(pull.number)
        lines += [
            f"Pull request #{pull.number}  {one_line(pull.title)}",
            f"  take it  {visible(details.take)}",
            *shown(origin, details.head_sha, details.body),
        ]
    return DemoOutcome(len(found) == 1, lines)


def shown(bare: Path, head: str, body: str) -> list[str]:
    """A pull request's changes and the beginning of its text."""
    stat = Git(git_dir=bare).text("diff", "--stat=72", f"main...{head}")
    lines = [line for line in visible(body).splitlines() if line.strip()][:_BODY_LINES]
    return [
        *(f"  {line}" for line in visible(stat).splitlines()),
        *(f"  │ {one_line(line, 100)}" for line in [*lines, "…"]),
    ]
