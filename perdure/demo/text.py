"""The demo's texts beside the story itself: who plays, what is real, and what came out of it."""

from __future__ import annotations

from perdure import __version__
from perdure.adapters.git.command import Git
from perdure.cli.formatting import own_command, short_sha
from perdure.cli.look.progress_lines import RETRY, Header
from perdure.cli.look.step_lines import WARN
from perdure.demo.environment import DemoDirectories
from perdure.demo.scenario import DemoOutcome, DemoScenario
from perdure.models.config import SandboxGrade
from perdure.models.decisions import Gate
from perdure.text import one_line

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
        f"  export PERDURE_HOME={directories.home.root}",
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
