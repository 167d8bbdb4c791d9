"""Errors of commands, printed in three lines for a person or as one JSON object for a program."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

import typer

from perdure.cli import plain
from perdure.cli.host.workers import adapt_no_worker_error
from perdure.models.errors import BadInput, PerdureError, TemporalUnreachable

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

INTERRUPTED = 130
BROKEN_PIPE = 141


def print_failure(error: BaseException, *, as_json: bool, stream: TextIO | None = None) -> int:
    """Print an error to standard error, or to `stream`, and return the exit code of the command.

    With `as_json` it is one JSON object, else lines. With PERDURE_DEBUG=1 the traceback follows. Nothing is printed for
    Ctrl-C (exit code 130), a closed pipe (141), and a group that was called without a command.
    """
    if isinstance(error, typer.TyperException) and not error.format_message():
        return BadInput.exit_code  # a group without a command: its help has been shown
    shown = _presentable_error(error)
    if shown is None:
        return INTERRUPTED if isinstance(error, KeyboardInterrupt | typer.Abort) else BROKEN_PIPE
    stream = stream or sys.stderr
    if as_json:
        body = {"error": shown.what, "where": shown.where, "fix": shown.fix, "exit_code": shown.exit_code}
        print(plain.as_json(body, stream), file=stream)
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
    """Convert an error to one that a person can read; None when there is nothing to print (Ctrl-C, a closed pipe)."""
    if isinstance(error, PerdureError):
        return adapt_no_worker_error(error)
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
