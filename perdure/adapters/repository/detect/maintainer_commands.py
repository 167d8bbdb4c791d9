"""Read the commands that a repository's maintainers wrote down for their own tests: in tox.ini, noxfile.py,
pyproject.toml, workflows of CI, makefiles, contributors' guides and hooks. Only what runs tests is kept, and what is
installed for it. Nothing is executed."""

from __future__ import annotations

import ast
import itertools
import posixpath
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perdure.adapters.system.bounded import find_subtable, parse_toml, parse_yaml, read_beginning
from perdure.adapters.system.command_lines import split_commands, unwrap_command
from perdure.models.limits import PROJECT_FILE_BYTES
from perdure.text import shell_word

_FILES_MOST, _VALUES_MOST, _COMMANDS_MOST, _SCRIPT_CHARS, _WORD_CHARS = 40, 20_000, 300, 10_000, 300
"""The most files of one pattern, values of one YAML file, and commands of one repository that are looked at, and how
long scripts, lists of environments and words may be."""

Reader = Callable[[str], Iterator[str]]


@dataclass(frozen=True)
class WrittenCommand:
    """A simple command that tests something, as maintainers wrote it: its words, variables before it and wrappers
    removed (`env`: the variables), the file it stands in, and what that file installs with pip before."""

    argv: tuple[str, ...]
    env: tuple[str, ...]
    source: str
    requirements: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """Return it as a command line."""
        return shlex.join([*self.env, *self.argv])


def read_written_commands(root: Path, directory: str = ".") -> tuple[WrittenCommand, ...]:
    """Return the test commands that maintainers wrote in the files of `root` for it, or for this directory of it, which
    they change into first; the most trusted first, each once."""
    commands, requirements, last_name = dict[tuple[str, ...], WrittenCommand](), list[str](), ""
    for name, script in itertools.islice(_read_sources(root), _COMMANDS_MOST):
        if len(script) > _SCRIPT_CHARS:
            continue
        requirements, last_name = requirements if name == last_name else [], name
        current = "."
        for raw_argv in split_commands(re.sub(r"\\\n\s*", " ", script))[:_COMMANDS_MOST]:
            if raw_argv[0] == "cd":
                current = posixpath.normpath(posixpath.join(current, *raw_argv[1:2]))
            if current != directory:
                continue
            env = tuple(itertools.takewhile(lambda word: re.fullmatch(r"\w+=[^$]*", word, re.DOTALL), raw_argv))
            argv = [word for word in raw_argv[len(env) :] if "{" not in word]
            plain = unwrap_command(argv)
            if plain[:2] in (["pip", "install"], ["pip3", "install"]):
                requirements += _pip_requirements(plain[2:])
            elif test := _test_words(root / directory, argv):
                commands.setdefault(test, WrittenCommand(test, env, name, tuple(dict.fromkeys(requirements))))
    return tuple(commands.values())


def _read_sources(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (file, script) for each script in the files of _SOURCES."""
    for pattern, read in _SOURCES:
        for path in sorted(root.glob(pattern))[:_FILES_MOST]:
            text = read_beginning(path, PROJECT_FILE_BYTES + 1)
            if len(text) <= PROJECT_FILE_BYTES:
                name = str(path.relative_to(root))
                yield from ((name, script) for script in read(text))


_RUNNERS = frozenset([
    "pytest", "py.test", "unittest", "nosetests", "nose2", "stestr", "trial", "behave", "green", "zope-testrunner",
    "bats", "prove", "ctest", "busted", "phpunit", "rspec", "mocha", "ava", "jest", "vitest", "tape", "uvu", "jasmine",
])  # fmt: skip
_BUILDERS = frozenset([
    "django", "django-admin", "go", "cargo", "dotnet", "mvn", "mvnw", "gradle", "gradlew", "bundle", "rake", "swift",
    "mix", "stack", "cabal", "zig", "dart", "flutter", "deno", "bun", "sbt", "lein", "composer", "npm", "pnpm", "yarn",
    "make", "gmake", "just", "task", "inv", "invoke", "ninja", "meson",
])  # fmt: skip
"""Programs that run tests, and those that do where they are asked for a target of tests."""

_TARGET = re.compile(r"tests?|unittest|unit|(?:test|unit)[-_:]\w+")
_OWN_TARGETS = frozenset([
    "make check", "gmake check", "just check", "ninja check", "gradle check", "gradlew check", "mvn verify",
    "mvnw verify", "rake spec", "cargo nextest",
])  # fmt: skip
_INSTALLING = {"install", "i", "ci", "add", "init", "publish", "get", "mod", "build", "fmt", "vet", "clippy", "restore"}


_SCRIPTS = re.compile(
    r"(?:.*/)?(?:(?:run|all|)[-_]?tests?|test_\w+|\w+_tests?|(?:.*/)?tests?/run)(?:\.(?:py|sh|rb|pl|php|js))?"
)
"""Paths of scripts that are tests, or run them."""

_INTERPRETER = re.compile(r"(?:python|pypy|node|ruby|perl|php|bash|sh)[\d.]*")


PYTHON_RUNNERS = {
    **{name: name for name in ("unittest", "nose2", "stestr", "behave", "green", "django")},
    "pytest": "pytest",
    "py.test": "pytest",
    "django-admin": "django",
    "trial": "twisted.trial",
    "nosetests": "nose",
    "zope-testrunner": "zope.testrunner",
}
"""By the words that start runners: their modules."""


def _test_words(root: Path, argv: list[str]) -> tuple[str, ...]:
    """Return the words of a command that runs tests: `python -m X` and wrappers looked through to X, measuring of
    coverage left out, a script with its interpreter. Empty where it runs none, or needs what is only there in CI."""
    if not argv or any(len(word) > _WORD_CHARS or re.search(r"[$`<>]|^\|$|\*\*", word) for word in argv):
        return ()
    plain = unwrap_command(argv)
    program = Path(plain[0]).name if plain else ""
    asks = not {*plain[1:2]} & _INSTALLING and any(
        _TARGET.fullmatch(word) or f"{program} {word}" in _OWN_TARGETS for word in plain[1:]
    )
    if program in _RUNNERS or (program in _BUILDERS and asks):
        return (program, *plain[1:]) if program in PYTHON_RUNNERS else tuple(argv)
    position = next((n for n, word in enumerate(argv) if not word.startswith("-") and (root / word).is_file()), None)
    if position is None:
        return ()
    before, script = argv[:position], argv[position]
    interpreted = [Path(word).name for word in before]
    runs = not before or any(_INTERPRETER.fullmatch(word) or word == "coverage" for word in interpreted)
    is_django = script.endswith("manage.py") and argv[position + 1 : position + 2] == ["test"]
    if not runs or not (is_django or _SCRIPTS.fullmatch(script.removeprefix("./"))) or "-c" in before or "-m" in before:
        return ()
    program = next((word for word in interpreted if _INTERPRETER.fullmatch(word)), "")
    if not program and (script.endswith(".py") or "coverage" in interpreted):
        program = "python"
    return (
        *([re.sub(r"^(python|pypy).*", "python", program)] if program else []),
        script.removeprefix("./") if program else script,
        *argv[position + 1 :],
    )


def _pip_requirements(arguments: list[str]) -> list[str]:
    """Return what `pip install` is asked for, quoted for the shell: requirements, and files and projects with their
    options; not pip itself and what only runs or packages tests elsewhere."""
    requirements, option = list[str](), ""
    for word in arguments:
        if option:
            requirements.append(f"{option} {shell_word(word)}")
            option = ""
        elif match := re.fullmatch(r"(-[rec])(\S+)", word):
            requirements.append(f"{match[1]} {shell_word(match[2])}")
        elif word.startswith("."):  # never a copy of the product in the place of its files
            requirements.append(f"-e {shell_word(word)}")
        elif word in _VALUE_OPTIONS:
            option = _VALUE_OPTIONS[word]
        elif not re.match(r"-|(?:pip|setuptools|wheel|build|twine|tox|nox|uv|virtualenv|codecov|coveralls)\b", word):
            requirements.append(shell_word(word))
    return [requirement for requirement in requirements if not re.search(r"[$*{]|dist/|\.whl|-[er] /", requirement)]


_VALUE_OPTIONS = {"-r": "-r", "-e": "-e", "-c": "-c", "--requirement": "-r", "--editable": "-e", "--constraint": "-c"}


def _tox_scripts(text: str) -> Iterator[str]:
    """Yield a script for each environment of tox.ini that may test: what it installs, and its commands for this
    Python."""
    parser = ConfigParser(interpolation=None, strict=False, comment_prefixes=("#", ";"), allow_no_value=True)
    try:
        parser.read_string(text)
    except (ConfigError, ValueError):
        return
    core: Mapping[str, str] = next((parser[name] for name in ("tox:tox", "tox") if parser.has_section(name)), {})
    names = (core.get("envlist") or core.get("env_list") or "").replace("\n", ",")
    factors = _choose_factors(names)
    for section in parser.sections():
        if re.fullmatch(r"testenv(?::(?:py|test|unit)[^:]*)?", section):
            values = {key: _resolve_setting(parser, value or "", factors) for key, value in parser[section].items()}
            setting = values.get("setenv") or values.get("set_env") or []
            pairs = [line.partition("=")[::2] for line in setting if "=" in line and "{" not in line]
            prefix = "".join(f"{key.strip()}={shell_word(value.strip())} " for key, value in pairs)
            installed = [line.split(None, 1) if line[0] == "-" else [line] for line in values.get("deps", [])]
            lines = [f"pip install {shlex.join(line)}" for line in installed]
            yield "\n".join([*lines, *(prefix + line.lstrip("-! ") for line in values.get("commands", []))])


def _choose_factors(names: str) -> set[str]:
    """Return the factors of the first environment in an envlist that is for the Python which runs this, else of the
    first one at all."""
    own = {f"py3{sys.version_info.minor}", f"py3.{sys.version_info.minor}", f"3.{sys.version_info.minor}", "py3", "py"}
    environments = _expand_names(names)
    return next((factors for factors in environments if factors & own), (environments or [set()])[0])


def _expand_names(names: str) -> list[set[str]]:
    """Return the factors of each environment that names with braces stand for: `py{311,312}-django` for two."""
    environments = list[set[str]]()
    for name in re.findall(r"(?:\{[^}]*\}|[^,\s{}])+", names[:_SCRIPT_CHARS])[:200]:
        parts = re.findall(r"\{[^}]*\}|[^{}]+", name)
        choices = [re.split(r"\s*,\s*", part[1:-1].strip()) if part[0] == "{" else [part] for part in parts]
        combined = itertools.islice(itertools.product(*choices), 500)
        environments += [set("".join(choice).split("-")) for choice in combined]
    return environments


def _resolve_setting(parser: ConfigParser, value: str, factors: set[str], depth: int = 0) -> list[str]:
    """Return the lines of a tox setting that count for these factors, other sections' settings and the defaults of
    `{posargs}` and `{env:…}` put in."""
    lines = list[str]()
    for line in re.sub(r"\\\n\s*", " ", value).splitlines():
        condition, separator, rest = line.strip().partition(":")
        if (
            separator
            and rest[:1] in " \t"
            and len(condition) < _WORD_CHARS
            and re.fullmatch(r"(?:\{[\w., -]*\}|,\s*|[\w.!-])+", condition)
        ):
            terms = _expand_names(condition)
            if not any(all((word.lstrip("!") in factors) != (word[:1] == "!") for word in term) for term in terms):
                continue
            line = rest
        line = line.strip()
        if (reference := re.fullmatch(r"\{\[([^\]]+)\](\w+)\}", line)) and depth < 3:
            lines += _resolve_setting(
                parser, parser.get(reference[1], reference[2], fallback="") or "", factors, depth + 1
            )
        elif line and not line.startswith("#"):
            line = re.sub(r"\{toxinidir\}/|\{tox_root\}/|\{posargs\}|\[\]", "", line)
            line = re.sub(r"\{envpython\}|\{env_python\}", "python", line).replace("{toxinidir}", ".")
            lines.append(re.sub(r"\{(?:posargs|env:\w+):([^{}]*)\}", r"\1", line))
    return lines


def _nox_scripts(text: str) -> Iterator[str]:
    """Yield a script for each session of a noxfile: what its calls `session.install` and `session.run` name as text."""
    try:
        module = ast.parse(text)
        for function in module.body:
            if isinstance(function, ast.FunctionDef) and "session" in ast.dump(ast.List(function.decorator_list)):
                calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
                yield "\n".join(filter(None, map(_nox_command, calls)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return


def _nox_command(call: ast.Call) -> str:
    """Return the command line of a call of `session.run` or `session.install`; empty for any other call."""
    prefix = {"run": "", "run_always": "", "install": "pip install "}.get(getattr(call.func, "attr", ""))
    argv = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    return prefix + shlex.join(argv) if prefix is not None and argv else ""


def _toml_scripts(text: str) -> Iterator[str]:
    """Yield the scripts of pyproject.toml and tox.toml: of tox, hatch, pdm, poe, taskipy and rye."""
    try:
        table = parse_toml(text)
    except ValueError:
        return
    tox = find_subtable(table, "tool", "tox") or table
    if isinstance(legacy := tox.get("legacy_tox_ini"), str):
        yield from _tox_scripts(legacy)
    lines = find_subtable(tox, "env_run_base").get("commands")
    for line in lines if isinstance(lines, list) else []:
        yield shlex.join(word for word in line if isinstance(word, str)) if isinstance(line, list) else ""
    for place in ("hatch envs", "pdm scripts", "poe tasks", "taskipy tasks", "rye scripts"):
        yield from _walk_scripts(find_subtable(table, "tool", *place.split()), None)


_SCRIPT_KEYS = {"run", "script", "command", "commands", "entry", "cmd", "shell", "test_script", "before_script"}


def _yaml_scripts(text: str) -> Iterator[str]:
    """Yield the scripts in the YAML of a CI service or of hooks."""
    for script in _walk_scripts(parse_yaml(text), _SCRIPT_KEYS):
        yield re.sub(r"\$\{\{.*?\}\}", "$", script)


def _walk_scripts(data: Any, keys: set[str] | None) -> Iterator[str]:
    """Yield the texts that stand at these keys (None: at any) in nested tables and lists, those of one list as one
    script; at most _VALUES_MOST values are looked at, each once."""
    to_visit, seen = [(data, keys is None, "")], set[int]()
    while to_visit and len(seen) < _VALUES_MOST:
        value, is_script, directory = to_visit.pop()
        if isinstance(value, str):
            yield directory + value if is_script else ""
        elif isinstance(value, list) and is_script and all(isinstance(entry, str) for entry in value):
            yield directory + "\n".join(value)
        elif isinstance(value, dict | list) and id(value) not in seen:
            seen.add(id(value))
            entries = [*value.items()] if isinstance(value, dict) else [("", entry) for entry in value]
            if isinstance(value, dict):
                directory = f"cd {shell_word(str(value.get('working-directory') or '.'))}\n"
            for key, entry in reversed(entries):
                to_visit.append((entry, keys is None or key in keys or (is_script and not key), directory))


_RECIPES = re.compile(
    r"^@?(?:(?:unit|run)?-?(?:tests?|check|unittest)[\w-]*)[^\n:=]*:(?!=)[^\n]*\n((?:(?:\t|  )[^\n]*\n?)*)",
    re.MULTILINE,
)
"""Targets of a makefile or justfile that test, with their recipes."""


def _recipe_scripts(text: str) -> Iterator[str]:
    """Yield, for each target of a makefile or justfile that tests, its recipe, without the marks `@` and `-`."""
    for recipe in _RECIPES.findall(text):
        plain = re.sub(r"\$[({](?:PYTHON|PY|python)\w*[)}]", "python", recipe)
        yield re.sub(r"^[ \t]*[@-]*|\$[({]\w+[)}]|\{\{.*?\}\}", "", plain, flags=re.MULTILINE)


def _target_script(program: str, text: str) -> Iterator[str]:
    """Yield `make test` or the like for a makefile or justfile that has the target."""
    for name in ("test", "tests", "check"):
        if re.search(rf"^@?{name}\b[^\n:=]*:(?!=)", text, re.MULTILINE):
            yield f"{program} {name}"


def _prose_scripts(text: str) -> Iterator[str]:
    """Yield the lines of a guide that are code: in fences, indented, or behind `$`."""
    lines = re.findall(r"^(?:    |\t|\$ |> )?[ \t]*\$? ?([\w./-]+ [^\n]{1,300})$", text, re.MULTILINE)
    yield from lines[:_VALUES_MOST]


_SOURCES: tuple[tuple[str, Reader], ...] = (
    ("tox.ini", _tox_scripts),
    ("setup.cfg", _tox_scripts),
    ("tox.toml", _toml_scripts),
    ("pyproject.toml", _toml_scripts),
    ("noxfile.py", _nox_scripts),
    (".github/workflows/*.y*ml", _yaml_scripts),
    (".gitlab-ci.yml", _yaml_scripts),
    (".circleci/config.yml", _yaml_scripts),
    (".travis.yml", _yaml_scripts),
    ("appveyor.yml", _yaml_scripts),
    ("*akefile", _recipe_scripts),
    ("*ustfile", _recipe_scripts),
    ("*akefile", partial(_target_script, "make")),
    ("*ustfile", partial(_target_script, "just")),
    ("CONTRIBUTING*", _prose_scripts),
    (".github/CONTRIBUTING*", _prose_scripts),
    ("docs/[Cc][Oo][Nn][Tt][Rr][Ii][Bb]*", _prose_scripts),
    (".pre-commit-config.y*ml", _yaml_scripts),
)
"""Files in which maintainers write how they test, the most trusted first, and what reads their scripts."""
