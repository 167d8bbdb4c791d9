"""Every way a command can fail, in three lines for a person or as one object for a program."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

import typer

from perdure.cli import plain
from perdure.cli.host.workers import unanswered
from perdure.models.errors import BadInput, PerdureError, TemporalUnreachable

_FULL = (errno.ENOSPC, errno.EDQUOT)

INTERRUPTED = 130
BROKEN_PIPE = 141


def report(error: BaseException, *, as_json: bool, stream: TextIO | None = None) -> int:
    """Write what went wrong to standard error and return the exit code."""
    if isinstance(error, typer.TyperException) and not error.format_message():
        return BadInput.exit_code  # a group without a command: its help has been shown
    known = _known(error)
    if known is None:
        return INTERRUPTED if isinstance(error, KeyboardInterrupt | typer.Abort) else BROKEN_PIPE
    stream = stream or sys.stderr
    if as_json:
        body = {"error": known.what, "where": known.where, "fix": known.fix, "exit_code": known.exit_code}
        print(plain.as_json(body, stream), file=stream)
    else:
        print("\n".join(lines(known)), file=stream)
    if os.environ.get("PERDURE_DEBUG") == "1":
        traceback.print_exception(error, file=stream)
    return known.exit_code


def lines(error: PerdureError) -> list[str]:
    """`error: …`, `where: …`, `fix: …`; an empty one is left out."""
    told = [f"error: {error.what}"]
    told += [f"  where: {error.where}"] if error.where else []
    told += [f"  fix: {error.fix}"] if error.fix else []
    return told


def _known(error: BaseException) -> PerdureError | None:
    """The error as a person may read it; None when there is nothing to say (Ctrl-C, a closed pipe)."""
    if isinstance(error, PerdureError):
        return unanswered(error)
    if isinstance(error, typer.TyperException):
        return _usage(error)
    if isinstance(error, KeyboardInterrupt | typer.Abort | BrokenPipeError):
        return None
    return _unexpected(error)


def _usage(error: typer.TyperException) -> BadInput:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "perdure"
    message = error.format_message().strip().rstrip(".")
    fix = f"see {command} --help"
    if context is not None and "unexpected extra argument" in message:
        fix = _in_quotes(context) or fix
    return BadInput(message[:1].lower() + message[1:], where=command, fix=fix)


def _in_quotes(context: Any) -> str:
    """The command with its words in quotes, where it takes words: the shell made several arguments of them."""
    names = [str(one.metavar or one.name) for one in context.command.params if one.param_type_name == "argument"]
    if names[-1:] != ["TEXT"]:
        return ""
    return f'put the words in quotes: {" ".join([context.command_path, *names[:-1]])} "…"'


def _unexpected(error: BaseException) -> PerdureError:
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    unreachable = type(error).__name__ == "RPCError" and getattr(getattr(error, "status", None), "name", "") in (
        "UNAVAILABLE",
        "DEADLINE_EXCEEDED",
    )
    if unreachable:
        return TemporalUnreachable(
            "Temporal does not answer", where=str(error), fix="perdure doctor looks for the cause"
        )
    if isinstance(error, OSError) and error.errno in _FULL:
        where = str(error.filename or "standard output, or a file")
        return PerdureError(f"it cannot be written: {error.strerror}", where=where, fix="free some space")
    if isinstance(error, FileNotFoundError) and _nowhere():
        return BadInput("the directory you are in is not there any more", fix="cd to one that is")
    log = _log(error)
    fix = f"the whole story is in {log}" if log else "PERDURE_DEBUG=1 shows the whole story"
    return PerdureError(f"this should not have happened: {what}", fix=fix)


def _nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _log(error: BaseException) -> Path | None:
    """Append the traceback to the home's log; None where that cannot be done."""
    from perdure.adapters.system.home import Home

    try:
        path = Home.find().logs / "cli.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(" ".join(sys.argv[1:3]) + "\n" + "".join(traceback.format_exception(error)) + "\n")
    except (OSError, PerdureError):
        return None
    return path
