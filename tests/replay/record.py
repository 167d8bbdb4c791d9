"""Record the histories that every later version must replay: `python -m tests.replay.record VERSION`.

One for each shape a released version can have in the world. Machine names are taken out; nothing else is changed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from perdure import treasury
from tests.github_lab import BUILD, ID, github_lab
from tests.lab import FIXES, HAPPY, Lab, finished, make_target, until

ASKING = """
title = "asks, and mends what a person sends back"
[[line]]
step = "implement"
turn = 1
use = [{ tool = "ask", input = { text = "Shall sub take floats?", kind = "yes_no", why = "Callers pass them." } }]
[[line]]
step = "fix_review"
turn = 1
use = [{ tool = "bash", input = { command = "printf '\\n# subtracts\\n' >> calc.py" } }]
[[line]]
step = "fix_review"
say = "Say what sub is for"
""" + HAPPY.partition('title = "add sub"')[2]

HISTORIES = Path(__file__).parent / "histories"


async def main(version: str) -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-record-") as scratch:
        root = Path(scratch)
        origin = make_target(root / "calc.git")
        config = (root / "calc.git-work" / "perdure.toml").read_text() + "[limits]\ntest_fixes = 0\n"
        async with Lab.open(root / "fixes", FIXES, ports=23000) as lab:
            lab.worker()
            for name, more in (
                ("delivered-with-fixes", {}),
                ("tests-red", {"config": config}),
                ("draft", {"phases": ["build", "ship"]}),
                ("planned", {"phases": ["plan"]}),
            ):
                await finished(await lab.submit(origin, id=name, **more), lab)
                await keep(lab, name, version)
        async with Lab.open(root / "killed", HAPPY, ports=23000, env={"PERDURE_CRASH_AT": "during-tool:3"}) as lab:
            lab.supervised()
            submitted = await lab.submit(origin, id="killed-and-retried")
            await finished(submitted, lab)
            await keep(lab, "killed-and-retried", version, "three-deaths")
            await submitted.delivery.retry()
            await finished(submitted, lab)
            await keep(lab, "killed-and-retried", version)
        async with Lab.open(root / "gates", ASKING, ports=23000) as lab:
            lab.worker()
            await at_each_gate(lab, origin, version)
        budgets = root / "budgets.toml"
        budgets.write_text('[[treasury]]\nlabel = "team-a"\nusd_per_day = 0.000001\n')
        shared = {"PERDURE_TREASURY": str(budgets)}
        async with Lab.open(root / "shared", HAPPY, ports=23000, env=shared) as lab:
            lab.worker()
            submitted = await lab.submit(make_target(root / "shared.git"), id="shared-budget", labels=["team-a"])
            await until(lambda: progress(lab, "shared-budget"))
            await keep(lab, "shared-budget", version, "waiting-for-the-treasury")
            await treasury.add(lab.client, "label:team-a", 5)
            await finished(submitted, lab)
            await keep(lab, "shared-budget", version)
            await keep(lab, treasury.TREASURY, version, "treasury")
        async with github_lab(root / "github", FIXES, ports=23000) as world:
            world.lab.worker()
            await finished(await world.submit(), world.lab)
            await keep(world.lab, ID, version, "github-issue")
        async with github_lab(root / "away", BUILD, ports=23000) as world:
            world.lab.worker()
            submitted = await world.build()
            await until(lambda: world.lab.model_calls() >= 2)
            world.github.down = True
            await until(lambda: progress(world.lab))
            await keep(world.lab, ID, version, "waiting-for-the-forge")
            await submitted.delivery.cancel()
            await finished(submitted, world.lab, timeout=120)


async def at_each_gate(lab: Lab, origin: Path, version: str) -> None:
    """One delivery that waits for people wherever it can, with words and a hold; as it waits each time, and ended."""
    gates = ["plan", "pull_request"]
    submitted = await lab.submit(origin, id="decided", gates=gates, budget_usd=0.004)
    handle, of, kept = lab.handle("decided"), "", set[str]()

    async def asked() -> Any:
        found = (await handle.query("progress"))["asked"]
        return found if found and found["of"] != of else None

    while "pull_request-2" not in kept:
        gate, of = (found := await until(asked))["gate"], found["of"]
        name = f"{gate}-2" if gate in kept else gate
        kept.add(name)
        await keep(lab, "decided", version, f"waiting-at-{name}".replace("_", "-"))
        match name:
            case "plan" | "pull_request":
                await handle.execute_update("reject", {"of": of, "note": "with types"})
            case "plan-2":
                await handle.signal("say", {"text": "Keep it short.", "id": "short"})
                await handle.signal("hold", {"note": "tomorrow"})
                await handle.execute_update("approve", {"of": of})
                await until(lambda: progress(lab, "decided"))
                await keep(lab, "decided", version, "held")
                await handle.signal("resume", {})
            case "question":
                await handle.signal("decide", {"update": "answer", "said": {"of": of, "answer": "yes"}})
            case "budget" | "budget-2":
                await handle.execute_update("add_budget", {"of": of, "usd": 5})
            case _:
                await handle.execute_update("approve", {"of": of})
    await finished(submitted, lab)
    await keep(lab, "decided", version)


async def progress(lab: Lab, id: str = ID) -> str:
    """What the delivery waits for."""
    return str((await lab.handle(id).query("progress"))["waiting"])


async def keep(lab: Lab, id: str, version: str, name: str = "") -> None:
    history = json.loads((await lab.handle(id).fetch_history()).to_json())
    _anonymous(history)
    path = HISTORIES / f"{version}-{name or id}.json"
    path.write_text(json.dumps(history, indent=1, sort_keys=True) + "\n")
    print(path.name, len(history["events"]), "events")


def _anonymous(value: Any) -> None:
    if isinstance(value, dict):
        value.pop("stackTrace", None)
        for key, inner in value.items():
            if key == "identity":
                value[key] = "worker"
            _anonymous(inner)
    if isinstance(value, list):
        for inner in value:
            _anonymous(inner)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    os._exit(0)  # the Temporal SDK was seen to crash in an ordinary exit
