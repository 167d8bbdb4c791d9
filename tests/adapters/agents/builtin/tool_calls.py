"""Short ways to call tools in tests, through the same door as the agent's turn."""

from __future__ import annotations

from typing import Any

from perdure.adapters.agents.builtin.tools import Toolbox, run_calls
from perdure.models.phases import Step


def called(name: str, given: object, call_id: str = "toolu_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


async def run(toolbox: Toolbox, *calls: dict[str, Any], step: Step = Step.IMPLEMENT) -> list[dict[str, Any]]:
    return await run_calls({"role": "assistant", "content": list(calls)}, toolbox, step)


async def ok(toolbox: Toolbox, tool: str, **given: Any) -> str:
    """The text of a result that is no error."""
    (result,) = await run(toolbox, called(tool, given))
    assert not result.get("is_error"), result["content"]
    return str(result["content"])


async def mistake(toolbox: Toolbox, tool: str, **given: Any) -> str:
    """The text of a result that is one."""
    (result,) = await run(toolbox, called(tool, given))
    assert result.get("is_error"), result["content"]
    return str(result["content"])
