"""A gate at a terminal: what is to be decided is shown, and decided in place by a key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import typer

from perdure.cli.decide.answer import login_name, report_decision
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

LATER_KEY = "l"
_KEY_LABELS = {
    "a": "[a]pprove",
    "r": "[r]eject",
    "d": "[d]iff",
    "e": "[e]dit",
    "t": "[t]ests",
    LATER_KEY: "[l]ater",
}


def gate_choices(pending_decision: PendingDecision) -> dict[str, str]:
    """Return key → its label for what a person can do at a gate, in order. Empty where a key alone decides nothing: a
    question, a limit."""
    decisions = {"a": "approve", "r": "reject", "e": "edit_plan"}
    if "approve" not in pending_decision.options:
        return {}
    view_keys = {"d", "t"} if pending_decision.gate in (Gate.PULL_REQUEST, Gate.TESTS) else set[str]()
    return {
        key: label
        for key, label in _KEY_LABELS.items()
        if key == LATER_KEY or key in view_keys or decisions.get(key, "") in pending_decision.options
    }


async def decide_at_gate(
    delivery: Delivery,
    pending_decision: PendingDecision,
    screen: Screen,
    *,
    note: str = "",
    is_open: Callable[[], Awaitable[bool]] | None = None,
) -> bool:
    """Show what is to be decided, then handle keys until it is decided; return False when the person leaves it for
    later, else True.

    note     goes with an approval
    is_open  whether it still waits: where somebody else decides meanwhile, True is returned and no key is waited for
    any more
    """
    from perdure.cli.decide.decision_view import show_pending

    await show_pending(delivery, pending_decision, screen)
    offered = gate_choices(pending_decision)
    while True:
        key = await _wait_for_key(offered, is_open)
        print(key, flush=True)
        if key == "":
            return True
        if key == LATER_KEY:
            return False
        if await _handle_key(key, delivery, pending_decision, screen, note):
            return True


async def _handle_key(
    key: str, delivery: Delivery, pending_decision: PendingDecision, screen: Screen, note: str
) -> bool:
    """Do what a key stands for: show diff or tests, edit, approve, or reject with a reason that is asked for. Return
    True when it is decided.

    True also when the delivery did not count the decision, since somebody else was faster. Errors are printed and
    return False.
    """
    from perdure.cli.decide.decision_view import test_report_lines
    from perdure.cli.decide.edit import edit_plan

    facts = {
        "decided": "approve" if key == "a" else "reject",
        "gate": pending_decision.gate,
        "of": pending_decision.target,
    }
    try:
        match key:
            case "d":
                await _show_diff(delivery, screen)
            case "t":
                screen.print_lines(await test_report_lines(delivery))
            case "e":
                return await edit_plan(delivery, screen, target=pending_decision.target, note=note, ask=True) == 0
            case "a":
                answered = await delivery.approve(pending_decision.target, note=note, by=login_name())
                report_decision(
                    screen,
                    delivery.id,
                    answered,
                    facts,
                    await delivery.hold_reason() if answered.received else "",
                    next_command="",
                )
                return True
            case _:
                with handle_interrupts(interrupts=True):
                    reason = str(
                        typer.prompt("what is wrong, and what instead", default="", show_default=False)
                    ).strip()
                if reason:
                    answered = await delivery.reject(reason, pending_decision.target, by=login_name())
                    report_decision(
                        screen,
                        delivery.id,
                        answered,
                        facts,
                        await delivery.hold_reason() if answered.received else "",
                        next_command="",
                    )
                    return True
                screen.say("nothing was said: nothing was decided")
    except NotCounted as error:
        screen.say(f"! {error.what}")
        return True
    except PerdureError as error:
        screen.say(f"! {error.what}" + (f"; {error.fix}" if error.fix else ""))
    return False


async def _wait_for_key(offered: dict[str, str], is_open: Callable[[], Awaitable[bool]] | None) -> str:
    """Print the keys offered and wait for one of them; y means approve, n later. Return the empty string once somebody
    else has decided."""
    aliases = {"y": "a", "n": LATER_KEY}
    async with TerminalKeys.read_terminal() as keys:
        keys.discard_pressed()
        print(f"{' '.join(offered.values())} ", end="", flush=True)
        waiting = asyncio.ensure_future(keys.wait_for(*offered, *aliases))
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=WATCH_EVERY_S)
                if not waiting.done() and is_open is not None and not await is_open():
                    return ""
            key = await waiting
        finally:
            waiting.cancel()
    return aliases.get(key, key)


async def _show_diff(delivery: Delivery, screen: Screen) -> None:
    """Show the delivery's whole diff on the screen."""
    screen.print_diff(visible("".join([text async for text in read_pages(delivery, "diff")])))
