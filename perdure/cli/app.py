"""The `perdure` command: its groups of commands, its help, and how its process ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from perdure import __version__, startup
from perdure.cli.backlog import command as backlog
from perdure.cli.commands import ADVANCED, ADVANCED_PAGE, DECIDE, HOST, LOOK, START, STEER, CommandGroup
from perdure.cli.decide import answer, budget, say
from perdure.cli.failures import BROKEN_PIPE
from perdure.cli.failures import print_failure as report_failure
from perdure.cli.host import agents, config, doctor, init, local, page
from perdure.cli.look import compare, delivery_commands, events, logs, pulls, report, schedules, top, turns, verify
from perdure.cli.plain import PLAIN_ERRORS
from perdure.cli.request import deliver, fork, retry
from perdure.cli.request import run_command as run_phase
from perdure.demo import command as demo
from perdure.models.errors import BadInput
from perdure.text import is_text

app = CommandGroup(
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
        delivery_commands.watch,
        delivery_commands.show,
        delivery_commands.list_,
        top.top,
        delivery_commands.diff,
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
"""The commands of each panel, in the order of `perdure --help`."""

for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(command.__name__.rstrip("_"), rich_help_panel=panel)(command)
backlog.register(app)
schedules.register(app)
local.register(app)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"perdure {__version__}")
        raise typer.Exit


def _print_advanced_help(context: typer.Context, requested: bool) -> None:
    """Print the help of the advanced commands and raise `typer.Exit`, where `--help-advanced` was given."""
    if requested:
        context.meta[ADVANCED_PAGE] = True
        print(context.get_help(), end="")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
    advanced: Annotated[
        bool,
        typer.Option(
            "--help-advanced", is_eager=True, callback=_print_advanced_help, help="Show the advanced commands and exit."
        ),
    ] = False,
) -> None: ...


def run_command_line(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Every error is printed to standard error, none is raised.

    With `--json` among the arguments an error is printed as a JSON object. The code is BROKEN_PIPE where the reader of
    the output has gone.
    """
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        # Checked here rather than in the commands: on Windows their imports (flock) would fail first.
        if sys.platform == "win32":
            from perdure.local.checks import check_platform

            check_platform(sys.platform)
        _require_utf8(arguments)
        code = app.narrow_to(arguments)(arguments, prog_name="perdure", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            return BROKEN_PIPE  # Typer has caught the error first
        return end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - the last to catch: every error is printed, none is raised
        return report_failure(error, as_json=as_json)
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """Run the command line of this process and end the process at once with its exit code.

    Ends with `os._exit`: the Temporal SDK was seen to crash in an ordinary exit. Replaces closed standard streams
    first, and makes the others print characters that they cannot encode as plain ones.
    """
    _open_streams()
    startup.begin()  # commands import what they need, GitPython among it, which starts a process
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=PLAIN_ERRORS)
    code = run_command_line(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError:  # a full disk: it has been reported where that was possible
        code = code or 1
    os._exit(code)


def _open_streams() -> None:
    """Open the null device in place of every standard stream that was closed (`<&-`, `>&-`).

    Otherwise the next file that is opened would get the stream's number, and child processes would write into that
    file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _require_utf8(arguments: list[str]) -> None:
    """Raise BadInput for an argument that is not UTF-8 text: any of them may go into a request, a record or a
    message."""
    for argument in arguments:
        if not is_text(argument):
            escaped = ascii(argument.encode(errors="surrogateescape"))[1:101]
            raise BadInput(f"an argument is not UTF-8 text: {escaped}", where="perdure", fix="type it as UTF-8")
