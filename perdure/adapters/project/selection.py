"""One test out of many: how each runner is told to run it alone, by us and by a person."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from perdure.adapters.project.runners import Invocation, added
from perdure.models.report import TestCase


def alone(call: Invocation, command: str, case: TestCase, env: Mapping[str, str]) -> Invocation | None:
    """The same command, report and all, for one test only; None where its runner cannot select one by name.

    `call` is how `command` runs otherwise, with a results directory of its own. The command's own arguments stay as
    they are: a path given on top of theirs would run both.
    """
    if call.runner == "pytest" and call.report and "::" in case.name and "no:cacheprovider" not in command:
        # As if this test alone had failed last: the only selection that narrows the paths a command names itself.
        failed = call.report.parent / "cache" / "v" / "cache" / "lastfailed"
        options = added({**env, **call.env}, "PYTEST_ADDOPTS", "--last-failed --last-failed-no-failures=none")
        return replace(call, env={**call.env, "PYTEST_ADDOPTS": options}, files={failed: json.dumps({case.name: True})})
    if call.runner == "node" and call.more is None:
        return replace(call, script=narrowed) if (narrowed := _node(command, case)) else None
    selected = _arguments(call.runner, case)
    if not selected or call.more is None:
        return None
    if call.runner == "go" and not call.owed:  # two commands in one script: the arguments belong into the first
        return replace(call, script=call.script.replace("\nelse ", f" {selected}\nelse ", 1))
    return replace(call, script=f"{call.script}{'' if call.extended else call.more} {selected}")


def reproduction(call: Invocation, command: str, case: TestCase) -> str:
    """What a person types in the worktree to run one test; empty where the runner cannot select it."""
    if call.runner == "pytest":
        found = re.match(r"(?s).*?(?:^|[\s/])(?:pytest|py\.test)(?=\s|$)", command)
        return f"{found[0]} {shlex.quote(case.name)}" if found and "::" in case.name else ""
    if call.runner == "node" and call.more is None:
        return _node(command, case)
    selected = _arguments(call.runner, case)
    return f"{command}{call.more} {selected}" if selected and call.more is not None else ""


def _node(command: str, case: TestCase) -> str:
    """Node takes options only in front of file names, and this one in no variable; empty where `--test` is not seen."""
    option = _arguments("node", case)
    narrowed, changed = re.subn(r"(?<=\s)--test(?=\s|$)", lambda _: f"--test {option}", command)
    return narrowed if changed == 1 else ""


def _arguments(runner: str, case: TestCase) -> str:
    """What narrows a run when it is appended."""
    group, _, name = case.name.rpartition("::")
    method = re.split(r"[(\[{]", name)[0]  # of a parametrized test, all of its cases
    # node escapes what it writes twice, and not everything the same way in all releases
    plain = re.sub(r"[^A-Za-z0-9_]", ".", html.unescape(name))
    found = {
        "node": (f"--test-name-pattern=^{plain}$",),
        "jest": ("-t", f"(^| ){_escaped(name)}$"),
        "vitest": ("-t", f"(^| ){_escaped(name.replace(' > ', ' '))}$"),
        "go": ("-run", "/".join(f"^{re.escape(part)}$" for part in name.split("/"))),
        "nextest": ("-E", " | ".join(f"test(={end})" for end in _ends(case.name))),
        "maven": ("-Dsurefire.failIfNoSpecifiedTests=false", f"-Dtest={group}#{method}"),
        "gradle": ("--tests", f"{group}.{method}"),
    }.get(runner)
    return shlex.join(found) if found else ""


def _ends(name: str) -> list[str]:
    """`calc::tests::adds` → `tests::adds`, `adds`: nothing says where the binary's name ends and the test's begins."""
    parts = name.split("::")
    return ["::".join(parts[at:]) for at in range(min(1, len(parts) - 1), len(parts))]


def _escaped(name: str) -> str:
    """For a JavaScript regular expression."""
    return re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", name)
