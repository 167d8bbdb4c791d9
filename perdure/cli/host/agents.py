"""`perdure agents`: the agents that can carry out steps on this host."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.cli.formatting import with_tilde
from perdure.cli.host.checkups import Checkup
from perdure.cli.ids import Json
from perdure.cli.screen import Screen
from perdure.cli.table import align_columns
from perdure.models.errors import BadInput


def agents(json: Json = False) -> None:
    """The agents of this host: what each can do, and whether it is installed.

    `[steps.implement] agent = "NAME"` in perdure.toml, PERDURE_AGENT or --agent choose one.
    """
    screen = Screen(json=json)
    agent_rows = list_agents()
    if json:
        screen.print_json(agent_rows)
        return
    rows = [(agent["name"], agent["state"], agent["abilities"], agent["model"]) for agent in agent_rows]
    screen.print_lines(align_columns(rows, screen.table_width))
    screen.print_lines(f"{agent['name']}: {agent['fix']}" for agent in agent_rows if agent["fix"])


def list_agents() -> list[dict[str, str]]:
    """List the agents that presets describe, the built-in one first; starts each installed program to ask its version.

    Every object has the same fields, all texts: name, title, state, version, program, abilities, wire, model, file and
    fix; `fix` says how to install an agent that is missing.
    """
    from concurrent.futures import ThreadPoolExecutor

    from perdure.adapters.agents.presets import preset_names
    from perdure.models.config import BUILT_IN, StepSettings

    built_in = {
        "name": BUILT_IN,
        "title": "Perdure's own",
        "state": "built in",
        "version": "",
        "program": "",
        "abilities": "resume, fork, answers enforced, reads only, words",
        "wire": "anthropic",
        "model": StepSettings().model,
        "file": "",
        "fix": "",
    }
    with ThreadPoolExecutor(max_workers=4) as pool:  # each waits for a process that says its version
        described = list(pool.map(_describe_agent, preset_names()))
    return [
        built_in,
        *({**agent, "file": with_tilde(Path(agent["file"])) if agent["file"] else ""} for agent in described),
    ]


def _describe_agent(name: str) -> dict[str, str]:
    """Read one preset, look for its program on PATH, ask that for its version, and return the agent as an object.

    A preset that cannot be read is returned with the error as its state.
    """
    from perdure.adapters.agents.presets import read_preset
    from perdure.adapters.agents.program_check import check_program

    empty = dict.fromkeys(("title", "state", "version", "program", "abilities", "wire", "model", "file", "fix"), "")
    try:
        stored = read_preset(name)
    except BadInput as error:
        return {"name": name, **empty, "state": f"wrong: {error.what}", "file": error.where, "fix": error.fix}
    preset, installation = stored.preset, check_program(stored.preset)
    return {
        "name": name,
        "title": preset.title,
        "state": installation.problem or f"installed, {installation.version or 'of no known version'}",
        "version": installation.version,
        "program": str(installation.program or ""),
        "abilities": preset.abilities.describe(),
        "wire": preset.wire,
        "model": preset.model,
        "file": str(stored.file),
        "fix": installation.fix,
    }


def check_agents() -> list[Checkup]:
    """Check the agents: one line for each that is installed or has a problem, one for all that are not installed.

    An agent that is missing or wrong is MISSING only where this host's settings or PERDURE_AGENT name it, else a note.
    """
    from perdure.adapters.repository.host import load_host_config
    from perdure.cli.host.checkups import MISSING, NOTE, OK, Checkup
    from perdure.models.config import BUILT_IN
    from perdure.models.steps import AGENTIC

    steps = load_host_config(os.environ).steps
    chosen_names = {getattr(steps, step).agent for step in AGENTIC} | {os.environ.get("PERDURE_AGENT", "").strip()}
    checkups, all_agents = [], list_agents()
    for name in sorted(chosen_names - {agent["name"] for agent in all_agents} - {"", BUILT_IN}):
        checkups.append(Checkup("agents", MISSING, f"no agent is called {name[:60]!r}", "perdure agents lists them"))
    for agent in all_agents[1:]:
        if agent["fix"] and (agent["program"] or agent["name"] in chosen_names or not agent["title"]):
            mark = MISSING if agent["name"] in chosen_names else NOTE
            checkups.append(Checkup("agents", mark, f"{agent['name']}: {agent['state']}", agent["fix"]))
        elif not agent["fix"]:
            checkups.append(Checkup("agents", OK, f"{agent['name']} {agent['version']}".strip()))
    if not_installed := [
        agent["name"]
        for agent in all_agents[1:]
        if agent["fix"] and not agent["program"] and agent["name"] not in chosen_names
    ]:
        text = f"not installed: {', '.join(not_installed)}"
        checkups.append(Checkup("agents", OK, text, "perdure agents says how to get each"))
    return checkups
