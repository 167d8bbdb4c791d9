"""Setup runs once, before any model call; what it made and what was copied is there for every command."""

from __future__ import annotations

from pathlib import Path

from turn_bench import in_activity

from activities.prepare import Preparation
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.host.home import Home
from perdure.adapters.host.host import Host
from perdure.adapters.host.setting_up import read_binds
from perdure.models.request import DeliveryRequest
from perdure.models.work import PrepareInput
from tests.lab import CALC, make_target

CONFIG = """
version = 1
[setup]
commands = ["mkdir -p .venv && echo once >> .venv/ran && test -f .env.test"]
copy = [".env.test"]
[[test]]
name = "unit"
command = "grep once .venv/ran && grep secret .env.test"
"""


async def test_owners_commands_run_once_and_copied_files_are_there(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git", {**CALC, ".gitignore": ".venv\n.env.test\n"})
    source = tmp_path / "calc.git-work"
    (source / ".env.test").write_text("secret")
    home = Home(tmp_path / "home")
    host = Host.open(home, {"PERDURE_PORTS_BACKEND": "25060-25069", "PERDURE_PORTS_FRONTEND": "25070-25079"})
    request = DeliveryRequest(repository=str(origin), request="x", config=CONFIG, source=str(source))
    work = PrepareInput(delivery="d", request=request)
    prepared = await in_activity(Preparation(host).prepare, work)
    again = await in_activity(Preparation(host).prepare, work.model_copy(update={"previous": prepared}))
    assert again.summary == "goes on from its last checkpoint"
    assert again.checkpoint == prepared.checkpoint
    tree = home.tree("d")
    assert (tree / ".venv" / "ran").read_text() == "once\n"
    assert Workspace.open(home, "d").record().setup_done
    assert read_binds(home.workspace("d")) == read_binds(home.workspace("d"))
    await host.close()
