"""go test: it has no report of its own; gotestsum runs it and writes one, where it is on the sandbox's PATH."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from perdure.adapters.project.runners import failing
from perdure.adapters.project.runners.base import Asked, Canaries, Invocation, Runner, last_part
from perdure.models.report import TestCase


class Go(Runner):
    name = "go"
    early = r"\s(-{1,2}failfast|--max-fails)(?=[\s=]|$)"

    tests = r".*_test\.go"
    roots = frozenset({"testdata"})
    settings = r"gotestsum\.ya?ml"
    shared = frozenset({"go.mod", "go.sum", "go.work", "Makefile"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "gotestsum" or (program == "go" and rest[:1] == ["test"])

    def reporting(self, asked: Asked) -> Invocation | None:
        return self._gotestsum(asked) if "gotestsum" in asked.command else self._go_test(asked)

    def _gotestsum(self, asked: Asked) -> Invocation | None:
        if "--junitfile" in asked.command:
            return None
        wanted = f"gotestsum --junitfile={asked.quoted}"
        line = re.sub(r"(?<![\w./-])gotestsum(?=\s|$)", lambda _: wanted, asked.command, count=1)
        if line == asked.command:
            return None
        return Invocation(line, self.name, {}, asked.file, more=asked.passes if " -- " in asked.command else None)

    def _go_test(self, asked: Asked) -> Invocation | None:
        parts = re.split(r"(?<![\w./-])go\s+test(?=\s|$)", asked.command)
        if len(parts) != 2 or re.search(r"\s-(c|json)\b", parts[1]):
            return None
        rest = parts[1] if parts[1].strip() else " ."  # alone, gotestsum would take ./...
        with_it = f"{parts[0]}gotestsum --format=standard-verbose --junitfile={asked.quoted} --{rest}"
        line = f"if command -v gotestsum >/dev/null 2>&1; then {with_it}\nelse {asked.command}\nfi"
        return Invocation(line, self.name, {}, asked.file, owed=False, more=asked.passes)

    def counting(self, asked: Asked) -> Invocation | None:
        """The events of `go test -json`, which Go's own process writes, not the tested one."""
        if "gotestsum" in asked.command:
            return self._gotestsum(asked)
        line, changed = re.subn(r"(?<![\w./-])go\s+test(?=\s|$)", "go test -json", asked.command)
        if changed != 1 or asked.passes is None or re.search(r"\s-(c|json)\b", asked.command):
            return None
        file = asked.file.with_suffix(".jsonl")
        return Invocation(f"{line} > {shlex.quote(str(file))}", self.name, {}, file, events=True)

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
        bodies = frozenset[str]()
        for path, text in files.items():
            changed, own = failing.go(text) if path.endswith("_test.go") else (text, frozenset[str]())
            bodies |= own
            planting |= {path: changed} if own else {}
        return Canaries(planting, names, bodies)

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        return "-run", "/".join(f"^{re.escape(part)}$" for part in last_part(case).split("/"))

    def alone(self, call: Invocation, command: str, case: TestCase, env: Mapping[str, str]) -> Invocation | None:
        if call.owed or call.more is None:
            return super().alone(call, command, case, env)
        # two commands in one script: the arguments belong into the first
        selected = shlex.join(self.arguments(case))
        return replace(call, script=call.script.replace("\nelse ", f" {selected}\nelse ", 1))
