"""node:test: asked through NODE_OPTIONS; options only in front of file names."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from perdure.adapters.project.runners.base import Asked, Invocation, Runner, last_part
from perdure.adapters.project.runners.words import around, package_scripts, parts, script, unwrapped
from perdure.models.report import TestCase


class Node(Runner):
    name = "node"

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "node" and "--test" in rest

    def reporting(self, asked: Asked) -> Invocation | None:
        if "--test-reporter" in asked.command or " " in str(asked.file):
            return None
        options = (
            f"--test-reporter=junit --test-reporter-destination={asked.file} "
            "--test-reporter=spec --test-reporter-destination=stdout"
        )
        more = asked.passes if _takes_options(asked.command, asked.tree) else None
        return Invocation(asked.command, self.name, asked.added("NODE_OPTIONS", options), asked.file, more=more)

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        # node escapes what it writes twice, and not everything the same way in all releases
        plain = re.sub(r"[^A-Za-z0-9_]", ".", html.unescape(last_part(case)))
        return (f"--test-name-pattern=^{plain}$",)

    def alone(self, call: Invocation, command: str, case: TestCase, env: Mapping[str, str]) -> Invocation | None:
        if call.more is not None:
            return super().alone(call, command, case, env)
        return replace(call, script=narrowed) if (narrowed := self._narrowed(command, case)) else None

    def reproduction(self, call: Invocation, command: str, case: TestCase) -> str:
        if call.more is not None:
            return super().reproduction(call, command, case)
        return self._narrowed(command, case)

    def _narrowed(self, command: str, case: TestCase) -> str:
        """Node takes options only in front of file names, this one in no variable; empty where `--test` is not seen."""
        option = shlex.join(self.arguments(case))
        narrowed, changed = re.subn(r"(?<=\s)--test(?=\s|$)", lambda _: f"--test {option}", command)
        return narrowed if changed == 1 else ""


def _takes_options(command: str, tree: Path) -> bool:
    """Whether arguments that npm and the like append reach node as options: behind a file's name they would not."""
    words = unwrapped(parts(command)[-1])
    named = script(Path(words[0]).name, words[1:]) if words else ""
    inner = parts(package_scripts(tree).get(named, ""))
    return bool(inner) and all(word.startswith("-") for word in around(inner[-1], "--test")[2])
