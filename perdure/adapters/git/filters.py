"""The filters of .gitattributes that run on this host (git-lfs, git-crypt and others): only those that its owner names,
with the programs of the owner's own git. They stand in the vault's configuration, which nothing in a sandbox can write,
so that each checkout and each commit of ours runs them. Also brings and uploads what git-lfs stores beside commits.

git-lfs asks no server in a checkout: what that needs is fetched before. The vault is bare, so that git-lfs reads no
.lfsconfig of a branch where it does ask one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from perdure.adapters.git.command import Git, GitError, redact, redact_and_shorten
from perdure.adapters.git.credentials import Keyring
from perdure.adapters.git.remote import remote_failure
from perdure.adapters.system.programs import run_program
from perdure.models.errors import ForgeRefused, ForgeUnavailable, InvalidRequest

LFS = "lfs"

_PROGRAMS = {
    "filter.lfs.clean": "git-lfs clean -- %f",
    "filter.lfs.smudge": "git-lfs smudge -- %f",
    "filter.lfs.process": "git-lfs filter-process",
}
"""The settings that `git lfs install` writes, for a host where git-lfs was installed and that was not run."""

_LFS_SETTINGS = """\
[lfs]
	repositoryformatversion = 0
	storage = lfs
	fetchinclude =
	fetchexclude =
	skipdownloaderrors = false
	allowincompletepush = false
"""
"""A .lfsconfig of a branch could say otherwise: the repository's own configuration comes after it."""

_PASSING = re.compile(
    r"error: (408|429|5\d\d)|timeout|timed out|connection re(fused|set)|no such host|unreachable|unexpected EOF", re.I
)
"""Messages of git-lfs that the next try may not get."""

_VAGUE = re.compile(r"fetch: |Uploading LFS|Git LFS upload failed|hint: |error: failed to|Locking support|warning: |$")
"""The beginnings of lines by which git-lfs does not say what failed."""


def format_filters(names: Iterable[str]) -> str:
    """Return the part of a repository's configuration by which git runs these filters, each with the programs that the
    owner's own git has for it, and fails where one fails. Raises InvalidRequest for a filter that it does not have, or
    whose program is not on this host."""
    names = tuple(dict.fromkeys(names))
    if not names:
        return ""
    listed = Git(as_owner=True).execute("config", "-z", "--get-regexp", r"^filter\.", ok=(0, 1)).names
    programs = _PROGRAMS | dict(setting.split("\n", 1) for setting in listed if "\n" in setting)
    text = _LFS_SETTINGS if LFS in names else ""
    for name in names:
        commands = {kind: programs.get(f"filter.{name}.{kind}", "") for kind in ("clean", "smudge", "process")}
        text += f'[filter "{name}"]\n\trequired = true\n'
        for kind, command in commands.items():
            if command:
                _check_program(name, command)
                text += f"\t{kind} = {_quote_value(command)}\n"
        if not commands["process"] and not (commands["clean"] and commands["smudge"]):
            raise InvalidRequest(
                f"[git] filters names {name}, and this host's git has no clean and smudge for it",
                where=f"git config --global filter.{name}.clean",
                fix=f"set filter.{name}.clean and filter.{name}.smudge there, or leave the name out",
            )
    return text


def _check_program(name: str, command: str) -> None:
    """Raise InvalidRequest where the shell does not find the program that a filter's command begins with."""
    try:
        program = next(iter(shlex.split(command)), "")  # the shell fills in its `~` and variables
    except ValueError:
        program = command  # a quotation without an end: the shell refuses it
    program = shlex.quote(program) if re.search(r"\s", program) else program
    found = run_program(["/bin/sh", "-c", f"command -v {program}"], {"PATH": os.environ.get("PATH", os.defpath)}, 10)
    if found.code and "=" not in program:
        raise InvalidRequest(
            f"[git] filters names {name}, and its program {program} is not on this host",
            where=f"filter.{name}: {command}",
            fix=f"install {program}, or leave the name out",
        )


def _quote_value(value: str) -> str:
    """Return a value as git's configuration quotes it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def configured_filters(git: Git) -> frozenset[str]:
    """Return the names of the filters that run in the vault of `git`."""
    return frozenset(re.findall(r'^\[filter "(.+)"\]$', _read_config(git), re.MULTILINE))


def filters_digest(git: Git) -> str:
    """Return a short digest of the filters that run in the vault of `git` and their programs, for the keys of what was
    made from checkouts; empty where none runs."""
    _, header, filters = _read_config(git).partition("[filter ")
    return hashlib.sha256(filters.encode()).hexdigest()[:12] if header else ""


def _read_config(git: Git) -> str:
    """Return the configuration of the repository of `git`, empty where it has none."""
    try:
        return ((git.git_dir or Path()) / "config").read_text()
    except FileNotFoundError:
        return ""


def transfer_lfs_objects(git: Git, url: str, *command: str, keys: Keyring, stdin: bytes | None = None) -> None:
    """Run a command of git-lfs that brings objects from the server of the remote `url` into the vault of `git`, or
    uploads them, with the owner's git; nothing is done where that filter does not run. Safe to repeat. Raises
    ForgeRefused where an object is missing or the server refuses, ForgeUnavailable where it does not answer."""
    if LFS not in configured_filters(git):
        return
    owner, credential = replace(git, as_owner=True, settings=(f"remote.origin.url={url}",)), keys.credential(url)
    try:
        output = owner.execute("lfs", *command, stdin=stdin, ok=range(256), credential=credential)
    except GitError as error:
        raise remote_failure(url, error, credential) from error
    if output.returncode:
        lines = [line.strip() for line in f"{output.stderr}\n{redact_and_shorten(output.text)}".splitlines()]
        message = next((line for line in lines if not _VAGUE.match(line)), "it said nothing")
        kind = ForgeUnavailable if _PASSING.search(message) else ForgeRefused
        fix = f"make this work in a clone: git lfs {'push' if stdin else 'fetch'} --all origin"
        raise kind(f"git-lfs: {message}", where=redact(url), fix=fix)
