"""The runners for Go: `go test`, made to write its events, which come from Go's own process and not from the tested
one; gotestsum, made to write its JUnit report; and canaries (tests that must fail) in Go."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.adapters.checks.runners.base import Canaries, Invocation, ReportRequest, Runner, own_name
from perdure.models.checks.report import TestCase
from perdure.text import shell_word


class Go(Runner):
    """`go test` and gotestsum."""

    name = "go"
    early_stop = r"\s(-{1,2}failfast|--max-fails)(?=[\s=]|$)"

    tests = r".*_test\.go"
    roots = frozenset({"testdata"})
    settings = r"gotestsum\.ya?ml"
    shared = frozenset({"go.mod", "go.sum", "go.work", "Makefile"})
    cache_variable = "GOCACHE"
    expiry_file = "testexpire.txt"

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "gotestsum" or (program == "go" and rest[:1] == ["test"])

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how `go test` or gotestsum is run so that it writes its report; None where the command asks for one
        itself, redirects its output, or does not start the program in a way that can be rewritten."""
        return (
            self._gotestsum_with_report(request)
            if "gotestsum" in request.command
            else self._go_test_with_events(request)
        )

    def _gotestsum_with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how gotestsum is run with `--junitfile`; None where the command has that option, or does not start
        gotestsum by its bare name.

        One test can be selected by more arguments only where the command has a ` -- `, behind which Go's own stand.
        """
        if "--junitfile" in request.command:
            return None
        replacement = f"gotestsum --junitfile={request.quoted_file}"
        line = re.sub(r"(?<![\w./-])gotestsum(?=\s|$)", lambda _: replacement, request.command, count=1)
        if line == request.command:
            return None
        separator = request.separator if " -- " in request.command else None
        return Invocation(line, self.name, {}, request.file, separator=separator, writing="once")

    def _go_test_with_events(self, request: ReportRequest) -> Invocation | None:
        """Return how `go test` is run with `-json` and its events written to a file; tests have the same names as with
        gotestsum.

        None where its output is redirected already, it has `-c` or `-json`, or `go test` is not on the line exactly
        once.
        """
        if ">" in request.command or re.search(r"\s-(c|json)\b", request.command):
            return None
        file = request.file.with_suffix(".jsonl")
        line, changed = _GO_TEST.subn(lambda _: f"> {shell_word(str(file))} go test -json", request.command)
        return Invocation(line, self.name, {}, file, events="go", writing="through") if changed == 1 else None

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries for Go's test files: for each package two new files with a failing test each, and the given
        files with each of their tests made to fail. `token` is part of all new names.

        Canaries have files of their own, for a package is what is run: by its name one of them is compiled first, the
        other last. A file without a package clause gets none.
        """
        planting, names, packages = dict[str, str](), dict[str, str](), dict[tuple[str, str], str]()
        for path, text in sorted(files.items()):
            clause = re.search(r"^package\s+(\w+)", text, re.MULTILINE)
            if path.endswith("_test.go") and clause is not None:
                packages.setdefault((path.rpartition("/")[0], clause[1]), path)
        for number, ((directory, package), test_file) in enumerate(packages.items()):
            for name, file in (
                (f"TestA{token}{number}x", f"a0{token}{number}"),
                (f"TestZ{token}{number}x", f"zz{token}{number}"),
            ):
                place = f"{directory}/{file}_test.go".lstrip("/")
                planting[place] = (
                    f'package {package}\n\nimport "testing"\n\nfunc {name}(t *testing.T) {{\n\tt.Error("x")\n}}\n'
                )
                names[name] = test_file
        bodies = frozenset[str]()
        for path, text in files.items():
            changed, own = fail_go_tests(text) if path.endswith("_test.go") else (text, frozenset[str]())
            bodies |= own
            planting |= {path: changed} if own else {}
        return Canaries(planting, names, bodies)

    def selection_arguments(self, *cases: TestCase) -> tuple[str, ...]:
        """Return `-run` with a pattern of this test's name alone, subtests by their path; of several tests, one of
        their names with all subtests."""
        if len(cases) > 1:
            names = sorted({re.escape(own_name(case).partition("/")[0]) for case in cases})
            return "-run", f"^({'|'.join(names)})$"
        return "-run", "/".join(f"^{re.escape(part)}$" for part in own_name(cases[0]).split("/"))

    def narrow_to_tests(
        self, call: Invocation, command: str, cases: Sequence[TestCase], env: Mapping[str, str]
    ) -> Invocation | None:
        """Return the invocation for these tests: with `-run` in front of the packages where events are written, else as
        for any runner.

        None where a case is no test, or the command selects tests by name itself.
        """
        if not call.events:
            return super().narrow_to_tests(call, command, cases, env)
        narrowed = _narrow_command(
            call.script.replace("go test -json", "go test", 1), cases, self.selection_arguments(*cases)
        )
        return replace(call, script=narrowed.replace("go test", "go test -json", 1)) if narrowed else None

    def reproduction_command(self, call: Invocation, command: str, case: TestCase) -> str:
        """Return the command that a person types to run one test; empty where it cannot be selected, or the command
        selects tests by name itself."""
        return (
            _narrow_command(command, (case,), self.selection_arguments(case))
            if call.events
            else super().reproduction_command(call, command, case)
        )


def fail_go_tests(text: str) -> tuple[str, frozenset[str]]:
    """Make each test and fuzz test of a Go file fail when it ends, its subtests and seeds not, and each example by
    other output than it gives; return the new text and the names of these functions. A function whose parameter has no
    name is left as it is."""
    pattern = re.compile(r"^func ((?:Test|Fuzz)(?![a-z])\w*)\((?!_ )(\w+) \*testing\.[TF]\) \{", re.MULTILINE)
    example = re.compile(r"^func (Example\w*)\(\) \{$((?:\n(?!\}).*)*)", re.MULTILINE)
    output = re.compile(r"(?im)^(\s*//\s*(?:unordered )?output:)")
    examples = {match[1] for match in example.finditer(text) if output.search(match[2])}
    names = examples.union(match[1] for match in pattern.finditer(text))
    failing = pattern.sub(lambda match: f'{match[0]} defer {match[2]}.Error("x");', text)
    return example.sub(lambda match: output.sub(r"\1 x\n//", match[0]), failing), frozenset(names)


_GO_TEST = re.compile(r"(?<![\w./-])go\s+test(?=\s|$)")


def _narrow_command(command: str, cases: Sequence[TestCase], arguments: Sequence[str]) -> str:
    """Return a `go test` command with these arguments in front of its packages: behind `-args` they would be the tests'
    own.

    Empty where a case is no test, and where the command selects by name itself.
    """
    if not all("::" in case.name for case in cases) or re.search(r"\s-{1,2}(test\.)?run\b", command):
        return ""
    return _GO_TEST.sub(lambda _: f"go test {shlex.join(arguments)}", command, count=1)
