"""A first `perdure.toml`, written from what was detected."""

from __future__ import annotations

import json

from perdure.adapters.repository.detect import Detected
from perdure.models.config import TestCommand
from perdure.models.limits import DEFAULTS


def render(detected: Detected) -> str:
    """The text of a commented perdure.toml; it loads again to the same commands."""
    setup = "".join(f"    {_quoted(command)},\n" for command in detected.setup)
    commands = f"commands = [\n{setup}]" if setup else "commands = []"
    tests = "\n".join(_test(test) for test in detected.tests) or _NO_TESTS
    return f"""\
# How Perdure works on this repository. It is read from the base branch, so commit it.
version = 1

[setup]
# Run with network, once for each workspace, before any model is asked.
{commands}
# Ignored files to take from your checkout (local repositories only):
# copy = [".env.test"]
timeout = "10m"

# The verdict is the exit code; all commands run, the required ones decide.
{tests}
[limits]
# What one delivery may use; the host's own limits hold in any case.
test_fixes = {DEFAULTS.test_fixes}        # attempts to repair red tests, 0 to 10
review_fixes = {DEFAULTS.review_fixes}      # rounds of repairs after review, 0 to 10
time = "{DEFAULTS.time}"
budget_usd = {DEFAULTS.budget_usd:.2f}

# [delivery]
# phases = ["plan", "build", "test", "review", "ship"]
# on_failure = "none"     # "draft" opens a draft pull request for red tests or blockers, with the report
#
# [steps.implement]
# model = "…"             # another model for one step: classify, plan, implement, fix_tests, review, fix_review
"""


_NO_TESTS = """\
# No test command was found. Without one, pull requests are drafts that say so.
# [[test]]
# command = "…"
# directory = "…"         # where it runs, when not at the top
"""


def _test(test: TestCommand) -> str:
    directory = f"directory = {_quoted(test.directory)}\n" if test.directory else ""
    return f"""\
[[test]]
name = {_quoted(test.name)}
command = {_quoted(test.command)}
{directory}timeout = {_quoted(test.timeout)}
"""


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's is one, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
