"""`perdure agents`: who can carry out steps on this host."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.cli.host.checkups import Checkup
from perdure.cli.ids import Json
from perdure.cli.screen import Screen
from perdure.cli.table import columns
from perdure.cli.words import tilde
from perdure.models.errors import BadInput


def agents(json: Json = False) -> None:
    """The agents of this host: what each can do, and whether it is installed.

    `[steps.implement] agent = "NAME"` in perdure.toml, PERDURE_AGENT or --agent choose one.
    """
    screen = Screen(json=json)
    found = listed()
    if json:
        screen.data(found)
        return
    rows = [(one["name"], one["state"], one["abilities"], one["model"]) for one in found]
    screen.lines(columns(rows, screen.room))
    screen.lines(f"{one['name']}: {one['fix']}" for one in found if one["fix"])


def listed() -> list[dict[str, str]]:
    """One object an agent; its fields are always the same, and texts."""
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
        found = list(pool.map(_one, preset_names()))
    return [built_in, *({**one, "file": tilde(Path(one["file"])) if one["file"] else ""} for one in found)]


def _one(name: str) -> dict[str, str]:
    from perdure.adapters.agents.installed import look
    from perdure.adapters.agents.presets import read_preset

    empty = dict.fromkeys(("title", "state", "version", "program", "abilities", "wire", "model", "file", "fix"), "")
    try:
        known = read_preset(name)
    except BadInput as error:
        return {"name": name, **empty, "state": f"wrong: {error.what}", "file": error.where, "fix": error.fix}
    preset, seen = known.preset, look(known.preset)
    return {
        "name": name,
        "title": preset.title,
        "state": seen.problem or f"installed, {seen.version or 'of no known version'}",
        "version": seen.version,
        "program": str(seen.program or ""),
        "abilities": preset.abilities.described(),
        "wire": preset.wire,
        "model": preset.model,
        "file": str(known.file),
        "fix": seen.fix,
    }


def check_agents() -> list[Checkup]:
    """One line for each preset whose program is here, and one for those that are not; one that is not there is no
    fault, unless settings here name it."""
    from perdure.adapters.repository.host import load_host_config
    from perdure.cli.host.checkups import MISSING, NOTE, OK, Checkup
    from perdure.models.config import BUILT_IN
    from perdure.models.steps import AGENTIC

    steps = load_host_config(os.environ).steps
    chosen = {getattr(steps, step).agent for step in AGENTIC} | {os.environ.get("PERDURE_AGENT", "").strip()}
    found, known = [], listed()
    for name in sorted(chosen - {one["name"] for one in known} - {"", BUILT_IN}):
        found.append(Checkup("agents", MISSING, f"no agent is called {name[:60]!r}", "perdure agents lists them"))
    for one in known[1:]:
        if one["fix"] and (one["program"] or one["name"] in chosen or not one["title"]):
            mark = MISSING if one["name"] in chosen else NOTE
            found.append(Checkup("agents", mark, f"{one['name']}: {one['state']}", one["fix"]))
        elif not one["fix"]:
            found.append(Checkup("agents", OK, f"{one['name']} {one['version']}".strip()))
    if absent := [one["name"] for one in known[1:] if one["fix"] and not one["program"] and one["name"] not in chosen]:
        text = f"not installed: {', '.join(absent)}"
        found.append(Checkup("agents", OK, text, "perdure agents says how to get each"))
    return found
