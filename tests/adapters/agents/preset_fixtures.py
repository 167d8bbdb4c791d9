"""Presets and programs that tests write."""

from __future__ import annotations

from pathlib import Path

_ABLE = {"resume": "true", "answers": '"asked"', "reads_only": "true"}


def program(directory: Path, name: str, script: str) -> Path:
    """A shell script of that name."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def preset(directory: Path, name: str, command: str, ability: str = "", **more: str) -> Path:
    """A preset that can do everything; `ability`: a line that replaces one. `more`: keys and their TOML."""
    directory.mkdir(exist_ok=True)
    key, _, value = ability.partition(" = ")
    able = {**_ABLE, **({key: value} if key else {})}
    keys = {"install": '"get it"', "model": '"its-own"', **more}
    lines = [f'title = "{name.title()}"', f'command = ["{command}"]', 'wire = "anthropic"', 'resume = ["{session}"]']
    lines += ['sessions = ["s/*"]', *(f"{key} = {value}" for key, value in keys.items())]
    path = directory / f"{name}.toml"
    path.write_text("\n".join([*lines, "[abilities]", *(f"{key} = {value}" for key, value in able.items())]) + "\n")
    return path
