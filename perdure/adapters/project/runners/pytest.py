"""pytest: asked through its variable, and by its own cache for one test alone."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from perdure.adapters.project.runners.base import Asked, Invocation, Runner, added
from perdure.models.report import TestCase


class Pytest(Runner):
    name = "pytest"
    early = r"\s(-[a-zA-Z]*x[a-zA-Z]*|--exitfirst|--maxfail)(?=[\s=]|$)"

    def runs(self, program: str, rest: list[str]) -> bool:
        return program in ("pytest", "py.test")

    def reporting(self, asked: Asked) -> Invocation | None:
        if re.search(r"--junit-?xml|no:junitxml", asked.command):
            return None
        options = f"--junit-xml={asked.quoted} -o junit_family=xunit1 --continue-on-collection-errors"
        if "no:cacheprovider" not in asked.command:
            # Not `-p no:cacheprovider`: suites that use the cache fixture, --lf or --strict-config would break.
            options += f" -o cache_dir={shlex.quote(str(asked.file.parent / 'cache'))}"
        return Invocation(asked.command, self.name, asked.added("PYTEST_ADDOPTS", options), asked.file)

    def alone(self, call: Invocation, command: str, case: TestCase, env: Mapping[str, str]) -> Invocation | None:
        if not call.report or "::" not in case.name or "no:cacheprovider" in command:
            return None
        # As if this test alone had failed last: the only selection that narrows the paths a command names itself.
        failed = call.report.parent / "cache" / "v" / "cache" / "lastfailed"
        options = added({**env, **call.env}, "PYTEST_ADDOPTS", "--last-failed --last-failed-no-failures=none")
        return replace(call, env={**call.env, "PYTEST_ADDOPTS": options}, files={failed: json.dumps({case.name: True})})

    def reproduction(self, call: Invocation, command: str, case: TestCase) -> str:
        found = re.match(r"(?s).*?(?:^|[\s/])(?:pytest|py\.test)(?=\s|$)", command)
        return f"{found[0]} {shlex.quote(case.name)}" if found and "::" in case.name else ""
