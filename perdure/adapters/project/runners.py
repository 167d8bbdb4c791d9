"""Test runners we know: how each is made to write a report without changing what it tests."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from perdure.adapters.project.reading import read, read_json
from perdure.models.config import TestCommand

_SEPARATORS = {"&&", "||", ";", "|", "&", "\n", "(", ")"}
# Words before the program that really runs; options of theirs that start with a dash are skipped too.
_WRAPPERS = {
    "uv": "run", "poetry": "run", "pdm": "run", "pipenv": "run", "hatch": "run", "rye": "run",
    "env": "", "time": "", "nice": "", "exec": "", "command": "", "npx": "", "xvfb-run": "",
}  # fmt: skip
_VALUES = {"--extra", "--group", "--with", "--python", "-p", "--package", "--project", "--directory", "-e", "--env"}

_MAVEN_TESTS = {"test", "package", "verify", "install", "integration-test", "surefire:test"}


@dataclass(frozen=True)
class Invocation:
    """What really runs.

    script   the command, with arguments appended where a runner takes no variable
    env      variables that ask for a report, on top of the caller's
    runner   pytest, node, vitest, jest, go, nextest, maven, gradle, or empty
    report   the JUnit file that must be there afterwards; None: there is none, or it is in `collect`
    collect  directories, by the last parts of their paths, in which the runner leaves JUnit files inside the tree;
             none of them there afterwards: the exit code is all there is
    owed     whether a `report` that is not there afterwards makes a failure
    files    what must be written, outside the tree, before it runs
    more     what goes between the command and more arguments of the runner (` --` for npm); None: something else
             stands last
    extended whether `script` ends in arguments already
    partial  whether the first failure keeps something else from running
    """

    script: str
    runner: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    report: Path | None = None
    collect: tuple[str, ...] = ()
    owed: bool = True
    files: Mapping[Path, str] = field(default_factory=dict)
    more: str | None = None
    extended: bool = False
    partial: bool = False

    def moved(self, seen: Path, reports: Path) -> Invocation:
        """The same with its files where this process finds them: the command sees `reports` at `seen`."""
        files = {reports / file.relative_to(seen): text for file, text in self.files.items()}
        report = reports / self.report.relative_to(seen) if self.report else None
        return replace(self, report=report, files=files)


def invocation(test: TestCommand, results: Path, tree: Path, installed: Path, env: Mapping[str, str]) -> Invocation:
    """Have a known runner of a test command write its report into `results`, a directory outside the tree,
    by the name the command sees it at.

    tree  what is tested; installed  the worktree setup ran in; env  what the command would see anyway

    A runner is recognised when exactly one part of the command line is one, wrappers (`uv run`, `python -m`) looked
    through, `npm test` and the like by their script in package.json. `report = "exit"` switches all of it off.
    `report = "junit"` on a command we do not recognise: it writes its report to $PERDURE_REPORT by itself.
    """
    file = results / "junit.xml"
    if test.report == "exit":
        return Invocation(test.command)
    runner, passes = _recognise(test.command, tree)
    known = _with_report(test.command, runner, passes, file, tree, installed, env) if runner else None
    if known is not None:
        return replace(known, partial=_partial(test.command, runner, tree))
    expected = file if test.report == "junit" else None
    return Invocation(test.command, runner, {"PERDURE_REPORT": str(file)}, expected)


def _with_report(
    command: str, runner: str, passes: str | None, file: Path, tree: Path, installed: Path, env: Mapping[str, str]
) -> Invocation | None:
    """None where asking for a report could change what runs, or the command asks for its own."""
    quoted = shlex.quote(str(file))
    if runner == "pytest" and not re.search(r"--junit-?xml|no:junitxml", command):
        options = f"--junit-xml={quoted} -o junit_family=xunit1 --continue-on-collection-errors"
        if "no:cacheprovider" not in command:
            # Not `-p no:cacheprovider`: suites that use the cache fixture, --lf or --strict-config would break.
            options += f" -o cache_dir={shlex.quote(str(file.parent / 'cache'))}"
        return Invocation(command, runner, {"PYTEST_ADDOPTS": added(env, "PYTEST_ADDOPTS", options)}, file)
    if runner == "node" and "--test-reporter" not in command and " " not in str(file):
        options = (
            f"--test-reporter=junit --test-reporter-destination={file} "
            "--test-reporter=spec --test-reporter-destination=stdout"
        )
        more = passes if _takes_options(command, tree) else None
        return Invocation(command, runner, {"NODE_OPTIONS": added(env, "NODE_OPTIONS", options)}, file, more=more)
    if runner == "go":
        return _go(command, passes, quoted, file)
    if passes is None:
        return None
    if runner == "vitest" and not re.search(r"--reporter|--outputFile", command):
        options = f"--reporter=default --reporter=junit --outputFile.junit={quoted}"
        return Invocation(f"{command}{passes} {options}", runner, {}, file, more=passes, extended=True)
    if runner == "jest" and "--reporters" not in command and (installed / "node_modules" / "jest-junit").is_dir():
        variables = {
            "JEST_JUNIT_OUTPUT_FILE": str(file),
            "JEST_JUNIT_ADD_FILE_ATTRIBUTE": "true",
            "JEST_JUNIT_REPORT_TEST_SUITE_ERRORS": "true",  # else a file that does not load is absent
            "JEST_JUNIT_CLASSNAME": "{filepath}",
            "JEST_JUNIT_TITLE": "{title}",
        }
        script = f"{command}{passes} --ci --reporters=default --reporters=jest-junit"
        return Invocation(script, runner, variables, file, more=passes, extended=True)
    if runner == "nextest" and " -- " not in command and "junit" not in read(tree / ".config" / "nextest.toml"):
        settings = file.with_name("nextest.toml")
        script = f"{command} --no-fail-fast --tool-config-file perdure:{shlex.quote(str(settings))}"
        wanted = {settings: f"[profile.default.junit]\npath = {json.dumps(str(file))}\n"}
        return Invocation(script, runner, {}, file, files=wanted, more=passes, extended=True)
    if runner in _LEAVE:
        option, directories = _LEAVE[runner]
        return Invocation(f"{command} {option}", runner, {}, None, directories, more=passes, extended=True)
    return None


def _takes_options(command: str, tree: Path) -> bool:
    """Whether arguments that npm and the like append reach node as options: behind a file's name they would not."""
    words = _unwrapped(_parts(command)[-1])
    script = _script(Path(words[0]).name, words[1:]) if words else ""
    inner = _parts(_package_scripts(tree).get(script, ""))
    return bool(inner) and all(word.startswith("-") for word in _around(inner[-1], "--test")[2])


def _partial(command: str, runner: str, tree: Path) -> bool:
    early = _FIRST_FAILURE.get(runner)
    last = command.rpartition("&&")[2]
    return bool(early and re.search(early, command)) or _recognise(last, tree)[0] != runner


_FIRST_FAILURE = {
    "pytest": r"\s(-[a-zA-Z]*x[a-zA-Z]*|--exitfirst|--maxfail)(?=[\s=]|$)",
    "jest": r"\s(--bail|-b)(?=[\s=]|$)",
    "vitest": r"\s--bail(?=[\s=]|$)",
    "go": r"\s(-{1,2}failfast|--max-fails)(?=[\s=]|$)",
}
"""Options that end a run early; nextest, Maven and Gradle are told to go on."""

_LEAVE = {
    "maven": ("--fail-at-end", ("target/surefire-reports", "target/failsafe-reports")),
    "gradle": ("--continue", ("build/test-results/*",)),
}
"""Runners that write reports by themselves: the option that lets them go on behind a module that fails, and where."""


def _go(command: str, passes: str | None, quoted: str, file: Path) -> Invocation | None:
    """`go test` has no report of its own: gotestsum runs it and writes one, where it is on the sandbox's PATH."""
    asked = f"gotestsum --format=standard-verbose --junitfile={quoted}"
    if "gotestsum" in command:
        if "--junitfile" in command:
            return None
        script = re.sub(r"(?<![\w./-])gotestsum(?=\s|$)", lambda _: f"gotestsum --junitfile={quoted}", command, count=1)
        if script == command:
            return None
        return Invocation(script, "go", {}, file, more=passes if " -- " in command else None)
    parts = re.split(r"(?<![\w./-])go\s+test(?=\s|$)", command)
    if len(parts) != 2 or re.search(r"\s-(c|json)\b", parts[1]):
        return None
    rest = parts[1] if parts[1].strip() else " ."  # alone, gotestsum would take ./...
    with_it = f"{parts[0]}{asked} --{rest}"
    script = f"if command -v gotestsum >/dev/null 2>&1; then {with_it}\nelse {command}\nfi"
    return Invocation(script, "go", {}, file, owed=False, more=passes)


def added(env: Mapping[str, str], name: str, options: str) -> str:
    return f"{env[name]} {options}" if env.get(name) else options


def _recognise(command: str, tree: Path) -> tuple[str, str | None]:
    """The one runner of a command line, and what goes between the command and more arguments of the runner (None:
    arguments cannot be appended, because something else stands last)."""
    parts = _parts(command)
    found = [(_runner(words, tree), number) for number, words in enumerate(parts)]
    runners = [(known, number) for known, number in found if known[0]]
    if len(runners) != 1:
        return "", None
    (runner, passes), number = runners[0]
    return runner, passes if number == len(parts) - 1 else None


def _parts(command: str) -> list[list[str]]:
    """The words of each simple command; nothing when the shell's grammar is beyond a word splitter."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    parts: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word in _SEPARATORS or set(word) <= set(";&|()\n"):
                parts.append([])
            else:
                parts[-1].append(word)
    except ValueError:
        return []
    return [words for words in parts if words]


def _runner(words: list[str], tree: Path, depth: int = 0) -> tuple[str, str | None]:
    words = _unwrapped(words)
    if not words:
        return "", None
    program, rest = Path(words[0]).name, words[1:]
    plain = "" if not any(word.startswith((">", "<")) or "#" in word for word in rest) else None
    if program in ("pytest", "py.test"):
        return "pytest", plain
    if program == "node" and "--test" in rest:
        return "node", plain
    if program == "vitest" and "watch" not in rest[:1]:
        return "vitest", plain
    if program == "jest":
        return "jest", plain
    if program == "gotestsum" or (program == "go" and rest[:1] == ["test"]):
        return "go", plain
    if program == "cargo" and rest[:2] == ["nextest", "run"]:
        return "nextest", plain
    if program in ("mvn", "mvnw") and not _MAVEN_TESTS.isdisjoint(rest):
        return "maven", plain
    if program in ("gradle", "gradlew") and any(re.fullmatch(r"(.*:)?(\w*[tT]est|check|build)", word) for word in rest):
        return "gradle", plain
    script = _script(program, rest)
    if script and depth == 0:
        parts = _parts(_package_scripts(tree).get(script, ""))
        runners = [found for words in parts if (found := _runner(words, tree, 1))[0]]
        if len(runners) == 1:
            runner, passes = runners[0]
            last = passes is not None and plain is not None and _runner(parts[-1], tree, 1)[0] == runner
            separator = " --" if program == "npm" and "--" not in rest else ""
            return runner, separator if last else None
    return "", None


def _unwrapped(words: list[str]) -> list[str]:
    """Without assignments and wrappers, and `python -m X`, `coverage run -m X` as `X`."""
    while words:
        name = Path(words[0]).name
        if re.fullmatch(r"\w+=.*", words[0], re.DOTALL):
            words = words[1:]
        elif re.fullmatch(r"python[\d.]*", name) or (name == "coverage" and words[1:2] == ["run"]):
            before, module, after = _around(words, "-m")
            # In `python tool.py -m pytest` the -m is the tool's own.
            options = all(w.startswith("-") or last in ("-X", "-W") for last, w in itertools.pairwise(before))
            ours = name == "coverage" or options
            return after if module and ours else []
        elif name in _WRAPPERS and (not _WRAPPERS[name] or _WRAPPERS[name] in words[1:]):
            words = words[words.index(_WRAPPERS[name]) + 1 :] if _WRAPPERS[name] else words[1:]
            while words and words[0].startswith("-"):
                words = words[2:] if words[0] in _VALUES else words[1:]
        else:
            return words
    return words


def _around(words: list[str], word: str) -> tuple[list[str], bool, list[str]]:
    at = words.index(word) if word in words else len(words)
    return words[:at], word in words, words[at + 1 :]


def _script(program: str, rest: list[str]) -> str:
    """The package.json script that `npm test`, `npm run unit`, `pnpm unit` or `yarn test` runs."""
    if program not in ("npm", "pnpm", "yarn") or not rest:
        return ""
    words = [word for word in rest if not word.startswith("-")]
    if words[:1] in (["run"], ["run-script"]):
        return words[1] if len(words) > 1 else ""
    return "test" if words[:1] in (["test"], ["t"], ["tst"]) else ""


def _package_scripts(tree: Path) -> dict[str, str]:
    scripts = read_json(tree / "package.json").get("scripts")
    return {name: text for name, text in scripts.items() if isinstance(text, str)} if isinstance(scripts, dict) else {}
