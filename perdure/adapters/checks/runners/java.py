"""The runners Maven and Gradle, which leave their reports inside the tree; and canaries (tests that must fail) for
JUnit 4 and 5 in each Java test class: first, last, and at the end of each of its tests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from perdure.adapters.checks.runners.base import Canaries
from perdure.adapters.checks.runners.runner_table import TableRunner

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


def plant_java_canaries(files: Mapping[str, str], token: str) -> Canaries:
    """Return canaries for Java files that import JUnit and have a class: a failing test first and last in the class,
    its own tests made to fail.

    files  path → text; those that are no such file get none
    token  random letters, part of the new tests' names
    """
    planting, names, bodies = dict[str, str](), dict[str, str](), set[str]()
    for number, (path, text) in enumerate(sorted(files.items())):
        junit_import = re.search(r"import\s{1,20}(?:static\s{1,20})?org\.junit\.(jupiter\.api\.)?", text)
        closing_braces = dict(_brace_pairs(text))
        class_head = next((match for match in _CLASS.finditer(text) if match.end() in closing_braces), None)
        if not path.endswith(".java") or junit_import is None or class_head is None:
            continue
        insertions = dict[int, str]()
        for match in _TEST.finditer(text):
            if match.end() in closing_braces:
                insertions |= {
                    match.end(): " try {",
                    closing_braces[match.end()]: f"}} finally {{ if (true) {_FAIL} }} ",
                }
                bodies.add(match[1])
        test = f"@org.junit.{junit_import[1] or ''}Test public void"
        first, last = f"a0{token}{number}", f"zz{token}{number}"
        insertions[class_head.end()] = f" {test} {first}() {{ {_FAIL} }}"
        insertions[closing_braces[class_head.end()]] = f" {test} {last}() {{ {_FAIL} }} "
        offsets = [0, *sorted(insertions), len(text)]
        planting[path] = "".join(
            insertions.get(start, "") + text[start:end] for start, end in itertools.pairwise(offsets)
        )
        names |= {first: path, last: path}
    return Canaries(planting, names, frozenset(bodies))


def _brace_pairs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the offset behind each opening brace and that of its closing brace; braces in strings and comments do not
    count."""
    opened = list[int]()
    for match in _CODE.finditer(text):
        if match[0] == "{":
            opened.append(match.end())
        elif match[0] == "}" and opened:
            yield opened.pop(), match.start()


def find_class_source(classname: str, root: Path) -> str:
    """Find the Java or Kotlin file of a test class below `src/test/` of `root`, or of a directory one level below;
    return its path relative to `root`.

    Empty where no file or more than one has that class, or the name is not one of a class.
    """
    if re.fullmatch(r"[\w.$]{1,300}", classname) is None:
        return ""
    name = classname.partition("$")[0].replace(".", "/")
    patterns = [
        f"{module}src/test/{kind}" for module in ("", "*/") for kind in (f"java/{name}.java", f"kotlin/{name}.kt")
    ]
    files = [file for path in patterns for file in root.glob(path)]
    return str(files[0].relative_to(root)) if len(files) == 1 else ""


class Jvm(TableRunner):
    """The rules that Maven and Gradle share."""

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        return plant_java_canaries(files, token)

    def find_test_file(self, classname: str, root: Path) -> str:
        return find_class_source(classname, root)
