"""Take command lines apart into the programs that they really run, and follow them to the commands and files that those
lead to: package scripts, make recipes, shell scripts. Runners recognise commands by it, and the rules of the test side
learn which files run the tests. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from perdure.adapters.checks.tamper.missing_tests import CODE
from perdure.adapters.system.bounded import parse_json, read_beginning, read_json
from perdure.adapters.system.command_lines import split_commands, unwrap_command
from perdure.models.checks.paths import is_test_file
from perdure.models.limits import SIDE_READ_FILES

_OTHER_PACKAGES = re.compile(r"-(?:ws|w|r|F|C)|--(?:workspaces?|recursive|filter|prefix|dir|cwd)(?:=.*)?|workspaces?")


def package_script_name(program: str, rest: list[str]) -> str:
    """Return the name of the package.json script that `npm test`, `npm run unit` or `yarn test` runs; empty where it is
    no such command, or one for other packages than the one here (`npm test --workspaces`, `pnpm -r test`)."""
    if program not in ("npm", "pnpm", "yarn") or any(_OTHER_PACKAGES.fullmatch(word) for word in rest):
        return ""
    plain_words = [word for word in rest if not word.startswith("-")]
    if plain_words[:1] in (["run"], ["run-script"]):
        return plain_words[1] if len(plain_words) > 1 else ""
    return "test" if plain_words[:1] in (["test"], ["t"], ["tst"]) else ""


def package_scripts(tree: Path) -> dict[str, str]:
    """Return the scripts in the tree's package.json by their names; empty where there are none."""
    scripts = read_json(tree / "package.json").get("scripts")
    return {name: text for name, text in scripts.items() if isinstance(text, str)} if isinstance(scripts, dict) else {}


MAKES = ("make", "gmake")
MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


def make_commands(tree: Path, arguments: list[str]) -> list[list[str]]:
    """Return the words of the commands that make runs in this tree for these arguments; none where they run in another
    directory, or by another makefile."""
    text = next((read_beginning(tree / name) for name in MAKEFILES if (tree / name).is_file()), "")
    lines = _recipe_lines(arguments, text.replace("\\\n", " "))
    commands = [argv for line in lines for argv in split_commands(line)]
    elsewhere = any(re.match("-[Cf]|--(?:directory|file|makefile)", word) for word in arguments)
    return [] if elsewhere or any(argv[0] == "cd" for argv in commands) else commands


TAMPER_DEPTH = 4
"""Levels of scripts that call scripts, which are followed to what runs the tests."""


_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}
_INTERPRETERS = re.compile(r"(?:python|pypy|node|deno|bun|tsx|ts-node|ruby|perl|php|Rscript|julia|lua)[\d.]*")
_SETTINGS_FILES = {
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "nox": ("noxfile.py",),
    "tox": ("tox.ini", "tox.toml"),
    "rake": ("Rakefile",),
    "inv": ("tasks.py",),
    "invoke": ("tasks.py",),
    "ctest": ("CTestTestfile.cmake",),
}
LINTERS: Mapping[str, tuple[str, frozenset[str]]] = {
    "ruff": (r"\.?ruff\.toml", frozenset({"pyproject.toml"})),
    "flake8": (r"\.flake8", frozenset({"setup.cfg", "tox.ini"})),
    "mypy": (r"\.?mypy\.ini", frozenset({"pyproject.toml", "setup.cfg"})),
    "pyright": (r"pyrightconfig\.json", frozenset({"pyproject.toml"})),
    "basedpyright": (r"pyrightconfig\.json", frozenset({"pyproject.toml"})),
    "ty": (r"ty\.toml", frozenset({"pyproject.toml"})),
    "pyrefly": (r"pyrefly\.toml", frozenset({"pyproject.toml"})),
    "pylint": (r"\.?pylintrc(?:\.toml)?", frozenset({"pyproject.toml", "setup.cfg"})),
    "black": ("", frozenset({"pyproject.toml"})),
    "isort": (r"\.isort\.cfg", frozenset({"pyproject.toml", "setup.cfg", "tox.ini"})),
    "bandit": (r"\.bandit", frozenset({"pyproject.toml"})),
    "lint-imports": (r"\.importlinter", frozenset({"pyproject.toml", "setup.cfg"})),
    "vulture": ("", frozenset({"pyproject.toml"})),
    "pre-commit": (r"\.pre-commit-config\.ya?ml", frozenset({"pyproject.toml", "setup.cfg"})),
    "eslint": (r"eslint\.config\.[cm]?[jt]s|\.eslintrc(?:\.[^/]*)?|\.eslintignore", frozenset({"package.json"})),
    "xo": (r"xo\.config\.[cm]?[jt]s|\.xo-config(?:\.[^/]*)?", frozenset({"package.json"})),
    "standard": ("", frozenset({"package.json"})),
    "prettier": (r"\.prettier(?:rc|ignore)(?:\.[^/]*)?|prettier\.config\.[cm]?[jt]s", frozenset({"package.json"})),
    "stylelint": (r"\.stylelint(?:rc|ignore)(?:\.[^/]*)?|stylelint\.config\.[cm]?[jt]s", frozenset({"package.json"})),
    "biome": (r"biome\.jsonc?", frozenset()),
    "oxlint": (r"\.oxlintrc\.json", frozenset()),
    "tsc": ("", frozenset({"tsconfig.json", "package.json"})),
    "vue-tsc": ("", frozenset({"tsconfig.json", "package.json"})),
    "tsd": ("", frozenset({"tsconfig.json", "package.json"})),
    "golangci-lint": (r"\.golangci\.(?:ya?ml|toml|json)", frozenset({"go.mod"})),
    "staticcheck": (r"staticcheck\.conf", frozenset({"go.mod"})),
    "rubocop": (r"\.rubocop(?:_todo)?\.yml", frozenset()),
    "shellcheck": (r"\.shellcheckrc", frozenset()),
    "shfmt": (r"\.editorconfig", frozenset()),
    "phpstan": (r"phpstan(?:-baseline)?\.neon(?:\.dist)?|phpstan\.dist\.neon", frozenset({"composer.json"})),
    "psalm": (r"psalm(?:-baseline)?\.xml(?:\.dist)?", frozenset({"composer.json"})),
    "phpcs": (r"\.?phpcs\.xml(?:\.dist)?", frozenset({"composer.json"})),
    "clang-tidy": (r"\.clang-tidy", frozenset()),
    "clang-format": (r"\.clang-format(?:-ignore)?", frozenset()),
    "yamllint": (r"\.yamllint(?:\.ya?ml)?", frozenset()),
    "markdownlint": (r"\.markdownlint(?:\.[^/]*)?", frozenset()),
    "codespell": (r"\.codespellrc", frozenset({"pyproject.toml", "setup.cfg"})),
}
"""Linters and type checkers: names of files that steer them alone, as a regular expression, and of those that steer the
product as well. What they name on their lines is the product."""

_TEST_TOOLS = frozenset(
    [
    "pytest", "py.test", "unittest", "node", "jest", "vitest", "go", "gotestsum", "prove", "bats", "ctest", "mocha",
    "ava", "tape", "tap", "uvu", "jasmine", "rspec", "phpunit", "behave", "robot", "lit", "busted", "nose2",
    "nosetests", "stestr", "cucumber", "playwright", "cypress",
    ]
)  # fmt: skip
_DIRECTORY_TOOLS = frozenset(
    ["prove", "bats", "mocha", "rspec", "phpunit", "behave", "robot", "busted", "nosetests", "nose2"]
)
"""Tools that take directories in which there is nothing but tests."""

_OTHER_TOOLS = frozenset(
    [
    "gcc", "g++", "cc", "c++", "clang", "clang++", "tcc", "rustc", "javac", "kotlinc", "scalac", "cargo", "mvn",
    "gradle", "cmake", "ninja", "meson", "esbuild", "rollup", "webpack", "vite", "swc", "babel", "cp", "mv", "cat",
    "echo", "printf", "cd", "mkdir", "rm", "ls", "ln", "chmod", "touch", "tar", "zip", "unzip", "install", "rsync",
    "tee", "test", "[", "[[", "pip", "pip3", "npm", "pnpm", "yarn", "bun", "uv", "apt-get", "git", "docker",
    "compileall", "py_compile", "doctest", "pyflakes", "pycodestyle", "pydocstyle", "cython", "build", "twine",
    "export", "set", "source", ".", "env", "true", "false", "exit", "gofmt", "goimports", "vet", "deno",
    ]
)  # fmt: skip
"""Programs that build, copy or look at files which may be the product."""

_READERS = re.compile("lint|fmt|format|schema|valid")
_ONLY_READS = {"--check", "-n", "-l"}
"""Options by which an interpreter looks at a script (`node --check`, `bash -n`, `php -l`) and does not run it."""


class CommandDirectory(Protocol):
    """The directory a command runs in, as one commit has it."""

    @property
    def paths(self) -> frozenset[str]: ...

    def text(self, path: str) -> str:
        """Return the text of a file; empty where there is none, or too much has been read already."""


@dataclass
class CommandTrace:
    """The commands and files that a test command leads to.

    simple_commands  the words of each simple command, wrappers removed
    files            the files that these run or name as tests, and those by which tools like tox and make choose
    directories      the directories of tests that they name
    command_lines    the command lines read so far
    """

    simple_commands: list[list[str]] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=set)
    command_lines: set[str] = field(default_factory=set)


def trace_command(command: str, directory: CommandDirectory) -> CommandTrace:
    """Return what a test command leads to in its directory."""
    trace = CommandTrace()
    _trace_into(command, directory, trace, 0)
    return trace


def _trace_into(command: str, directory: CommandDirectory, trace: CommandTrace, depth: int) -> None:
    """Add to `trace` what a command line leads to, and follow the package scripts, make recipes and shell scripts that
    it runs.

    depth  levels of scripts above it; beyond TAMPER_DEPTH nothing is followed

    A line that was traced before is not traced again, and no more than SIDE_READ_FILES lines are. A test file that is
    run is not followed: what a test runs is the product.
    """
    if depth > TAMPER_DEPTH or command in trace.command_lines or len(trace.command_lines) >= SIDE_READ_FILES:
        return
    trace.command_lines.add(command)
    for raw_argv in split_commands(command):
        argv = [word for word in raw_argv if not re.fullmatch(r"\w+=.*", word, re.DOTALL)]
        script_path = _script_path(argv, directory)
        if script_path:
            trace.files |= {script_path} | _loaded_files(script_path, directory)
            trace.files |= _named_files(argv, directory, has_script=True)
            if is_test_file(script_path):
                continue  # what a test runs is the product
            if (
                script_path.endswith(".sh")
                or argv[0] in (".", "source")
                or re.match(r"#!.*\b(?:ba|da|z|k)?sh\b", directory.text(script_path))
            ):
                _trace_into(_without_comments(directory.text(script_path)), directory, trace, depth + 1)
            continue
        argv = unwrap_command(raw_argv)
        if not argv:
            continue
        trace.simple_commands.append(argv)
        program = PurePosixPath(argv[0]).name
        trace.files.update(file for file in _SETTINGS_FILES.get(program, ()) if file in directory.paths)
        trace.files |= _named_files(argv, directory, has_script="-m" in raw_argv)
        if program in _DIRECTORY_TOOLS:
            named_paths = {_plain_path(word).rstrip("/") for word in argv[1:]} - {".", "src", "lib", ""}
            trace.directories |= {w for w in named_paths if any(path.startswith(f"{w}/") for path in directory.paths)}
        if program == "ctest":
            trace.files |= _ctest_files(directory)
        script_name = package_script_name(program, argv[1:])
        if script_name:
            _trace_into(_scripts_of_package(directory).get(script_name, ""), directory, trace, depth + 1)
        elif program in MAKES:
            text, included = _read_makefile(directory)
            trace.files |= included
            for line in _recipe_lines(argv[1:], text):
                _trace_into(line, directory, trace, depth + 1)


def _script_path(argv: list[str], directory: CommandDirectory) -> str:
    """Return the path of the repository's file that a command runs, by itself or by an interpreter, wrappers looked
    through.

    argv  the words of the command

    Empty where it runs none, or an interpreter is given a module (`-m`), a text (`-c`) or `--test`, or only reads it.
    """
    while argv:
        if argv[0] in (".", "source"):
            own_path = _plain_path([*argv, ""][1])
            return own_path if own_path in directory.paths else ""
        name = PurePosixPath(argv[0]).name
        if (own_path := _plain_path(argv[0])) in directory.paths:
            return own_path
        if name in _SHELLS or _INTERPRETERS.fullmatch(name):
            if "-m" in argv or "--test" in argv or not _ONLY_READS.isdisjoint(argv[1:2]) or "-c" in argv[:2]:
                return ""
            return next((path for word in argv[1:] if (path := _plain_path(word)) in directory.paths), "")
        inner_argv = unwrap_command(argv)
        if inner_argv == argv or not inner_argv:
            # `uv run python a.py`: what the wrapper starts is an interpreter again
            position = next((n for n, word in enumerate(argv[1:], 1) if _INTERPRETERS.fullmatch(word)), 0)
            if not position or name not in ("uv", "poetry", "pdm", "pipenv", "hatch", "rye", "env", "coverage", "npx"):
                return ""
            inner_argv = argv[position:]
        argv = inner_argv
    return ""


def _plain_path(word: str) -> str:
    return word.removeprefix("./")


def _named_files(argv: list[str], directory: CommandDirectory, *, has_script: bool) -> set[str]:
    """Return the existing files that a simple command names on its line and that are tests or steer them.

    has_script  a script or module of Python is run, and is no test by being named first

    All of them for a tool that runs tests, unless it is asked for doctests; only those that are tests by their names
    for one that looks at the product, builds or copies it. For any other program the first one, which is what it runs,
    and those that are no code or tests by their names.
    """
    program = PurePosixPath(argv[0]).name
    files = [path for word in argv[1:] if (path := _plain_path(word.partition("::")[0])) in directory.paths]
    is_interpreter = program in _SHELLS or _INTERPRETERS.fullmatch(program) is not None
    only_reads = is_interpreter and not _ONLY_READS.isdisjoint(argv[1:2])
    if program in LINTERS or program in _OTHER_TOOLS or only_reads or _READERS.search(program):
        return {*filter(is_test_file, files)}
    runs_tests = program in _TEST_TOOLS and {"go": "test", "node": "--test"}.get(program, program) in argv
    if runs_tests and not any("doctest" in word for word in argv):
        return {*files}
    chosen = [file for file in files if is_test_file(file) or not CODE.fullmatch(file)]
    return {*chosen, *(files[:1] if not has_script and program not in _TEST_TOOLS else ())}


_ADD_TEST = re.compile(r"\badd_test\s{0,9}\(([^()]{0,2000})\)")


def _ctest_files(directory: CommandDirectory) -> set[str]:
    """Return the files that a CMakeLists.txt names in `add_test`, by paths from its own directory or the top."""
    files = set[str]()
    for path in sorted(path for path in directory.paths if path.rpartition("/")[2] == "CMakeLists.txt")[
        :SIDE_READ_FILES
    ]:
        above = path.removesuffix("CMakeLists.txt")
        arguments = {word for line in _ADD_TEST.findall(directory.text(path)) for word in line.split()}
        plain_words = {re.sub(r"^[\"']?\$\{\w+\}/|[\"']", "", word) for word in arguments}
        files |= {*(above + word for word in plain_words), *plain_words} & directory.paths
    return files


def _without_comments(text: str) -> str:
    """Return a shell script without its comment lines, and with each line that ends in a backslash joined to the next
    one."""
    return re.sub(r"(?m)^\s*#.*$", "", text.replace("\\\n", " "))


def _scripts_of_package(directory: CommandDirectory) -> Mapping[str, str]:
    """Return the scripts in package.json by their names; empty where it is missing or malformed."""
    try:
        manifest = parse_json(directory.text("package.json") or "{}")
    except ValueError:
        return {}
    scripts = manifest.get("scripts") if isinstance(manifest, dict) else None
    return {name: text for name, text in scripts.items() if isinstance(text, str)} if isinstance(scripts, dict) else {}


_TOOLS = re.compile(r"(?:.*/)?(?:tools?|scripts?|\.?ci|dev|hack|bin)/")
_LOADS = re.compile(
    r"""^[ \t]{0,80}(?:from|import)\s{1,9}(\w{1,200})|"""
    r"""(?:require\(|from\s|import\s)\s{0,9}['"]\./([\w./-]{1,200})['"]""",
    re.MULTILINE,
)


def _loaded_files(script_path: str, directory: CommandDirectory) -> set[str]:
    """Return the files that a script in a directory of tools at any depth (`scripts/`, `ci/` …) loads from its own
    directory, and those that these load, until there are SIDE_READ_FILES.

    Empty for a script elsewhere: what that loads may be the product.
    """
    files, pending = set[str](), [script_path] if _TOOLS.match(script_path) else []
    while pending and len(files) < SIDE_READ_FILES:
        path = pending.pop()
        top = path.rpartition("/")[0]
        for python_name, javascript_path in _LOADS.findall(directory.text(path)):
            endings = (".py", "/__init__.py") if python_name else ("", ".js", ".mjs", ".cjs", ".ts")
            new_files = {f"{top}/{python_name or javascript_path}{end}" for end in endings} & directory.paths - files
            files |= new_files
            pending += new_files
    return files


def _read_makefile(directory: CommandDirectory) -> tuple[str, set[str]]:
    """Return (text, included files): the text of the first makefile that GNU make would use, that of the files which it
    includes by name behind it, and the paths of these files. Both empty without a makefile."""
    text = next((directory.text(name) for name in MAKEFILES if name in directory.paths), "")
    include_lines = re.findall(r"(?m)^-?include[ \t]+(.{1,400})", text)
    included = sorted({_plain_path(word) for line in include_lines for word in line.split()} & directory.paths)
    return "\n".join([text, *map(directory.text, included)]).replace("\\\n", " "), set(included)


def _recipe_lines(arguments: list[str], text: str) -> list[str]:
    """Return the lines that make runs for the targets among its arguments, and for what these need; variables of the
    file are filled in.

    text  the makefile's

    The first target counts where the arguments name none. The order is not make's: a target stands before what it
    needs.
    """
    variables = dict(re.findall(r"(?m)^(\w+)[ \t]*[:?]?=[ \t]*(.*)$", text))
    recipes, needs, current = dict[str, list[str]](), dict[str, list[str]](), list[str]()
    for line in text.splitlines():
        if line.startswith("\t"):
            for target in current:
                recipes[target].append(_fill_variables(line.strip().lstrip("@-+"), variables))
        elif (head := re.match(r"([^\s:=#][^:=#]*):(?!=)([^=]*)$", line)) is not None:
            current = head[1].split()
            for target in current:
                recipes.setdefault(target, [])
                needs.setdefault(target, []).extend(head[2].split(";")[0].split())
    pending = [word for word in arguments if word in recipes] or [name for name in recipes if not name.startswith(".")][
        :1
    ]
    lines, done = list[str](), set[str]()
    while pending and len(done) < SIDE_READ_FILES:
        target = pending.pop(0)
        if target not in done:
            done.add(target)
            lines += recipes.get(target, [])
            pending += [need for need in needs.get(target, []) if need in recipes]
    return lines


def _fill_variables(line: str, values: Mapping[str, str]) -> str:
    """Return a line with the values of its variables in it, an unknown one as its name.

    Line and values are cut to 1,000 characters, so that a long line cannot grow without bound.
    """
    return re.sub(r"\$[({](\w+)[)}]", lambda match: values.get(match[1], match[1])[:1_000], line[:1_000])
