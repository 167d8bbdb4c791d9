"""A gate at a terminal, where what is to be decided is shown, and decided in place by a key; `perdure approve --edit`,
an edited plan, or edited items, in the place of what a delivery waits with; and what is printed of any decision. Used
by the commands that decide, and by those that watch: `deliver`, `watch` and `top`."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from perdure.adapters.system.bounded import decode_text, read_text, unreadable_reason
from perdure.adapters.system.home import Home, login_name
from perdure.cli.event_loop import handle_interrupts
from perdure.cli.keys import TerminalKeys, discard_typed
from perdure.cli.screen import Screen
from perdure.cli.session import read_pages
from perdure.client import DecisionReply, Delivery
from perdure.client.delivery.decisions import wait_for_next_decision
from perdure.client.yaml_files import fetch_editable_plan, is_blank, parse_plan
from perdure.local.connect import not_received_message
from perdure.models.delivery.decisions import Gate, PendingDecision
from perdure.models.errors import BadInput, PerdureError
from perdure.models.ids import delivery_key
from perdure.models.limits import HANDED_IN_BYTES, WATCH_EVERY_S
from perdure.models.rules.inbox import NotCounted
from perdure.render.decision_lines import commands_for_decision, pending_details, pending_summary, test_report_lines
from perdure.render.step_lines import GOOD, WARN
from perdure.text import one_line, shell_word, shorten

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
    screen.print_line(f"{delivery.id}  {pending_summary(pending_decision)}")
    screen.print_lines(await pending_details(delivery, pending_decision))
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

    True also when the delivery did not count the decision, since somebody else was faster. False after a look, an edit
    that was not approved, or a rejection without a reason. Errors are printed and return False.
    """

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
    screen.print_diff("".join([text async for text in read_pages(delivery, "diff")]))


_EDITORS = ("sensible-editor", "nano", "vi")
"""Tried in this order where neither VISUAL nor EDITOR names one."""


async def print_plan(delivery: Delivery, screen: Screen, target: str = "") -> None:
    """Print the plan that waits as a text to edit; with --json as an object with its name, which `--of` takes.

    Raises BadInput when no plan or items wait, or not `target`; PerdureError when the delivery's host does not answer.
    """
    pending_decision = await _find_pending_plan(delivery, target)
    text, *_ = await fetch_editable_plan(delivery)
    if screen.json:
        screen.print_json({"delivery_id": delivery.id, "of": pending_decision.target, "plan": text})
    else:
        print(text, end="", flush=True)


async def edit_plan(
    delivery: Delivery, screen: Screen, *, file: Path | None = None, target: str = "", note: str = "", ask: bool = False
) -> int:
    """Send an edited plan in the place of the one that waits, and approve it; return the exit code, 1 when nothing was
    sent or approved.

    file  the edited plan, `-` for standard input; without it the person's editor opens
    ask   the person confirms before it is approved; after a no it waits for approval in its turn

    Raises BadInput when no plan waits, not `target`, or the edited plan is not valid, and PerdureError when worker or
    host does not answer.
    """
    pending_decision = await _find_pending_plan(delivery, target)
    original, suffix, markdown = await fetch_editable_plan(delivery)
    draft = _draft_path(delivery.id, pending_decision.target + suffix)
    what = "items" if pending_decision.gate == "items" else "plan"
    file_commands = _file_commands(delivery.id, what + suffix)
    text = (
        _read_plan_file(file, what)
        if file is not None
        else _edit_in_editor(original, draft, screen, file_commands, what)
    )
    source = draft if file is None else file
    return await _send_edited_plan(
        delivery, pending_decision, original, text, source, screen, markdown=markdown, note=note, ask=ask
    )


def _file_commands(id: str, name: str) -> str:
    """Return the commands that edit a plan or items in a file of this name, for where no editor can be opened."""
    command = f"perdure approve {shell_word(id)}"
    return f"{command} --print > {name}; edit it; {command} --file {name}"


async def _find_pending_plan(delivery: Delivery, target: str) -> PendingDecision:
    """Return the decision that a delivery waits for. Raises BadInput when it is about no plan or items, or not about
    `target` (empty: any)."""

    try:
        pending_decision = await delivery.waits_for()
    except NotCounted as error:
        raise BadInput(error.what, where=delivery.id, fix=error.fix) from None
    if "edit_plan" not in pending_decision.options:
        fix = " or ".join(commands_for_decision(pending_decision, delivery.id))
        raise BadInput(f"no plan waits: {pending_summary(pending_decision)}", where=delivery.id, fix=fix)
    if target and target != pending_decision.target:
        raise BadInput(
            f"it waits for {pending_summary(pending_decision)}; not for {shorten(target, 64)}",
            where="--of",
            fix=f"--of {pending_decision.target}",
        )
    return pending_decision


async def _send_edited_plan(
    delivery: Delivery,
    pending_decision: PendingDecision,
    original: str,
    text: str,
    source: Path,
    screen: Screen,
    *,
    markdown: bool,
    note: str,
    ask: bool,
) -> int:
    """Check an edited plan, send it to the delivery and approve it once it waits; return the exit code.

    Returns 1 when the text is unchanged or empty and nothing is sent, or when the person does not confirm. When no
    worker takes it, it is not approved and 0 returned. The kept draft is deleted once the plan was sent. Prints what
    became of it.

    source  where the text is from, for messages
    ask     the person confirms before it is approved

    Raises BadInput when the text is no valid plan, or when the delivery did not count it, and PerdureError when the
    host does not store it or it does not wait for approval in time.
    """

    where = "standard input" if str(source) == "-" else str(source)

    if text == original or is_blank(text):
        screen.say("unchanged: nothing was sent" if text == original else "empty: nothing was sent")
        return 1
    try:
        plan, title = parse_plan(text, markdown=markdown)
    except BadInput as error:
        retry_fix = f"mend it, then perdure approve {shell_word(delivery.id)} --file {shell_word(source)}"
        raise BadInput(error.what, where=where, fix=retry_fix) from None
    try:
        answered = await delivery.edit_plan(plan, pending_decision.target, title=title, by=login_name())
    except NotCounted as error:
        fix = f"perdure show {shell_word(delivery.id)}" + (
            f"; your text stays in {where}" if where != "standard input" else ""
        )
        raise BadInput(error.what, where=delivery.id, fix=fix) from None
    _draft_path(delivery.id, pending_decision.target + (".md" if markdown else ".yaml")).unlink(missing_ok=True)
    facts = {"decided": "edit_plan", "gate": pending_decision.gate, "of": pending_decision.target}
    if answered.received:
        if not screen.json:
            screen.print_line(f"✓ {answered.message}")
        new_decision = await wait_for_next_decision(delivery, pending_decision)
        if ask:
            with handle_interrupts(interrupts=True):
                discard_typed()
                confirmed = typer.confirm("approve the edited plan?")
            if not confirmed:
                screen.say(f"not approved: it waits; perdure approve {shell_word(delivery.id)}")
                return 1
        answered = await delivery.approve(new_decision.target, note=note, by=login_name())
        facts = {"decided": "approve", "gate": new_decision.gate, "of": new_decision.target}
    report_decision(screen, delivery.id, answered, facts, await delivery.hold_reason() if answered.received else "")
    return 0


def _draft_path(id: str, name: str) -> Path:
    """Return the path of an edited plan until it has been sent: closing a terminal, or a slip, must not lose it."""
    return Home.find().root / "plans" / f"{delivery_key(id)}-{name}"


def _edit_in_editor(original: str, path: Path, screen: Screen, file_commands: str, what: str) -> str:
    """Write a plan to the file `path`, open the person's editor on it, and return the edited text; the file is deleted
    when nothing was changed.

    Edits from an earlier time in that file are gone on with. Raises BadInput where there is no terminal or editor, or
    the editor fails; it names `file_commands`, another way.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput("there is no terminal to edit on", where="perdure approve --edit", fix=file_commands)
    editor = _find_editor(os.environ)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.read_bytes() not in (original.encode(), b""):
        screen.say(f"going on with what you edited before: {path}")
    else:
        path.write_text(original, encoding="utf-8")
    try:
        with handle_interrupts(interrupts=False):
            code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise BadInput(f"the editor cannot be started: {error}", where=editor, fix="export EDITOR=nano") from None
    if code != 0:
        raise BadInput(f"the editor ended with {code}: nothing was sent", where=f"{editor} {path}", fix=file_commands)
    text = _read_plan_file(path, what)
    if text == original:
        path.unlink(missing_ok=True)
    return text


def _find_editor(env: Mapping[str, str]) -> str:
    """Return the command of the person's editor: VISUAL, EDITOR, or the first of _EDITORS that is installed. Raises
    BadInput when there is none."""
    configured = next((env[name] for name in ("VISUAL", "EDITOR") if env.get(name, "").strip()), "")
    editor = configured or next((name for name in _EDITORS if shutil.which(name)), "")
    if not editor:
        raise BadInput("there is no editor", where="VISUAL or EDITOR", fix="export EDITOR=nano, or use --file")
    return editor


def _read_plan_file(path: Path, what: str) -> str:
    """Read an edited plan or items (`what`) from a file, or from standard input for `-`. Raises BadInput when it cannot
    be read, is not UTF-8, or is longer than 64 KiB."""
    try:
        if str(path) == "-":
            return decode_text(sys.stdin.buffer.read(HANDED_IN_BYTES + 1), HANDED_IN_BYTES)
        return read_text(path, HANDED_IN_BYTES)
    except (OSError, ValueError) as error:
        fix = "name a file of text, or - for standard input"
        what = f"the {what} cannot be read: {unreadable_reason(error)}"
        raise BadInput(what, where=str(path), fix=fix) from None


def report_decision(
    screen: Screen,
    id: str,
    answered: DecisionReply,
    facts: dict[str, Any],
    hold_reason: str = "",
    next_command: str = "watch",
) -> None:
    """Print what became of a decision, as text or JSON: the delivery's own message, or that no worker has received it
    yet.

    hold_reason   the delivery does not go on all the same, because a person holds it
    next_command  the command that one types next; empty: none is named
    """
    if screen.json:
        screen.print_json({"delivery_id": id, **facts, "answer": answered.message, "read": answered.received})
    elif answered.received:
        output = [f"{GOOD} {one_line(answered.message)}", *([f"{WARN} {one_line(hold_reason)}"] if hold_reason else [])]
        next_command = "resume" if hold_reason else next_command
        screen.print_lines(
            [*output, *([f"  {'next':<8} perdure {next_command} {shell_word(id)}"] if next_command else [])]
        )
    else:
        screen.print_line(f"{WARN} {not_received_message()}")
