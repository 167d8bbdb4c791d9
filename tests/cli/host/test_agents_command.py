"""`perdure agents` lists who can carry out steps here; doctor says what is missing and how to get it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.adapters.agents.preset_fixtures import preset, program
from tests.cli.conftest import Cli


def able(cli: Cli, tmp_path: Path, **env: str) -> dict[str, str]:
    """Variables of a host that has two presets of its own, one of them installed, and one that is wrong."""
    own, programs = tmp_path / "config" / "perdure" / "agents", tmp_path / "bin"
    own.mkdir(parents=True)
    program(programs, "here", "echo here 3.2.1")
    preset(own, "here", "here")
    preset(own, "gone", "gone-program")
    (own / "wrong.toml").write_text("wire = 1\n")
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": f"{programs}:{os.environ['PATH']}", **env}


def test_agents_are_listed_with_what_each_can_do(cli: Cli, tmp_path: Path) -> None:
    env = able(cli, tmp_path)
    ran = cli("agents", "--json", **env)
    found = {one["name"]: one for one in json.loads(ran.out)}
    assert ran.code == 0
    assert next(iter(found)) == "built-in"
    assert {"claude-code", "codex", "here", "gone", "wrong"} < set(found)
    assert (found["here"]["state"], found["here"]["version"]) == ("installed, 3.2.1", "3.2.1")
    assert found["here"]["abilities"] == "resume, answers asked, reads only"
    assert (found["gone"]["state"], found["gone"]["fix"]) == (
        "gone-program is not installed, or not on PATH",
        "get it",
    )
    assert found["wrong"]["state"].startswith("wrong: ")
    assert len({tuple(one) for one in found.values()}) == 1, "the same fields in the same order"
    lines = cli("agents", **env).out.splitlines()
    assert [line.split()[0] for line in lines[: len(found)]] == list(found)
    assert "gone: get it" in lines


def test_doctor_names_the_agents_that_are_here_and_those_that_settings_name_in_vain(cli: Cli, tmp_path: Path) -> None:
    env = able(cli, tmp_path, PERDURE_AGENT="gone")
    found = {
        finding["text"]: finding
        for finding in json.loads(cli("doctor", "--json", **env).out)
        if finding["name"] == "agents"
    }
    assert found["here 3.2.1"]["mark"] == "✓"
    gone = found["gone: gone-program is not installed, or not on PATH"]
    assert (gone["mark"], gone["fix"]) == ("✗", "get it")
    assert [one["mark"] for text, one in found.items() if text.startswith("wrong: ")] == ["!"]


def test_doctor_says_that_nobody_has_the_name_in_perdure_agent(cli: Cli, tmp_path: Path) -> None:
    env = able(cli, tmp_path, PERDURE_AGENT="clade-code")
    found = [one for one in json.loads(cli("doctor", "--json", **env).out) if one["name"] == "agents"]
    assert (found[0]["mark"], found[0]["text"]) == ("✗", "no agent is called 'clade-code'")
