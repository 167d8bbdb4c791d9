"""Tells "this command does not exist" from "it exists on the host, but the sandbox does not show it"."""

from __future__ import annotations

import os
import re
import shutil

from perdure.adapters.sandbox import rules
from perdure.adapters.sandbox.toolchain import Binds

NOT_FOUND = 127

_SAYINGS = (
    re.compile(r"(?:^|[:\s])([^\s:'\"‘’]+): (?:command )?not found\s*$", re.M),  # bash, sh
    re.compile(r"^(?:/usr/bin/)?env: [‘'\"]?([^’'\":\s]+)[’'\"]?: No such file or directory", re.M),
    re.compile(r"([^\s:'\"‘’]+): cannot execute: required file not found", re.M),
    re.compile(r"^[^\n]*: ([^\s:]+): No such file or directory\s*$", re.M),
)


def missing_inside(output_tail: str, exit_code: int | None, binds: Binds, path: str | None = None) -> str | None:
    """One sentence if the command that was not found inside is on the host; None in every other case.

    path  the owner's PATH; None: this process's
    """
    if exit_code != NOT_FOUND:
        return None
    names = [match for saying in _SAYINGS for match in saying.findall(output_tail)]
    for name in reversed(names):
        found = shutil.which(name, path=path)
        if found and not rules.shown(found, binds.prefixes):
            short = os.path.basename(name)
            return f"`{short}` is on the host at {found} but not visible in the sandbox: {_why(found, binds)}"
    return None


def _why(found: str, binds: Binds) -> str:
    for dropped in binds.dropped:
        for name in (found, os.path.realpath(found)):
            if rules.within(name, os.path.normpath(dropped.entry)):
                return f"{dropped.entry} {dropped.reason}"
    return f"{os.path.dirname(found)} was not on PATH, or not there, when the toolchains were recorded after setup"
