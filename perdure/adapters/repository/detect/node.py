"""Detect how a Node project, or a workspace of them, is set up (npm, pnpm, yarn, bun) and tested."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from perdure.adapters.repository.detect.commands import DetectedCommands, list_alternatives
from perdure.adapters.repository.detect.maintainer_commands import WrittenCommand
from perdure.adapters.system.bounded import parse_yaml, read_beginning, read_json
from perdure.models.config.repository import TestCommand

_PACKAGES_MOST = 50
"""The most packages of a workspace that are tested, each by a command of its own."""

_DEPENDENCY_GROUPS = ("dependencies", "devDependencies", "optionalDependencies", "workspaces")


_OVER_MEMBERS = re.compile(
    r"(?:npm (?:run )?test (?:.* )?(?:-ws|--workspaces)|pnpm (?:-r|--recursive)|yarn workspaces|lerna run test)\b"
    r"[^;&|]*"
)
"""Test scripts that run those of all packages of a workspace, and nothing else."""


def detect_node(root: Path, written: Sequence[WrittenCommand]) -> DetectedCommands:
    """Return the commands of a Node project in this directory; empty where there is no package.json, or it is empty or
    malformed.

    It has tests where package.json has a test script other than the one that `npm init` writes, or one that maintainers
    run in CI, or where packages of its workspace have one, and its own is absent or runs theirs. A script that does
    nothing but run several checks is several commands. It has setup where it names dependencies or workspaces.
    """
    package = read_json(root / "package.json")
    if not package:
        return DetectedCommands()
    manager, install = _find_package_manager(root, package)
    patterns = _workspace_patterns(root, package)
    setup = (install,) if patterns or any(package.get(group) for group in _DEPENDENCY_GROUPS) else ()
    scripts = _list_scripts(package)
    runs = [command.argv for command in written if command.argv[0] in ("npm", "pnpm", "yarn", "bun")]
    named = [argv[-1] for argv in runs if argv[-1] in scripts and argv[-1] != "test"]
    parts = list(_independent_parts(scripts, "test", 0))
    if len(parts) > 1:
        starter = {"npm": "npx", "pnpm": "pnpm exec", "yarn": "yarn exec", "bun": "bunx"}[manager]
        tests = tuple(TestCommand(name=part, command=f"{starter} {part}") for part in dict.fromkeys(parts))
        return DetectedCommands(setup, tests, (manager,))
    likely = [
        script
        for script in scripts
        if re.fullmatch(r"(?:tests|test(?=[:-])|unit)(?:[:-](?:unit|ci|node|all))?", script)
    ]
    script_commands = [f"{manager} run {script}" for script in dict.fromkeys([*named, *likely])]
    over_members = patterns and _OVER_MEMBERS.fullmatch(scripts.get("test", ""))
    if ("test" in scripts or script_commands) and not over_members:
        test = (
            _script_test(manager, "")
            if "test" in scripts
            else TestCommand(name=f"{manager} test", command=script_commands[0])
        )
        return DetectedCommands(setup, (test,), (manager,), list_alternatives(test, script_commands))
    members = [
        member
        for member in _list_members(root, patterns)
        if "test" in _list_scripts(read_json(root / member / "package.json"))
    ]
    beyond = [
        f"{member}: only the first {_PACKAGES_MOST} packages are tested" for member in members[_PACKAGES_MOST:][:1]
    ]
    tests = tuple(_script_test(manager, member) for member in members[:_PACKAGES_MOST])
    return DetectedCommands(setup, tests, (manager,), left_out=tuple(beyond))


def _list_scripts(package: dict[str, Any]) -> dict[str, str]:
    """Return the scripts of a package.json that do something, by their names, without the test script that `npm init`
    writes."""
    scripts = package.get("scripts")
    texts = scripts.items() if isinstance(scripts, dict) else ()
    return {n: text for n, text in texts if isinstance(text, str) and text.strip() and "no test specified" not in text}


def _script_test(manager: str, directory: str) -> TestCommand:
    name = f"{directory}: {manager} test" if directory else f"{manager} test"
    return TestCommand(name=name, command=f"{manager} {'run ' * (manager == 'bun')}test", directory=directory)


_CHECKERS = re.compile(
    "(?:xo|eslint|(?:ts-|semi|prettier-)?standard|tsd|stylelint|oxlint|publint|attw|knip|depcheck|markdownlint|c8|nyc|ava|mocha"
    "|jest|vitest|tape|uvu|tap|jasmine|type-coverage|cspell|node --test|tsc --noEmit|prettier (?:-c|--check)"
    "|biome (?:lint|ci))(?: |$)"
)
"""Programs of a test script of which each can be run without the others before it."""


def _independent_parts(scripts: dict[str, str], name: str, depth: int) -> Iterator[str]:
    """Yield the command lines of a package script that are joined by `&&`, those of the scripts that it runs too;
    nothing where one of them may be needed by the next."""
    if depth > 3 or f"pre{name}" in scripts or f"post{name}" in scripts:
        return
    parts = list[str]()
    for part in scripts.get(name, "").split("&&"):
        argv = part.split()
        if not argv or re.search(r"[;|&()<>$`]|--fix|--write", part):
            return
        inner = re.fullmatch(r"(?:npm|pnpm|yarn)(?: -s| --silent)? (?:run )?([\w:.-]+)", " ".join(argv))
        if inner and inner[1] in scripts:
            below = list(_independent_parts(scripts, inner[1], depth + 1))
            if not below:
                return
            parts += below
        elif _CHECKERS.match(" ".join(argv)):
            parts.append(part.strip())
        else:
            return
    yield from parts


def _find_package_manager(root: Path, package: dict[str, Any]) -> tuple[str, str]:
    """Return (name of a Node project's package manager, its install command): that of the lock file, without one that
    which `packageManager` names, else npm. The command changes no lock file."""
    declared, _, version = str(package.get("packageManager", "")).partition("@")
    if (root / "pnpm-lock.yaml").is_file():
        return "pnpm", "pnpm install --frozen-lockfile"
    if (root / "yarn.lock").is_file():
        is_classic = "\n__metadata:" not in read_beginning(root / "yarn.lock", 4096) and not re.match("[2-9]", version)
        return "yarn", f"yarn install {'--frozen-lockfile' if is_classic else '--immutable'}"
    if (root / "bun.lock").is_file() or (root / "bun.lockb").is_file():
        return "bun", "bun install --frozen-lockfile"
    if (root / "package-lock.json").is_file() or (root / "npm-shrinkwrap.json").is_file():
        return "npm", "npm ci"
    unlocked = {"pnpm": "--no-lockfile", "yarn": "--no-lockfile", "bun": "--no-save"}
    if declared == "yarn" and re.match("[2-9]", version):
        unlocked["yarn"] = "--no-immutable"
    manager, option = (declared, unlocked[declared]) if declared in unlocked else ("npm", "--no-package-lock")
    return manager, f"{manager} install {option}"


def _workspace_patterns(root: Path, package: dict[str, Any]) -> list[str]:
    """Return the patterns by which pnpm-workspace.yaml or package.json names the packages of a workspace."""
    workspaces = parse_yaml(read_beginning(root / "pnpm-workspace.yaml")) or package.get("workspaces")
    patterns = workspaces.get("packages") if isinstance(workspaces, dict) else workspaces
    return [pattern for pattern in patterns if isinstance(pattern, str)] if isinstance(patterns, list) else []


def _list_members(root: Path, patterns: Sequence[str]) -> list[str]:
    """Return the directories of a workspace's packages, sorted; none outside of `root`, behind a link, or among
    installed packages. `**` stands for one level."""
    members = set[str]()
    for pattern in patterns:
        plain = pattern.removeprefix("./").rstrip("/").replace("**", "*")
        if not plain or plain[0] in "!/" or ".." in PurePosixPath(plain).parts:
            continue
        for file in root.glob(f"{plain}/package.json"):
            directory = file.parent
            above = [path for path in (directory, *directory.parents) if path.is_relative_to(root) and path != root]
            if directory != root and not any(path.is_symlink() or path.name == "node_modules" for path in above):
                members.add(directory.relative_to(root).as_posix())
    excluded = [pattern[1:].removeprefix("./").rstrip("/") for pattern in patterns if pattern.startswith("!")]
    return sorted(member for member in members if not any(fnmatchcase(member, pattern) for pattern in excluded))
