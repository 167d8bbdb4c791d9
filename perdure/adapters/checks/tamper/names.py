"""The tests in one file, by name: where each stands, what it does in a normal form, and what skips it."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perdure.adapters.checks.tamper.sources import Source, normal, read
from perdure.models.ids import digest
from perdure.models.limits import TAMPER_FILE_BYTES, TAMPER_TESTS_MOST

_HEAD_CHARS = 2000
_CHARS_MOST = 8 * TAMPER_FILE_BYTES
"""Of all tests of a file together, those inside others counted again: what is nested deeper is not read."""

_MARKS_MOST, _GROUPS_MOST = 20, 50
"""Lines of attributes in front of a test; groups of tests around it that are switched off."""


@dataclass(frozen=True)
class Test:
    """One test as its source has it.

    leaf   its own name, without what it stands in
    body   equal for two that do the same, whatever they are called
    skips  what keeps it from running, or makes its failure count as expected
    """

    __test__ = False

    file: str
    leaf: str
    line: int
    text: str
    body: str
    skips: tuple[str, ...] = ()


@dataclass(frozen=True)
class Language:
    """Patterns.

    begins  where a test begins: its head, or an attribute in front of it
    name    in what stands between there and its opening brace, what it is called: the last match
    off     what keeps it from running
    """

    begins: str
    name: str
    off: str


_JVM = Language(
    begins=r"@(?:Test|ParameterizedTest|RepeatedTest|TestFactory|Property|org\.junit\.Test)\b",
    name=r"(?<![@.\w])(\w{1,200})\s?\(|`([^`\n]{1,200})`\s?\(",
    off=r"@(?:Disabled|Ignore|Enabled(?:If|On))\w*|\bassum(?:e|ption)\w*\s?[.(]|enabled\s?=\s?false|expected\s?=",
)
LANGUAGES = {
    "go": Language(
        begins=r"(?m)^func\s(?:\([^)\n]{0,80}\)\s)?(?=(?:Test|Fuzz|Example)\w{0,200}\()",
        name=r"^(\w{1,200})",
        off=r"\b\w{1,20}\.Skip(?:Now|f)?\s?\(|testing\.Short\s?\(",
    ),
    "rs": Language(
        begins=r"#\[(?:\w{1,40}::)?(?:test|rstest|test_case|quickcheck|proptest)\b",
        name=r"\bfn\s(\w{1,200})",
        off=r"#\[(?:ignore|should_panic|cfg)\b[^\]\n]{0,200}\]",
    ),
    "cs": Language(
        begins=r"\[(?:Fact|Theory|Test|TestMethod|TestCase)\b",
        name=r"(?<![\[,.\w])(\w{1,200})\s?\(",
        off=r"\[(?:Ignore|Explicit)\b[^\]\n]{0,200}\]|Skip\s?=|Assert\.(?:Ignore|Inconclusive)",
    ),
    "php": Language(
        begins=r"\bfunction\s(?=test\w)", name=r"^(\w{1,200})", off=r"markTest(?:Skipped|Incomplete)|@group\s+skip"
    ),
    **dict.fromkeys(("java", "kt", "groovy", "scala"), _JVM),
}
_OFF_FILE = re.compile(r"(?m)^(?://go:build|// \+build)\s.{0,200}|^#!\[cfg.{0,200}")
_OFF_CLASS = re.compile(r"(?m)^@(?:Disabled|Ignore)\b.{0,200}")
_OFF_PY = re.compile(
    r"\b(?:skip|skipif|skipIf|skipUnless|skipTest|SkipTest|xfail|importorskip|expectedFailure)\b(?=\s?[(\n]|$)"
)
_OFF_JS = re.compile(
    r"\b(?:t|ctx|this|test|it|describe|context)\.(?:skip|todo|failing|fails|fixme)\b|(?<![\w.])pending\("
)
_CALL = re.compile(
    r"(?<![\w$.])(describe|context|suite|test|it|specify|xit|xtest|xdescribe)"
    r"((?:\.\w{1,40}){0,3})\(\s{0,40}(['\"`])"
)
CHECKS = re.compile(
    r"\bassert|\bexpect|\bshould\b|\.(Error|Fatal|Fail)\w{0,10}\(|\bpanic!?\(|raises\(|\bverify\w{0,20}\("
    r"|throw new \w{0,40}Assert|\[\s[^\]]{1,200}\s\]\s?\|\||\bexit 1\b"
)
"""Words that assert, in any language, in one line of a test."""

_GROUPS = {"describe", "context", "suite", "xdescribe"}
_DEF = re.compile(r"([ \t]{0,200})(?:async )?(def|class) (\w{1,200})")


def tests(path: str, text: str) -> list[Test]:
    """In its order; none in a language nobody here reads."""
    ending = path.rpartition(".")[2]
    found = _reader(ending)
    if found is None:
        return []
    made, read_so_far = list[Test](), 0
    for test in found(path, read(text, ending)):
        made.append(test)
        read_so_far += len(test.text)
        if read_so_far > _CHARS_MOST:
            break
    seen = Counter[str]()
    for number, test in enumerate(made):
        seen[test.leaf] += 1
        if seen[test.leaf] > 1:  # of several with one name the first may stay and the second go
            made[number] = Test(path, f"{test.leaf} ({seen[test.leaf]})", test.line, test.text, test.body, test.skips)
    return made


def examples(path: str, text: str) -> list[Test]:
    """Doctests of a Python file: the examples below each definition."""
    found: dict[str, list[tuple[int, str]]] = {}
    name = "the module"
    for number, line in enumerate(text.splitlines(), start=1):
        begun = _DEF.match(line)
        name = begun[3] if begun else name
        if line.lstrip().startswith((">>> ", "... ")):
            found.setdefault(name, []).append((number, line.strip()))
    return [
        Test(path, f"doctest of {name}", lines[0][0], body, digest(body)[:20], tuple(_skips(r"\+SKIP\b", body)))
        for name, lines in found.items()
        for body in ["\n".join(line for _, line in lines)]
    ]


def _reader(ending: str) -> Callable[[str, Source], Iterator[Test]] | None:
    if ending == "py":
        return _python
    if re.fullmatch(r"[cm]?[jt]sx?", ending):
        return _script
    return _braces if ending in LANGUAGES else None


def _braces(path: str, source: Source) -> Iterator[Test]:
    language = LANGUAGES[path.rpartition(".")[2]]
    everywhere = [*_skips(_OFF_FILE, source.text), *_skips(_OFF_CLASS, source.text)]
    opened = set[int]()
    for match in itertools.islice(re.finditer(language.begins, source.bare), TAMPER_TESTS_MOST):
        opening = source.bare.find("{", match.end(), match.end() + _HEAD_CHARS)
        names = re.findall(language.name, source.bare[match.end() : max(opening, 0)])
        if opening in opened or not names:
            continue
        opened.add(opening)
        name = next(part for part in ([names[-1]] if isinstance(names[-1], str) else names[-1]) if part)
        start, last = _marks_begin(source.text, match.start()), source.block(opening)
        body = normal(source.plain[opening:last])
        off = (*everywhere, *_skips(language.off, source.plain[start:last]))
        yield Test(path, name, source.line(opening), source.text[start:last].strip(), digest(body)[:20], off)


def _marks_begin(text: str, at: int) -> int:
    """The place the attributes in front of a test begin at: lines above it that are nothing else."""
    start = text.rfind("\n", 0, at) + 1
    for _ in range(_MARKS_MOST):
        if start == 0:
            break
        above = text.rfind("\n", 0, start - 1) + 1
        if not re.match(r"\s{0,100}(@\w|#\[|\[\w)", text[above : min(start, above + 100)]):
            break
        start = above
    return start


def _script(path: str, source: Source) -> Iterator[Test]:
    off = list[tuple[int, str]]()
    for match in itertools.islice(_CALL.finditer(source.bare), TAMPER_TESTS_MOST):
        quote = match.end() - 1
        last = source.block(source.bare.index("(", match.start()))
        name = source.text[quote + 1 : source.bare.find(match[3], quote + 1)][:200]
        mine = [*_skips(_OFF_JS, match[1] + match[2]), *([match[1]] if match[1][0] == "x" else [])]
        off = [(end, why) for end, why in off if end > match.start()]
        if match[1] in _GROUPS:
            off = [*off, *((last, why) for why in mine)][-_GROUPS_MOST:]
            continue
        inner = source.plain[max(quote, source.plain.find(",", quote, last)) : last]
        mine += [
            *(why for _, why in off),
            *_skips(_OFF_JS, inner),
            *_skips(r"[{,]\s?(?:skip|todo)\s?:\s?(?!false)", inner),
        ]
        text = source.text[match.start() : last]
        yield Test(path, name, source.line(match.start()), text, digest(normal(inner))[:20], tuple(mine))


def _python(path: str, source: Source) -> Iterator[Test]:
    bare, text = source.bare.split("\n"), source.text.split("\n")
    plain = source.plain.split("\n")
    everywhere = [
        line.strip()
        for line in bare
        if re.match(r"(pytestmark\b|pytest\.|\w+ = pytest\.)", line) and _OFF_PY.search(line)
    ]
    for name, first, at, last in _definitions(bare):
        if name.startswith("test"):
            head, body = "\n".join(plain[first:at]), "\n".join(plain[at + 1 : last])
            if not re.search(r"\bfixture\b", head):
                off = (*everywhere, *_skips(_OFF_PY, f"{head}\n{body}"))
                yield Test(path, name, at + 1, "\n".join(text[first:last]).strip(), digest(normal(body))[:20], off)


def _definitions(bare: list[str]) -> Iterator[tuple[str, int, int, int]]:
    """Functions outside of others: name, first line with decorators, its own, and the one behind it, counted from 0."""
    opened: list[tuple[int, str, str, int, int]] = []
    decorated = -1
    for number, line in enumerate([*bare, "end"]):
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        while opened and indent <= opened[-1][0] and line.lstrip()[0] not in ")]}":
            _, kind, name, first, at = opened.pop()
            if kind == "def" and not any(one[1] == "def" for one in opened):
                yield name, first, at, number
        if line.lstrip().startswith("@") and decorated < 0:
            decorated = number
        elif (found := _DEF.match(line)) is not None:
            opened.append((indent, found[2], found[3], decorated if decorated >= 0 else number, number))
            decorated = -1


def _skips(pattern: str | re.Pattern[str], text: str) -> list[str]:
    return [normal(found[0]) for found in re.finditer(pattern, text)]
