"""A fork in the middle of an agent's conversation has its memory; another agent takes over at the beginning of one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_budget_of_agents import CONFIG

from perdure.client.delivery.rewinding import fork, rewind
from perdure.client.delivery.turns import turns
from perdure.models.errors import BadInput
from tests.engine import Engine, finished, git, make_target
from tests.stand_in_agent import TWO_FILES, StandIn


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_fork_goes_on_with_an_agents_memory_and_another_agent_begins_only_at_the_beginning(
    tmp_path: Path, ports: int
) -> None:
    origin, env = make_target(tmp_path / "calc.git"), StandIn(tmp_path).env
    async with Engine.open(tmp_path / "engine", TWO_FILES, ports=ports, env=env) as engine:
        engine.worker()
        submitted = await engine.submit(origin, phases=["build", "ship"], config=CONFIG.format(agent="stand-in"))
        assert (await finished(submitted, engine)).status == "delivered"
        assert [one.place for one in await turns(submitted.delivery)] == ["implement:1", "implement:2", "implement:3"]

        calls = engine.model_calls()
        sibling = await fork(submitted.delivery, "implement:2", id="with-memory")
        ended = await asyncio.wait_for(sibling.delivery.result(), 120)
        assert ended.status == "delivered", ended.message
        assert engine.model_calls() == calls + 2, "it began anew, without the agent's memory"
        assert engine.rehearsal is not None
        assert "echo one" in str(engine.rehearsal.calls[calls].body), "the conversation until then"

        for attempt in (
            fork(submitted.delivery, "implement:2", agent="built-in"),
            rewind(submitted.delivery, "implement:2", agent="built-in"),
        ):
            with pytest.raises(BadInput, match="in the middle of a conversation of stand-in"):
                await attempt
        calls = engine.model_calls()
        other = await fork(submitted.delivery, "implement:1", agent="built-in", id="built-in")
        whole = await asyncio.wait_for(other.delivery.result(), 120)
        assert whole.status == "delivered", whole.message
        asked = engine.rehearsal.calls[calls].body
        assert "edit" in str(asked["tools"]), "the tools of the built-in agent"
        for id, head in (("with-memory", ended.head_sha), ("built-in", whole.head_sha)):
            files = git(origin, "show", f"{head}:one.txt"), git(origin, "show", f"{head}:two.txt")
            assert files == ("one", "two"), id
