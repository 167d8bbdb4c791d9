"""A backlog's deliveries are `<backlog>/<item>`: each command that decides or looks takes such an id."""

from __future__ import annotations

import json

import pytest

from tests.cli.decision_fixtures import Desk, desk

__all__ = ["desk"]

ID = "night/docs"


@pytest.mark.timeout(120)
async def test_what_waits_in_a_backlog_is_looked_at_and_decided_like_any_delivery(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit(ID)
        asked = await desk.asked(ID)
        assert f"perdure approve {ID}" in (await desk("show", ID)).out
        assert ID in (await desk("list", "--waiting")).out
        assert "no delivery night" not in (await desk("show", "night/d")).out
        assert (await desk("approve", ID, "--print")).out.splitlines()[0].startswith(f"# The plan of {ID}")
        for command in (("say", ID, "mind the old format"), ("hold", ID), ("resume", ID), ("budget", ID, "--add", "1")):
            assert (await desk(*command, "--json")).out
        for command in (("logs", ID), ("diff", ID), ("report", ID)):
            await desk(*command)
        await desk("reject", ID, "--note", "with types, please")
        desk.scene.replans.set()
        again = await desk.asked(ID, not_of=asked.target)
        assert f"next     perdure watch {ID}" in (await desk("approve", ID, "--of", again.target)).out
        assert json.loads((await desk("watch", ID, "--json")).out)["delivery_id"] == ID
