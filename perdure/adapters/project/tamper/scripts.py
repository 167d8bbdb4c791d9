"""What a test command leads to: make targets, package.json scripts, shell and other scripts of the repository."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perdure.adapters.project.bounded import parse_json
from perdure.adapters.project.tamper.files import Files
from perdure.models.policy import TAMPER_DEPTH

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")  # in the order GNU make looks for them
ALL_TARGETS = "(all targets)"
"""What stands in for a target's name where a line of a Makefile holds for all of them."""
_READERS = {"ruff", "mypy",
            "black", "isort", "flake8", "pylint", "pyright", "shellcheck", "shfmt", "eslint", "prettier",
            "tsc", "biome", "bandit", "vulture", "codespell", "py_compile", "compileall"}  # fmt: skip
_WORD = re.compile(r"[\w./@:+%-]+")


@dataclass(frozen=True)
class Script:
    """kind: make, npm, shell, python or js. name: of the target or script; empty for a file of its own."""

    kind: str
    file: str
    name: str
    text: str
    line: int = 1

    @property
    def key(self) -> tuple[str, str]:
        return (self.kind, posixpath.join(posixpath.dirname(self.file), self.name) if self.name else self.file)

    def title(self) -> str:
        return {"make": f"make {self.name}", "npm": f"npm run {self.name}"}.get(self.kind, self.file)


def reached(files: Files, commands: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Script]:
    """Everything that belongs to the repository and runs when these commands do in these directories, by key."""
    found: dict[tuple[str, str], Script] = {}
    todo = [(command, directory, 0) for command, directory in commands]
    while todo:
        text, directory, depth = todo.pop()
        if depth > TAMPER_DEPTH:
            continue
        for script in _led_to(files, text, directory):
            if script.key not in found:
                found[script.key] = script
                if script.kind in ("make", "npm", "shell"):
                    todo.append((script.text, posixpath.dirname(script.file) if script.name else directory, depth + 1))
    return found


def _led_to(files: Files, text: str, directory: str) -> Iterator[Script]:
    for line in re.split(r"\n|&&|\|\||;|\|", re.sub(r"\\\n", " ", text)):
        words = _WORD.findall(line)
        names = [posixpath.basename(word) for word in words]
        if "make" in names or "gmake" in names:
            after = words[(names.index("make") if "make" in names else names.index("gmake")) + 1 :]
            yield from _make(files, after, directory)
        for manager in ("npm", "pnpm", "yarn", "bun"):
            if manager in names:
                yield from _npm(files, words[names.index(manager) + 1 :], directory)
        yield from _files(files, words, directory)


def _files(files: Files, words: list[str], directory: str) -> Iterator[Script]:
    """Scripts that are named. Test files given to a runner are tests, not scripts: they have their own rules."""
    readers = [at for at, word in enumerate(words) if posixpath.basename(word) in _READERS]
    words = words[: readers[0]] if readers else words  # they read what they are given, and do not run it
    runner = any(re.fullmatch(r"pytest|py\.test|unittest|jest|vitest|mocha|go|cargo", word) for word in words)
    for last, word in zip(["", *words], words, strict=False):
        path = posixpath.normpath(posixpath.join(directory, word)) if not word.startswith("/") else ""
        if last == "-m":
            path = f"{word.replace('.', '/')}.py"
            if not files.has(path):
                path = f"{word.replace('.', '/')}/__main__.py"
        if not path or path.startswith("..") or not files.has(path):
            continue
        text = files.text(path)
        kind = _kind(path, text or "")
        if text is not None and kind and not (runner and kind != "shell"):
            yield Script(kind, path, "", text)


def _kind(path: str, text: str) -> str:
    first = text.split("\n", 1)[0]
    if path.endswith((".sh", ".bash", ".zsh", ".bats", ".ksh")) or re.match(r"#!.*\b(ba|z|k|da)?sh\b", first):
        return "shell"
    if path.endswith(".py") or re.match(r"#!.*python", first):
        return "python"
    return "js" if re.search(r"\.[cm]?[jt]s$", path) or re.match(r"#!.*node", first) else ""


def _npm(files: Files, words: list[str], directory: str) -> Iterator[Script]:
    path = posixpath.join(directory, "package.json")
    if not files.has(path):
        return
    try:
        scripts = parse_json(files.text(path) or "{}").get("scripts", {})
    except (ValueError, AttributeError):
        return
    plain = [word for word in words if not word.startswith("-")]
    name = plain[1] if plain[:1] in (["run"], ["run-script"]) and len(plain) > 1 else (plain or [""])[0]
    name = "test" if name in ("t", "tst") else name
    for wanted in (f"pre{name}", name, f"post{name}"):
        if isinstance(scripts, dict) and isinstance(scripts.get(wanted), str):
            yield Script("npm", path, wanted, scripts[wanted])


def _make(files: Files, words: list[str], directory: str) -> Iterator[Script]:
    targets, named, place = [], "", directory
    rest = iter(words)
    for word in rest:
        if word in ("-C", "--directory"):
            place = posixpath.normpath(posixpath.join(directory, next(rest, "")))
        elif word in ("-f", "--file"):
            named = next(rest, "")
        elif not word.startswith("-"):
            targets.append(word)
    place = "" if place == "." else place
    paths = [posixpath.join(place, name) for name in ([named] if named else _MAKEFILES)]
    path = next((path for path in paths if files.has(path)), None)
    if path is not None:
        yield from Makefile(files, path).needed(targets)


class Makefile:
    """As far as a reader without make can see: rules, variables, included files of the tree."""

    def __init__(self, files: Files, path: str) -> None:
        self._path = path
        self._rules: dict[str, tuple[int, list[str], list[str]]] = {}
        self._variables: dict[str, str] = {}
        self._general: list[str] = []
        self._first = ""
        self._inherited: list[str] | None = None
        self._read(files, path, 0)

    def needed(self, targets: list[str]) -> Iterator[Script]:
        """Recipes of these targets (none: the first) and of what they need, and what holds for all of them."""
        todo, seen = targets or [self._first], set[str]()
        while todo:
            target = todo.pop()
            if target in seen or target not in self._rules:
                continue
            seen.add(target)
            line, needs, recipe = self._rules[target]
            todo += [word for need in needs for word in self._expanded(need).split()]
            text = "\n".join(self._expanded(part) for part in recipe)
            needed = " ".join(" ".join(map(self._expanded, needs)).split())
            yield Script("make", self._path, target, f": {needed}\n{text}", line)
        if seen and self._general:
            yield Script("make", self._path, ALL_TARGETS, "\n".join(self._general))

    def _read(self, files: Files, path: str, depth: int) -> None:
        current: list[str] | None = None
        text = re.sub(r"[ \t]*\\\n[ \t]*", " ", files.text(path) or "")
        for number, line in enumerate(text.splitlines(), start=1):
            if line.startswith("\t"):
                if current is not None and line.strip():
                    if self._inherited is current:  # a rule with a recipe of its own replaces an earlier one
                        current.clear()
                    self._inherited = None
                    current.append(line.strip())
                continue
            line = re.sub(r"(?<!\\)#.*", "", line).rstrip()
            assigned = re.match(r"\s*(?:export\s+|override\s+)*([\w.-]+)\s*(\?|\+|::?)?=\s*(.*)", line)
            rule = re.match(r"([^\s:=][^:=]*?)\s*::?(?!=)\s*([^;|]*)(?:\|[^;]*)?(?:;\s*(.*))?$", line)
            included = re.match(r"\s*-?s?include\s+(.*)", line)
            if assigned:
                name = assigned[1]
                add = assigned[2] == "+" and name in self._variables
                self._variables[name] = f"{self._variables[name]} {assigned[3]}" if add else assigned[3]
                if name in ("SHELL", ".SHELLFLAGS", "MAKEFLAGS", "PATH"):
                    self._general.append(line.strip())
            elif included and depth < TAMPER_DEPTH:
                for word in included[1].split():
                    self._read(files, posixpath.normpath(posixpath.join(posixpath.dirname(path), word)), depth + 1)
            elif rule:
                current = self._rule(rule, number)
            elif line.strip():
                current = None

    def _rule(self, rule: re.Match[str], number: int) -> list[str]:
        recipe = [rule[3].strip()] if rule[3] else []
        targets = self._expanded(rule[1]).split()
        if targets[:1] and targets[0] in (".IGNORE", ".ONESHELL", ".SILENT", ".POSIX"):
            if targets[0] in (".IGNORE", ".ONESHELL"):
                self._general.append(rule[0].strip())
            return recipe
        for target in targets:
            _, needs, old = self._rules.get(target, (number, [], []))
            self._rules[target] = number, [*needs, rule[2].strip()], recipe
            if not recipe and old:
                recipe = self._rules[target][2]
                recipe += old
                self._inherited = recipe
            if not self._first and not target.startswith("."):
                self._first = target
        return recipe

    def _expanded(self, text: str, depth: int = 0) -> str:
        if "$" not in text or depth > 5:
            return text
        found = re.sub(r"\$[({]([\w.-]+)[)}]", lambda m: self._variables.get(m[1], m[0]), text)
        return self._expanded(found, depth + 1) if found != text else found
