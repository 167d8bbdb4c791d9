"""The test side that pytest's settings, options and `conftest.py` files name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from typing import Any

from perdure.adapters.checks.findings.globs import fnmatch_regex, path_regex
from perdure.adapters.checks.runners.base import ConfiguredTestSide, translate_patterns
from perdure.adapters.checks.runners.command_trace import CommandDirectory
from perdure.adapters.system.bounded import parse_toml
from perdure.models.limits import SIDE_PATTERNS, SIDE_READ_FILES

_INI = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}
_PLUGINS = re.compile(
    r"""^pytest_plugins\b[^=\n]{0,80}=\s{0,80}([\[(][^\])]{0,4000}|"[^"\n]{0,200}"|'[^'\n]{0,200}')""", re.MULTILINE
)
_NO_ROOTS = (".", "src", "lib", "")


def pytest_test_side(commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
    """Return the test side that pytest's settings files, the options on its command lines and `pytest_plugins` in
    `conftest.py` name.

    It holds patterns (`python_files`), directories (`testpaths`) and existing files: plugins and settings that options
    name. Directories that hold the product (`src`, `lib`, the top) are left out.
    """
    sections = [_parse_ini_section(directory.text(name), section) for name, section in _INI.items()]
    sections.append(_parse_pytest_table(directory.text("pyproject.toml")))
    options = [word for argv in commands if argv[0].endswith(("pytest", "py.test")) for word in argv[1:]]
    for settings in sections:
        options += _split_setting(settings.get("addopts"))
    modules, files = _plugins_and_files(options)
    for path in sorted(path for path in directory.paths if path.rpartition("/")[2] == "conftest.py")[:SIDE_READ_FILES]:
        for plugins in _PLUGINS.findall(directory.text(path)):
            modules += re.findall(r"""["']([\w.]+)["']""", plugins)
    side = translate_patterns(
        [word for settings in sections for word in _split_setting(settings.get("python_files"))],
        lambda word: [fnmatch_regex(word)],
    )
    all_roots = [
        word.strip("/").removeprefix("./")
        for settings in sections
        for word in _split_setting(settings.get("testpaths"))
    ]
    roots = [root for root in all_roots if root not in _NO_ROOTS]
    return side + ConfiguredTestSide(
        roots=tuple(_expand_roots(roots, directory)),
        files=tuple(path for path in [*files, *module_files(modules, directory.paths)] if path in directory.paths),
    )


def module_files(names: Iterable[str], paths: frozenset[str]) -> list[str]:
    """Return the existing files of modules by their dotted names, at the top or below `src`."""
    files = []
    for name in names:
        stem = name.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py", f"src/{stem}.py", f"src/{stem}/__init__.py"):
            files += [path] if path in paths else []
    return files


def _plugins_and_files(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the plugin modules and the settings files that options of pytest name."""
    modules, files = list[str](), list[str]()
    for number, word in enumerate(arguments):
        following = arguments[number + 1] if number + 1 < len(arguments) else ""
        if word.startswith("-p") and not word.startswith("--"):
            modules.append(word[2:] or following)
        elif word in ("-c", "--config-file", "--rootdir", "--cov-config"):
            files.append(following.removeprefix("./"))
        elif (option := re.fullmatch(r"--(?:config-file|cov-config)=(.+)", word)) is not None:
            files.append(option[1].removeprefix("./"))
    return modules, files


def _expand_roots(roots: Sequence[str], directory: CommandDirectory) -> list[str]:
    """Return the roots, those with wildcards replaced by the directories that they match; at most SIDE_PATTERNS."""
    plain = [root for root in roots if not re.search(r"[*?\[]", root)]
    stars = translate_patterns([root for root in roots if root not in plain], lambda word: [path_regex(word)]).tests
    if stars:
        directories = {path[: cut.start()] for path in directory.paths for cut in re.finditer("/", path)}
        pattern = re.compile("|".join(stars), re.DOTALL)
        plain += sorted(
            candidate for candidate in directories if pattern.fullmatch(candidate) and candidate not in _NO_ROOTS
        )[:SIDE_PATTERNS]
    return plain[:SIDE_PATTERNS]


def _parse_ini_section(text: str, section: str) -> dict[str, Any]:
    """Parse an ini file and return one section of it; empty where there is none, or the text is malformed."""
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except ConfigError:
        return {}
    return dict(parser.items(section)) if parser.has_section(section) else {}


def _parse_pytest_table(text: str) -> dict[str, Any]:
    """Parse a pyproject.toml and return its table `tool.pytest.ini_options`; empty where there is none, or the text is
    malformed."""
    try:
        table: Any = parse_toml(text)
    except ValueError:
        return {}
    for name in ("tool", "pytest", "ini_options"):
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def _split_setting(value: object) -> list[str]:
    """Split a setting into its words: a string at its blanks, a list into the strings in it; empty for anything
    else."""
    if isinstance(value, str):
        return value.split()
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
