"""The `perdure` command: its groups of commands, its help, how its process ends, and its errors, in three lines for a
person or as one JSON object for a program."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer

from perdure import __version__, startup
from perdure.cli import screen
from perdure.cli.command_groups import ADVANCED_PAGE, CommandGroup, RootGroup
from perdure.cli.screen import PLAIN_ERRORS
from perdure.models.errors import BadInput, NoWorker, PerdureError, TemporalUnreachable
from perdure.text import is_text

app = CommandGroup(
    cls=RootGroup,
    name="perdure",
    help="A request goes in, a tested, reviewed pull request comes out, and kill -9 does not matter.",
    epilog="New here? perdure demo shows the whole thing in two minutes, without a key.\n\n"
    "perdure --help-advanced shows what services and tests of Perdure itself are made of.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
        code = app(arguments, prog_name="perdure", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            return BROKEN_PIPE  # Typer has caught the error first
        return end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - the last to catch: every error is printed, none is raised
        return print_failure(error, as_json=as_json)
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


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

INTERRUPTED = 130
BROKEN_PIPE = 141


def print_failure(error: BaseException, *, as_json: bool, stream: TextIO | None = None) -> int:
    """Print an error to standard error, or to `stream`, and return the exit code of the command.

    With `as_json` it is one JSON object, else lines. With PERDURE_DEBUG=1 the traceback follows. Nothing is printed for
    Ctrl-C (exit code 130), a closed pipe (141), and a group that was called without a command. An error that nobody
    foresaw is also appended to the log of commands.
    """
    if isinstance(error, typer.TyperException) and not error.format_message():
        return BadInput.exit_code  # a group without a command: its help has been shown
    shown = _presentable_error(error)
    if shown is None:
        return INTERRUPTED if isinstance(error, KeyboardInterrupt | typer.Abort) else BROKEN_PIPE
    stream = stream or sys.stderr
    if as_json:
        body = {"error": shown.what, "where": shown.where, "fix": shown.fix, "exit_code": shown.exit_code}
        print(screen.as_json(body, stream), file=stream)
    else:
        print("\n".join(failure_lines(shown)), file=stream)
    if os.environ.get("PERDURE_DEBUG") == "1":
        traceback.print_exception(error, file=stream)
    return shown.exit_code


def failure_lines(error: PerdureError) -> list[str]:
    """Return the lines `error: …`, `where: …` and `fix: …`; where and fix are left out where they are empty."""
    lines = [f"error: {error.what}"]
    lines += [f"  where: {error.where}"] if error.where else []
    lines += [f"  fix: {error.fix}"] if error.fix else []
    return lines


def _presentable_error(error: BaseException) -> PerdureError | None:
    """Convert an error to one that a person can read; None when there is nothing to print (Ctrl-C, a closed pipe).

    A mistake on the command line becomes BadInput. An error that nobody foresaw is appended with its traceback to the
    log of commands, which the returned error names.
    """
    if isinstance(error, NoWorker):
        from perdure.local.connect import adapt_no_worker_error

        return adapt_no_worker_error(error)
    if isinstance(error, PerdureError):
        return error
    if isinstance(error, typer.TyperException):
        return _usage_error(error)
    if isinstance(error, KeyboardInterrupt | typer.Abort | BrokenPipeError):
        return None
    return _explain_unexpected(error)


def _usage_error(error: typer.TyperException) -> BadInput:
    """Convert an error of Typer (unknown option, missing argument) to BadInput, with a pointer to the command's
    `--help`."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "perdure"
    message = error.format_message().strip().rstrip(".")
    fix = f"see {command} --help"
    if context is not None and "unexpected extra argument" in message:
        fix = _suggest_quotes(context) or fix
    return BadInput(message[:1].lower() + message[1:], where=command, fix=fix)


def _suggest_quotes(context: Any) -> str:
    """Return advice to put the words in quotes, where the command's last argument is TEXT; else an empty string.

    Without quotes the shell makes several arguments of one text.
    """
    names = [
        str(param.metavar or param.name) for param in context.command.params if param.param_type_name == "argument"
    ]
    if names[-1:] != ["TEXT"]:
        return ""
    return f'put the words in quotes: {" ".join([context.command_path, *names[:-1]])} "…"'


def _explain_unexpected(error: BaseException) -> PerdureError:
    """Convert an exception that is no PerdureError: server unreachable, disk full, directory gone; else a defect.

    For a defect the traceback is appended to the home's log, and the error's fix names that file.
    """
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    is_unreachable = type(error).__name__ == "RPCError" and getattr(getattr(error, "status", None), "name", "") in (
        "UNAVAILABLE",
        "DEADLINE_EXCEEDED",
    )
    if is_unreachable:
        return TemporalUnreachable(
            "Temporal does not answer", where=str(error), fix="perdure doctor looks for the cause"
        )
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        where = str(error.filename or "standard output, or a file")
        return PerdureError(f"it cannot be written: {error.strerror}", where=where, fix="free some space")
    if isinstance(error, FileNotFoundError) and _is_directory_gone():
        return BadInput("the directory you are in is not there any more", fix="cd to one that is")
    log = _write_log(error)
    fix = f"the whole story is in {log}" if log else "PERDURE_DEBUG=1 shows the whole story"
    return PerdureError(f"this should not have happened: {what}", fix=fix)


def _is_directory_gone() -> bool:
    """Return whether the current directory has been removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _write_log(error: BaseException) -> Path | None:
    """Append the error's traceback to `cli.log` in the home and return its path; None where that cannot be done."""
    from perdure.adapters.system.home import Home

    try:
        path = Home.find().logs / "cli.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(" ".join(sys.argv[1:3]) + "\n" + "".join(traceback.format_exception(error)) + "\n")
    except (OSError, PerdureError):
        return None
    return path
