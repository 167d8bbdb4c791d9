"""A plan's tasks built by several at once: one pull request, each task's commit once, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from perdure.adapters.worker.journal import SpendLog
from perdure.models.delivery.result import DeliveryResult
from tests.cli.conftest import Cli
from tests.engine import CALC, Engine, finished, git, heads, make_target, pulls, until

CONFIG = CALC["perdure.toml"].replace("version = 1\n", "version = 1\n[delivery]\nspecialists = true\n")
TARGET = {
    **CALC,
    "perdure.toml": CONFIG.replace("        [delivery]\n        specialists", "[delivery]\nspecialists"),
    ".perdure/prompts/role-docs.md": "Write for people in a hurry.\n",
}

PLAN = {
    "title": "Add sub",
    "problem": "There is no sub.",
    "solution": "Write it.",
    "relevant_files": ["calc.py"],
    "tasks": [
        {"title": "Write sub", "details": "Beside add.", "files": ["calc.py"], "role": "backend", "depends_on": []},
        {"title": "Describe it", "details": "All.", "files": ["README.md"], "role": "docs", "depends_on": []},
        {"title": "Test it", "details": "It.", "files": ["tests/test_sub.py"], "role": "test", "depends_on": [1]},
    ],
    "validation": ["sub(3, 2) is 1"],
}

WRITTEN = "import unittest\\n\\nfrom calc import sub\\n\\n\\nclass SubTest(unittest.TestCase):\\n"
WRITTEN += "    def test_subtracts(self):\\n        self.assertEqual(sub(3, 2), 1)\\n"


def task(number: int, role: str, command: str, say: str) -> str:
    return f"""
[[line]]
step = "implement"
turn = 1
contains = ["You do task {number} of the plan.", "Work on it in the role: {role}.", "Describe it", "Task {number}: "]
use = [{{ tool = "bash", input = {{ command = '''{command}''' }} }}]
[[line]]
step = "implement"
contains = ["You do task {number} of the plan.", "exit code 0"]
say = "{say}"
"""


def story(**commands: str) -> str:
    does = {
        "backend": "sleep 1 && printf '\\n\\ndef sub(a, b):\\n    return a - b\\n' >> calc.py && ! test -e README.md",
        "docs": "sleep 1 && echo 'It can sub.' > README.md && ! grep -q 'def sub' calc.py",
        "test": f"grep -q 'def sub' calc.py && printf '{WRITTEN}' > tests/test_sub.py && python3 -m unittest -q",
    } | commands
    said = {"backend": "Write the function", "docs": "Tell people", "test": "Try it"}
    lines = [task(number, role, does[role], said[role]) for number, role in enumerate(does, 1)]
    return (
        '[[line]]\nstep = "classify"\nanswer = { kind = "feature", reason = "new" }\n'
        f'[[line]]\nstep = "plan"\nanswer = {toml(PLAN)}\n'
        + "".join(lines)
        + '[[line]]\nstep = "review"\nanswer = { summary = "Fine.", issues = [] }\n'
    )


def toml(value: object) -> str:
    """Inline, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def check(origin: Path, engine: Engine, result: DeliveryResult) -> None:
    """One branch, one pull request, each task's commit once, nothing paid twice; the whole was tested."""
    assert result.status == "delivered", (
        result.message,
        [one.model_dump() for one in result.steps],
        engine.worker_log(),
    )
    assert heads(origin).keys() == {"main", "perdure/calc-sub"}
    assert [pull["head"] for pull in pulls(origin)] == ["perdure/calc-sub"]
    told = "--format=%(trailers:key=Perdure-Item,valueonly,separator=%x2C)"
    landed = git(origin, "log", "--reverse", told, "main..perdure/calc-sub").split()
    assert sorted(landed) == ["1-backend", "2-docs", "3-test"]
    assert landed.index("1-backend") < landed.index("3-test")
    assert git(origin, "show", "perdure/calc-sub:README.md") == "It can sub."
    assert "def sub" in git(origin, "show", "perdure/calc-sub:calc.py")
    subjects = git(origin, "log", "--format=%s", "main..perdure/calc-sub").splitlines()
    assert sorted(subjects) == ["feat: describe it", "feat: test it", "feat: write sub"]
    assert result.receipt.replies_paid_twice == 0
    [taken] = [step for step in result.steps if step.step == "take_tasks"]
    assert all(item in taken.summary for item in landed)
    assert engine.rehearsal is not None
    replies = len([call for call in engine.rehearsal.calls if call.status == 200])
    assert result.usage.output_tokens > 0
    assert replies >= 9, "two for each task, and those of the delivery itself"


BESIDE = "sleep 1 && echo 'It can sub.' > README.md && printf '\\n\\n# sub is new\\n' >> calc.py"
MEETS = (
    """
[[line]]
step = "fix_landing"
turn = 1
contains = ["You do task", "def sub", "sub is new"]
use = [{ tool = "bash", input = { command = "sed -i '/^<<<<<<</d; /^|||||||/,/^=======/d; /^>>>>>>>/d' calc.py" } }]
[[line]]
step = "fix_landing"
contains = ["exit code 0"]
say = "Keep both"
[[line]]
step = "implement"
contains = ["You do task 3"]
fault = "refusal"
[[line]]
step = "implement"
turn = 1
contains = ["Test it: left to do (the model refused", "Write sub: done"]
lacks = ["You do task"]
use = [{ tool = "bash", input = { command = '''grep -q 'sub is new' calc.py && printf '"""
    + WRITTEN
    + """' > tests/test_sub.py && python3 -m unittest -q''' } }]
[[line]]
step = "implement"
lacks = ["You do task"]
contains = ["exit code 0"]
say = "Test it after all"
"""
)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_conflict_is_mended_in_the_task_and_what_one_leaves_is_built_by_the_delivery(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git", TARGET)
    async with Engine.open(tmp_path, MEETS + story(docs=BESIDE), ports=ports) as engine:
        engine.worker()
        result = await finished(await engine.submit(origin), engine, 200)
        assert result.status == "delivered", (result.message, engine.worker_log()[-3000:])
        code = git(origin, "show", "perdure/calc-sub:calc.py")
        assert "def sub" in code
        assert "sub is new" in code
        assert "<<<<" not in code
        assert engine.rehearsal is not None
        assert "fix_landing" in {call.step for call in engine.rehearsal.calls}
        told = "--format=%(trailers:key=Perdure-Item,valueonly,separator=%x2C)%(trailers:key=Perdure-Step,valueonly)"
        made = git(origin, "log", "--reverse", told, "main..perdure/calc-sub").split()
        assert sorted(made) == ["1-backend", "2-docs", "implement/1"]
        assert made[-1] == "implement/1"
        assert result.receipt.replies_paid_twice == 0
        await check_claims(engine)


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_tasks_are_built_at_once_and_become_one_pull_request_though_the_worker_is_killed_on_the_way(
    tmp_path: Path, ports: int
) -> None:
    deaths = ("during-prepare", "during-tool", "after-landing", "after-tasks")
    origin = make_target(tmp_path / "calc.git", TARGET)
    async with Engine.open(tmp_path, story(), ports=ports) as engine:
        engine.kept(PERDURE_CRASH_AT=",".join(deaths))
        result = await finished(await engine.submit(origin), engine, 300)
        check(origin, engine, result)
        assert result.receipt.worker_deaths == len(deaths), "of its tasks, too"
        assert {path.name.partition(".")[0] for path in engine.home.crashes.iterdir()} == set(deaths)
        await check_claims(engine)


async def check_claims(engine: Engine) -> None:
    ran = await asyncio.to_thread(Cli(engine.home.root, engine.root, engine.env), "verify", "calc-sub", "--json")
    claims = {one["claim"]: one for one in json.loads(ran.out)["claims"]}
    assert [one for one in claims.values() if one["mark"] == "contradicted"] == [], ran.out


@pytest.mark.long
@pytest.mark.timeout(200)
async def test_a_cancelled_delivery_says_what_its_tasks_have_cost(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git", TARGET)
    async with Engine.open(tmp_path, story(backend="sleep 60", docs="sleep 60"), ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin)
        await until(lambda: engine.model_calls() >= 4, timeout=60)  # two of its own, one of each task
        await until(lambda: _settled(engine) >= 4, timeout=30)
        await submitted.delivery.cancel()
        result = await finished(submitted, engine, 100)
        assert result.status == "cancelled"
        assert engine.rehearsal is not None
        tokens = [
            SpendLog(path.parent).total_spend().tokens for path in engine.home.root.glob("workspaces/*/spend.jsonl")
        ]
        assert len(tokens) == 3, "its own and two tasks'"
        paid = result.usage
        all_of_them = paid.input_tokens + paid.cache_read_tokens + paid.cache_write_tokens + paid.output_tokens
        assert all_of_them == max(tokens), "its own log has all of it"
        assert max(tokens) > sum(tokens) / 2
        await check_claims(engine)


def _settled(engine: Engine) -> int:
    """Replies that are paid for, by all logs there are."""
    return sum(
        len(SpendLog(path.parent).settled_usages()) for path in engine.home.root.glob("workspaces/*/spend.jsonl")
    )


@pytest.mark.timeout(120)
async def test_a_role_that_cannot_be_one_is_refused_before_anything_is_paid_for(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git", {**TARGET, ".perdure/prompts/role-The Docs.md": "Be short.\n"})
    async with Engine.open(tmp_path, story(), ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin)
        with pytest.raises(WorkflowFailureError) as refusal:
            await engine.handle(submitted.delivery.id).result()
        assert isinstance(refusal.value.cause, ApplicationError)
        assert "a role's name is lower case letters" in refusal.value.cause.message
        assert "role-The Docs.md" in refusal.value.cause.message
        assert engine.model_calls() == 0
