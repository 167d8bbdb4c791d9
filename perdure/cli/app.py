"""The `perdure` command: its groups, its help, and how it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from perdure import __version__, startup
from perdure.cli.backlog import command as backlog
from perdure.cli.commands import ADVANCED, ADVANCED_PAGE, DECIDE, HOST, LOOK, START, STEER, Commands
from perdure.cli.decide import answer, budget, say
from perdure.cli.failures import BROKEN_PIPE
from perdure.cli.failures import report as report_failure
from perdure.cli.host import agents, config, doctor, init, local, page
from perdure.cli.look import compare, events, logs, pulls, read, report, schedules, top, turns, verify
from perdure.cli.plain import PLAIN
from perdure.cli.request import deliver, fork, retry
from perdure.cli.request import run as run_phase
from perdure.demo import command as demo
from perdure.models.errors import BadInput
from perdure.text import is_text

app = Commands(
    name="perdure",
    help="A request goes in, a tested, reviewed pull request comes out, and kill -9 does not matter.",
    epilog="New here? perdure demo shows the whole thing in two minutes, without a key.\n\n"
    "perdure --help-advanced shows what services and tests of Perdure itself are made of.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    START: (demo.demo, init.init, deliver.deliver, run_phase.run),
    LOOK: (
        read.watch,
        read.show,
        read.list_,
        top.top,
        read.diff,
        logs.logs,
        events.events,
        turns.turns,
        compare.compare,
        report.report,
        verify.verify,
        pulls.pulls,
        page.page,
        local.ui,
    ),
    DECIDE: (answer.approve, answer.reject, answer.answer, budget.budget),
    STEER: (say.say, say.hold, say.resume, turns.rewind, fork.fork, retry.retry, retry.cancel),
    HOST: (local.up, local.down, doctor.doctor, agents.agents, local.gc, config.config),
    ADVANCED: (local.worker, local.rehearse),
}
"""In the order of `perdure --help`."""

for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(command.__name__.rstrip("_"), rich_help_panel=panel)(command)
backlog.register(app)
schedules.register(app)
local.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"perdure {__version__}")
        raise typer.Exit


def _advanced(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.meta[ADVANCED_PAGE] = True
        print(context.get_help(), end="")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version and exit.")
    ] = False,
    advanced: Annotated[
        bool,
        typer.Option("--help-advanced", is_eager=True, callback=_advanced, help="Show the advanced commands and exit."),
    ] = False,
) -> None: ...


def run(arguments: list[str]) -> int:
    """Carry out one command line and return its exit code; whatever goes wrong has been told."""
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        # Here rather than in the commands: on Windows their imports (flock) would fail first.
        if sys.platform == "win32":
            from perdure.local.checks import check_platform

            check_platform(sys.platform)
        _check_text(arguments)
        code = app.needed(arguments)(arguments, prog_name="perdure", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            return BROKEN_PIPE  # Typer has seen it first
        return end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - the last one to see it: everything is told, nothing is raised
        return report_failure(error, as_json=as_json)
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """Entry point. Ends the process at once: the Temporal SDK was seen to crash in an ordinary exit."""
    _open_streams()
    startup.begin()  # commands import what they need, GitPython among it, which starts a process
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=PLAIN)
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError:  # a full disk: it has been told where that was possible
        code = code or 1
    os._exit(code)


def _open_streams() -> None:
    """A standard stream that was closed (`<&-`, `>&-`) is empty, or swallows what is said: otherwise the next file that
    is opened would get its number, and children would write into that."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _check_text(arguments: list[str]) -> None:
    """Everything that is typed may go into a request, a record or a message: all of those are UTF-8."""
    for one in arguments:
        if not is_text(one):
            shown = ascii(one.encode(errors="surrogateescape"))[1:101]
            raise BadInput(f"an argument is not UTF-8 text: {shown}", where="perdure", fix="type it as UTF-8")
