"""Whether what a test command leads to can still fail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from perdure.adapters.project.tamper.files import Files
from perdure.adapters.project.tamper.inventory import Odd, hit, is_now, only_new, was
from perdure.adapters.project.tamper.languages import is_test
from perdure.adapters.project.tamper.pymodule import Module, parsed
from perdure.adapters.project.tamper.pyodd import odd_lines
from perdure.adapters.project.tamper.scripts import ALL_TARGETS, Script, reached
from perdure.models.report import Hit, Tampering

MASKING = (
    (r"\|\|\s*(true|:|/bin/true|exit\s+0|return\s+0|echo\b|printf\b|test\s+1)", "a failure is turned into success"),
    (r";\s*(true|:|exit(\s+0)?|return\s+0)\s*(;|$|\)|\})", "it ends in success whatever happened"),
    (r"^\s*(exit|return)\s+0\b|^\s*exit\s*$|^\s*(true|:)\s*$", "it ends in success whatever happened"),
    (r"\bset\s+\+\w*e|\bset\s+\+o\s+(errexit|pipefail)", "failures do not end it any more"),
    (r"\btrap\b.*(exit|EXIT|ERR|0\b)", "a trap can change its exit code"),
    (r"\|\s*(tee|cat|tail|head|grep|sed|awk|sort|xargs)\b", "a pipe hides the exit code in front of it"),
    (r"(?<![&>])&\s*$", "it runs in the background"),
    (r"^\s*(el)?if\b(?!.*\[).*;\s*then\b|^\s*!\s", "its exit code is only a condition"),
    (r"^\s*(export\s+)?PATH=|^\s*alias\s|\bexec\s+true\b|\bkill\s+-9\s+\$\$", "something else may run by that name"),
    (r"^\s*(function\s+)?(pytest|python3?|node|npm|npx|go|cargo|make|test|exit)\s*\(\)", "a program's name is taken"),
)
_FAILS = re.compile(
    r"returncode|check_call|check_output|check=True|raise_for|sys\.exit|SystemExit|process\.exit|exitCode"
)
_ZERO = re.compile(r"process\.exit\(\s*0?\s*\)|process\.exitCode\s*=\s*0|process\.on\(\s*['\"](exit|beforeExit)")
_RUNS = re.compile(
    r"\b(pytest|py\.test|unittest|node|jest|vitest|mocha|go\s+(test|vet)|cargo|mvnw?|gradlew?|tox|nox|npm|yarn|pnpm"
    r"|bats|prove|rspec|phpunit|make|ctest|dotnet)\b"
)


def wrapper_hits(
    before: Files, after: Files, commands: Sequence[tuple[str, str]], renamed: Mapping[str, str]
) -> list[Hit]:
    """Hits in what these commands, each with its directory, lead to, on the base or now.

    `renamed`: files whose tests all stand in another.
    """
    old, new = reached(before, commands), reached(after, commands)
    hits: list[Hit] = []
    one_shell = any(".ONESHELL" in script.text for script in new.values() if script.name == ALL_TARGETS)
    for key, script in old.items():
        now = new.get(key)
        if now is None:
            if script.kind in ("make", "npm"):
                title = f"`{script.title()}` is not run any more"
                hits.append(hit(Tampering.COMMAND, title, script.file, None, was(script.text)))
        elif now.text != script.text:
            text = script.text
            for name, instead in renamed.items():
                text = text.replace(name, instead)
            if text != now.text:
                hits += _changed(replace(script, text=text), now, one_shell)
    for key, script in new.items():
        if key not in old:
            hits += _fresh(script)
    return hits


def _changed(old: Script, now: Script, one_shell: bool) -> Iterator[Hit]:
    if old.kind in ("make", "npm"):
        yield from _recipe(old, now, one_shell)
    elif old.kind == "shell":
        yield from _shell(old, now)
    elif old.kind == "python":
        yield from _python(old, now)
    else:
        yield from _lost(old, now)
        for line in only_new(_lines(now), _lines(old)):
            if _ZERO.search(line):
                yield _hit(now, "ends in success whatever happened", line)


def _fresh(script: Script) -> Iterator[Hit]:
    """What was put in between: it may do anything but hide a failure."""
    if script.name == ALL_TARGETS:
        yield _hit(script, "is run in another way", script.text)
        return
    for line, why in masking(_lines(script), script.kind):
        yield _hit(script, why, line)
    if script.kind == "python":
        yield from _python(Script("python", script.file, "", ""), script)


def _recipe(old: Script, now: Script, one_shell: bool) -> Iterator[Hit]:
    """A recipe that runs the tests: lines may be added, not taken away or changed. Each line of make's is a shell
    of its own: one that is added beside all that were there can hide only its own failure."""
    had, has = _lines(old), _lines(now)
    needs_had, needs_has = had.pop(0).split()[1:] if old.kind == "make" and had and had[0][:1] == ":" else [], []
    if now.kind == "make" and has and has[0][:1] == ":":
        needs_has = has.pop(0).split()[1:]
    lost = [*(word for word in needs_had if word not in needs_has), *_missing(had, has, now.kind)]
    added = only_new(has, had)
    alone = now.kind == "make" and not lost and not one_shell and now.name != ALL_TARGETS
    for line, why in masking(added, now.kind):
        if alone and not _RUNS.search(line):
            continue
        yield hit(Tampering.COMMAND, f"`{now.title()}`: {why}", now.file, now.line, was("\n".join(lost)), is_now(line))
        return
    if lost:
        told = was("\n".join(lost)), is_now("\n".join(added))
        yield hit(Tampering.COMMAND, f"`{now.title()}` does not run what it did", now.file, now.line, *told)


def _missing(had: list[str], has: list[str], kind: str) -> list[str]:
    """Lines that are not there any more, in their order; of a script in package.json, what stood between `&&`."""
    if kind == "npm":
        had, has = ([part.strip() for line in lines for part in line.split("&&")] for lines in (had, has))
    rest = iter(has)
    return [line for line in had if not any(line == other for other in rest)]


def _shell(old: Script, now: Script) -> Iterator[Hit]:
    had, has = _lines(old), _lines(now)
    for line, why in masking(only_new(has, had), now.kind):
        yield _hit(now, why, line)
        return
    lost = only_new(had, has)
    for line in lost:
        if re.match(r"set\s+-\w*e|set\s+-o\s+(errexit|pipefail)", line) and not any("-e" in other for other in has):
            yield hit(Tampering.COMMAND, f"{now.file}: failures do not end it any more", now.file, None, was(line))
            return
    ends = (
        r"(?!)" if is_test(now.file) else r"\bexit\s+([1-9$]|\")"
    )  # for what tests assert there are rules of their own
    gone = [line for line in lost if _RUNS.search(line) or re.search(ends, line)]
    if gone and len(has) < len(had) + len(gone):
        told = was("\n".join(gone)), is_now("\n".join(only_new(has, had)))
        yield hit(Tampering.COMMAND, f"{now.file} does not run, or fail, as it did", now.file, None, *told)


def _python(old: Script, now: Script) -> Iterator[Hit]:
    module, before = parsed(now.file, now.text), parsed(old.file, old.text)
    if module is None:
        return
    had = [odd.text for odd in _odd(before)] if before else []
    new = only_new([odd.text for odd in _odd(module)], had)
    for odd in _odd(module):
        if odd.text in new:
            yield hit(odd.rule, f"{now.file}: {odd.why}", now.file, odd.line, is_now(odd.text))
            return
    yield from _lost(old, now)


def _odd(module: Module) -> list[Odd]:
    return list(odd_lines(module, script=True))


def _lost(old: Script, now: Script) -> Iterator[Hit]:
    lost = [line for line in only_new(_lines(old), _lines(now)) if _FAILS.search(line)]
    if lost and not any(_FAILS.search(line) for line in _lines(now)):
        told = was("\n".join(lost))
        yield hit(Tampering.COMMAND, f"{now.file} does not pass failures on any more", now.file, None, told)


def masking(lines: Sequence[str], kind: str) -> Iterator[tuple[str, str]]:
    """Lines of a shell, a recipe or a script in package.json that hide failures, and how."""
    if kind not in ("shell", "make", "npm"):
        return
    for line in lines:
        if kind == "make" and re.match(r"[@+]*-", line):
            yield line, "make ignores its failure"
        for pattern, why in MASKING:
            if re.search(pattern, line.lstrip("@-+ ") if kind == "make" else line):
                yield line, why
                break


def _lines(script: Script) -> list[str]:
    text = re.sub(r"[ \t]*\\\n[ \t]*", " ", script.text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "//"))]


def _hit(script: Script, why: str, line: str) -> Hit:
    return hit(Tampering.COMMAND, f"`{script.title()}`: {why}", script.file, None, is_now(line))
