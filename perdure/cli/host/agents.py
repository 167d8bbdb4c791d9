"""`perdure agents`: the agents of this host, what each can do, and whether it is installed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from perdure.adapters.agents.presets import check_program, preset_names, read_preset
from perdure.cli.screen import Screen
from perdure.models.config.repository import BUILT_IN, StepSettings
from perdure.models.errors import BadInput
from perdure.render.formatting import align_columns, with_tilde


def agents(json: bool) -> None:
    """Print the agents of this host, one a line with state, abilities and model, then how to install what is missing;
    or JSON.

    Starts each installed agent's program to ask for its version.
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
