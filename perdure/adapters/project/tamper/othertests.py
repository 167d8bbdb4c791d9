"""The tests in Go, Rust, Java, Kotlin, C#, PHP and shell files: by how a test begins, is switched off, and asserts."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from perdure.adapters.project.tamper.braces import live, normal, read
from perdure.adapters.project.tamper.files import Files
from perdure.adapters.project.tamper.inventory import CHARS_MOST, Inventory, Odd, Test
from perdure.models.ids import digest
from perdure.models.report import Tampering


@dataclass(frozen=True)
class Language:
    """Patterns.

    begins  where a test begins: its head, or an attribute in front of it
    name    in what stands between there and its opening brace, what it is called: the last match
    off     what keeps it from running; checks: what asserts; exits: what ends the process in success
    """

    begins: str
    name: str
    off: str
    checks: str
    exits: str


_JVM = Language(
    begins=r"@(?:\w+\.)*(?:Test|ParameterizedTest|RepeatedTest|TestFactory|Property)\b",
    name=r"(?<!@)(?<![.\w])(\w+)\s*\(|`([^`\n]+)`\s*\(",
    off=r"@(?:\w+\.)*(?:Disabled|Ignore|Enabled(?:If|On))\w*|\bassum(?:e|ption)\w*\s*[.(]|enabled\s*=\s*false"
    r"|expected\s*=",
    checks=r"\b(?:assert|fail|verify|expect|check|andExpect|should)\w*\s*[({.]|\bshould\w*\b|\bassert\s",
    exits=r"System\.exit\s*\(\s*0\s*\)|exitProcess\s*\(\s*0\s*\)|Runtime\.getRuntime\(\)\.halt",
)
_GO = Language(
    begins=r"(?m)^func\s+(?:\([^)\n]{0,80}\)\s*)?(?=(?:Test|Fuzz|Example)\w*\s*\()",
    name=r"^(\w+)",
    off=r"\b\w+\.Skip(?:Now|f)?\s*\(|testing\.Short\s*\(",
    checks=r"\b(?:t|b|f|s|c|tb|is)\.(?:Error|Fatal|Fail)\w*\s*\(|\bpanic\s*\(|\.Require\("
    r"|\b(?:assert|require|qt|is|s|suite|Expect|gomega)\b[\w.()]{0,80}\s*\(",
    exits=r"os\.Exit\s*\(\s*0\s*\)|func\s+TestMain\s*\((?:(?!\n\}).)*\}",
)
_RUST = Language(
    begins=r"#\[(?:\w+::)*(?:test|rstest|test_case|quickcheck|proptest)\b",
    name=r"\bfn\s+(\w+)",
    off=r"#\[(?:ignore|should_panic|cfg)\b[^\]]*\]",
    checks=r"\b(?:debug_)?(?:assert\w*|panic|unreachable|prop_assert\w*)!\s*[(\[{]|\.(?:unwrap|expect)\w*\(|\?\s*;",
    exits=r"process::exit\s*\(\s*0\s*\)",
)
_CSHARP = Language(
    begins=r"\[(?:Fact|Theory|Test|TestMethod|TestCase)\b",
    name=r"(?<![\[,.\w])(\w+)\s*\(",
    off=r"\[(?:Ignore|Explicit)\b[^\]]*\]|Skip\s*=|Assert\.(?:Ignore|Inconclusive)",
    checks=r"\bAssert\w*\.|\.Should\w*\(|\bVerify\w*\(",
    exits=r"Environment\.Exit\s*\(\s*0\s*\)",
)
_PHP = Language(
    begins=r"\bfunction\s+(?=test\w)",
    name=r"^(\w+)",
    off=r"markTest(?:Skipped|Incomplete)|@group\s+skip",
    checks=r"(?:\$this->|self::|static::)(?:assert|expect|fail)\w*\s*\(|\bassert\s*\(|\bexpect\s*\(",
    exits=r"\bexit\s*(?:\(\s*0?\s*\))?\s*;|\bdie\s*;",
)
LANGUAGES = {
    "go": _GO,
    "rs": _RUST,
    "cs": _CSHARP,
    "php": _PHP,
    "java": _JVM,
    "kt": _JVM,
    "groovy": _JVM,
    "scala": _JVM,
}
_TESTS_MOST = 3000
_HEAD_CHARS = 2000
_FILE_OFF = re.compile(
    r"(?m)^(?://go:build|// \+build)\s.*|^#!\[cfg.*|^@(?:Disabled|Ignore)\b.{0,200}"
    r"(?=\n(?:.{0,200}\n){0,5}.{0,80}\bclass\b)"
)
_OUTPUT = re.compile(r"//\s*(?:Unordered output|Output):")
SHELL = ("sh", "bash", "bats", "zsh")
_FORGIVES = r"\b(throw|fail|assert\w*|panic)\b"
_SHELL_CHECK = re.compile(
    r"(?:^|\s)(?:\[\[?\s|test\s|exit\s+(?:[1-9]|\$)|return\s+(?:[1-9]|\$)|assert|fail\b|expect|diff\s|cmp\s|grep\s+-\w*q|false\b)"
)
_SHELL_MASK = re.compile(r"\|\|\s*(?:true|:|exit\s+0|return\s+0|echo\b|printf\b)|;\s*(?:true|:)\s*$")


def inventory(files: Files, path: str, ending: str) -> Inventory:
    """The tests of one file in a language of `LANGUAGES` or a shell's."""
    text = files.text(path)
    if text is None:
        return Inventory(broken="it cannot be read" if files.has(path) else "it is not there")
    return _shell(path, text) if ending in SHELL else _braces(path, text, LANGUAGES[ending])


def _braces(path: str, text: str, language: Language) -> Inventory:
    source = read(text, script=False)
    everywhere = [normal(found) for found in _FILE_OFF.findall(text)]
    tests, seen, opened, read_so_far = [], Counter[str](), set[int](), 0
    for match in itertools.islice(re.finditer(language.begins, source.bare), _TESTS_MOST):
        opening = source.bare.find("{", match.end(), match.end() + _HEAD_CHARS)
        names = re.findall(language.name, source.bare[match.end() : max(opening, 0)])
        if opening in opened or not names:
            continue
        opened.add(opening)
        name = next(part for part in ([names[-1]] if isinstance(names[-1], str) else names[-1]) if part)
        seen[name] += 1
        first, last = opening + 1, source.block(opening) - 1
        read_so_far += last - first
        if read_so_far > CHARS_MOST:
            return Inventory(broken="its tests are nested too deeply")
        alive = live(source, first, last, _FORGIVES)
        checks = _checks(alive, language.checks)
        if name.startswith("Example"):
            checks += _OUTPUT.findall(source.text, first, last)
        start = _marks_begin(source.text, match.start())
        off = re.findall(language.off, source.plain[start:last])
        tests.append(
            Test(
                file=path,
                name=name if seen[name] == 1 else f"{name} ({seen[name]})",
                leaf=name,
                line=source.line(opening),
                text=source.text[start : last + 1].strip(),
                bodies=(digest(normal(source.plain[first:last]))[:20],),
                checks=tuple(checks),
                skips=(*everywhere, *map(normal, off)),
                blank=not alive.strip(),
            )
        )
    return Inventory(tuple(tests), tuple(_exits(text, source.plain, language)))


def _marks_begin(text: str, at: int) -> int:
    """Where the attributes in front of a test begin: lines above it that are nothing else."""
    start = text.rfind("\n", 0, at) + 1
    while start > 0:
        above = text.rfind("\n", 0, start - 1) + 1
        if not re.match(r"\s*(@\w|#\[|\[\w)", text[above : min(start, above + 100)]):
            break
        start = above
    return start


def _checks(text: str, pattern: str) -> list[str]:
    """The lines that assert, without those that compare constants only."""
    found = []
    for match in re.finditer(pattern, text):
        stop = text.find("\n", match.end())
        check = normal(text[match.start() : stop if stop >= 0 else len(text)])
        bare = re.sub(r"\"[^\"]*\"|'[^']*'", "", check)
        inside = bare.partition("(")[2]
        names = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", inside)) - {
            "true",
            "false",
            "null",
            "nil",
            "t",
            "Some",
            "None",
        }
        if "(" not in bare or names or not re.match(r"[\w.!]*(?:assert|require|is|Assert|expect)", check):
            found.append(check)
    return found


def _exits(text: str, plain: str, language: Language) -> Iterator[Odd]:
    for match in re.compile(language.exits, re.DOTALL).finditer(plain):
        if "TestMain" in match[0] and ".Run(" in match[0] and "os.Exit(0)" not in match[0]:
            continue
        line = text.count("\n", 0, match.start()) + 1
        yield Odd(Tampering.COMMAND, normal(match[0])[:200], line, "the process can end before a test fails")


def _shell(path: str, text: str) -> Inventory:
    """Functions called test_…, the tests of bats, or the script itself as one test."""
    found = []
    stops = re.search(r"\bset\s+-\w*e|^#!.*-e", text) is not None  # at the first command that fails
    pattern = r"(?m)^[ \t]*(?:(?:function\s+)?(?P<name>test\w*)\s*\(\)\s*\{|@test\s+(?P<title>\"[^\"]*\"|'[^']*')\s*\{)"
    for match in re.finditer(pattern, text):
        end = text.find("\n}", match.end())
        body = text[match.end() : end if end >= 0 else len(text)]
        name = match["name"] or match["title"][1:-1]
        found.append(
            _script(
                *(path, name, text.count("\n", 0, match.start()) + 1, body),
                any_command=stops or match["title"] is not None,  # bats stops there by itself
            )
        )
    if found:
        return Inventory(tuple(found))
    return Inventory((_script(path, path.rpartition("/")[2], 1, text, any_command=stops),))


def _script(path: str, name: str, line: int, body: str, any_command: bool) -> Test:
    lines = [" ".join(part.split()) for part in re.sub(r"\\\n", " ", body).splitlines()]
    lines = [part for part in lines if part and not part.startswith("#")]
    checks = []
    for part in lines:
        if re.match(r"(?:exit|return)(?:\s+0)?\s*$", part):
            break
        if re.match(r"set\s+\+\w*e", part):
            any_command = False
        plain = not re.match(
            r"(?:set|export|echo|printf|cd|local|readonly|source|\.|fi|done|then|else|true|:|\w+=)(?:\s|$|\S*$)", part
        )
        if _SHELL_MASK.search(part):
            continue
        if _SHELL_CHECK.search(part):
            checks.append(part)
        elif any_command and plain:
            checks.append(f"if it cannot run: {part}")
    skips = [part for part in lines if re.match(r"(?:skip|bail)\b|exit\s+77\b", part)]
    blank = all(re.match(r"set\s|#|true$|:$|exit(?:\s+0)?$|echo\s", part) for part in lines)
    return Test(
        path, name, name, line, body.strip(), (digest("\n".join(lines))[:20],), tuple(checks), tuple(skips), (), blank
    )
