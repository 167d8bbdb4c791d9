"""Say why a repository's tests are red before anything was changed, from what they printed and from one more run with
network: no test ran, a variable is missing, the sandbox has no network, or the commit itself is red. `perdure init`
prints it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perdure.adapters.checks.baseline import FAILING
from perdure.text import shorten

if TYPE_CHECKING:
    from perdure.models.checks.report import CommandResult

_NO_TEST = re.compile(
    r"not one test ran|no tests? (?:were collected|ran|found|files?)|no test (?:suite|file)s? found"
    r"|it reports no test|\bran 0 tests|collected 0 items|\bfound 0 tests?|NO TESTS RAN",
    re.IGNORECASE,
)
_NETWORK = re.compile(
    r"(?:Name or service not known|Temporary failure in name resolution|nodename nor servname"
    r"|getaddrinfo [A-Za-z]|\bENOTFOUND\b|\bEAI_AGAIN\b|\bENETUNREACH\b|Network is unreachable|No route to host"
    r"|Could not resolve host|no such host"
    r"|failed to lookup address|Failed to establish a new connection|dns error)"
)
_VARIABLES = (
    re.compile(r"environ[^\n]*\n(?:.*\n){0,12}?[^\n]*KeyError: '(\w+)'"),
    re.compile(r"(?:environment variables?:?|\bset the) [`'\"$]*([A-Z][A-Z0-9_]{2,})\b", re.IGNORECASE),
    re.compile(r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)[`'\"]?:? (?:environment variable )?(?:is |was |must be )?(?:not )?"
               r"(?:set|defined|required|missing|unset|undefined)\b"),
    re.compile(r"\b([A-Z]\w+): (?:unbound variable|parameter not set)"),
)  # fmt: skip
"""Words by which runtimes, frameworks and people name a variable that is missing."""


_CASES_READ, _LINES_READ, _LINE_CHARS = 50, 500, 300
"""Of what is read of a result: failing cases, the last lines of all together, and characters of one."""


def find_missing_variable(output: str) -> str:
    """Return the name of an environment variable that the output says is missing; empty where it names none."""
    for pattern in _VARIABLES:
        for match in pattern.finditer(output):
            if match[1].isupper():
                return str(match[1])
    return ""


def explain_red(result: CommandResult, passes: bool, needs_network: bool) -> str:
    """Return one sentence about why a command is red.

    passes         it passed when it was run once more, with network, in the directory where setup ran
    needs_network  and failed there without network
    """
    cases = [case for case in result.cases if case.outcome in FAILING]
    texts = [*(case.message for case in cases[:_CASES_READ]), result.tail, result.reason]
    lines = [line[:_LINE_CHARS] for text in texts for line in text.splitlines()][-_LINES_READ:]
    output = "\n".join(lines)
    if not result.cases and _NO_TEST.search(output):
        return "no test ran: name the files or the directory of tests in its command"
    if "LeakSanitizer" in output and "ptrace" in output:
        return "LeakSanitizer traces the processes that it looks at: write trace = true under [[test]]"
    if not passes and (name := find_missing_variable(output)):
        return f'{name} is not set: write "{name}=… {result.command}", or take a file along by [setup] copy'
    asked = [line for line in lines if _NETWORK.search(line)]
    line = f" ({shorten(asked[-1].strip(), 100)})" if asked else ""
    if needs_network:
        return f"tests have no network, and with network they pass{line}: let [setup] fetch what they need"
    if passes:
        return (
            "it passes where setup ran: it needs files that setup or an earlier run leaves there, or was red by chance"
        )
    if asked:
        return f"tests have no network{line}; with network they are red too"
    return "it is red where setup ran, with network, too: HEAD itself is red"
