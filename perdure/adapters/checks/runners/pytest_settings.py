"""The places of tests that pytest's settings, options and `conftest.py` name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from typing import Any

from perdure.adapters.checks.findings.globs import by_name, exactly
from perdure.adapters.checks.runners.base import Named, bounded
from perdure.adapters.checks.runners.leads import There
from perdure.adapters.system.bounded import parse_toml
from perdure.models.limits import SIDE_PATTERNS, SIDE_READ_FILES

_INI = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}
_PLUGINS = re.compile(
    r"""^pytest_plugins\b[^=\n]{0,80}=\s{0,80}([\[(][^\])]{0,4000}|"[^"\n]{0,200}"|'[^'\n]{0,200}')""", re.MULTILINE
)
_NO_ROOTS = (".", "src", "lib", "")


def named(simple: Sequence[list[str]], there: There) -> Named:
    found = [_ini(there.text(name), section) for name, section in _INI.items()]
    found.append(_table(there.text("pyproject.toml")))
    options = [word for words in simple if words[0].endswith(("pytest", "py.test")) for word in words[1:]]
    for one in found:
        options += _words(one.get("addopts"))
    modules, files = _options(options)
    for path in sorted(path for path in there.paths if path.rpartition("/")[2] == "conftest.py")[:SIDE_READ_FILES]:
        for listed in _PLUGINS.findall(there.text(path)):
            modules += re.findall(r"""["']([\w.]+)["']""", listed)
    tests = bounded([word for one in found for word in _words(one.get("python_files"))], lambda word: [by_name(word)])
    named_roots = [word.strip("/").removeprefix("./") for one in found for word in _words(one.get("testpaths"))]
    roots = [root for root in named_roots if root not in _NO_ROOTS]
    return tests + Named(
        roots=tuple(_spread(roots, there)),
        files=tuple(path for path in [*files, *modules_of(modules, there.paths)] if path in there.paths),
    )


def modules_of(names: Iterable[str], paths: frozenset[str]) -> list[str]:
    """The files of modules by their dotted names, at the top or below `src`."""
    found = []
    for name in names:
        stem = name.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py", f"src/{stem}.py", f"src/{stem}/__init__.py"):
            found += [path] if path in paths else []
    return found


def _options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Plugins and files that options name."""
    modules, files = list[str](), list[str]()
    for number, word in enumerate(words):
        behind = words[number + 1] if number + 1 < len(words) else ""
        if word.startswith("-p") and not word.startswith("--"):
            modules.append(word[2:] or behind)
        elif word in ("-c", "--config-file", "--rootdir", "--cov-config"):
            files.append(behind.removeprefix("./"))
        elif (option := re.fullmatch(r"--(?:config-file|cov-config)=(.+)", word)) is not None:
            files.append(option[1].removeprefix("./"))
    return modules, files


def _spread(roots: Sequence[str], there: There) -> list[str]:
    """Those with stars as the directories they stand for."""
    plain = [root for root in roots if not re.search(r"[*?\[]", root)]
    stars = bounded([root for root in roots if root not in plain], lambda word: [exactly(word)]).tests
    if stars:
        directories = {path[: cut.start()] for path in there.paths for cut in re.finditer("/", path)}
        pattern = re.compile("|".join(stars), re.DOTALL)
        plain += sorted(one for one in directories if pattern.fullmatch(one) and one not in _NO_ROOTS)[:SIDE_PATTERNS]
    return plain[:SIDE_PATTERNS]


def _ini(text: str, section: str) -> dict[str, Any]:
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except ConfigError:
        return {}
    return dict(parser.items(section)) if parser.has_section(section) else {}


def _table(text: str) -> dict[str, Any]:
    try:
        found: Any = parse_toml(text)
    except ValueError:
        return {}
    for name in ("tool", "pytest", "ini_options"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _words(given: object) -> list[str]:
    if isinstance(given, str):
        return given.split()
    return [word for word in given if isinstance(word, str)] if isinstance(given, list) else []
