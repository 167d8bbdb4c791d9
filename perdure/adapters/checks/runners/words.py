"""Command lines taken apart: the simple commands in them, and the program that each really runs."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

from perdure.adapters.system.bounded import read_json

_SEPARATORS = {"&&", "||", ";", "|", "&", "\n", "(", ")"}
# Words before the program that really runs; options of theirs that start with a dash are skipped too.
_WRAPPERS = {
    "uv": "run", "poetry": "run", "pdm": "run", "pipenv": "run", "hatch": "run", "rye": "run",
    "env": "", "time": "", "nice": "", "exec": "", "command": "", "npx": "", "xvfb-run": "",
}  # fmt: skip
_VALUES = {"--extra", "--group", "--with", "--python", "-p", "--package", "--project", "--directory", "-e", "--env"}


def parts(command: str) -> list[list[str]]:
    """The words of each simple command; nothing when the shell's grammar is beyond a word splitter."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word in _SEPARATORS or set(word) <= set(";&|()\n"):
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:
        return []
    return [words for words in found if words]


def unwrapped(words: list[str]) -> list[str]:
    """Without assignments and wrappers, and `python -m X`, `coverage run -m X` as `X`."""
    while words:
        name = Path(words[0]).name
        if re.fullmatch(r"\w+=.*", words[0], re.DOTALL):
            words = words[1:]
        elif re.fullmatch(r"python[\d.]*", name) or (name == "coverage" and words[1:2] == ["run"]):
            before, module, after = around(words, "-m")
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


def around(words: list[str], word: str) -> tuple[list[str], bool, list[str]]:
    at = words.index(word) if word in words else len(words)
    return words[:at], word in words, words[at + 1 :]


def script(program: str, rest: list[str]) -> str:
    """The package.json script that `npm test`, `npm run unit`, `pnpm unit` or `yarn test` runs."""
    if program not in ("npm", "pnpm", "yarn") or not rest:
        return ""
    words = [word for word in rest if not word.startswith("-")]
    if words[:1] in (["run"], ["run-script"]):
        return words[1] if len(words) > 1 else ""
    return "test" if words[:1] in (["test"], ["t"], ["tst"]) else ""


def package_scripts(tree: Path) -> dict[str, str]:
    scripts = read_json(tree / "package.json").get("scripts")
    return {name: text for name, text in scripts.items() if isinstance(text, str)} if isinstance(scripts, dict) else {}
