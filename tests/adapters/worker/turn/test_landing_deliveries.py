"""A delivery's change lands on a branch that others land on, once, though a worker is killed anywhere."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from landing_fixtures import BRANCH, CONFIG, RUN, Item, Night, night
from turn_fixtures import in_activity

from activities import run_tests
from activities.landing import LandActivity, RebaseActivity
from perdure.adapters.git.workspace import Workspace
from perdure.models.backlog.landing import LandInput, RebaseInput, RebaseResult
from perdure.models.checks.report import TestReport
from perdure.models.crash import CrashPoint
from perdure.models.delivery.result import TestsStatus
from perdure.models.errors import Diverged, ForgeRefused
from perdure.models.ids import run_ref
from perdure.models.issue import ForgeIssue
from tests.fork_server import ran
from tests.repositories import git

__all__ = ["night"]


async def test_two_items_land_one_after_the_other_each_as_one_commit(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    web = await night.item("web", {"c.txt": "web\n"})
    first = await api.rebase()
    assert not first.moved
    assert (await api.land(first)).commit == first.commit
    second = await web.rebase(landed=first.commit)
    assert second.moved
    assert second.onto == first.commit
    verdict = await web.test(second)
    assert verdict.status is TestsStatus.GREEN
    assert (await web.land(second, verdict)).commit == second.commit
    assert night.log()[-2:] == ["feat: do api", "feat: do web"]
    assert git(night.origin, "show", f"{BRANCH}:b.txt") == "api"


async def test_where_the_branch_has_not_moved_the_verdict_stands_and_no_workspace_is_made(night: Night) -> None:
    api = await (await night.item("api", {"a.txt": "1\n"})).change({"b.txt": "2\n"})
    made_at = Workspace.open(night.host.home, api.id).record().created_at
    before, contract = api.checkpoint, api.sealed
    first = await api.rebase()
    assert (first.moved, first.checkpoint, first.contract) == (False, before, contract)
    assert Workspace.open(night.host.home, api.id).record().created_at == made_at
    assert git(night.origin, "rev-list", "--count", "main").strip() == "1"
    api.number -= 1
    assert await api.rebase() == first, "again, by another worker"
    assert (await api.land(first)).commit == first.commit
    assert night.log() == ["start", "feat: do api"], "two commits were made, and one landed"


async def test_what_lands_for_an_issue_names_it_so_that_the_backlog_may_close_it(night: Night) -> None:
    api, web = await night.item("api", {"b.txt": "api\n"}), await night.item("web", {"c.txt": "web\n"})
    issue = ForgeIssue(number=14, title="b", url="https://github.com/me/calc/issues/14")
    api.sealed = night.host.store_contract(api.vault, api.terms().model_copy(update={"issue": issue}))
    first = await api.rebase()
    await api.land(first)
    await web.land(await web.rebase(landed=first.commit))
    trailers = git(night.origin, "log", "-2", "--format=%(trailers:key=Perdure-Issue,valueonly)", BRANCH)
    assert trailers.split() == ["14"]


async def test_a_conflict_is_left_in_the_files_and_lands_once_it_is_mended(night: Night) -> None:
    api = await night.item("api", {"a.txt": "one\nTWO\nthree\n"})
    web = await night.item("web", {"a.txt": "one\n2\nthree\n", "c.txt": "web\n"})
    landed = await api.land(await api.rebase())
    met = await web.rebase(landed.commit)
    assert (met.conflicts, met.commit, met.onto) == (("a.txt",), "", landed.commit)
    text = (web.tree / "a.txt").read_text()
    assert text.startswith("one\n<<<<<<< landed\nTWO\n||||||| ")
    assert text.endswith("\ntwo\n=======\n2\n>>>>>>> this-delivery\nthree\n")
    assert (web.tree / "c.txt").read_text() == "web\n"
    told = web.vault.get_artifact(web.id, met.landed_changes).decode()
    for words in ("- a.txt", "feat: do api", "-two\n+TWO", "CONFLICT (content)"):
        assert words in told
    await web.change({"a.txt": "one\nTWO 2\nthree\n"})
    again = await web.rebase(landed.commit)
    assert not again.moved
    assert (await web.land(again, await web.test(again))).commit == again.commit
    assert night.log()[-2:] == ["feat: do api", "feat: do web"]
    assert git(night.origin, "show", f"{BRANCH}:a.txt") == "one\nTWO 2\nthree"


async def test_what_landed_is_the_next_items_base_and_its_tests_do_not_run_again(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    web = await night.item("web", {"c.txt": "web\n"})
    shutil.rmtree(logs := night.host.home.workspace(web.id) / "logs", ignore_errors=True)
    first = await api.rebase()
    await api.land(first, await api.test(first))
    second = await web.rebase()
    assert second.moved
    assert second.baseline
    assert not logs.exists(), "known from the verdict on it"


async def test_somebody_who_is_faster_is_left_where_they_are_and_the_item_lands_on_top(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    first = await api.rebase()
    hers = night.push("hers", BRANCH)
    lost = await api.land(first)
    assert (lost.commit, lost.head) == ("", hers)
    second = await api.rebase()
    assert (second.onto, second.moved) == (hers, True)
    assert (await api.land(second)).commit == second.commit
    assert night.log()[-2:] == ["hers", "feat: do api"]


async def test_an_item_that_is_there_already_has_landed_and_lands_no_second_time(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    before = api.rebasing()
    first = await api.rebase()
    landed = await api.land(first)
    hers = night.push("hers", BRANCH)
    assert (await api.land(first)).commit == landed.commit, "killed between the push and its report, and overtaken"
    again = await in_activity(RebaseActivity(night.host).rebase, before.model_copy(update={"number": 7}), run="run-2")
    assert (again.landed, again.onto) == (landed.commit, hers), "rewound to before it"
    assert night.log()[-2:] == ["feat: do api", "hers"]


async def test_a_branch_that_was_put_back_or_taken_away_is_refused_with_one_line(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    web = await night.item("web", {"c.txt": "web\n"})
    landed = await api.land(await api.rebase())
    git(night.origin, "update-ref", f"refs/heads/{BRANCH}", "main")
    with pytest.raises(ForgeRefused, match=f"was put back: it is at .*, without {landed.commit[:12]}") as refused:
        await web.rebase(landed.commit)
    assert "\n" not in refused.value.what
    assert landed.commit[:12] in refused.value.fix
    git(night.origin, "update-ref", "-d", f"refs/heads/{BRANCH}")
    with pytest.raises(ForgeRefused, match="is not on the remote any more"):
        await web.rebase(landed.commit)


async def test_a_commit_that_was_not_tested_as_it_is_does_not_land(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    first = await api.rebase()
    verdict = await api.test(first)
    with pytest.raises(Diverged, match="no tests gave that verdict here"):
        await api.land(first, verdict.model_copy(update={"tree": "0" * 40}))
    with pytest.raises(Diverged, match="does not follow"):
        await api.land(first.model_copy(update={"onto": first.commit}), verdict)
    assert night.log() == ["start"]


async def test_all_of_it_being_there_already_is_said_and_nothing_is_committed(night: Night) -> None:
    api = await night.item("api", {"b.txt": "same\n"})
    web = await night.item("web", {"b.txt": "same\n"})
    landed = await api.land(await api.rebase())
    made = await web.rebase(landed.commit)
    assert (made.commit, made.conflicts, made.landed) == ("", (), "")
    assert made.summary.startswith("all of it is on")


async def test_a_test_command_that_others_brought_is_found_on_the_new_base(night: Night) -> None:
    plain = "version = 1\n[setup]\ncommands = []\n"
    api = await night.item("api", {"Makefile": "test:\n\ttrue\n"}, config=plain)
    web = await night.item("web", {"c.txt": "web\n"}, config=plain)
    landed = await api.land(await api.rebase())
    made = await web.rebase(landed.commit)
    assert web.terms().config.test, "there was none when it began"
    assert made.baseline


@pytest.mark.parametrize(("changed", "known"), [("b.txt", True), ("a.txt", False)])
async def test_a_verdict_is_no_base_where_setup_would_make_something_else(
    night: Night, changed: str, known: bool
) -> None:
    sets_up = CONFIG.replace("commands = []", 'commands = ["mkdir -p .venv && cat a.txt >.venv/ran"]')
    api = await night.item("api", {changed: "api\n"}, config=sets_up)
    web = await night.item("web", {"c.txt": "web\n"}, config=sets_up)
    shutil.rmtree(logs := night.host.home.workspace(web.id) / "logs", ignore_errors=True)
    first = await api.rebase()
    await api.land(first, await api.test(first))
    await web.rebase()
    assert (web.tree / ".venv" / "ran").read_text() == ("one\ntwo\nthree\n" if known else "api\n")
    assert any(path.name.startswith("preflight") for path in logs.glob("*")) is not known


async def test_a_delivery_that_is_rewound_over_its_rebase_works_on_its_old_base_again(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    web = await night.item("web", {"c.txt": "web\n"})
    sealed, checkpoint, base = web.sealed, web.checkpoint, web.base
    landed = await api.land(await api.rebase())
    await web.rebase(landed.commit)
    assert Workspace.open(night.host.home, web.id).record().base_sha == landed.commit

    async def rewound() -> None:
        async with night.host.open_session(web.id, sealed) as session:
            assert session.workspace.record().base_sha == base
            session.restore(checkpoint)

    await in_activity(rewound)
    assert (web.tree / "b.txt").read_text() == "b\n"
    assert (web.tree / "c.txt").read_text() == "web\n"


async def test_what_landed_items_named_holds_and_what_does_not_hold_without_the_change_sends_nobody_back(
    night: Night,
) -> None:
    web = await night.item("web", {"c.txt": "web\n"})
    made = await web.rebase()
    broken = await web.test(made, api="test -e c.txt", docs="test ! -e c.txt")
    assert broken.status is TestsStatus.RED
    assert any("check of docs" in name for name in broken.failures), broken
    web.number += 1
    innocent = await web.test(made, api="test -e never-was")
    assert innocent.status is TestsStatus.GREEN, innocent
    web.number += 1
    own = await web.test(made, web="test -e never-was")
    assert own.status is TestsStatus.RED, "its own has to hold, whatever holds without it"


async def test_checks_of_landed_items_hold_the_turn_for_so_long_and_what_is_left_out_says_nothing(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tests, "CHECKS_S", 0.5)
    web = await night.item("web", {"c.txt": "web\n"})
    made = await web.rebase()
    slow = {f"item{number}": "sleep 1" for number in range(5)}
    verdict = await web.test(made, **slow)
    assert verdict.status is TestsStatus.GREEN
    assert verdict.unchecked == ("item1", "item2", "item3", "item4"), "in the order given, and it says so"
    told = TestReport.model_validate_json(web.vault.get_artifact(web.id, verdict.report))
    assert len([one for one in told.commands if one.name.startswith("check of item")]) == 1
    web.number += 1
    own = await web.test(made, web="sleep 1; test -e never-was")
    assert own.status is TestsStatus.RED, "its own is never left out"


async def test_a_commit_tells_which_open_items_it_would_conflict_with(night: Night) -> None:
    api = await night.item("api", {"a.txt": "one\nTWO\nthree\n"})
    assert api.conflicts == {}
    web = await night.item("web", {"a.txt": "one\n2\nthree\n"})
    assert web.conflicts == {api.id: "a.txt"}
    docs = await night.item("docs", {"c.txt": "c\n"})
    assert docs.conflicts == {}


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
    work = api.landing(first, api.green(first))
    killed(night, CrashPoint.AFTER_LANDING, "land", work)
    assert night.log()[-1] == "feat: do api", "the push has happened"
    hers = night.push("hers", BRANCH)
    landed = await in_activity(LandActivity(night.host).land, work, run=RUN)
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
