"""Split command lines into simple commands, and find the program that one really runs: variables before it, wrappers
(`uv run`, `env`) and interpreters looked through. Used where test commands are detected and where their runners are
recognised. Nothing is executed."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

_SEPARATORS = {"&&", "||", ";", "|", "&", "\n", "(", ")"}
# Words before the program that really runs; options of theirs that start with a dash are skipped too.
_WRAPPERS = {
    "uv": "run", "poetry": "run", "pdm": "run", "pipenv": "run", "hatch": "run", "rye": "run",
    "env": "", "time": "", "nice": "", "exec": "", "command": "", "npx": "", "xvfb-run": "", "php": "",
    "bundle": "exec", "pnpm": "exec", "yarn": "exec", "bunx": "", "c8": "", "nyc": "", "cross-env": "",
}  # fmt: skip
_OPTIONS_WITH_VALUE = {
    "--extra", "--group", "--with", "--python", "-p", "--package", "--project", "--directory", "-e", "-d", "--env",
}  # fmt: skip


def split_commands(command: str) -> list[list[str]]:
    """Split a command line at `;`, `&`, `|`, parentheses and line ends into its simple commands, each a list of its
    words. Empty where it cannot be split, as for a quote without an end."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word in _SEPARATORS or set(word) <= set(";&|()\n"):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:
        return []
    return [argv for argv in commands if argv]


def unwrap_command(argv: list[str]) -> list[str]:
    """Return the words of a command without variables set before it and wrappers such as `uv run` or `env`; `python -m
    X …` and `coverage run -m X …` become `X …`.

    So does `python manage.py …` become `manage.py …`. Empty where nothing is left, or Python runs another script.
    """
    while argv:
        name = Path(argv[0]).name
        if re.fullmatch(r"\w+=.*", argv[0], re.DOTALL):
            argv = argv[1:]
        elif re.fullmatch(r"python[\d.]*", name) or (name == "coverage" and argv[1:2] == ["run"]):
            script = next((number for number, word in enumerate(argv) if Path(word).name == "manage.py"), len(argv))
            before, module, after = split_at_word(argv, "-m")
            if script < len(before):
                before, module, after = argv[:script], True, argv[script:]
            # In `python tool.py -m pytest` the -m is the tool's own.
            options = all(w.startswith("-") or last in ("-X", "-W") for last, w in itertools.pairwise(before))
            is_its_own = name == "coverage" or options
            return after if module and is_its_own else []
        elif name in _WRAPPERS and (not _WRAPPERS[name] or _WRAPPERS[name] in argv[1:]):
            argv = argv[argv.index(_WRAPPERS[name]) + 1 :] if _WRAPPERS[name] else argv[1:]
            while argv and argv[0].startswith("-"):
                argv = argv[2:] if argv[0] in _OPTIONS_WITH_VALUE else argv[1:]
        else:
            return argv
    return argv


def split_at_word(argv: list[str], word: str) -> tuple[list[str], bool, list[str]]:
    """Return the words before the first `word`, whether it is among them, and the words behind it."""
    position = argv.index(word) if word in argv else len(argv)
    return argv[:position], word in argv, argv[position + 1 :]
