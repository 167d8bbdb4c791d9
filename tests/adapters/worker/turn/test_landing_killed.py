"""A worker killed anywhere in a landing: the item lands once, on what is there then."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from landing_fixtures import BRANCH, RUN, Item, Night, night
from turn_fixtures import in_activity

from activities.landing import LandActivity, RebaseActivity
from perdure.models.backlog.landing import LandInput, RebaseInput, RebaseResult
from perdure.models.crash import CrashPoint
from perdure.models.ids import run_ref
from tests.engine import git
from tests.fork_server import ran

__all__ = ["night"]

WORKER = """
import asyncio, dataclasses, os, sys
from temporalio.testing import ActivityEnvironment
from activities.landing import LandActivity
from activities.landing import RebaseActivity
from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.models.backlog.landing import LandInput, RebaseInput

async def main(step, work):
    host = Host.from_environment(Home.find(), dict(os.environ))
    env = ActivityEnvironment()
    env.info = dataclasses.replace(env.info, workflow_run_id="run-1")
    if step == "land":
        await env.run(LandActivity(host).land, LandInput.model_validate_json(work))
    else:
        await env.run(RebaseActivity(host).rebase, RebaseInput.model_validate_json(work))

asyncio.run(main(*sys.argv[1:]))
"""


def killed(night: Night, point: CrashPoint, step: str, work: RebaseInput | LandInput) -> None:
    """Another worker of this host, which dies at that point of the step."""
    env = {
        **os.environ,
        "PERDURE_HOME": str(night.host.home.root),
        "PERDURE_CRASH_AT": point,
        "PERDURE_LOCAL_REPOSITORIES": str(night.origin.parent),
    }
    program = night.host.home.root.parent / "dying_worker.py"
    program.write_text(WORKER)
    code, _, said = ran(str(program), step, work.model_dump_json(by_alias=True), env=env, cwd=Path.cwd())
    assert code == -signal.SIGKILL, said


def locks(item: Item) -> list[Path]:
    return [path for path in item.vault.path.rglob("*.lock") if not path.name.startswith("perdure")]


async def test_a_death_between_the_push_and_its_report_lands_no_second_time(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    first = await api.rebase()
    killed(night, CrashPoint.AFTER_LANDING, "land", api.landing(first))
    assert night.log()[-1] == "feat: do api", "the push has happened"
    hers = night.push("hers", BRANCH)
    landed = await in_activity(LandActivity(night.host).land, api.landing(first), run=RUN)
    assert (landed.commit, landed.head) == (first.commit, hers)
    assert night.log()[-2:] == ["feat: do api", "hers"]


@pytest.mark.parametrize(
    "point",
    [CrashPoint.DURING_REBASE, CrashPoint.DURING_TESTS, CrashPoint.INSIDE_REF_UPDATE, CrashPoint.AFTER_REBASE],
)
async def test_a_death_anywhere_in_a_rebase_leaves_one_that_lands(night: Night, point: CrashPoint) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    web = await night.item("web", {"c.txt": "web\n", "a.txt": None})
    web.number += 1
    landed = await api.land(await api.rebase())
    work = web.rebasing(landed.commit)
    killed(night, point, "rebase", work)
    tip, hers = web.vault.read_ref(run_ref(web.id, RUN)), night.push("hers", BRANCH)
    made: RebaseResult = await in_activity(RebaseActivity(night.host).rebase, work, run=RUN)
    web.take(made)
    if point is CrashPoint.AFTER_REBASE:
        assert (made.checkpoint, made.onto) == (tip, landed.commit), "it is taken over, and the push will tell"
        assert (await web.land(made)).head == hers
        made = await web.rebase(landed.commit)
    assert made.onto == hers
    assert (await web.land(made, await web.test(made))).commit == made.commit
    assert night.log()[-3:] == ["feat: do api", "hers", "feat: do web"]
    assert git(night.origin, "diff", "--name-status", f"{BRANCH}^", BRANCH).split() == ["D", "a.txt", "A", "c.txt"]
    assert locks(web) == []
