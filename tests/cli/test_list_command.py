"""`perdure list` and the delivery that a command means when nobody names one."""

from __future__ import annotations

import json

import pytest

from tests.cli.decision_fixtures import Desk, desk

__all__ = ["desk"]


@pytest.mark.timeout(120)
async def test_what_waits_is_on_top_and_the_newest_by_start_is_meant_where_none_is_named(desk: Desk) -> None:
    async with desk.worker():
        for id in ("older-one", "newer-one"):
            await desk.submit(id)
            await desk.asked(id)
        await desk("approve", "newer-one")
        await desk.result("newer-one")

        async def listed() -> bool:
            found = {one["delivery_id"]: one for one in json.loads((await desk("list", "--json")).out)}
            return bool(found["newer-one"]["closed"] and found["older-one"]["asked"])

        await desk.until(listed)
        lines = (await desk("list")).out.splitlines()
        top, _, below = "\n".join(lines).partition("\n\n")
        assert [line.split()[0] for line in top.splitlines()] == ["delivery", "older-one", "perdure"]
        assert below.splitlines()[1].startswith("newer-one")
        assert "older-one" not in below
        for command in (("show",), ("watch",), ("show", "@last")):
            assert "Completed" in (await desk(*command)).out, command
        assert "newer-one has changed nothing yet" in (await desk("diff")).err
        desk.scene.log = "── the log\n"
        assert (await desk("logs")).out == "── the log\n"
        assert "newer-one has ended" in await desk.refused("hold")
        await desk("cancel", "older-one")
