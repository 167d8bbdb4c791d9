"""The commands and files that a test command leads to: package scripts, recipes, scripts. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Protocol

from perdure.adapters.checks.runners.words import parts, script, unwrapped
from perdure.adapters.checks.tamper.inventory import is_test
from perdure.adapters.system.bounded import parse_json
from perdure.models.limits import SIDE_READ_FILES

TAMPER_DEPTH = 4
"""Scripts behind scripts that are followed to what runs the tests."""


_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}
_INTERPRETERS = re.compile(r"(?:python|pypy|node|deno|bun|tsx|ts-node|ruby|perl|php|Rscript|julia|lua)[\d.]*")
_STEERED = {
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "nox": ("noxfile.py",),
    "tox": ("tox.ini", "tox.toml"),
    "rake": ("Rakefile",),
    "inv": ("tasks.py",),
    "invoke": ("tasks.py",),
    "ctest": ("CTestTestfile.cmake",),
}
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


class There(Protocol):
    """The directory a command runs in, of one commit."""

    @property
    def paths(self) -> frozenset[str]: ...

    def text(self, path: str) -> str:
        """Empty where there is none, or too much has been read already."""


@dataclass
class Leads:
    """simple  the words of each simple command, wrappers removed; files: what they run; seen: command lines read."""

    simple: list[list[str]] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)


def leads(command: str, there: There) -> Leads:
    found = Leads()
    _follow(command, there, found, 0)
    return found


def _follow(command: str, there: There, found: Leads, depth: int) -> None:
    if depth > TAMPER_DEPTH or command in found.seen or len(found.seen) >= SIDE_READ_FILES:
        return
    found.seen.add(command)
    for raw in parts(command):
        words = [word for word in raw if not re.fullmatch(r"\w+=.*", word, re.DOTALL)]
        run = _run(words, there)
        if run:
            found.files |= {run} | _beside(run, there)
            if is_test(run):
                continue  # what a test runs is the product
            if (
                run.endswith(".sh")
                or words[0] in (".", "source")
                or re.match(r"#!.*\b(?:ba|da|z|k)?sh\b", there.text(run))
            ):
                _follow(_unquoted(there.text(run)), there, found, depth + 1)
            continue
        words = unwrapped(raw)
        if not words:
            continue
        found.simple.append(words)
        program = PurePosixPath(words[0]).name
        found.files.update(file for file in _STEERED.get(program, ()) if file in there.paths)
        named = script(program, words[1:])
        if named:
            _follow(_scripts(there).get(named, ""), there, found, depth + 1)
        elif program in ("make", "gmake"):
            text, included = _makefile(there)
            found.files |= included
            for line in _recipes(words[1:], text):
                _follow(line, there, found, depth + 1)


def _run(words: list[str], there: There) -> str:
    """The file of the repository that a command runs: by itself, or by an interpreter."""
    while words:
        if words[0] in (".", "source"):
            own = _plain([*words, ""][1])
            return own if own in there.paths else ""
        name = PurePosixPath(words[0]).name
        if (own := _plain(words[0])) in there.paths:
            return own
        if name in _SHELLS or _INTERPRETERS.fullmatch(name):
            if "-m" in words or "--test" in words or "-c" in words[:2]:
                return ""
            return next((path for word in words[1:] if (path := _plain(word)) in there.paths), "")
        inner = unwrapped(words)
        if inner == words or not inner:
            # `uv run python a.py`: what the wrapper starts is an interpreter again
            at = next((n for n, word in enumerate(words[1:], 1) if _INTERPRETERS.fullmatch(word)), 0)
            if not at or name not in ("uv", "poetry", "pdm", "pipenv", "hatch", "rye", "env", "coverage", "npx"):
                return ""
            inner = words[at:]
        words = inner
    return ""


def _plain(word: str) -> str:
    return word.removeprefix("./")


def _unquoted(text: str) -> str:
    """A script without what a splitter of words cannot take: comments, and ends of lines that go on."""
    return re.sub(r"(?m)^\s*#.*$", "", text.replace("\\\n", " "))


def _scripts(there: There) -> Mapping[str, str]:
    try:
        found = parse_json(there.text("package.json") or "{}")
    except ValueError:
        return {}
    scripts = found.get("scripts") if isinstance(found, dict) else None
    return {name: text for name, text in scripts.items() if isinstance(text, str)} if isinstance(scripts, dict) else {}


_TOOLS = re.compile(r"(?:.*/)?(?:tools?|scripts?|\.?ci|dev|hack|bin)/")
_LOADED = re.compile(
    r"""^[ \t]{0,80}(?:from|import)\s{1,9}(\w{1,200})|"""
    r"""(?:require\(|from\s|import\s)\s{0,9}['"]\./([\w./-]{1,200})['"]""",
    re.MULTILINE,
)


def _beside(run: str, there: There) -> set[str]:
    """The files that a script among tools loads from its own directory; elsewhere that may be the product."""
    found, left = set[str](), [run] if _TOOLS.match(run) else []
    while left and len(found) < SIDE_READ_FILES:
        path = left.pop()
        top = path.rpartition("/")[0]
        for one, other in _LOADED.findall(there.text(path)):
            ends = (".py", "/__init__.py") if one else ("", ".js", ".mjs", ".cjs", ".ts")
            news = {f"{top}/{one or other}{end}" for end in ends} & there.paths - found
            found |= news
            left += news
    return found


def _makefile(there: There) -> tuple[str, set[str]]:
    """Its text with that of the files that it includes by name in it, and these."""
    text = next((there.text(name) for name in _MAKEFILES if name in there.paths), "")
    named = re.findall(r"(?m)^-?include[ \t]+(.{1,400})", text)
    included = sorted({_plain(word) for line in named for word in line.split()} & there.paths)
    return "\n".join([text, *map(there.text, included)]).replace("\\\n", " "), set(included)


def _recipes(words: list[str], text: str) -> list[str]:
    """The lines that make runs for these targets, those of what they need first; variables of the file put in."""
    values = dict(re.findall(r"(?m)^(\w+)[ \t]*[:?]?=[ \t]*(.*)$", text))
    recipes, needs, current = dict[str, list[str]](), dict[str, list[str]](), list[str]()
    for line in text.splitlines():
        if line.startswith("\t"):
            for target in current:
                recipes[target].append(_valued(line.strip().lstrip("@-+"), values))
        elif (head := re.match(r"([^\s:=#][^:=#]*):(?!=)([^=]*)$", line)) is not None:
            current = head[1].split()
            for target in current:
                recipes.setdefault(target, [])
                needs.setdefault(target, []).extend(head[2].split(";")[0].split())
    wanted = [word for word in words if word in recipes] or [name for name in recipes if not name.startswith(".")][:1]
    found, seen = list[str](), set[str]()
    while wanted and len(seen) < SIDE_READ_FILES:
        target = wanted.pop(0)
        if target not in seen:
            seen.add(target)
            found += recipes.get(target, [])
            wanted += [need for need in needs.get(target, []) if need in recipes]
    return found


def _valued(line: str, values: Mapping[str, str]) -> str:
    """Cut, so that variables of a long line cannot make a longer one of it, and that again."""
    return re.sub(r"\$[({](\w+)[)}]", lambda found: values.get(found[1], found[1])[:1_000], line[:1_000])
