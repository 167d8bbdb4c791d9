"""Nobody walks away from a thread."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from perdure.adapters.system.threads import in_thread, in_thread_to_end

word: ContextVar[str] = ContextVar("word")


async def test_a_thread_sees_the_context_and_hands_back_what_it_returns_or_raises() -> None:
    word.set("here")
    assert await in_thread(lambda: word.get()) == "here"
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 / 0)


@pytest.mark.parametrize("fails", [False, True], ids=["that returns", "that fails"])
async def test_a_cancelled_call_is_over_only_when_its_thread_is(fails: bool) -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        assert go.wait(10)
        done.set()
        if fails:
            raise ValueError("nobody asks any more")

    task = asyncio.create_task(in_thread(work))
    await asyncio.sleep(0.05)
    task.cancel("superseded")
    await asyncio.sleep(0.05)
    task.cancel("again")
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert done.is_set()
    assert cancelled.value.args == ("superseded",), "a takeover could not be told from Temporal's own cancel"


async def test_an_effect_that_happened_is_told_although_a_cancellation_came() -> None:
    go = threading.Event()
    task = asyncio.create_task(in_thread_to_end(lambda: go.wait(10) and "pull request #1"))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.sleep(0.05)
    go.set()
    assert await task == "pull request #1"
