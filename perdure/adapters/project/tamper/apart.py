"""The gate in a process of its own, with limits: what it reads was written by whoever it judges.

Small files are read where we are, which is quicker than any start of a process. Many expressions of the gate look again
from every place of a text: a file of a megabyte, made for that, would keep a worker busy for hours.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from perdure.adapters.git.repository import Repository
from perdure.adapters.project.tamper.files import Files
from perdure.adapters.project.tamper.inventory import Tampered, hit
from perdure.models.config import TestCommand
from perdure.models.policy import TAMPER_APART_S, TAMPER_CPU_S, TAMPER_MEMORY_BYTES
from perdure.models.report import Tampering, TestReport

_PACKAGES = str(Path(__file__).parents[4])
_PR_SET_PDEATHSIG = 1
_tampered = TypeAdapter(Tampered)


class _Asked(BaseModel):
    repository: Path
    base: str
    head: str
    commands: tuple[TestCommand, ...]
    before: TestReport | None
    now: TestReport | None
    cpu_s: int


def tampering_apart(
    files: Files, commands: Sequence[TestCommand], base: TestReport | None, now: TestReport | None
) -> Tampered:
    """As `tampering`, of the two commits that these files are a part of; a hit where it did not come to an end."""
    asked = _Asked(**files.pair_of(), commands=tuple(commands), before=base, now=now, cpu_s=TAMPER_CPU_S)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONPATH": _PACKAGES}
    try:
        ran = subprocess.run(
            [sys.executable, "-P", "-m", __name__], input=asked.model_dump_json().encode(), env=env,
            capture_output=True, check=False, timeout=TAMPER_APART_S,
        )  # fmt: skip
        return _tampered.validate_json(ran.stdout)
    except (subprocess.TimeoutExpired, ValidationError):
        limits = f"{TAMPER_CPU_S} s of a processor, {TAMPER_MEMORY_BYTES // 1024**3} GiB"
        title = "a file that differs cannot be judged"
        return Tampered((hit(Tampering.CONFIGURATION, title, "", None, f"reading it takes more than {limits}"),))


def main() -> None:
    from perdure.adapters.project.tamper.gate import tampering

    resource.setrlimit(resource.RLIMIT_DATA, (TAMPER_MEMORY_BYTES, TAMPER_MEMORY_BYTES))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    asked = _Asked.model_validate_json(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_CPU, (asked.cpu_s, asked.cpu_s))
    before, after = Files.pair(Repository(asked.repository), asked.base, asked.head, apart=True)
    found = tampering(before, after, asked.commands, asked.before, asked.now)
    sys.stdout.buffer.write(_tampered.dump_json(found))


if __name__ == "__main__":
    main()
