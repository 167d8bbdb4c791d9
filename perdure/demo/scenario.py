"""The scenario of the demo: where its request comes from and where its pull request goes; and its texts beside the
story itself: who plays, what is real, and what came out of it. Used by `demos` beside this; the scenario on GitHub's
twin is in the tests."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from perdure import __version__
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.command import Git
from perdure.demo.environment import PACKAGE, DemoDirectories
from perdure.local.places import worker_script
from perdure.models.config.repository import SandboxGrade
from perdure.models.delivery.decisions import Gate
from perdure.models.errors import BadInput
from perdure.render.progress_lines import RETRY, Header
from perdure.render.step_lines import WARN
from perdure.text import one_line, shell_word, short_sha, visible

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


_SANDBOXES = {
    SandboxGrade.FULL: "sandbox bubblewrap",
    SandboxGrade.REDUCED: "sandbox REDUCED (Landlock)",
    SandboxGrade.OFF: "sandbox OFF",
}

_SCRIPTED = "scripted: no key, no account, nothing is paid; costs are shown as if"

ASKED_BY_KILLS = {
    Gate.DEATHS: f"{WARN} three deaths of one turn: Perdure asks whether to go on; here they were asked for, and the "
    "demo says yes",
    Gate.BUDGET: f"{WARN} replies that were cut off count at their upper bound: Perdure asks for more money; here "
    "none is paid, and the demo adds $1",
}
UNPRICED = (
    f"{WARN} the price of this agent's model is not in the table: Perdure asks before it goes on uncounted; here "
    "nothing is paid, and the demo says yes"
)
RETRIED = f"{RETRY} it goes on from its last checkpoint"


def title_line(scenario: DemoScenario) -> str:
    """Return the first line: what the demo plays."""
    return f"perdure {__version__} · demo: one {scenario.input_kind}, one pull request, and workers that get killed"


def opening_lines(
    directories: DemoDirectories, scenario: DemoScenario, page: str, grade: SandboxGrade, reason: str
) -> list[str]:
    """Return the header as `perdure deliver` prints it, with what is special in the demo. `reason`: why the sandbox is
    weaker than full; empty: it is not."""
    head = short_sha(Git(git_dir=directories.origin).text("rev-parse", "main"))
    header = Header(
        version=__version__,
        delivery_id="",
        checkout="",
        target=scenario.repository,
        base=f"main at {head}",
        settings=["perdure.toml on main", _SANDBOXES[grade]],
        watching=[page] if page else [],
    ).lines()[1:]
    lines = [
        *header,
        *(f"  {name:<13} {one_line(text)}" for name, text in (*scenario.header_rows, ("model", _SCRIPTED))),
    ]
    if reason:
        lines.append(f"{WARN} {one_line(reason)}; the demo goes on, for it only runs commands of its own")
    return lines


def worker_line(pid: int, is_interactive: bool) -> str:
    """Return the line about the first worker: how a person can kill it, or that it gets killed on the way."""
    if is_interactive:
        return f"Worker {pid}. Kill me whenever you like: press K, or `kill -9 {pid}`"
    return f"Worker {pid}: it gets killed on the way"


def ending_lines(directories: DemoDirectories, scenario: DemoScenario) -> list[str]:
    """Return the last lines: what was real and what was played, how to have the same with the real ones, and how to
    look at what is kept."""
    perdure = own_command()
    commands = [
        "",
        f"All of it is kept in {directories.root}, until the next demo. To look at it:",
        f"  export PERDURE_HOME={shell_word(directories.home.root)}",
        f"  {perdure} up --detach && {perdure} show {scenario.id}",
        f"  {perdure} verify {scenario.id}     # its receipt again; also report, diff, logs; {perdure} down ends it",
    ]
    return [
        *scenario.twin_lines,
        *(f"  {line.replace('perdure ', f'{perdure} ', 1)}" for line in scenario.commands),
        *commands,
    ]


def waiting_lines(outcome: DemoOutcome, page: str) -> list[str]:
    """Return the lines that name the pages which can be opened until a person presses Enter."""
    if not outcome.pages:
        return [f"The Web UI stays until you press Enter: {page}"]
    rows = {**outcome.pages, "Web UI": page}
    return ["These pages stay until you press Enter:", *(f"  {name:<16} {address}" for name, address in rows.items())]


def own_command() -> str:
    """Return how to type this very program: `perdure`, its path where PATH does not lead to it, or Python with `-m
    perdure.cli`."""
    own_script = Path(sys.executable).parent / "perdure"
    on_path = shutil.which("perdure")
    if on_path is not None and (not own_script.exists() or Path(on_path).resolve() == own_script.resolve()):
        return "perdure"
    if not own_script.exists():
        return f"{shlex.quote(sys.executable)} -m perdure.cli"
    relative = os.path.relpath(own_script)
    return shlex.quote(relative if not relative.startswith("..") else str(own_script))
