"""A gate at a terminal: what is asked about, and the decision, in place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import typer

from perdure.cli.decide.answer import tell, who
from perdure.cli.keys import TerminalKeys
from perdure.cli.look.delivery_commands import read_pages
from perdure.cli.screen import Screen
from perdure.cli.session import handle_interrupts
from perdure.models.decisions import Gate, PendingDecision
from perdure.models.errors import PerdureError
from perdure.models.limits import WATCH_EVERY_S
from perdure.models.rules.inbox import NotCounted
from perdure.text import visible

if TYPE_CHECKING:
    from perdure.client import Delivery

LATER = "l"
_WORDS = {
    "a": "[a]pprove",
    "r": "[r]eject",
    "d": "[d]iff",
    "e": "[e]dit",
    "t": "[t]ests",
    LATER: "[l]ater",
}


def choices(asked: PendingDecision) -> dict[str, str]:
    """Key → how it is offered, in order. Empty where a key alone decides nothing: a question, a limit."""
    decides = {"a": "approve", "r": "reject", "e": "edit_plan"}
    if "approve" not in asked.options:
        return {}
    looks = {"d", "t"} if asked.gate in (Gate.PULL_REQUEST, Gate.TESTS) else set[str]()
    return {
        key: words
        for key, words in _WORDS.items()
        if key == LATER or key in looks or decides.get(key, "") in asked.options
    }


async def at_gate(
    delivery: Delivery,
    asked: PendingDecision,
    screen: Screen,
    *,
    note: str = "",
    open: Callable[[], Awaitable[bool]] | None = None,
) -> bool:
    """Show what is decided and take the decision; False when the person leaves it for later.

    note  a word that goes with an approval
    open  whether it still waits: somebody else may decide meanwhile, and then nothing is asked any more
    """
    from perdure.cli.decide.showing import show_asked

    await show_asked(delivery, asked, screen)
    offered = choices(asked)
    while True:
        key = await _pressed(offered, open)
        print(key, flush=True)
        if key == "":
            return True
        if key == LATER:
            return False
        if await _done(key, delivery, asked, screen, note):
            return True


async def _done(key: str, delivery: Delivery, asked: PendingDecision, screen: Screen, note: str) -> bool:
    """Do what a key stands for. True when that decided it."""
    from perdure.cli.decide.edit import edit_plan
    from perdure.cli.decide.showing import tested

    facts = {"decided": "approve" if key == "a" else "reject", "gate": asked.gate, "of": asked.target}
    try:
        match key:
            case "d":
                await _diff(delivery, screen)
            case "t":
                screen.print_lines(await tested(delivery))
            case "e":
                return await edit_plan(delivery, screen, of=asked.target, note=note, ask=True) == 0
            case "a":
                answered = await delivery.approve(asked.target, note=note, by=who())
                tell(
                    screen,
                    delivery.id,
                    answered,
                    facts,
                    await delivery.hold_reason() if answered.received else "",
                    after="",
                )
                return True
            case _:
                with handle_interrupts(interrupts=True):
                    words = str(typer.prompt("what is wrong, and what instead", default="", show_default=False)).strip()
                if words:
                    answered = await delivery.reject(words, asked.target, by=who())
                    tell(
                        screen,
                        delivery.id,
                        answered,
                        facts,
                        await delivery.hold_reason() if answered.received else "",
                        after="",
                    )
                    return True
                screen.say("nothing was said: nothing was decided")
    except NotCounted as error:
        screen.say(f"! {error.what}")
        return True
    except PerdureError as error:
        screen.say(f"! {error.what}" + (f"; {error.fix}" if error.fix else ""))
    return False


async def _pressed(offered: dict[str, str], open: Callable[[], Awaitable[bool]] | None) -> str:
    """The key pressed after they were shown; y and n are understood. Empty once somebody else has decided it."""
    also = {"y": "a", "n": LATER}
    async with TerminalKeys.read_terminal() as keys:
        keys.discard_pressed()
        print(f"{' '.join(offered.values())} ", end="", flush=True)
        waiting = asyncio.ensure_future(keys.wait_for(*offered, *also))
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=WATCH_EVERY_S)
                if not waiting.done() and open is not None and not await open():
                    return ""
            key = await waiting
        finally:
            waiting.cancel()
    return also.get(key, key)


async def _diff(delivery: Delivery, screen: Screen) -> None:
    screen.print_diff(visible("".join([text async for text in read_pages(delivery, "diff")])))
