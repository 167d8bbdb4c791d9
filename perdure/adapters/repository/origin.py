"""The origin of a test command, for the error that says it cannot be run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from perdure.adapters.repository.keys import place
from perdure.adapters.system.bounded import parse_toml


def command_origin(name: str, origins: Mapping[str, str], file: str, text: str) -> str:
    """`perdure.toml:14 [[test]] "unit"`, `--config [[test]] "unit"`, or that it was detected.

    name     the command's, unique among them
    origins  where each setting came from, by dotted name
    file     the repository's own configuration file, and its text on the base branch
    """
    origin = origins.get("test", file)
    if origin == "detected":
        return f'[[test]] "{name}", detected from the repository\'s files: no perdure.toml names a test command'
    if origin.startswith(file):
        with contextlib.suppress(ValueError):
            tests = parse_toml(text).get("test") or ()
            number = next((n for n, test in enumerate(tests) if test.get("name") == name), None)
            if number is not None:
                return place(text, file, ("test", number))
    return f'{origin} [[test]] "{name}"'
