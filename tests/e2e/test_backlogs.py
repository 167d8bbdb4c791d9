"""Backlogs on real repositories: each commit tested as it landed, whatever dies or moves meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git.workspace import Workspace
from perdure.client.schedules import Schedules
from perdure.models.backlog.request import CHECKS_MOST
from perdure.models.ids import delivery_key
from perdure.models.limits import TASK_QUEUE
from tests.cli.conftest import Cli, Ran
from tests.engine import Engine, git, heads, make_target
from tests.waiting import patient

CONFIG = """
version = 1
[delivery]
phases = ["build", "test", "ship"]
[limits]
test_fixes = 0
[setup]
commands = []
[ship]
allow_untested = true
[[test]]
name = "unit"
command = "python3 -m unittest -q"
"""


def adds(item: str, function: str, sign: str) -> str:
    """Two of these conflict: each puts its function at the end of the same file."""
    body = f"def {function}(a, b):\\n    return a {sign} b\\n"
    test = f"from calc import {function}\\nimport unittest\\n\\n\\nclass T(unittest.TestCase):\\n"
    test += f"    def test_{item}(self):\\n        self.assertEqual({function}(6, 3), 6 {sign} 3)\\n"
    return f'''
[[line]]
step = "implement"
turn = 1
contains = ["Add {function}"]
use = [{{ tool = "bash", input = {{ command = """printf '\\n\\n{body}' >> calc.py
printf '{test}' > tests/test_{item}.py""" }} }}]
[[line]]
step = "implement"
contains = ["Add {function}"]
say = "Add {function}"
'''


STORY = (
    adds("sub", "subtract", "-")
    + adds("mul", "multiply", "*")
    + """
[[line]]
step = "implement"
turn = 1
contains = ["Tidy up"]
use = [{ tool = "bash", input = { command = "rm hello.txt; echo tidy > tidy.txt" } }]
[[line]]
step = "implement"
contains = ["Tidy up"]
say = "Tidy up"
[[line]]
step = "fix_landing"
turn = 1
contains = ["Tidy up", "check of hello: test -f hello.txt"]
use = [{ tool = "bash", input = { command = "echo hello > hello.txt" } }]
[[line]]
step = "fix_landing"
contains = ["Tidy up"]
say = "Tidy up, and keep the greeting"
[[line]]
step = "fix_landing"
turn = 1
use = [{ tool = "bash", input = { command = "sed -i '/^<<<<<<</d; /^|||||||/,/^=======/d; /^>>>>>>>/d' calc.py" } }]
[[line]]
step = "fix_landing"
say = "Add both"
[[line]]
step = "implement"
turn = 1
contains = ["Break it"]
use = [{ tool = "bash", input = { command = "sed -i 's/a + b/a - b/' calc.py" } }]
[[line]]
step = "implement"
contains = ["Break it"]
say = "Break it"
[[line]]
step = "implement"
turn = 1
contains = ["Say hello"]
use = [{ tool = "bash", input = { command = "echo hello > hello.txt" } }]
[[line]]
step = "implement"
contains = ["Say hello"]
say = "Say hello"
"""
)

ITEMS = [
    {"id": "sub", "request": "Add subtract"},
    {"id": "mul", "request": "Add multiply"},
    {"id": "broken", "request": "Break it"},
    {"id": "after", "request": "Say goodbye", "depends_on": ["broken"]},
    {"id": "hello", "request": "Say hello", "depends_on": ["sub"], "check": ["test -f hello.txt"]},
    {"id": "tidy", "request": "Tidy up", "depends_on": ["hello"]},
]


async def night(engine: Engine, origin: Path, **more: Any) -> Any:
    request = {"repository": str(origin), "items": ITEMS, "config": CONFIG, **more}
    return await engine.client.start_workflow("Backlog", request, id="night", task_queue=TASK_QUEUE)


async def ended(handle: Any, engine: Engine) -> dict[str, Any]:
    try:
        async with asyncio.timeout(patient(200)):
            return dict(await handle.result())
    except TimeoutError:
        raise AssertionError(f"{await handle.query('progress')}\n{engine.worker_log()[-4000:]}") from None


def check_night(origin: Path, progress: dict[str, Any]) -> None:
    """What holds however it went: who can has landed, once, on one line of commits; each tested as it is there."""
    items = {item["id"]: item for item in progress["items"]}
    phases = {id: item["phase"] for id, item in items.items()}
    landed = dict.fromkeys(["sub", "mul", "hello", "tidy"], "landed")
    assert phases == landed | {"broken": "failed", "after": "blocked"}, [i.get("because") for i in items.values()]
    assert items["after"]["because"].startswith("blocked by broken")
    commits = git(origin, "log", "--reverse", "--format=%H %P", "main..perdure/night").splitlines()
    assert all(len(line.split()) == 2 for line in commits), f"not linear: {commits}"
    told = "--format=%(trailers:key=Perdure-Item,valueonly,separator=%x2C)"
    order = git(origin, "log", "--reverse", told, "main..perdure/night").split()
    assert sorted(order) == ["hello", "mul", "sub", "tidy"]
    assert order.index("sub") < order.index("hello") < order.index("tidy")
    assert [line.split()[0] for line in commits] == [items[id]["commit"] for id in order]
    assert git(origin, "show", "perdure/night:hello.txt") == "hello", "what is finished stays finished"
    assert progress["head"] == heads(origin)["perdure/night"]
    paid = [item["usd"] for item in progress["items"] if item["phase"] == "landed"]
    assert min(paid) > 0, "the last one's cost, too, although all has ended by the time it tells of its end"
    code = git(origin, "show", "perdure/night:calc.py")
    assert "def subtract" in code
    assert "def multiply" in code
    assert "<<<<" not in code


DEATHS = ("during-tests", "during-rebase", "after-rebase", "after-landing")


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_who_can_lands_once_and_in_order_whatever_dies_a_conflict_is_mended_and_a_failure_blocks_its_own(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.kept(PERDURE_CRASH_AT=",".join(DEATHS))
        progress = await ended(await night(engine, origin), engine)
        check_night(origin, progress)
        assert {path.name.partition(".")[0] for path in engine.home.crashes.iterdir()} == set(DEATHS)
        for item in ("sub", "mul"):  # one of them was brought onto the other
            cli = Cli(engine.home.root, engine.root, engine.env)
            ran = await asyncio.to_thread(cli, "verify", f"night/{item}", "--json", "--no-tests")
            claims = {one["claim"]: one for one in json.loads(ran.out)["claims"]}
            assert [one for one in claims.values() if one["mark"] == "contradicted"] == [], ran.out
            assert claims["commits"]["mark"] == claims["begins at the base"]["mark"] == "verified", claims
        assert engine.rehearsal is not None
        assert any(call.step == "fix_landing" for call in engine.rehearsal.calls)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_two_backlogs_and_a_person_on_one_branch_lose_nothing(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    git(origin, "branch", "shared", "main")
    git(tmp_path, "clone", "-q", "-b", "shared", str(origin), "hers")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        asked = {"repository": str(origin), "config": CONFIG, "branch": "shared"}
        items = {"night": [ITEMS[0]], "day": [{"id": "hello", "request": "Say hello"}]}
        begun = [
            await engine.client.start_workflow("Backlog", {**asked, "items": some}, id=id, task_queue=TASK_QUEUE)
            for id, some in items.items()
        ]
        for name in ("one", "two"):
            await asyncio.sleep(1)  # somewhere in the work of both: whatever she meets, hers stays
            await asyncio.to_thread(push_hers, tmp_path / "hers", name)
        ended_as = [await ended(handle, engine) for handle in begun]
    assert [item["phase"] for progress in ended_as for item in progress["items"]] == ["landed", "landed"]
    subjects = git(origin, "log", "--format=%s", "main..shared").splitlines()
    assert len(subjects) == 4
    assert {"one", "two"} <= set(subjects)
    assert not git(origin, "log", "--merges", "--format=%H", "main..shared")
    files = git(origin, "ls-tree", "-r", "--name-only", "shared").splitlines()
    assert {"one.txt", "two.txt", "hello.txt", "tests/test_sub.py"} <= set(files)
    for progress in ended_as:
        commit = progress["items"][0]["commit"]
        git(origin, "merge-base", "--is-ancestor", commit, "shared")


def push_hers(checkout: Path, name: str) -> None:
    """A person's commit, on what is there then."""
    (checkout / f"{name}.txt").write_text(name)
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", name)
    for _ in range(20):
        git(checkout, "pull", "-q", "--rebase", "origin", "shared")
        try:
            git(checkout, "push", "-q", "origin", "HEAD:shared")
            return
        except AssertionError:  # somebody landed in between
            continue
    raise AssertionError("she never got her turn")


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_what_the_last_one_broke_while_there_was_no_time_to_see_it_is_found_before_the_pull_request(
    tmp_path: Path, ports: int
) -> None:
    """Each item has as many checks as run with a landing, so as `tidy` lands those of `hello` have no time."""
    origin = make_target(tmp_path / "calc.git")
    many = ["true"] * (CHECKS_MOST - 1)
    items = [
        {"id": "sub", "request": "Add subtract", "check": [*many, "test -f tests/test_sub.py"]},
        {"id": "hello", "request": "Say hello", "depends_on": ["sub"], "check": ["test -f hello.txt", *many]},
        {"id": "tidy", "request": "Tidy up", "depends_on": ["hello"]},
    ]
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        handle = await night(engine, origin, items=items)
        async with asyncio.timeout(patient(120)):
            while not (asks := (await handle.query("progress")).get("asks")):
                await asyncio.sleep(0.2)
        tidy = git(origin, "log", "-1", "--format=%h", "--abbrev=7", "perdure/night").strip()
        found = f"perdure/night at {tidy}: check of hello: test -f hello.txt: exit code 1"
        assert asks == f"{found}; it held until tidy landed ({tidy})"
        cli = Cli(engine.home.root, engine.root, engine.env)
        status = (await asyncio.to_thread(cli, "backlog", "status", "night")).out
        assert "it held until tidy landed" in status
        assert "perdure backlog follow night --leave" in status
        added = await asyncio.to_thread(cli, "backlog", "add", "night", "again", "--request", "Say hello")
        assert added.code == 0, added
        progress = await ended(handle, engine)
        assert progress.get("asks", "") == ""
        assert git(origin, "show", "perdure/night:hello.txt") == "hello"
        assert not Workspace.open(engine.home, delivery_key("night/~base")).path.exists()


MOVED_BASE_DEATHS = ("during-follow", "after-follow")


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_base_that_moves_is_followed_once_whatever_dies(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    git(tmp_path, "clone", "-q", str(origin), "hers")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.kept(PERDURE_CRASH_AT=",".join(MOVED_BASE_DEATHS))
        request = {"repository": str(origin), "items": [ITEMS[0], ITEMS[4]], "config": CONFIG}
        handle = await engine.client.start_workflow("Backlog", request, id="night", task_queue=TASK_QUEUE)
        async with asyncio.timeout(patient(100)):
            while "perdure/night" not in heads(origin):
                await asyncio.sleep(0.2)
        (tmp_path / "hers" / "hers.txt").write_text("hers\n")
        git(tmp_path / "hers", "add", "-A")
        git(tmp_path / "hers", "commit", "-q", "-m", "hers")
        git(tmp_path / "hers", "push", "-q", "origin", "HEAD:main")
        progress = await ended(handle, engine)
        assert {path.name.partition(".")[0] for path in engine.home.crashes.iterdir()} == set(MOVED_BASE_DEATHS)
        items = {item["id"]: item for item in progress["items"]}
        assert [items[id]["phase"] for id in ("sub", "hello")] == ["landed", "landed"]
        told = "--format=%H %(trailers:key=Perdure-Item,valueonly,separator=%x2C)"
        on = [line.split() for line in git(origin, "log", "--reverse", told, "main..perdure/night").splitlines()]
        assert on == [[items[id]["commit"], id] for id in ("sub", "hello")]
        assert git(origin, "merge-base", "main", "perdure/night") == git(origin, "rev-parse", "main")
        assert progress["head"] == heads(origin)["perdure/night"]
        cli = Cli(engine.home.root, engine.root, engine.env)
        ran = await asyncio.to_thread(cli, "backlog", "report", "night", "--json")
        found = json.loads(ran.out)["receipt"]
        assert (found["lost"], found["twice"], found["ownerless"], found["bent"]) == ([], [], [], []), ran.out
        ran = await asyncio.to_thread(cli, "verify", "night/sub", "--json", "--no-tests")
        claims = {one["claim"]: one for one in json.loads(ran.out)["claims"]}
        assert [one for one in claims.values() if one["mark"] == "contradicted"] == [], ran.out
        assert not list((engine.home.root / "workspaces").glob("night-base*/tree"))


@pytest.mark.cluster
@pytest.mark.timeout(200)
async def test_what_a_schedule_starts_comes_from_this_home_lands_and_has_a_clean_receipt(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker(PERDURE_LOCAL_REPOSITORIES="/nowhere")
        (engine.root / "perdure.toml").write_text(CONFIG)
        (engine.root / "night.json").write_text(json.dumps({"items": [{"id": "hello", "request": "Say hello"}]}))
        cli = Cli.among(engine)

        async def run(*args: str) -> Ran:
            ran: Ran = await asyncio.to_thread(cli, *args)
            assert ran.code == 0, ran
            return ran

        asked = ("--repo", str(origin), "--config", "perdure.toml", "--every", "weekdays 23:00", "--json")
        await run("backlog", "start", "night.json", *asked)
        night = await begun(engine, "night")
        progress = await ended(engine.client.get_workflow_handle(night), engine)
        assert [item["phase"] for item in progress["items"]] == ["landed"], progress
        assert git(origin, "show", f"{progress['branch']}:hello.txt") == "hello"
        receipt = json.loads((await run("backlog", "report", "night", "--json")).out)["receipt"]
        assert receipt["clean"], receipt
        assert "hello" in (await run("show", "night/hello")).out
        (row,) = [one for one in json.loads((await run("list", "--json")).out) if one.get("backlog_id") == night]
        assert (row["repository"], row["status"]) == (str(origin), "ended")
        assert row["pull_request"] == progress["pull_request"]
        once = ("--repo", str(origin), "--config", "perdure.toml", "--at", "2087-11-23 23:00", "--phases", "build")
        await run("deliver", "Say hello", "--id", "once", *once)
        delivery = engine.perdure.delivery(await begun(engine, "once"))
        assert (await delivery.result()).status == "completed", engine.worker_log()[-4000:]
        tested = ("--repo", str(origin), "--config", "perdure.toml", "--branch", progress["branch"])
        schedule = json.loads((await run("run", "test", *tested, "--every", "daily 06:00", "--json")).out)
        assert schedule["when"] == "daily 06:00 UTC", schedule
        result = await engine.perdure.delivery(await begun(engine, schedule["id"])).result()
        assert (result.status, result.tests.status) == ("completed", "green"), engine.worker_log()[-4000:]


async def begun(engine: Engine, schedule: str) -> str:
    """Make it start something, and return the id of that."""
    await engine.client.get_schedule_handle(schedule).trigger()
    async with asyncio.timeout(patient(30)):
        while not (at := await Schedules(engine.client, None).get(schedule)).last:
            await asyncio.sleep(0.1)
    return at.last


ONLY = [{**{name: value for name, value in item.items() if name != "check"}} for item in ITEMS if item["id"] != "mul"]


async def commit_of(handle: Any, id: str) -> str:
    items = (await handle.query("progress"))["items"]
    return next((str(item.get("commit", "")) for item in items if item["id"] == id), "")


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_each_item_has_a_pull_request_on_what_it_depends_on_and_goes_where_that_one_went(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.kept(PERDURE_CRASH_AT="after-retarget,after-pull-request")
        items = [item for item in ONLY if item["id"] != "tidy"]
        items.append({"id": "bye", "request": "Add multiply", "depends_on": ["hello"]})
        request = {"repository": str(origin), "items": items, "config": CONFIG, "land": "stack"}
        handle = await engine.client.start_workflow("Backlog", request, id="night", task_queue=TASK_QUEUE)
        async with asyncio.timeout(patient(100)):
            while (
                not (seen := {i["id"]: i for i in (await handle.query("progress"))["items"]})
                .get("sub", {})
                .get("commit")
            ):
                await asyncio.sleep(0.2)
        git(origin, "update-ref", "refs/heads/main", seen["sub"]["commit"])  # a person merges it
        progress = await ended(handle, engine)
        items_by = {item["id"]: item for item in progress["items"]}
        assert {id: item["phase"] for id, item in items_by.items()} == {
            **dict.fromkeys(("sub", "hello", "bye"), "landed"),
            "broken": "failed",
            "after": "blocked",
        }, progress
        pulls = {
            pull.title: LocalForge(str(origin)).pull_details(pull.number)
            for pull, _ in LocalForge(str(origin)).list_pulls()
        }
        into = {shown.pull.head: (shown.pull.base, shown.state) for shown in pulls.values()}
        assert into == {
            items_by["sub"]["branch"]: ("main", "merged"),
            items_by["hello"]["branch"]: ("main", "open"),
            items_by["bye"]["branch"]: (items_by["hello"]["branch"], "open"),
        }
        for id in ("hello", "bye"):
            assert heads(origin)[items_by[id]["branch"]] == items_by[id]["commit"]
        assert git(origin, "merge-base", "--is-ancestor", items_by["hello"]["commit"], items_by["bye"]["commit"]) == ""
        assert git(origin, "merge-base", "--is-ancestor", items_by["sub"]["commit"], items_by["hello"]["commit"]) == ""
        assert "perdure/night" not in heads(origin)
        assert progress["message"] == "3 of 5 items have a pull request"
        cli = Cli(engine.home.root, engine.root, engine.env)
        ran = await asyncio.to_thread(cli, "backlog", "report", "night", "--json")
        found = json.loads(ran.out)["receipt"]
        assert (found["landed"], found["lost"], found["twice"], found["ownerless"]) == (3, [], [], []), ran.out
        assert {path.name.partition(".")[0] for path in engine.home.crashes.iterdir()} == {
            "after-retarget",
            "after-pull-request",
        }
