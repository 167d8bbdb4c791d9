"""Ctrl-C while a person answers or edits: asyncio alone would note it, and end the command when the person is done."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from perdure.cli.event_loop import handle_interrupts


async def interrupted(told: list[str], *, interrupts: bool) -> None:
    with handle_interrupts(interrupts=interrupts):
        os.kill(os.getpid(), signal.SIGINT)
        told.append("typed on")
    await asyncio.sleep(0)  # where a cancellation that asyncio has noted would be raised
    told.append("sent")


def test_a_question_ends_at_the_first_ctrl_c() -> None:
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted(told, interrupts=True))
    assert told == []


def test_in_an_editor_ctrl_c_is_the_editors_and_what_was_edited_is_sent() -> None:
    told: list[str] = []
    asyncio.run(interrupted(told, interrupts=False))
    assert told == ["typed on", "sent"]


def test_what_ctrl_c_did_before_it_does_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), handle_interrupts(interrupts=True):
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
