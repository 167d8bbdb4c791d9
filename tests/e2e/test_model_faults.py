"""Whatever the model's API answers, a delivery is delivered anyway or ends with a typed, readable reason."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.models.crash import CrashPoint
from perdure.models.delivery.result import DeliveryResult
from perdure.models.errors import InvalidRequest
from tests.cli.conftest import Cli
from tests.engine import BUILT, HAPPY, Engine, check_shipped, finished, git, heads, make_target, pulls
from tests.waiting import patient

PASSING = ["429", "hang", "cut", "max_tokens"]
FINAL = {"refusal": ("refused", "refused"), "401": ("refused", "ANTHROPIC_API_KEY")}
"""One of each way through a delivery; which fault is of which kind: tests/adapters/agents/builtin/test_model.py."""

SCREENPLAY = (
    "title = 'faults'\n"
    + "".join(
        f"""
[[line]]
step = "implement"
turn = 1
contains = ["fault {fault}!"]
fault = "{fault}"
{"retry_after = 0.1" if fault == "429" else ""}
times = {2 if fault in PASSING and fault not in ("hang", "max_tokens") else 1}
use = [{{ tool = "write", input = {{ path = "new.txt", content = "{fault}\\n" }} }}]
"""
        for fault in [*PASSING, *FINAL]
    )
    + """
[[line]]
step = "implement"
last = "cut off"
use = [{ tool = "write", input = { path = "new.txt", content = "after all\\n" } }]
[[line]]
step = "implement"
contains = ["new.txt"]
say = "Write a file"
[[line]]
step = "implement"
use = [{ tool = "write", input = { path = "new.txt", content = "after all\\n" } }]
"""
)

CONFIG = "version = 1\n[setup]\ncommands = []\n"


@pytest.mark.timeout(180)
async def test_every_class_of_model_fault_ends_well_or_with_a_reason(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(
        tmp_path, SCREENPLAY, ports=ports, env={"PERDURE_MODEL_SILENCE_S": "2"}, measured=True
    ) as engine:
        engine.worker()
        names = [*PASSING, *FINAL]
        submitted = [
            await engine.submit(
                origin, f"fault {name}!", id=f"fault-{name.replace('_', '-')}", phases=["build"], config=CONFIG
            )
            for name in names
        ]
        results = await asyncio.gather(*(finished(one, engine, timeout=150) for one in submitted))
        for name, result in zip(names, results, strict=True):
            if name in PASSING:
                assert result.status == "completed", (name, result.message)
            else:
                reason, words = FINAL[name]
                assert (result.status, result.reason) == ("not_delivered", reason), (name, result)
                assert words in result.message, (name, result.message)
            assert result.receipt.replies_paid_twice == 0
        by_name = dict(zip(names, results, strict=True))
        assert by_name["429"].receipt.replies_cut == 0, "a refused request is not billed"
        assert by_name["cut"].receipt.replies_cut == 2, "a reply that was cut off may have been billed"
        assert by_name["401"].usage.cost_usd == 0


SLOPPY = "Sloppy the first time"
TWICE = {
    "cut off": (
        "plan",
        """say = '{"title": "Add sub", "problem": "", "solution": "", "relevant_files": [], "validation": [], \
"tasks": [{"title": "Write sub", "details": "", "files": []}]}'\nfault = "max_tokens"\ntimes = 2""",
    ),
    "yes and no": (
        "review",
        """say = '{"summary": "Fine.", "issues": []} {"summary": "Broken.", "issues": "many"}'""",
    ),
}
"""Case, which is the request's text → the step that never answers properly, and what it says.

One a step; what else is no answer: tests/adapters/agents/builtin/test_conversation.py."""


def _line(step: str, said: str, case: str, *, once: bool) -> str:
    """A bad answer for the delivery of that case; `once`: until it is asked for again."""
    until = 'lacks = ["Your answer was not accepted"]\n' if once else ""
    return f'[[line]]\nstep = "{step}"\ncontains = ["{case}"]\n{until}{said}\n'


CUT_ONCE = 'say = "a plan that goes on and on, and on, and on"\nfault = "max_tokens"'

MALFORMED = "\n".join(
    [
        'title = "malformed answers"',
        _line("classify", 'say = "It is a feature, I would think."', SLOPPY, once=True),
        _line("plan", CUT_ONCE, SLOPPY, once=True),
        _line("review", TWICE["yes and no"][1], SLOPPY, once=True),
        *(_line(step, said, case, once=False) for case, (step, said) in TWICE.items()),
        HAPPY.split("\n", 2)[2],
    ]
)


def _asked_again(engine: Engine, case: str, step: str) -> int:
    """In how many requests of a step the model was told that its answer was not accepted."""
    assert engine.rehearsal is not None
    bodies = [str(call.body) for call in engine.rehearsal.calls if f"Step: {step}" in str(call.body.get("system"))]
    return sum("Your answer was not accepted" in body for body in bodies if case in body)


def _exit_code(engine: Engine, result: DeliveryResult) -> int:
    """Of the command that a person or a build server waits with."""
    return Cli(engine.home.root, engine.root, engine.env)("watch", result.delivery_id).code


@pytest.mark.timeout(180)
async def test_an_answer_that_is_none_is_asked_for_once_more_and_never_counts_as_a_yes(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, MALFORMED, ports=ports) as engine:
        engine.worker()
        ids = {case: f"bad-{number}" for number, case in enumerate(TWICE)}
        submitted = [await engine.submit(origin, SLOPPY, id="sloppy")]
        for case, id in ids.items():
            alone = {"phases": ["build", "review"]} if TWICE[case][0] == "review" else {}
            submitted.append(await engine.submit(origin, case, id=id, **alone))
        sloppy, *failed = await asyncio.gather(*(finished(one, engine, timeout=150) for one in submitted))

        check_shipped(origin, engine, sloppy, {})  # among others: its branch and its pull request are the only ones
        assert [_asked_again(engine, SLOPPY, step) for step in ("classify", "plan", "review")] == [1, 1, 1]
        for result, (case, (step, _)) in zip(failed, TWICE.items(), strict=True):
            assert (result.status, result.reason) == ("not_delivered", "refused"), (case, result)
            assert "did not validate" in result.message, (case, result.message)
            assert result.pull_request is None
            assert result.review.status != "clean", case
            assert result.steps[-1].step == step, case
            assert _asked_again(engine, case, step) == 1, case
        assert len(pulls(origin)) == 1
        assert heads(origin).keys() == {"main", "perdure/sloppy"}
        assert [await asyncio.to_thread(_exit_code, engine, result) for result in (sloppy, failed[-1])] == [0, 1]

        # The model has come to its senses: who retries it is not given the replies once more that had ended it.
        async with asyncio.timeout(patient(100)):
            again = await (await engine.perdure.delivery(ids["cut off"]).retry()).result()
        assert (again.status, again.receipt and again.receipt.replies_paid_twice) == ("delivered", 0), again


FIRST, SECOND = "claude-sonnet-5-5", "claude-opus-5-5"

PLAY = f"""
title = "refused halfway"
[[line]]
step = "implement"
turn = 1
model = "{FIRST}"
think = "It is a small thing."
use = [{{ tool = "bash", input = {{ command = "printf '\\n\\ndef sub(a, b):\\n    return a - b\\n' >> calc.py" }} }}]
[[line]]
step = "implement"
model = "{FIRST}"
fault = "refusal"
times = 9
[[line]]
step = "implement"
model = "{SECOND}"
contains = ["The model that worked on this up to here could not go on", "+def sub(a, b):"]
say = "Add sub"
"""


async def test_it_goes_on_where_the_first_one_stood_and_the_refusal_is_paid_once(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    config = BUILT["config"] + f'[delivery]\nfallback = "{SECOND}"\n'
    env = {"PERDURE_CRASH_AT": CrashPoint.DURING_COMPACTION}
    async with Engine.open(tmp_path, PLAY, ports=ports, env=env) as engine:
        engine.kept()
        submitted = await engine.submit(origin, **{**BUILT, "config": config})
        result = await finished(submitted, engine)
        assert result.status == "delivered", result.message
        assert (result.receipt.worker_deaths, result.receipt.replies_paid_twice) == (1, 0)
        assert engine.rehearsal is not None
        asked = [(call.body["model"], call.outcome) for call in engine.rehearsal.calls]
        assert asked == [(FIRST, "reply"), (FIRST, "refusal"), (SECOND, "reply")]
        assert len(engine.rehearsal.calls[-1].body["messages"]) == 1, "what the first one has thought stays with it"
        [built] = [step for step in result.steps if step.step == "implement"]
        assert (built.summary, built.turns) == (f"with {SECOND} · Add sub", 3)
        state = await engine.perdure.delivery("calc-sub").read_page("turns")
        assert f"goes on with {SECOND}: the model refused (general_harms)" in state.text
    assert git(origin, "show", f"{result.branch}:calc.py").endswith("def sub(a, b):\n    return a - b")


NEAREST = "no agent is called 'clade-code' on this host (did you mean claude-code?)"


async def refused(engine: Engine, origin: Path, id: str, **asked: Any) -> str:
    with pytest.raises(InvalidRequest) as error:
        await finished(await engine.submit(origin, id=id, **{**BUILT, **asked}), engine)
    assert engine.model_calls() == 0
    return str(error.value)


@pytest.mark.timeout(120)
async def test_an_agent_that_nobody_has_is_refused_with_the_nearest_name_and_costs_nothing(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    written = BUILT["config"] + '[steps.implement]\nagent = "clade-code"\n'
    async with Engine.open(tmp_path / "engine", HAPPY, ports=ports) as engine:
        engine.worker()
        said = await refused(engine, origin, "written", config=written)
        assert NEAREST in said
        assert "[steps.implement] agent" in said, "the place to correct"
        assert NEAREST in await refused(engine, origin, "asked", agent="clade-code")
        assert not (engine.home.workspace("written") / "spend.jsonl").exists()
        items = [{"id": "one", "request": "Add sub"}]
        raw = {"repository": str(origin), "agent": "clade-code", "items": items, "config": BUILT["config"]}
        submitted = await engine.perdure.submit_backlog(raw, id="night")
        async with asyncio.timeout(patient(60)):
            [item] = (await submitted.backlog.result()).items
        assert item.because.startswith(NEAREST)
        assert engine.model_calls() == 0
