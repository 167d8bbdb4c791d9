"""Maven and Gradle; canaries in each Java test class: first, last, at the end of each test of it (JUnit 4, 5)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from perdure.adapters.checks.runners.base import Canaries, Invocation, ReportedCommand, Runner, group_and_method
from perdure.models.report import TestCase

_CODE = re.compile(
    r"""//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|\"{3}[\s\S]*?(?:\"{3}|\Z)|"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?|[{}]"""
)
"""Braces, and what may hide one; what has no end goes to the end of its line or of the text, read once in any case."""
_CLASS = re.compile(
    r"^(?:public\s{1,20}|final\s{1,20}|abstract\s{1,20}){0,3}class\s{1,20}\w[^{;]{0,500}\{", re.MULTILINE
)
_TEST = re.compile(
    r"@(?:org\.junit\.(?:jupiter\.api\.)?)?(?:Test|ParameterizedTest|RepeatedTest)\b[^{;]{0,1000}?"
    r"\bvoid\s{1,20}(\w+)\s{0,20}\([^{;()]{0,500}\)[^{;]{0,200}\{"
)
_FAIL = 'throw new AssertionError("x");'


def planted(files: Mapping[str, str], token: str) -> Canaries:
    planting, names, bodies = dict[str, str](), dict[str, str](), set[str]()
    for number, (path, text) in enumerate(sorted(files.items())):
        kind = re.search(r"import\s{1,20}(?:static\s{1,20})?org\.junit\.(jupiter\.api\.)?", text)
        ends = dict(_blocks(text))
        head = next((found for found in _CLASS.finditer(text) if found.end() in ends), None)
        if not path.endswith(".java") or kind is None or head is None:
            continue
        into = dict[int, str]()
        for found in _TEST.finditer(text):
            if found.end() in ends:
                into |= {found.end(): " try {", ends[found.end()]: f"}} finally {{ if (true) {_FAIL} }} "}
                bodies.add(found[1])
        test = f"@org.junit.{kind[1] or ''}Test public void"
        first, last = f"a0{token}{number}", f"zz{token}{number}"
        into[head.end()] = f" {test} {first}() {{ {_FAIL} }}"
        into[ends[head.end()]] = f" {test} {last}() {{ {_FAIL} }} "
        places = [0, *sorted(into), len(text)]
        planting[path] = "".join(into.get(at, "") + text[at:behind] for at, behind in itertools.pairwise(places))
        names |= {first: path, last: path}
    return Canaries(planting, names, frozenset(bodies))


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """The place behind each opening brace, and that of its closing one; strings and comments left out."""
    begun = list[int]()
    for found in _CODE.finditer(text):
        if found[0] == "{":
            begun.append(found.end())
        elif found[0] == "}" and begun:
            yield begun.pop(), found.start()


def source(classname: str, root: Path) -> str:
    """The file of a test class, where one module alone has it; empty where that is not so."""
    if re.fullmatch(r"[\w.$]{1,300}", classname) is None:
        return ""
    name = classname.partition("$")[0].replace(".", "/")
    below = [f"{module}src/test/{kind}" for module in ("", "*/") for kind in (f"java/{name}.java", f"kotlin/{name}.kt")]
    found = [file for path in below for file in root.glob(path)]
    return str(found[0].relative_to(root)) if len(found) == 1 else ""


_TESTS = {"test", "package", "verify", "install", "integration-test", "surefire:test"}


class _Jvm(Runner):
    tests = r"(?:.*/)?src/(test|\w+Test)/.*"

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        return planted(files, token)

    def place(self, classname: str, root: Path) -> str:
        return source(classname, root)


class Maven(_Jvm):
    name = "maven"
    shared = frozenset({"pom.xml"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program in ("mvn", "mvnw") and not _TESTS.isdisjoint(rest)

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        if asked.passes is None:
            return None
        line, left = f"{asked.command} --fail-at-end", ("target/surefire-reports", "target/failsafe-reports")
        return Invocation(line, self.name, {}, None, left, more=asked.passes, extended=True)

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        group, method = group_and_method(case)
        return "-Dsurefire.failIfNoSpecifiedTests=false", f"-Dtest={group}#{method}"


class Gradle(_Jvm):
    name = "gradle"
    shared = frozenset(
        {"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.properties"}
    )

    def runs(self, program: str, rest: list[str]) -> bool:
        tasks = (re.fullmatch(r"(.*:)?(\w*[tT]est|check|build)", word) for word in rest)
        return program in ("gradle", "gradlew") and any(tasks)

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        if asked.passes is None:
            return None
        line = f"{asked.command} --continue"
        return Invocation(line, self.name, {}, None, ("build/test-results/*",), more=asked.passes, extended=True)

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        group, method = group_and_method(case)
        return "--tests", f"{group}.{method}"
