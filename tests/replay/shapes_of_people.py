"""Shapes of deliveries at which people decide: as they wait for each decision, and as they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle

from tests.e2e.test_verdicts import EXIT_CODE_ONLY
from tests.engine import HAPPY, Engine, finished, make_target, until

Keep = Callable[[WorkflowHandle[Any, Any], str], Awaitable[None]]

PORTS = 23000
MENDS = """
[[line]]
step = "fix_review"
turn = 1
use = [{ tool = "bash", input = { command = "printf '\\n# subtracts\\n' >> calc.py" } }]
[[line]]
step = "fix_review"
say = "Say what sub is for"
[[line]]
step = "fix_tests"
turn = 1
use = [{ tool = "bash", input = { command = "printf '\\n# adds\\n' >> calc.py" } }]
[[line]]
step = "fix_tests"
say = "Say what add is for"
"""
ASKS = """
[[line]]
step = "implement"
turn = 1
use = [{ tool = "ask", input = { text = "Shall sub take floats?", kind = "yes_no", why = "Callers pass them." } }]
"""
_, _TITLE, _LINES = HAPPY.partition('title = "add sub"')
MENDING = 'title = "mends what a person sends back"' + MENDS + _LINES
ASKING = 'title = "asks, and mends what a person sends back"' + ASKS + MENDS + _LINES


async def decided(root: Path, keep: Keep) -> None:
    """One delivery that waits for people wherever it can, but for its tests; as it waits each time, and ended."""
    origin = make_target(root / "calc.git")
    async with Engine.open(root, ASKING, ports=PORTS, own_server=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, id="decided", gates=["plan", "pull_request"], budget_usd=0.004)
        handle, of, seen = engine.handle("decided"), "", set[str]()
        while "pull_request-2" not in seen:
            asked = await waits_for(handle, behind=of)
            gate, of = asked["gate"], asked["of"]
            name = f"{gate}-2" if gate in seen else gate
            seen.add(name)
            if not name.startswith("budget-"):
                await keep(handle, f"waiting-at-{name}".replace("_", "-"))
            match name:
                case "plan" | "pull_request":
                    await handle.execute_update("reject", {"of": of, "note": "with types"})
                case "question":
                    await handle.signal("decide", {"update": "answer", "said": {"of": of, "answer": "yes"}})
                case "budget" | "budget-2":
                    await handle.execute_update("add_budget", {"of": of, "usd": 5})
                case _:
                    await handle.execute_update("approve", {"of": of})
        await finished(submitted, engine)
        await keep(handle, "decided")


async def answered(root: Path, keep: Keep) -> None:
    """A question answered while no worker ran, and nothing else that people decide."""
    origin = make_target(root / "calc.git")
    async with Engine.open(root, ASKING, ports=PORTS, own_server=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, phases=["build"])
        asked = await waits_for(engine.handle())
        engine.kill_workers()
        said = {"of": asked["of"], "answer": "yes"}
        await engine.handle().signal("decide", {"update": "answer", "said": said})
        engine.worker()
        await finished(submitted, engine)
        await keep(engine.handle(), "answered")


async def steered(root: Path, keep: Keep) -> None:
    """Held at a gate that is approved meanwhile, words said, an answer of another plan; and cancelled at a gate."""
    origin = make_target(root / "calc.git")
    async with Engine.open(root, HAPPY, ports=PORTS, own_server=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, phases=["plan", "build"], gates=["plan"])
        handle = engine.handle()
        asked = await waits_for(handle)
        for words in ("Keep it short.", "Mind the sign."):
            await handle.signal("say", {"text": words, "id": words[:4]})
        await handle.signal("hold", {"note": "tomorrow"})
        await handle.signal("decide", {"update": "reject", "said": {"of": "another", "note": "no"}})
        await handle.execute_update("approve", {"of": asked["of"]})
        await until(lambda: progress(handle, "waiting"))
        await keep(handle, "held")
        await handle.signal("resume", {})
        await finished(submitted, engine)
        await keep(handle, "held-and-resumed")
        submitted = await engine.submit(origin, id="cancelled", phases=["plan"], gates=["plan"])
        await waits_for(engine.handle("cancelled"))
        await submitted.delivery.cancel()
        await finished(submitted, engine)
        await keep(engine.handle("cancelled"), "cancelled-at-a-gate")


async def edited(root: Path, keep: Keep) -> None:
    """A plan that a person edits, and then approves; before that, one that is no plan."""
    origin = make_target(root / "calc.git")
    async with Engine.open(root, HAPPY, ports=PORTS, own_server=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, phases=["plan", "build"], gates=["plan"])
        handle, delivery = engine.handle(), submitted.delivery
        asked = await waits_for(handle)
        plan = (await delivery.artifact((await delivery.progress()).plan)).decode()
        await handle.execute_update("edit_plan", {"of": asked["of"], "plan": "0" * 64, "title": "nothing"})
        asked = await waits_for(handle, behind=asked["of"])
        await delivery.edit_plan(plan.replace("Write sub", "Write sub well"), asked["of"], title="Add sub well")
        asked = await waits_for(handle, behind=asked["of"])
        await keep(handle, "waiting-at-an-edited-plan")
        await handle.execute_update("approve", {"of": asked["of"]})
        await finished(submitted, engine)
        await keep(handle, "edited")


async def mended(root: Path, keep: Keep) -> None:
    """Sent back where it was to be published, mended, published; another one expires there."""
    origin = make_target(root / "calc.git")
    config = (root / "calc.git-work" / "perdure.toml").read_text() + '[gates]\nexpire = "1s"\n'
    phases = ["build", "test", "ship"]
    async with Engine.open(root, MENDING, ports=PORTS, own_server=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, phases=phases, gates=["pull_request"])
        handle = engine.handle()
        asked = await waits_for(handle)
        await handle.execute_update("reject", {"of": asked["of"], "note": "say what it is for"})
        asked = await waits_for(handle, behind=asked["of"])
        await handle.execute_update("approve", {"of": asked["of"]})
        await finished(submitted, engine)
        await keep(handle, "rejected-and-mended")
        submitted = await engine.submit(origin, id="expired", phases=phases, gates=["pull_request"], config=config)
        await finished(submitted, engine)
        await keep(engine.handle("expired"), "expired")


async def told_apart(root: Path, keep: Keep) -> None:
    """Tests that are red as they were before, with nothing but an exit code: sent back once, then let through."""
    origin = make_target(root / "calc.git", EXIT_CODE_ONLY)
    async with Engine.open(root, MENDING, ports=PORTS, own_server=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, phases=["build", "test", "ship"])
        handle = engine.handle()
        asked = await waits_for(handle)
        assert asked["gate"] == "tests", asked
        await keep(handle, "waiting-at-tests")
        await handle.execute_update("reject", {"of": asked["of"], "note": "test_adds is new"})
        asked = await waits_for(handle, behind=asked["of"])
        await handle.execute_update("approve", {"of": asked["of"], "note": "it was red before"})
        await finished(submitted, engine)
        await keep(handle, "told-apart")


async def cut_off(root: Path, keep: Keep) -> None:
    """A turn that killed its worker three times: it waits for somebody to say that it is tried again, and is."""
    origin = make_target(root / "calc.git")
    async with Engine.open(
        root, HAPPY, ports=PORTS, own_server=True, env={"PERDURE_CRASH_AT": "during-tool:3"}
    ) as engine:
        engine.kept()
        submitted = await engine.submit(origin, phases=["build"])
        asked = await waits_for(engine.handle())
        assert asked["gate"] == "deaths", asked
        await keep(engine.handle(), "waiting-at-deaths")
        await engine.handle().execute_update("approve", {"of": asked["of"]})
        await finished(submitted, engine)
        await keep(engine.handle(), "tried-again-after-deaths")


async def killed_at_first(root: Path, keep: Keep) -> None:
    """Likewise before anything is prepared."""
    origin = make_target(root / "calc.git")
    async with Engine.open(
        root, HAPPY, ports=PORTS, own_server=True, env={"PERDURE_CRASH_AT": "during-prepare:3"}
    ) as engine:
        engine.kept()
        submitted = await engine.submit(origin, phases=["plan"])
        asked = await waits_for(engine.handle())
        assert asked["gate"] == "deaths", asked
        await keep(engine.handle(), "waiting-at-deaths-of-prepare")
        await engine.handle().execute_update("approve", {"of": asked["of"]})
        await finished(submitted, engine)
        await keep(engine.handle(), "prepared-again-after-deaths")


async def progress(handle: WorkflowHandle[Any, Any], name: str) -> Any:
    return (await handle.query("progress"))[name]


async def waits_for(handle: WorkflowHandle[Any, Any], *, behind: str = "") -> dict[str, Any]:
    """What it asks of a person; where `behind` names one decision, the next."""

    async def asked() -> Any:
        found = await progress(handle, "asked")
        return found if found and found["of"] != behind else None

    found: dict[str, Any] = await until(asked)
    return found
