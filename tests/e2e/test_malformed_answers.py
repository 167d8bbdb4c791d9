"""Answers of the model that are no answers: asked for once more, then a typed end, and never taken for a yes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.models.delivery.result import DeliveryResult
from tests.cli.conftest import Cli
from tests.engine import HAPPY, Engine, check_shipped, finished, heads, make_target, pulls
from tests.waiting import patient

SLOPPY = "Sloppy the first time"
TWICE = {
    "a kind of its own": ("classify", """say = '{"kind": "miracle", "reason": "why not"}'"""),
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

SCREENPLAY = "\n".join(
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
    async with Engine.open(tmp_path, SCREENPLAY, ports=ports) as engine:
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
