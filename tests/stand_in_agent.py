"""An agent of the tests, installed on a host: the program `stand_in`, and the preset by which Perdure knows it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil

from tests.adapters.worker.turn import stand_in

PYTHON = os.path.realpath(sys.executable)
NAME = "stand-in"

_PRINTS = """
title = "Stand-in"
command = ["{program}"]
args = ["{way}", "{{session}}"]
resume = ["{way}", "{{session}}", "resumed"]
sessions = ["session.json"]
wire = "anthropic"
[env]
ANTHROPIC_BASE_URL = "{{proxy}}"
[result]
ended = [{{ where = {{ type = "result" }} }}]
well = {{ where = {{ type = "result", subtype = "success", is_error = false }} }}
text = {{ where = {{ type = "result" }}, take = "result" }}
error = [{{ where = {{ type = "result", is_error = true }}, take = "result" }}]
[abilities]
resume = {resumes}
"""
_SPEAKS = """
title = "Stand-in"
command = ["{program}"]
args = ["{way}"]
sessions = ["session.json"]
output = "acp"
wire = "anthropic"
[env]
ANTHROPIC_BASE_URL = "{{proxy}}"
[abilities]
resume = {resumes}
words = true
"""
TWO_FILES = """
[[line]]
step = "implement"
turn = 1
use = [{ tool = "bash", input = { command = "echo one > one.txt" } }]
[[line]]
step = "implement"
turn = 2
use = [{ tool = "bash", input = { command = "echo two > two.txt" } }]
[[line]]
step = "implement"
turn = 3
say = "Add both"
"""
"""A screenplay of three turns for it."""


class StandIn:
    """`env` is what workers of the host need to know it; `spoken`: by the Agent Client Protocol."""

    def __init__(self, root: Path, way: str = "honest", *, spoken: bool = False) -> None:
        self.program, self._file = root / "stand-in-agent", root / f"config/perdure/agents/{NAME}.toml"
        self.env = {"XDG_CONFIG_HOME": str(root / "config")}
        self._preset = _SPEAKS if spoken else _PRINTS
        self._file.parent.mkdir(parents=True)
        self.program.write_text(f"#!{PYTHON} -IS\n{Path(stand_in.__file__).read_text(encoding='utf-8')}")
        self.program.chmod(0o755)
        self.does(way)

    def does(self, way: str, *, resumes: bool = True) -> None:
        text = self._preset.format(program=self.program, way=way, resumes=str(resumes).lower())
        self._file.write_text(text, encoding="utf-8")

    def alive(self) -> list[psutil.Process]:
        """Processes whose words name the program, or the file that its orphan writes."""
        words = ((one, " ".join(one.info["cmdline"] or ())) for one in psutil.process_iter(["cmdline"]))
        return [one for one, said in words if str(self.program) in said or "orphan.txt" in said]
