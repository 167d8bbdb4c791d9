"""Setup runs once, before any model call; what it made and what was copied is there for every command."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
from turn_fixtures import in_activity

from activities.prepare import PrepareActivity
from activities.run_tests import test_commit
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.workspace_setup import read_binds
from perdure.models.delivery.request import DeliveryRequest, request_proof
from perdure.models.delivery.work import PrepareInput
from perdure.models.errors import NoPorts
from tests.engine import CALC, git, make_target
from tests.homes import fresh_home

PORTS = {
    "PERDURE_PORTS_BACKEND": "25060-25069",
    "PERDURE_PORTS_FRONTEND": "25070-25079",
    "PERDURE_LOCAL_REPOSITORIES": os.environ["PERDURE_LOCAL_REPOSITORIES"],
}

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
    git(source, "remote", "add", "origin", str(origin))
    home = fresh_home(tmp_path / "home")
    host = Host.from_environment(home, PORTS)
    request = DeliveryRequest(repository=str(origin), request="x", config=CONFIG, source=str(source))
    said = request.model_dump(mode="json", exclude_defaults=True)
    request = request.model_copy(update={"proof": request_proof(home.key(), "d", said)})
    work = PrepareInput(delivery="d", request=request)
    prepared = await in_activity(PrepareActivity(host).prepare, work)
    again = await in_activity(PrepareActivity(host).prepare, work.model_copy(update={"previous": prepared}))
    assert again.summary == "goes on from its last checkpoint"
    assert again.checkpoint == prepared.checkpoint
    tree = home.tree("d")
    assert (tree / ".venv" / "ran").read_text() == "once\n"
    assert Workspace.open(home, "d").record().setup_done
    packages = home.caches / read_binds(home.workspace("d")).cache
    assert packages.is_dir()
    packages.rename(tmp_path / "cache")  # where an earlier release kept them
    await in_activity(PrepareActivity(host).prepare, work.model_copy(update={"previous": prepared}))
    assert packages.is_dir(), "no command would find what setup had fetched"
    assert (home.tree("d") / ".venv" / "ran").read_text() == "once\n"
    await host.close()


NO_PORTS = """
version = 1
[ports]
need = false
[[test]]
name = "unit"
command = "test -z \\"$BACKEND_PORT\\" && test ! -e .ports.env"
"""


async def test_a_repository_that_needs_no_ports_leases_none_and_waits_for_none(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git", CALC)
    home = fresh_home(tmp_path / "home")
    host = Host.from_environment(
        home, PORTS | {**PORTS, "PERDURE_PORTS_BACKEND": "25080-25080", "PERDURE_PORTS_FRONTEND": "25090-25090"}
    )
    with socket.create_server(("127.0.0.1", 25080)):  # the only pair is taken
        request = DeliveryRequest(repository=str(origin), request="x", config=NO_PORTS)
        prepared = await in_activity(PrepareActivity(host).prepare, PrepareInput(delivery="d", request=request))
        assert "green" in prepared.summary
        assert not list(home.ports.glob("*-*"))
        app = NO_PORTS + '[app]\nstart = "serve $FRONTEND_PORT"\n'
        with pytest.raises(NoPorts, match="all 1 port pairs are in use"):
            await in_activity(
                PrepareActivity(host).prepare,
                PrepareInput(delivery="e", request=request.model_copy(update={"config": app})),
            )
    await host.close()


PLACES = (
    """
version = 1
[setup]
commands = ["mkdir .venv && pwd >.venv/where && python3 -m venv --without-pip .venv/own"]
[[test]]
name = "places"
command = "sed -n 's/^command = .* //p' .venv/own/pyvenv.cfg; cat .venv/where; pwd; git rev-parse --show-toplevel; env"
[[test]]
name = "report"
report = "junit"
command = """
    + "'''"
    + """
echo "<testsuite><testcase name='$PERDURE_REPORT' file='$PWD/a.py'/></testsuite>" | tee "$PERDURE_REPORT"
"""
    + "'''\n"
)


async def test_all_deliveries_of_a_repository_see_their_worktrees_at_one_path(tmp_path: Path) -> None:
    """So prompts, logs and what tests print are alike, and what setup made for one is right for another."""
    origin = make_target(tmp_path / "calc.git", {**CALC, ".gitignore": ".venv\n"})
    home, reports = fresh_home(tmp_path / "home"), []
    for delivery in ("one", "two"):
        host = Host.from_environment(home, PORTS)
        request = DeliveryRequest(repository=str(origin), request="x", config=PLACES)
        prepared = await in_activity(PrepareActivity(host).prepare, PrepareInput(delivery=delivery, request=request))
        async with host.open_session(delivery, prepared.contract) as session:
            assert session.workspace.path == home.tree(delivery)
            report = await test_commit(
                session, prepared.base_commit.sha, "tree", "once more", None, makes_seed=False, commands=None
            )
        await host.close()
        reports.append(
            [(result.verdict, re.sub(r"25\d\d\d", "port", result.tail), result.cases) for result in report.commands]
        )
    assert reports[0] == reports[1]
    (_, places, _), (_, _, cases) = reports[0]
    assert places.splitlines()[:4] == ["/checkout/calc/.venv/own", *["/checkout/calc"] * 3]
    assert str(tmp_path / "home" / "trees") not in places
    assert [(case.name, case.file) for case in cases] == [("a.py::/results/junit.xml", "a.py")]


COMPILES = "version = 1\n[[test]]\nname = 'go'\ncommand = 'cat \"$GOCACHE/made\" || date +%s%N >\"$GOCACHE/made\"'\n"


async def test_what_the_base_has_compiled_is_there_for_each_delivery_that_begins_on_it(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git", CALC)
    home, tails = fresh_home(tmp_path / "home"), []
    for delivery in ("one", "two"):
        host = Host.from_environment(home, PORTS)
        request = DeliveryRequest(repository=str(origin), request="x", config=COMPILES)
        prepared = await in_activity(PrepareActivity(host).prepare, PrepareInput(delivery=delivery, request=request))
        async with host.open_session(delivery, prepared.contract) as session:
            report = await test_commit(
                session, prepared.base_commit.sha, "tree", "change", None, makes_seed=False, commands=None
            )
        await host.close()
        tails.append(report.commands[0].tail)
    assert "(known)" in prepared.summary, "the base ran again"
    (made,) = home.root.glob("seeds/*/GOCACHE/made")
    assert tails == [made.read_text()] * 2
