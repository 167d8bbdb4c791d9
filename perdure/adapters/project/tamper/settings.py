"""Settings of test runners: what is collected, and how. Only those parts of a file that runners read are compared."""

from __future__ import annotations

import configparser
import fnmatch
import json
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any

from perdure.adapters.project.bounded import parse_json, parse_toml
from perdure.adapters.project.tamper.files import Files
from perdure.adapters.project.tamper.inventory import hit, is_now, only_new, was
from perdure.models.report import Hit, Tampering

_WHOLE = (
    *("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", ".coveragerc", "nose.cfg", ".noserc"),
    *("jest.config.*", "jest.setup.*", "jest.preset.*", "vitest.config.*", "vitest.workspace.*", "vitest.setup.*"),
    *("setupTests.*", ".mocharc*", "karma.conf.*", "ava.config.*", "playwright.config.*", "cypress.config.*"),
    *("cypress.json", ".taprc", ".nycrc*", ".c8rc*", "phpunit.xml*", ".rspec", "nextest.toml"),
    *("junit-platform.properties", "testng.xml", "maven.config", "jvm.config", "init.gradle*", ".testrc*"),
)
_ALONE = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
_BENIGN = {
    "markers",
    "minversion",
    "show_missing",
    "skip_covered",
    "skip_empty",
    "precision",
    "log_cli",
    "log_cli_level",
    "log_level",
    "log_format",
    "console_output_style",
}
_LOUDER = re.compile(r"-[vq]+|-r\w+|-l|--showlocals|--tb=\w+|--durations(-min)?=[\d.]+|--color=\w+")
_STRICTER = re.compile(rf"{_LOUDER.pattern}|--strict(-markers|-config)?|--cov(=[\w./-]+)?|--cov-report=[\w:./-]+")
_UNCOVERED = {"pragmanocover", "ifTYPE_CHECKING", "iftyping.TYPE_CHECKING", "raiseNotImplementedError", "@overload",
              "@typing.overload", "@abstractmethod", "@abc.abstractmethod", "if__name__==.__main__.",
              "if__name__=='__main__'", 'if__name__=="__main__"', "..."}  # fmt: skip
_PACKAGE = ("jest", "vitest", "mocha", "ava", "nyc", "c8", "tap", "imports", "workspaces")
_TASKS = {"poe": "poe", "poethepoet": "poe", "hatch": "hatch.envs", "pdm": "pdm.scripts", "task": "taskipy"}
_TASK_FILES = {
    "tox": ("tox.ini", "tox.toml"), "nox": ("noxfile.py",), "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"), "rake": ("Rakefile",), "invoke": ("tasks.py",), "inv": ("tasks.py",),
}  # fmt: skip


def settings_hits(before: Files, after: Files, path: str, commands: str) -> list[Hit]:
    """What one file that differs changes for the runners. `commands`: the words of all test commands."""
    name = posixpath.basename(path)
    programs = {word for word in re.split(r"[\s;&|]+", commands) if word}
    read = _reader(name, programs)
    if read is None:
        return []
    old, new = before.text(path), after.text(path)
    if after.has(path) and (new is None or after.is_link(path)):
        return [hit(Tampering.CONFIGURATION, f"{path} cannot be read", path)]
    try:
        had = dict(read(old or ""))
    except ValueError:
        had = {}
    try:
        has = dict(read(new or ""))
    except ValueError as error:
        return [hit(Tampering.CONFIGURATION, f"{path} cannot be read", path, None, str(error))] if had else []
    if name in _ALONE:  # pytest reads no other file where one of these is, even an empty one
        had |= {"it": "is there"} if before.has(path) else {}
        has |= {"it": "is there"} if after.has(path) else {}
    changed = [key for key in (*had, *(key for key in has if key not in had)) if had.get(key) != has.get(key)]
    changed = [key for key in changed if not _harmless(key, had.get(key), has.get(key))]
    if not changed:
        return []
    told = [f"{key} = {text[key]}" for text in (had, has) for key in changed if key in text]
    lost = [line for line in told if line not in [f"{key} = {has[key]}" for key in changed if key in has]]
    title = f"{path}: {', '.join(changed[:3])} changed"
    evidence = was("\n".join(lost)), is_now("\n".join(only_new(told, lost)))
    return [hit(Tampering.CONFIGURATION, title, path, None, *evidence)]


Read = Callable[[str], Mapping[str, str]]


def _reader(name: str, programs: set[str]) -> Read | None:
    """How to take the runners' part out of a file of this name; None: it has none."""
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _WHOLE):
        return _lines
    if name == "pyproject.toml":
        tables = [_TASKS[program] for program in programs if program in _TASKS]
        return lambda text: _pyproject(text, tables)
    if name in ("setup.cfg", "tox.ini"):
        return lambda text: _ini(text, "tox" in programs)
    if name == "package.json":
        return _package
    if name == "Cargo.toml":
        return _cargo
    if name == "pom.xml":
        return _pom
    if re.fullmatch(r".*\.gradle(\.kts)?|gradle\.properties", name):
        return _gradle
    if name == "go.mod":
        return _go
    if name == ".npmrc":
        return lambda text: _matching(text, r"(?i)^\s*(node.options|script.shell|ignore.scripts|shell)\b")
    if re.fullmatch(r"vite\.config\.\w+", name):
        return _vite
    if name in ("setup.py", "entry_points.txt"):
        return lambda text: _matching(text, r"pytest11")
    if any(name in _TASK_FILES[program] for program in programs if program in _TASK_FILES):
        return _lines
    return None


def _harmless(key: str, old: str | None, new: str | None) -> bool:
    """Markers, a louder log; more to collect, options that are only louder or stricter, lines nobody expects to be
    covered. Never another key whose value collects, selects, ignores or runs."""
    last = re.split(r"[. ]", key)[-1]
    lost, more = (only_new(_words(one), _words(other)) for one, other in ((old, new), (new, old)))
    if last == "testpaths":
        return bool(_words(old)) and not lost
    if last == "addopts":
        return all(map(_LOUDER.fullmatch, lost)) and all(map(_STRICTER.fullmatch, more))
    if last in ("exclude_lines", "exclude_also"):
        return all(re.sub(r"[\\^$\s]|\(\?:|\(|\)|:", "", line) in _UNCOVERED for line in (*lost, *more))
    return last in _BENIGN


def _words(value: str | None) -> list[str]:
    """The parts of a list, in JSON or as ini files have it."""
    try:
        given = json.loads(value or '""')
    except ValueError:
        given = value
    if isinstance(given, list):
        return [str(part) for part in given]
    return str(given or "").split()


def _lines(text: str) -> dict[str, str]:
    """A file that is settings from end to end, without comments and blank lines; ini keys for their own sake."""
    if re.search(r"^\[\w[\w:.-]*\]\s*$", text, re.MULTILINE) and "{" not in text:
        try:
            return _sections(text, lambda _: True)
        except ValueError:
            pass
    kept = [line.strip() for line in text.splitlines() if not re.match(r"\s*(#|//|$)", line)]
    return {"its contents": "\n".join(kept)} if kept else {}


def _matching(text: str, pattern: str) -> dict[str, str]:
    found = [line.strip() for line in text.splitlines() if re.search(pattern, line)]
    return {found_line.partition("=")[0].strip(): found_line for found_line in found}


def _flat(table: Any, prefix: str) -> dict[str, str]:
    if not isinstance(table, dict):
        return {prefix: json.dumps(table, default=str, sort_keys=True)}
    return {k: v for key, value in table.items() for k, v in _flat(value, f"{prefix}.{key}").items()}


def _pyproject(text: str, tasks: list[str]) -> dict[str, str]:
    data = parse_toml(text)
    found: dict[str, str] = {}
    for table in ("tool.pytest", "tool.coverage", "tool.tox", "project.entry-points.pytest11",
                  "tool.poetry.plugins.pytest11", *(f"tool.{task}" for task in tasks)):  # fmt: skip
        value: Any = data
        for key in table.split("."):
            value = value.get(key, {}) if isinstance(value, dict) else {}
        if value:
            found |= _flat(value, table)
    return found


def _sections(text: str, wanted: Callable[[str], bool]) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, delimiters=("=", ":"))
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error)) from None
    return {
        f"[{section}] {key}": " ".join((value or "").split())
        for section in parser.sections()
        if wanted(section)
        for key, value in parser.items(section)
    }


def _ini(text: str, tox: bool) -> dict[str, str]:
    def wanted(section: str) -> bool:
        return (
            section in ("tool:pytest", "pytest", "unittest")
            or section.startswith(("coverage:", "nosetests"))
            or (tox and section.startswith(("testenv", "tox")))
        )

    found = _sections(text, wanted)
    entries = _sections(text, lambda section: section == "options.entry_points")
    return found | {key: value for key, value in entries.items() if key.endswith("pytest11")}


def _package(text: str) -> dict[str, str]:
    data = parse_json(text or "{}")
    if not isinstance(data, dict):
        raise ValueError("it is no JSON object")
    return {k: v for key in _PACKAGE if key in data for k, v in _flat(data[key], key).items()}


def _cargo(text: str) -> dict[str, str]:
    data = parse_toml(text)
    found: dict[str, str] = {}

    def walk(value: Any, at: str) -> None:
        for key, inner in value.items() if isinstance(value, dict) else ():
            if key in ("test", "doctest", "harness", "autotests") and isinstance(inner, bool):
                found[f"{at}{key}"] = json.dumps(inner)
            for number, item in enumerate(inner if isinstance(inner, list) else [inner]):
                name = item.get("name", number) if isinstance(item, dict) and isinstance(inner, list) else ""
                walk(item, f"{at}{key}.{f'{name}.' if name != '' else ''}")

    walk({key: data[key] for key in ("package", "lib", "bin", "test", "bench", "profile") if key in data}, "")
    return found


def _pom(text: str) -> dict[str, str]:
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    plugins = [part.partition("</plugin>")[0] for part in text.split("<plugin>")[1:]]
    plugins = [plugin for plugin in plugins if re.search("surefire|failsafe", plugin)]
    wanted = r"<((?:maven\.test|skipT|skipIT|surefire|failsafe|testS|testFailure|testR)[\w.]*)>(.*?)</\1>"
    found = {name: value.strip() for name, value in re.findall(wanted, text, re.DOTALL)}
    return found | {f"plugin {n}": " ".join(plugin.split()) for n, plugin in enumerate(plugins, start=1)}


def _gradle(text: str) -> dict[str, str]:
    """Blocks about tests, and lines that name what switches them off. Dependencies of tests may change."""
    text = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", "", text, flags=re.DOTALL)
    text = "\n".join(line[:500] for line in text.splitlines())
    found: dict[str, str] = {}
    for match in re.finditer(r"(?m)^[^\n{]*\b(test\w*|Test|check)\b[^\n{]*\{", text):
        head = match[0].strip().rstrip("{").strip()
        if not re.match(r"dependencies|testImplementation|testRuntime|testCompile", head):
            found[head] = " ".join(balanced(text, match.end() - 1).split())
    switches = (
        r"ignoreFailures|useJUnitPlatform|excludeTestsMatching|onlyIf|org\.gradle\.\w*test|skipTests|exclude\s.*[tT]est"
    )
    return found | _matching(text, switches)


def _go(text: str) -> dict[str, str]:
    return _matching(text, r"(?:replace\s+|^\s+)?\S*(testify|gotest\.tools|gomega|ginkgo|go-cmp|quicktest)\S*.*=>")


def _vite(text: str) -> dict[str, str]:
    match = re.search(r"\btest\s*:\s*\{", text)
    return {"test": " ".join(balanced(text, match.end() - 1).split())} if match else {}


def balanced(text: str, at: int) -> str:
    """From an opening brace to the one that closes it, or to the end."""
    depth = 0
    for position in range(at, len(text)):
        depth += (text[position] == "{") - (text[position] == "}")
        if depth == 0:
            return text[at : position + 1]
    return text[at:]
