"""Several attempts at one plan or item: the verdict chooses, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from perdure.client.delivery.rewinding import fork, rewind
from perdure.models.crash import CrashPoint
from perdure.models.delivery.comparison import Comparison
from perdure.models.delivery.result import DeliveryResult
from perdure.models.errors import BadInput
from perdure.models.limits import TASK_QUEUE
from tests.cli.conftest import Cli
from tests.commands import perdure
from tests.e2e.test_backlogs import CONFIG, ended
from tests.e2e.test_verdicts import HERE, PYTEST
from tests.engine import CALC, Engine, finished, git, heads, make_target, pulls, until

PLAN = """
[[line]]
step = "classify"
answer = { kind = "feature", reason = "new" }
[[line]]
step = "plan"
answer = { title = "Add sub", problem = "There is no sub.", solution = "Write it.", relevant_files = ["calc.py"], tasks = [{ title = "Write sub", details = "Beside add.", files = ["calc.py"] }], validation = ["sub(3, 2) is 1"] }
"""  # noqa: E501 - one line an answer, as in the screenplays
REVIEW = '[[line]]\nstep = "review"\nanswer = { summary = "Fine.", issues = [] }\n'
SUB = "printf '\\n\\ndef sub(a, b):\\n    return a - b\\n' >> calc.py"
TESTS = (
    "printf 'import unittest\\nfrom calc import sub\\n\\n\\nclass SubTest(unittest.TestCase):\\n"
    "    def test_sub(self):\\n        self.assertEqual(sub(3, 2), 1)\\n' > tests/test_sub.py"
)
RED = "sed -i 's/a + b/a - b/' calc.py"
LARGE = "printf '# one\\n# two\\n# three\\n# four\\n' >> calc.py"
NO_FIXES = "version = 1\n[setup]\ncommands = []\n[limits]\ntest_fixes = 0\n"


def attempt(contains: str, *commands: str, say: str = "Add sub") -> str:
    return f"""
[[line]]
step = "implement"
turn = 1
contains = {contains}
use = [{{ tool = "bash", input = {{ command = '''{" && ".join(commands)}''' }} }}]
[[line]]
step = "implement"
contains = {contains}
say = "{say}"
"""


def story(*attempts: tuple[str, ...]) -> str:
    made = [attempt(f'["This is attempt {number} of"]', *does) for number, does in enumerate(attempts, 1)]
    return PLAN + "".join(made) + REVIEW


def check(origin: Path, result: DeliveryResult, chosen: int) -> None:
    assert result.status == "delivered", (result.message, result.attempts)
    assert [one.number for one in result.attempts if one.chosen] == [chosen], result.attempts
    assert heads(origin).keys() == {"main", "perdure/calc-sub"}
    assert [pull["head"] for pull in pulls(origin)] == ["perdure/calc-sub"]
    assert git(origin, "log", "--format=%s", "main..perdure/calc-sub") == "feat: add sub"
    code = git(origin, "show", "perdure/calc-sub:calc.py")
    assert "def sub" in code
    assert "# four" not in code
    assert result.tests.status == "green"
    assert result.receipt.replies_paid_twice == 0


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_the_others_begin_only_when_the_first_is_no_good_and_worker_deaths_change_nothing(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    own = attempt('["Add sub"]', SUB, RED)  # the delivery's own: nobody tells it of attempts
    others = story(("false",), (SUB, TESTS)).replace(REVIEW, "") + own + REVIEW
    async with Engine.open(tmp_path, others, ports=ports) as engine:
        engine.kept(PERDURE_CRASH_AT=f"{CrashPoint.AFTER_ATTEMPTS},during-tests")
        asked = {"attempts": 2, "after_red": True, "config": NO_FIXES}
        result = await finished(await engine.submit(origin, **asked), engine, 200)
        check(origin, result, 2)
        own_one, other = result.attempts
        assert (own_one.delivery, own_one.tests) == ("calc-sub", "red")
        assert (other.delivery, other.tests) == ("calc-sub/attempt-2", "green")
        assert result.receipt.worker_deaths >= 2


ORDER = (
    "import calc\n\nSEEN = []\n\n\ndef test_first():\n    SEEN.append(calc.add(2, 3) == 5)\n    assert SEEN[0]\n\n\n"
    "def test_depends():\n    assert not (SEEN and hasattr(calc, 'sure')), 'something ran before'\n"
)
CLUMSY = "printf '# CLUMSY\\n' >> calc.py"
UNSURE = "printf '\\nsure = 1\\n' >> calc.py"
BLOCKS = """
[[line]]
step = "review"
contains = ["CLUMSY"]
answer = { summary = "No.", issues = [{ title = "Clumsy", description = "It is.", severity = "blocker", file = "calc.py", line = 9, suggestion = "Write it better." }] }
"""  # noqa: E501 - one line an answer


async def said(engine: Engine, *words: str) -> str:
    return (await asyncio.to_thread(Cli(engine.home.root, engine.root, engine.env), *words)).out


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_flaky_verdict_wins_over_red_and_blocked_ones_and_the_report_has_a_table_of_all(
    tmp_path: Path, ports: int
) -> None:
    config = f"{PYTEST}[limits]\ntest_fixes = 0\nreview_fixes = 0\n"
    origin = make_target(tmp_path / "calc.git", {**CALC, "tests/test_calc.py": ORDER, "perdure.toml": config})
    does = story((SUB, RED), (SUB, UNSURE), (SUB, CLUMSY)).replace(REVIEW, BLOCKS + REVIEW)
    async with Engine.open(tmp_path, does, ports=ports, env=HERE) as engine:
        engine.worker()
        result = await finished(await engine.submit(origin, attempts=3), engine, 200)
        check(origin, result, 2)
        assert result.tests.flaky == 1
        first, second, third = result.attempts
        assert (first.tests, second.tests, third.tests) == ("red", "green", "green")
        assert (second.review.status, third.review.status, third.review.blockers) == ("clean", "blocked", 1)
        text = await said(engine, "report", "calc-sub")
        assert f"1 {first.failure} · tests red · review: not done" in text
        assert "2 chosen · tests green · review: 0 blockers" in text
        assert f"3 {third.failure} · tests green · review: 1 blocker" in text
        assert third.branch in await said(engine, "report", "calc-sub", "--html", "-")
        assert "+def sub" in await said(engine, "diff", "calc-sub/attempt-3"), "it stays to be looked at"
        claims = {one["claim"]: one for one in json.loads(await said(engine, "verify", "calc-sub", "--json"))["claims"]}
        assert [one for one in claims.values() if one["mark"] == "contradicted"] == []


def tools_run(engine: Engine, count: int) -> bool:
    """So many attempts are in the middle of their first tool."""
    return len(list(engine.home.root.glob("trees/*/in-the-middle"))) >= count


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_the_smallest_green_one_of_three_is_taken_though_the_worker_is_killed_in_the_middle_of_all(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    pause = "touch in-the-middle && sleep 5 && rm in-the-middle"
    does = story((pause, SUB, RED), (pause, SUB, TESTS, LARGE), (pause, SUB, TESTS))
    async with Engine.open(tmp_path, does, ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin, attempts=3, config=NO_FIXES)
        await until(lambda: tools_run(engine, 3), timeout=90)
        engine.kill_workers()
        engine.worker()
        result = await finished(submitted, engine, 200)
        check(origin, result, 3)
        assert result.receipt.worker_deaths >= 1
        first, second, third = result.attempts
        assert (first.tests, second.tests, third.tests) == ("red", "green", "green")
        assert second.lines == third.lines + 4
        assert first.failure.startswith("tests are red")
        assert engine.rehearsal is not None
        calls = [call for call in engine.rehearsal.calls if call.status == 200]
        assert [call.step for call in calls].count("review") == 2, "of the two green ones, and not once more"
        paid = sum(one.cost_usd or 0 for one in result.attempts)
        assert result.usage.cost_usd is not None
        assert result.usage.cost_usd > paid > 0, "the plan, too"
        for one in result.attempts:
            assert (await engine.perdure.delivery(one.delivery).describe()).outcome in ("completed", "not_delivered")


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_a_cancelled_delivery_cancels_its_attempts_and_a_retry_pays_for_none_of_their_replies_again(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    pause = "touch in-the-middle && sleep 5 && rm in-the-middle"
    async with Engine.open(tmp_path, story((pause, SUB, RED), (pause, SUB, TESTS)), ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin, attempts=2, config=NO_FIXES)
        await until(lambda: tools_run(engine, 2), timeout=90)
        await submitted.delivery.cancel()
        cancelled = await finished(submitted, engine, 100)
        assert cancelled.status == "cancelled"
        for number in (1, 2):
            described = await engine.perdure.delivery(f"calc-sub/attempt-{number}").describe()
            assert described.outcome == "cancelled"
        before = engine.model_calls()
        await submitted.delivery.retry()
        result = await finished(submitted, engine, 200)
        check(origin, result, 2)
        assert engine.rehearsal is not None
        after = [call.step for call in engine.rehearsal.calls[before:]]
        assert after.count("implement") == 2, "each attempt's second reply: the first one was paid for"
        assert result.usage.cost_usd is not None
        assert cancelled.usage.cost_usd is not None
        assert result.usage.cost_usd > cancelled.usage.cost_usd > 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("attempts = 0", "attempts is 0, allowed is 1 to 5"),
        ("attempts = 2\nspecialists = true", "by several specialists or several times, not both"),
    ],
)
async def test_attempts_that_cannot_be_are_refused_before_anything_is_paid_for(
    tmp_path: Path, ports: int, config: str, words: str
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, PLAN, ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin, config=f"version = 1\n[delivery]\n{config}\n")
        with pytest.raises(WorkflowFailureError) as refusal:
            await engine.handle(submitted.delivery.id).result()
        assert isinstance(refusal.value.cause, ApplicationError)
        assert words in refusal.value.cause.message
        assert engine.model_calls() == 0


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_two_attempts_are_compared_and_their_delivery_is_what_goes_back(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, story((SUB, TESTS, LARGE), (SUB, TESTS)), ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin, attempts=2, config=NO_FIXES)
        first = await finished(submitted, engine, 200)
        assert first.status == "delivered", first.message
        ids = [one.delivery for one in first.attempts]
        beside = Comparison.model_validate_json(await perdure(engine, "compare", *ids, "--json"))
        assert beside.related == "attempts of calc-sub"
        assert {one.path: one.same for one in beside.files} == {"calc.py": False, "tests/test_sub.py": True}
        assert beside.left_delivery.added == beside.right_delivery.added + 4

        one = engine.perdure.delivery(ids[0])
        with pytest.raises(BadInput, match="an attempt is begun and chosen by its delivery"):
            await rewind(one, "implement:1")
        alone = await fork(one, "implement:2", id="alone")
        assert (await asyncio.wait_for(alone.delivery.result(), 120)).status == "completed"

        back = await rewind(submitted.delivery, "plan:1", say="once more")
        await until(lambda: _other(engine, back.run_id), 30)
        again = await asyncio.wait_for(submitted.delivery.result(), 200)
        assert (again.status, again.run_id) == ("delivered", back.run_id), again.message
        assert [pull["head"] for pull in pulls(origin)] == ["perdure/calc-sub"]


async def _other(engine: Engine, run: str) -> bool:
    return (await engine.perdure.delivery("calc-sub").describe()).run_id == run


PAUSE = "touch in-the-middle && sleep 5 && rm in-the-middle"
HELLO = "echo hello > hello.txt"
STORY = "".join(
    (
        attempt('["This is attempt 1 of", "Add sub"]', PAUSE, SUB, RED),
        attempt('["This is attempt 2 of", "Add sub"]', PAUSE, SUB, TESTS, LARGE),
        attempt('["This is attempt 3 of", "Add sub"]', PAUSE, SUB, TESTS),
        attempt('["This is attempt 2 of", "Say hello"]', HELLO, say="Say hello"),
        attempt('["Say hello"]', HELLO, RED, say="Say hello"),
    )
)


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_the_best_attempt_at_an_item_lands_and_a_worker_killed_in_the_middle_changes_nothing(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    items = [
        {"id": "sub", "request": "Add sub", "attempts": 3},
        {"id": "hello", "request": "Say hello", "after_red": True, "depends_on": ["sub"]},
    ]
    asked = {"repository": str(origin), "items": items, "config": CONFIG, "attempts": 2, "parallel": 1}
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        handle = await engine.client.start_workflow("Backlog", asked, id="night", task_queue=TASK_QUEUE)
        await until(lambda: tools_run(engine, 3), timeout=90)
        engine.kill_workers()
        engine.worker()
        progress = await ended(handle, engine)
        assert [item["phase"] for item in progress["items"]] == ["landed", "landed"], progress
        assert heads(origin).keys() == {"main", "perdure/night"}
        told = "--format=%(trailers:key=Perdure-Item,valueonly,separator=%x2C)"
        assert git(origin, "log", "--reverse", told, "main..perdure/night").split() == ["sub", "hello"]
        code = git(origin, "show", "perdure/night:calc.py")
        assert "def sub" in code
        assert "# four" not in code
        assert "a + b" in code
        sub = await engine.perdure.delivery("night/sub").result()
        assert [(one.number, one.tests) for one in sub.attempts] == [(1, "red"), (2, "green"), (3, "green")]
        assert [one.delivery for one in sub.attempts if one.chosen] == ["night/sub/attempt-3"]
        assert sub.receipt.worker_deaths >= 1
        assert sub.receipt.replies_paid_twice == 0
        hello = await engine.perdure.delivery("night/hello").result()
        assert [(one.delivery, one.tests, one.chosen) for one in hello.attempts] == [
            ("night/hello", "red", False),
            ("night/hello/attempt-2", "green", True),
        ]
        ran = await asyncio.to_thread(
            Cli(engine.home.root, engine.root, engine.env), "backlog", "report", "night", "--json"
        )
        receipt = json.loads(ran.out)["receipt"]
        assert (receipt["landed"], receipt["lost"], receipt["twice"], receipt["ownerless"]) == (2, [], [], []), ran.out


ASKS = (
    """
[[line]]
step = "implement"
turn = 1
contains = ["This is attempt 2 of"]
use = [{ tool = "ask", input = { text = "Which greeting?", kind = "text", why = "There are several." } }]
[[line]]
step = "implement"
turn = 2
contains = ["This is attempt 2 of"]
use = [{ tool = "bash", input = { command = "echo hello > hello.txt" } }]
"""
    + attempt('["This is attempt 2 of"]', HELLO, say="Say hello")
    + attempt('["This is attempt 1 of"]', HELLO, RED, say="Say hello")
)


@pytest.mark.timeout(200)
async def test_what_an_attempt_at_an_item_asks_is_shown_at_the_backlog(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    asked = {"repository": str(origin), "items": [{"id": "hello", "request": "Say hello", "attempts": 2}]}
    async with Engine.open(tmp_path, ASKS, ports=ports) as engine:
        engine.worker()
        request = {**asked, "config": CONFIG}
        handle = await engine.client.start_workflow("Backlog", request, id="night", task_queue=TASK_QUEUE)

        async def shown() -> bool:
            [item] = (await handle.query("progress"))["items"]
            return "night/hello/attempt-2 waits: question: Which greeting?" in item.get("because", "")

        await until(shown, timeout=90)
        cli = Cli(engine.home.root, engine.root, engine.env)
        ran = await asyncio.to_thread(cli, "answer", "night/hello/attempt-2", "hello")
        assert ran.code == 0, ran
        progress = await ended(handle, engine)
        assert [item["phase"] for item in progress["items"]] == ["landed"], progress
