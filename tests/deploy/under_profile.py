"""Run a command as an ordinary user under a Docker seccomp profile: `python under_profile.py PROFILE COMMAND…`.

Docker reads such a profile for a container without capabilities like this; libseccomp, which Docker uses as well, makes
the filter and the kernel enforces it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

ACTIONS = {"SCMP_ACT_ALLOW": 0x7FFF0000, "SCMP_ACT_ERRNO": 0x00050000}
COMPARISONS = {"SCMP_CMP_LT": 2, "SCMP_CMP_EQ": 4, "SCMP_CMP_GT": 6, "SCMP_CMP_MASKED_EQ": 7}
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
NOBODY = 65534


class Comparison(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def applies(rule: dict[str, Any]) -> bool:
    """Whether the rule counts for a container without capabilities on this architecture and a recent kernel."""
    includes, excludes = rule.get("includes", {}), rule.get("excludes", {})
    if includes.get("caps") or ARCHITECTURE in excludes.get("arches", ()):
        return False
    return ARCHITECTURE in includes.get("arches", [ARCHITECTURE])


def load(profile: dict[str, Any]) -> None:
    """Put this process, and what it starts, under the profile for good. OSError names the rule that failed."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ACTIONS[profile["defaultAction"]] | profile["defaultErrnoRet"]))
    for rule in filter(applies, profile["syscalls"]):
        action = ACTIONS[rule["action"]] | rule.get("errnoRet", 0)
        comparisons = [
            Comparison(arg["index"], COMPARISONS[arg["op"]], arg["value"], arg.get("valueTwo", 0))
            for arg in rule.get("args", ())
        ]
        array = (Comparison * len(comparisons))(*comparisons)
        for name in rule["names"]:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number == -1:  # not a call of this architecture, or younger than this libseccomp
                continue
            if error := library.seccomp_rule_add_array(context, action, number, len(comparisons), array):
                raise OSError(-error, f"{name}: {os.strerror(-error)}")
    if error := library.seccomp_load(context):
        raise OSError(-error, os.strerror(-error))


def main(profile: str, *command: str) -> None:
    rules = json.loads(Path(profile).read_text())
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    load(rules)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
