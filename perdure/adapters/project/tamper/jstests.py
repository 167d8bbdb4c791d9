"""The tests in a JavaScript or TypeScript file: node's runner, jest, vitest, mocha, and what is written like them."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from perdure.adapters.project.tamper.braces import Source, live, normal, read
from perdure.adapters.project.tamper.files import Files
from perdure.adapters.project.tamper.inventory import CHARS_MOST, Inventory, Odd, Test
from perdure.models.ids import digest
from perdure.models.report import Tampering

_CALL = re.compile(
    r"(?<![\w$])(?:(?<!\.)|(?<=\bt\.)|(?<=\bctx\.))"
    r"(describe|context|suite|test|it|specify|xit|xtest|xdescribe|fit|fdescribe)"
    r"((?:\s*\.\s*\w+)*)\s*(?=[(`<])"
)
_GROUPS = {"describe", "context", "suite", "xdescribe", "fdescribe"}
_OFF = {"skip", "todo", "skipIf", "runIf", "failing", "fails", "fixme"}
_OFF_INSIDE = re.compile(r"\b(?:t|ctx|this|test|it|context)\.(?:skip|todo)\s*\(|(?<![\w.])pending\s*\(")
_OFF_OPTION = re.compile(r"[{,]\s*(skip|todo|fails)\s*:\s*(?!false\b|0\b|null\b|undefined\b)")
_CHECK = re.compile(
    r"(?<![\w$.])(?:(?:await\s+)?(?:expect|assert|should|sinon\.assert|chai\.expect|t\.assert|test\.expect)\b"
    r"(?:\s*\.\s*\w+)*\s*\("
    r"|t\.(?:is|not|deepEqual|truthy|falsy|throws\w*|like|regex|true|false|pass|fail|snapshot|equal|same|ok|match)\s*\("
    r"|(?:ok|equal|strictEqual|deepEqual|deepStrictEqual|throws|rejects|match|notEqual|notStrictEqual)\s*\("
    r"|throw\s+new\s+\w*(?:Assertion)?Error\b)"
    r"|\.should\b"
)
_FORGIVES = r"\b(throw|expect|assert|fail|done|reject)\b"
_LOADS = r"""(?:from|require\s*\(|import\s*\(?)\s*['"]"""
_FRAMEWORK = re.compile(
    _LOADS
    + r"""(?:node:)?(test|assert(?:/strict)?|vitest|@jest/globals|chai|expect|mocha|ava|tap|tape|uvu(?:/assert)?"""
    r"""|@playwright/test|should|sinon)['"]"""
)
_LOCAL = re.compile(_LOADS + r"""(\.{1,2}/[^'"]+)['"]""")
_NAMES = re.compile(
    r"(?:import|const|let|var)\s*\{([^}]{0,1000})\}\s*(?:from|=\s*(?:await\s+)?(?:require|import)\s*\(?)"
    r"\s*\(?\s*['\"](\.[^'\"\n]+)"
)
_CALLS_MOST = 2000
_EXIT = re.compile(
    r"process\s*\.\s*(?:exit\s*\(\s*0?\s*\)|reallyExit|exitCode\s*=\s*(?:0|undefined)"
    r"|on\s*\(\s*['\"](?:exit|beforeExit)['\"])"
)


@dataclass(frozen=True)
class _Call:
    kind: str
    modifiers: tuple[str, ...]
    name: str
    start: int
    open: int
    end: int


def inventory(files: Files, path: str) -> Inventory:
    text = files.text(path)
    if text is None:
        return Inventory(broken="it cannot be read" if files.has(path) else "it is not there")
    source = read(text, script=True)
    calls = list(itertools.islice(_calls(source), _CALLS_MOST))
    if sum(call.end - call.start for call in calls) > CHARS_MOST:
        return Inventory(broken="its tests are nested too deeply")
    return Inventory(tuple(_tests(files, path, source, calls)), tuple(_odd(path, source)))


def _tests(files: Files, path: str, source: Source, calls: list[_Call]) -> Iterator[Test]:
    helpers = _helpers(files, path, source)
    groups = [call for call in calls if call.kind in _GROUPS]
    counted: dict[str, int] = {}
    for call in calls:
        if call.kind in _GROUPS:
            continue
        above = [group for group in groups if group.start < call.start < group.end]
        outer = [other for other in calls if other.kind not in _GROUPS and other.start < call.start < other.end]
        name = " > ".join([*(group.name for group in above), *(other.name for other in outer), call.name])
        counted[name] = counted.get(name, 0) + 1
        body = source.plain[call.open : call.end]
        inner = body.find(",") + call.open + 1  # behind the name
        alive = live(source, *_function(source, inner, call.end), _FORGIVES)
        checks = [*_checks(alive), *(f"{name}(…)" for name in sorted(helpers) if re.search(rf"\b{name}\s*\(", alive))]
        off = [part for each in (*above, *outer, call) for part in _off(source, each)]
        off += [normal(found[0]) for found in _OFF_INSIDE.finditer(body)]
        yield Test(
            file=path,
            name=name if counted[name] == 1 else f"{name} ({counted[name]})",
            leaf=call.name,
            line=source.line(call.start),
            text=source.text[call.start : call.end],
            bodies=(digest(normal(source.plain[inner : call.end]))[:20],),
            checks=tuple(checks),
            skips=tuple(off),
            blank=not checks and not re.search(r"\w\s*\(", alive),
        )


def _function(source: Source, first: int, last: int) -> tuple[int, int]:
    """The inside of the function that is given to a test; all arguments where none is seen."""
    found = re.compile(r"(?:=>|function\s*\w*\s*\([^)]*\))\s*\{").search(source.bare, first, last)
    return (found.end(), source.block(found.end() - 1) - 1) if found else (first, last)


def _calls(source: Source) -> Iterator[_Call]:
    for match in _CALL.finditer(source.bare):
        modifiers = tuple(re.findall(r"\w+", match[2]))
        opening = match.end()
        if source.bare[opening] == "<":
            opening = source.bare.find("(", opening)
            if opening < 0:
                continue
        if "each" in modifiers or "for" in modifiers or set(modifiers) & {"skipIf", "runIf"}:
            behind = source.block(opening) if source.bare[opening] == "(" else source.bare.find("`", opening + 1) + 1
            following = re.compile(r"\s*\(").match(source.bare, behind)
            if not following:
                continue
            opening = following.end() - 1
        if source.bare[opening] != "(":
            continue
        name = re.compile(r"\(\s*(['\"`])(.*?)(?<!\\)\1", re.DOTALL).match(source.text, opening)
        plain = re.compile(r"\(\s*([\w.]+)\s*,").match(source.text, opening)
        if name or plain:
            told = name[2] if name else plain[1] if plain else ""
            yield _Call(match[1], modifiers, told, match.start(), opening, source.block(opening))


def _off(source: Source, call: _Call) -> list[str]:
    found = [f".{part}" for part in call.modifiers if part in _OFF]
    if call.kind in ("xit", "xtest", "xdescribe"):
        found.append(call.kind)
    options = re.compile(r"\(\s*['\"`][^'\"`]*['\"`]\s*,\s*(\{[^{}]*\})\s*,").match(source.plain, call.open)
    if options:
        found += [match[0].lstrip("{, ") for match in _OFF_OPTION.finditer(options[1])]
    return found


def _checks(text: str) -> list[str]:
    """Assertions up to the end of their statement, without those that hold whatever the program does."""
    found = []
    for match in _CHECK.finditer(text):
        depth, position = 0, match.start()
        while position < len(text):
            character = text[position]
            depth += (character in "([{") - (character in ")]}")
            if depth < 0 or (depth == 0 and character in ";\n" and not re.match(r"\s*\.", text[position + 1 :][:80])):
                break
            position += 1
        check = normal(text[match.start() : position])
        if not _vacuous(check):
            found.append(check)
    return found


def _vacuous(check: str) -> bool:
    if re.match(r"(await )?throw", check) or "unreachable" in check:
        return False
    bare = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`$]*`", "", check)
    names = set(re.findall(r"(?<![\w.$])[A-Za-z_$][\w$]*", bare))
    names -= {
        "expect",
        "assert",
        "await",
        "true",
        "false",
        "null",
        "undefined",
        "t",
        "ok",
        "equal",
        "strictEqual",
        "new",
    }
    fails = re.search(r"fail|\((false|0|null)\)$|toBe\(false\)|assertions\(|called", check)
    same = re.match(
        r"(?:await )?assert\.\w*[eE]qual\((.+),\1\)$|(?:await )?expect\((.+)\)\.to(?:Be|Equal|StrictEqual)\(\2\)$",
        check,
    )
    return bool(same) or (not names and not fails)


def _helpers(files: Files, path: str, source: Source) -> set[str]:
    """Functions that assert something, in the file and in those it loads from beside it."""
    found = set()
    for match in re.finditer(
        r"\bfunction\s*\*?\s*(\w+)\s*\([^)]{0,500}\)\s*\{|\b(?:const|let)\s+(\w+)\s*=[^;\n]{0,300}=>\s*\{", source.bare
    ):
        body = live(source, match.end(), source.block(match.end() - 1) - 1, _FORGIVES)
        if _checks(body):
            found.add(match[1] or match[2])
    for match in re.finditer(r"\b(?:const|let)\s+(\w+)\s*=[^;\n]{0,300}=>\s*(?!\s*\{)([^\n]*)", source.plain):
        if _checks(match[2]):
            found.add(match[1])
    for match in _NAMES.finditer(source.plain):
        text = _beside(files, path, match[2])
        if text is not None:
            other = read(text, script=True)
            theirs = _helpers_in(other)
            found |= {name for name in re.findall(r"\w+", match[1]) if name in theirs}
    return found


def _helpers_in(source: Source) -> set[str]:
    found = set()
    for match in re.finditer(r"\b(?:function\s*\*?\s*|const\s+|let\s+|exports\.)(\w+)[^;{]{0,300}\{", source.bare):
        if _checks(live(source, match.end(), source.block(match.end() - 1) - 1, _FORGIVES)):
            found.add(match[1])
    return found


def _beside(files: Files, path: str, name: str) -> str | None:
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    for end in ("", ".js", ".ts", ".mjs", ".cjs", ".tsx", ".jsx", "/index.js", "/index.ts"):
        if files.has(f"{place}{end}"):
            return files.text(f"{place}{end}")
    return None


def _odd(path: str, source: Source) -> Iterator[Odd]:
    for match in re.finditer(
        r"(?<![\w$.])(describe|test|it|suite|context)\s*\.\s*only\b|(?<![\w$.])(fit|fdescribe)\s*\(", source.bare
    ):
        yield Odd(Tampering.SKIPPED, normal(match[0]), source.line(match.start()), "only some tests are run")
    for match in re.finditer(r"[{,]\s*only\s*:\s*true", source.bare):
        yield Odd(Tampering.SKIPPED, "only: true", source.line(match.start()), "only some tests are run")
    for match in _EXIT.finditer(source.plain):
        why = "the process can end before a test fails"
        yield Odd(Tampering.COMMAND, normal(match[0]), source.line(match.start()), why)
    for match in re.finditer(r"(?<![\w$.])(assert|expect|test|it|describe)(\.\w+)?\s*=(?![=>])", source.bare):
        declared = re.search(r"(const|let|var)\s+$", source.bare[max(0, match.start() - 8) : match.start()])
        if not declared or not _FRAMEWORK.search(source.plain, match.start(), match.end() + 80):
            why = f"`{match[1]}` is replaced by something else"
            yield Odd(Tampering.HOLLOW, normal(match[0]), source.line(match.start()), why)


def frameworks(text: str) -> tuple[set[str], set[str]]:
    """(test and assertion libraries, files beside it) that a file loads."""
    plain = read(text, script=True).plain
    return {name.partition("/")[0] for name in _FRAMEWORK.findall(plain)}, set(_LOCAL.findall(plain))
