"""A first `perdure.toml`, rendered from the commands that were detected."""

from __future__ import annotations

import json

from perdure.adapters.repository.detect import DetectedCommands
from perdure.models.config import TestCommand
from perdure.models.limits import DEFAULTS


def render_config(detected: DetectedCommands) -> str:
    """Return the text of a commented perdure.toml with these commands; it loads again to the same ones."""
    setup = "".join(f"    {_toml_string(command)},\n" for command in detected.setup)
    commands = f"commands = [\n{setup}]" if setup else "commands = []"
    tests = "\n".join(_render_test(test) for test in detected.tests) or _NO_TESTS
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


def _render_test(test: TestCommand) -> str:
    """Return a test command as a `[[test]]` table."""
    directory = f"directory = {_toml_string(test.directory)}\n" if test.directory else ""
    return f"""\
[[test]]
name = {_toml_string(test.name)}
command = {_toml_string(test.command)}
{directory}timeout = {_toml_string(test.timeout)}
"""


def _toml_string(text: str) -> str:
    """Return a text as a TOML basic string; JSON's is one, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
