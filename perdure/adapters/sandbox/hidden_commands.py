"""The hint that a command was not found in the sandbox although the host has it."""

from __future__ import annotations

import os
import re
import shutil

from perdure.adapters.sandbox import visibility
from perdure.adapters.sandbox.toolchain import Binds

COMMAND_NOT_FOUND = 127

_NOT_FOUND_PATTERNS = (
    re.compile(r"(?:^|[:\s])([^\s:'\"‘’]+): (?:command )?not found\s*$", re.M),  # bash, sh
    re.compile(r"^(?:/usr/bin/)?env: [‘'\"]?([^’'\":\s]+)[’'\"]?: No such file or directory", re.M),
    re.compile(r"([^\s:'\"‘’]+): cannot execute: required file not found", re.M),
    re.compile(r"^[^\n]*: ([^\s:]+): No such file or directory\s*$", re.M),
)


def explain_hidden_command(
    output_tail: str, exit_code: int | None, binds: Binds, path: str | None = None
) -> str | None:
    """Return one sentence when a command was not found (exit code 127) that the host has but the sandbox does not show,
    with the reason; None in every other case.

    output_tail  the end of the output, in which the command is named
    path         the owner's PATH; None: this process's
    """
    if exit_code != COMMAND_NOT_FOUND:
        return None
    names = [match for pattern in _NOT_FOUND_PATTERNS for match in pattern.findall(output_tail)]
    for name in reversed(names):
        host_path = shutil.which(name, path=path)
        if host_path and not visibility.is_shown(host_path, binds.prefixes):
            command = os.path.basename(name)
            return (
                f"`{command}` is on the host at {host_path} but not visible in the sandbox: "
                f"{_hidden_reason(host_path, binds)}"
            )
    return None


def _hidden_reason(host_path: str, binds: Binds) -> str:
    """Return the reason why a program of the host is not visible in the sandbox: the PATH entry above it that was
    refused and why, or that it was not on PATH when the toolchains were recorded."""
    for dropped in binds.dropped:
        for name in (host_path, os.path.realpath(host_path)):
            if visibility.is_within(name, os.path.normpath(dropped.entry)):
                return f"{dropped.entry} {dropped.reason}"
    return f"{os.path.dirname(host_path)} was not on PATH, or not there, when the toolchains were recorded after setup"
