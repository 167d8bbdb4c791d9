"""go test: it is asked for its events, which Go's own process writes, not the tested one; gotestsum for its report."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.adapters.checks.runners import blind, failing
from perdure.adapters.checks.runners.base import Canaries, Invocation, ReportedCommand, Runner, last_part
from perdure.models.report import TestCase


class Go(Runner):
    name = "go"
    early = r"\s(-{1,2}failfast|--max-fails)(?=[\s=]|$)"

    tests = r".*_test\.go"
    looking = r"runtime\.(Caller|Stack|FuncForPC)|debug\.(Stack|PrintStack)|\"testing\"|pprof"
    roots = frozenset({"testdata"})
    settings = r"gotestsum\.ya?ml"
    shared = frozenset({"go.mod", "go.sum", "go.work", "Makefile"})
    cache = "GOCACHE"
    believed = "testexpire.txt"

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "gotestsum" or (program == "go" and rest[:1] == ["test"])

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        return self._gotestsum(asked) if "gotestsum" in asked.command else self._go_test(asked)

    def _gotestsum(self, asked: ReportedCommand) -> Invocation | None:
        if "--junitfile" in asked.command:
            return None
        wanted = f"gotestsum --junitfile={asked.quoted}"
        line = re.sub(r"(?<![\w./-])gotestsum(?=\s|$)", lambda _: wanted, asked.command, count=1)
        if line == asked.command:
            return None
        more = asked.passes if " -- " in asked.command else None
        return Invocation(line, self.name, {}, asked.file, more=more, written="once")

    def _go_test(self, asked: ReportedCommand) -> Invocation | None:
        """By the same names whether gotestsum is on the PATH or not."""
        if ">" in asked.command or re.search(r"\s-(c|json)\b", asked.command):
            return None
        file = asked.file.with_suffix(".jsonl")
        line, changed = _GO_TEST.subn(lambda _: f"> {shlex.quote(str(file))} go test -json", asked.command)
        return Invocation(line, self.name, {}, file, events="go", written="through") if changed == 1 else None

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Files of their own, for a package is what is run: by its name the one is compiled first, the other last."""
        planting, names, packages = dict[str, str](), dict[str, str](), dict[tuple[str, str], str]()
        for path, text in sorted(files.items()):
            clause = re.search(r"^package\s+(\w+)", text, re.MULTILINE)
            if path.endswith("_test.go") and clause is not None:
                packages.setdefault((path.rpartition("/")[0], clause[1]), path)
        for number, ((directory, package), beside) in enumerate(packages.items()):
            for name, file in (
                (f"TestA{token}{number}x", f"a0{token}{number}"),
                (f"TestZ{token}{number}x", f"zz{token}{number}"),
            ):
                place = f"{directory}/{file}_test.go".lstrip("/")
                planting[place] = (
                    f'package {package}\n\nimport "testing"\n\nfunc {name}(t *testing.T) {{\n\tt.Error("x")\n}}\n'
                )
                names[name] = beside
        bodies, ends = frozenset[str](), dict[str, str]()
        for path, text in files.items():
            changed, own = failing.go(text, ends) if path.endswith("_test.go") else (text, frozenset[str]())
            bodies |= own
            planting |= {path: changed} if own else {}
        return Canaries(planting, names, bodies, ends={f"::{name}": words for name, words in ends.items()})

    def is_blind(self, path: str, before: str, after: str, own: frozenset[str]) -> bool:
        return blind.go(path, before, after)

    def minds(self, path: str, text: str) -> bool:
        return path.endswith(".go") and ".Failed(" in text

    def said(self, message: str) -> str:
        found = _SAID.fullmatch(message)
        return found[1] if found else message

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        return "-run", "/".join(f"^{re.escape(part)}$" for part in last_part(case).split("/"))

    def alone(self, call: Invocation, command: str, case: TestCase, env: Mapping[str, str]) -> Invocation | None:
        if not call.events:
            return super().alone(call, command, case, env)
        narrowed = _narrowed(call.script.replace("go test -json", "go test", 1), case, self.arguments(case))
        return replace(call, script=narrowed.replace("go test", "go test -json", 1)) if narrowed else None

    def reproduction(self, call: Invocation, command: str, case: TestCase) -> str:
        return (
            _narrowed(command, case, self.arguments(case)) if call.events else super().reproduction(call, command, case)
        )


_SAID = re.compile(r"(?:=== \w+ +\S+\n)*    \S+\.go:\d+: (.*)\n--- FAIL: \S+ \(\S+\)\n?")
"""All that is told of a test that says one line, as it fails."""

_GO_TEST = re.compile(r"(?<![\w./-])go\s+test(?=\s|$)")


def _narrowed(command: str, case: TestCase, arguments: Sequence[str]) -> str:
    """In front of packages: behind `-args` they would be the tests' own. Empty for what is no test, and where the
    command selects by name itself."""
    if "::" not in case.name or re.search(r"\s-{1,2}(test\.)?run\b", command):
        return ""
    return _GO_TEST.sub(lambda _: f"go test {shlex.join(arguments)}", command, count=1)
