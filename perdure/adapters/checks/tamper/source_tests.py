"""Read the tests in one source file, by name: where each stands, its body in a normal form, and what skips it. For this
it blanks comments and strings of a program, in one pass and without a parser. Used by the other modules of
`checks.tamper`, by the findings about lost tests, and by `experiment.reduced_tests`."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from perdure.models.ids import digest
from perdure.models.limits import TAMPER_FILE_BYTES, TAMPER_TESTS_MOST

_BEGINS, _VISIBLE = re.compile("[\"'`/#]"), re.compile(r"[^\n]")
"""The characters a string or comment can begin with; those that are blanked in one."""

_REGEX_AFTER = re.compile(r"(?:^|[(,=:\[!&|?{};+\n]|=>|\breturn|\btypeof|\bcase)[ \t]{0,8}$")


@dataclass(frozen=True)
class BlankedSource:
    """The text of a program, whole and blanked; all three are of the same length.

    plain  without comments
    bare   without what stands in strings, too
    """

    text: str
    plain: str
    bare: str

    def line_number(self, position: int) -> int:
        """Return the number of the line at a position, from 1."""
        return self.text.count("\n", 0, position) + 1

    def block_end(self, position: int) -> int:
        """Return the position behind the bracket that closes the one at `position`; the end of the text where nothing
        does."""
        return self._bracket_ends.get(position, len(self.bare))

    @cached_property
    def _bracket_ends(self) -> dict[int, int]:
        """Return, for the position of each opening bracket, the position behind the one that closes it."""
        ends: dict[int, int] = {}
        openings: list[int] = []
        for match in re.finditer(r"[()\[\]{}]", self.bare):
            if match[0] in "([{":
                openings.append(match.start())
            elif openings:
                ends[openings.pop()] = match.end()
        return ends


def blank_source(text: str, ending: str) -> BlankedSource:
    """Return a program's text three times: whole, with its comments blanked, and with what stands in its strings
    blanked too; line ends and quotes are kept.

    ending  of the file's name: it says what a comment and a string are
    """
    python, script = ending == "py", re.fullmatch(r"[cm]?[jt]sx?", ending) is not None
    plain, bare = list(text), list(text)
    position, end = 0, len(text)

    def blank(first: int, last: int, *versions: list[str]) -> None:
        """Replace the characters from `first` to `last` by blanks in these versions of the text."""
        if first < last:
            spaces = _VISIBLE.sub(" ", text[first:last])
            for characters in versions:
                characters[first : first + len(spaces)] = spaces

    while position < end:
        character, pair = text[position], text[position : position + 2]
        if (character == "#" and (python or position == 0)) or (pair == "//" and not python):
            stop = _end_after(text, "\n", position) - 1
            blank(position, stop, plain, bare)
        elif pair == "/*" and not python:
            stop = _end_after(text, "*/", position + 2)
            blank(position, stop, plain, bare)
        elif character in "\"'`" and (python or script or character != "'" or _is_character(text, position)):
            stop = _string_end(text, position, python, script)
            blank(position + 1, stop - 1, bare)
        elif script and character == "/" and _REGEX_AFTER.search(text[max(0, position - 20) : position]):
            stop = _string_end(text, position, python, script)
        else:
            next_start = _BEGINS.search(text, position + 1)
            stop = next_start.start() if next_start else end
        position = max(stop, position + 1)
    return BlankedSource(text, "".join(plain), "".join(bare))


def _end_after(text: str, needle: str, start: int) -> int:
    """Return the position behind the next `needle`; the end of the text where there is none."""
    position = text.find(needle, start)
    return len(text) if position < 0 else position + len(needle)


def _is_character(text: str, position: int) -> bool:
    """Return whether a single quote begins a character, and not a lifetime (Rust)."""
    return re.match(r"'(\\.[^']{0,10}|[^'\\])'", text[position : position + 14]) is not None


def _string_end(text: str, start: int, python: bool, script: bool) -> int:
    """Return the position behind the string, template or regular expression that begins at `start`; what a template
    holds in `${…}` is not parsed.

    python, script  the language is Python; it is JavaScript or TypeScript

    One without an end reaches to the end of its line in these two languages, unless it is a template or has three
    quotes; else to the end of the text.
    """
    quote = text[start]
    if text.startswith(quote * 3, start) and not script and quote in "\"'":
        position = text.find(quote * 3, start + 3)
        while position > 0 and text[position - 1] == "\\" and python:
            position = text.find(quote * 3, position + 1)
        return len(text) if position < 0 else position + 3
    stops = re.compile(r"[\\\n]|" + re.escape(quote))
    position = start + 1
    while (match := stops.search(text, position)) is not None:
        if match[0] == quote:
            return match.end()
        if match[0] == "\n" and quote != "`" and (python or script):
            return match.start()
        position = match.end() + (match[0] == "\\")
    return len(text)


def normal_form(text: str) -> str:
    """Return a text without differences in white space that mean nothing."""
    return re.sub(r" ?([(){}\[\],;:.=<>+*/!&|-]) ?", r"\1", " ".join(text.split())).replace(",)", ")")


_HEAD_CHARS = 2000
_CHARS_MOST = 8 * TAMPER_FILE_BYTES
"""Characters of all tests of a file together, those inside others counted again: what is nested deeper is not read."""

_MARKS_MOST, _GROUPS_MOST = 20, 50
"""Lines of attributes in front of a test; groups of tests around it that are switched off."""


@dataclass(frozen=True)
class SourceTest:
    """A test as its source has it.

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
class LanguagePatterns:
    """The patterns by which tests of one language are read.

    begins  where a test begins: its head, or an attribute in front of it
    name    in what stands between there and its opening brace, what it is called: the last match
    off     what keeps it from running
    """

    begins: str
    name: str
    off: str


_JVM = LanguagePatterns(
    begins=r"@(?:Test|ParameterizedTest|RepeatedTest|TestFactory|Property|org\.junit\.Test)\b",
    name=r"(?<![@.\w])(\w{1,200})\s?\(|`([^`\n]{1,200})`\s?\(",
    off=r"@(?:Disabled|Ignore|Enabled(?:If|On))\w*|\bassum(?:e|ption)\w*\s?[.(]|enabled\s?=\s?false|expected\s?=",
)
LANGUAGES = {
    "go": LanguagePatterns(
        begins=r"(?m)^func\s(?:\([^)\n]{0,80}\)\s)?(?=(?:Test|Fuzz|Example)\w{0,200}\()",
        name=r"^(\w{1,200})",
        off=r"\b\w{1,20}\.Skip(?:Now|f)?\s?\(|testing\.Short\s?\(",
    ),
    "rs": LanguagePatterns(
        begins=r"#\[(?:\w{1,40}::)?(?:test|rstest|test_case|quickcheck|proptest)\b",
        name=r"\bfn\s(\w{1,200})",
        off=r"#\[(?:ignore|should_panic|cfg)\b[^\]\n]{0,200}\]",
    ),
    "cs": LanguagePatterns(
        begins=r"\[(?:Fact|Theory|Test|TestMethod|TestCase)\b",
        name=r"(?<![\[,.\w])(\w{1,200})\s?\(",
        off=r"\[(?:Ignore|Explicit)\b[^\]\n]{0,200}\]|Skip\s?=|Assert\.(?:Ignore|Inconclusive)",
    ),
    "php": LanguagePatterns(
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


def find_tests(path: str, text: str) -> list[SourceTest]:
    """Return the tests in a file, in their order; empty for a language that is not read here.

    Of several with one name, the second is called `name (2)`, and so on. Reading stops once the tests have more than
    _CHARS_MOST characters together.
    """
    ending = path.rpartition(".")[2]
    reader = _reader_for(ending)
    if reader is None:
        return []
    result, characters = list[SourceTest](), 0
    for test in reader(path, blank_source(text, ending)):
        result.append(test)
        characters += len(test.text)
        if characters > _CHARS_MOST:
            break
    counts = Counter[str]()
    for number, test in enumerate(result):
        counts[test.leaf] += 1
        if counts[test.leaf] > 1:  # of several with one name the first may stay and the second go
            result[number] = SourceTest(
                path, f"{test.leaf} ({counts[test.leaf]})", test.line, test.text, test.body, test.skips
            )
    return result


def find_doctests(path: str, text: str) -> list[SourceTest]:
    """Return the doctests of a Python file: one for all examples below each definition, called `doctest of NAME`."""
    by_definition: dict[str, list[tuple[int, str]]] = {}
    name = "the module"
    for number, line in enumerate(text.splitlines(), start=1):
        definition = _DEF.match(line)
        name = definition[3] if definition else name
        if line.lstrip().startswith((">>> ", "... ")):
            by_definition.setdefault(name, []).append((number, line.strip()))
    return [
        SourceTest(
            path, f"doctest of {name}", lines[0][0], body, digest(body)[:20], tuple(_find_skips(r"\+SKIP\b", body))
        )
        for name, lines in by_definition.items()
        for body in ["\n".join(line for _, line in lines)]
    ]


def _reader_for(ending: str) -> Callable[[str, BlankedSource], Iterator[SourceTest]] | None:
    """Return the function that reads tests from files with this ending; None for a language that is not read here."""
    if ending == "py":
        return _read_python
    if re.fullmatch(r"[cm]?[jt]sx?", ending):
        return _read_script
    return _read_braces if ending in LANGUAGES else None


def _read_braces(path: str, source: BlankedSource) -> Iterator[SourceTest]:
    """Yield the tests in a file of one of LANGUAGES, at most TAMPER_TESTS_MOST: each from the attributes in front of it
    to its closing brace, with what skips it, its class or the whole file."""
    language = LANGUAGES[path.rpartition(".")[2]]
    everywhere = [*_find_skips(_OFF_FILE, source.text), *_find_skips(_OFF_CLASS, source.text)]
    openings = set[int]()
    for match in itertools.islice(re.finditer(language.begins, source.bare), TAMPER_TESTS_MOST):
        opening = source.bare.find("{", match.end(), match.end() + _HEAD_CHARS)
        names = re.findall(language.name, source.bare[match.end() : max(opening, 0)])
        if opening in openings or not names:
            continue
        openings.add(opening)
        name = next(part for part in ([names[-1]] if isinstance(names[-1], str) else names[-1]) if part)
        start, end = _attributes_start(source.text, match.start()), source.block_end(opening)
        body = normal_form(source.plain[opening:end])
        off = (*everywhere, *_find_skips(language.off, source.plain[start:end]))
        yield SourceTest(
            path, name, source.line_number(opening), source.text[start:end].strip(), digest(body)[:20], off
        )


def _attributes_start(text: str, position: int) -> int:
    """Return the position where the attributes in front of a test begin: lines above it that are nothing else, at most
    _MARKS_MOST."""
    start = text.rfind("\n", 0, position) + 1
    for _ in range(_MARKS_MOST):
        if start == 0:
            break
        above = text.rfind("\n", 0, start - 1) + 1
        if not re.match(r"\s{0,100}(@\w|#\[|\[\w)", text[above : min(start, above + 100)]):
            break
        start = above
    return start


def _read_script(path: str, source: BlankedSource) -> Iterator[SourceTest]:
    """Yield the tests in a JavaScript or TypeScript file, at most TAMPER_TESTS_MOST: calls of `test`, `it` and the like
    with a name in quotes. What skips a group (`describe`) around a test skips the test, too."""
    group_skips = list[tuple[int, str]]()
    for match in itertools.islice(_CALL.finditer(source.bare), TAMPER_TESTS_MOST):
        quote = match.end() - 1
        call_end = source.block_end(source.bare.index("(", match.start()))
        name = source.text[quote + 1 : source.bare.find(match[3], quote + 1)][:200]
        skips = [*_find_skips(_OFF_JS, match[1] + match[2]), *([match[1]] if match[1][0] == "x" else [])]
        group_skips = [(end, skip) for end, skip in group_skips if end > match.start()]
        if match[1] in _GROUPS:
            group_skips = [*group_skips, *((call_end, skip) for skip in skips)][-_GROUPS_MOST:]
            continue
        inner = source.plain[max(quote, source.plain.find(",", quote, call_end)) : call_end]
        skips += [
            *(skip for _, skip in group_skips),
            *_find_skips(_OFF_JS, inner),
            *_find_skips(r"[{,]\s?(?:skip|todo)\s?:\s?(?!false)", inner),
        ]
        text = source.text[match.start() : call_end]
        yield SourceTest(
            path, name, source.line_number(match.start()), text, digest(normal_form(inner))[:20], tuple(skips)
        )


def _read_python(path: str, source: BlankedSource) -> Iterator[SourceTest]:
    """Yield the tests in a Python file: functions and methods, outside of other functions, whose names begin with
    `test`, without fixtures; each with what skips it or the whole module."""
    bare, text = source.bare.split("\n"), source.text.split("\n")
    plain = source.plain.split("\n")
    everywhere = [
        line.strip()
        for line in bare
        if re.match(r"(pytestmark\b|pytest\.|\w+ = pytest\.)", line) and _OFF_PY.search(line)
    ]
    for name, first, own_line, end in _python_functions(bare):
        if name.startswith("test"):
            head, body = "\n".join(plain[first:own_line]), "\n".join(plain[own_line + 1 : end])
            if not re.search(r"\bfixture\b", head):
                off = (*everywhere, *_find_skips(_OFF_PY, f"{head}\n{body}"))
                yield SourceTest(
                    path, name, own_line + 1, "\n".join(text[first:end]).strip(), digest(normal_form(body))[:20], off
                )


def _python_functions(bare: list[str]) -> Iterator[tuple[str, int, int, int]]:
    """Yield the functions that are not inside others: name, first line with decorators, own line, and the line behind
    it, counted from 0.

    bare  the lines of the source without what stands in comments and strings
    """
    stack: list[tuple[int, str, str, int, int]] = []
    decorator_line = -1
    for number, line in enumerate([*bare, "end"]):
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        while stack and indent <= stack[-1][0] and line.lstrip()[0] not in ")]}":
            _, kind, name, first, own_line = stack.pop()
            if kind == "def" and not any(parent[1] == "def" for parent in stack):
                yield name, first, own_line, number
        if line.lstrip().startswith("@") and decorator_line < 0:
            decorator_line = number
        elif (definition := _DEF.match(line)) is not None:
            stack.append(
                (indent, definition[2], definition[3], decorator_line if decorator_line >= 0 else number, number)
            )
            decorator_line = -1


def _find_skips(pattern: str | re.Pattern[str], text: str) -> list[str]:
    """Return all matches of a pattern in a text, in normal form."""
    return [normal_form(match[0]) for match in re.finditer(pattern, text)]
