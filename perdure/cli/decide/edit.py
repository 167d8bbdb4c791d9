"""`perdure approve --edit`: another plan in the place of the one a delivery waits with."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perdure.cli.decide.answer import tell, who
from perdure.cli.screen import Screen
from perdure.cli.session import handle_interrupts
from perdure.models.errors import BadInput, PerdureError
from perdure.models.ids import delivery_key
from perdure.models.limits import HANDED_IN_BYTES, WATCH_EVERY_S

if TYPE_CHECKING:
    from perdure.client import Delivery
    from perdure.models.decisions import PendingDecision

NEW_QUESTION_S = 30.0
"""For what follows a decision to be put: the edited plan for approval, within milliseconds where a worker lives."""


_EDITORS = ("sensible-editor", "nano", "vi")
"""Tried in this order where neither VISUAL nor EDITOR names one."""


async def print_plan(delivery: Delivery, screen: Screen, of: str = "") -> None:
    """The plan as it is edited; as JSON with its name, which `--of` takes. BadInput when none waits."""
    asked = await _plan_waits(delivery, of)
    text, *_ = await plan_to_edit(delivery)
    if screen.json:
        screen.print_json({"delivery_id": delivery.id, "of": asked.target, "plan": text})
    else:
        print(text, end="", flush=True)


async def edit_plan(
    delivery: Delivery, screen: Screen, *, file: Path | None = None, of: str = "", note: str = "", ask: bool = False
) -> int:
    """Put the edited plan in the place of the one that waits, and approve it; the exit code.

    file  the edited plan, `-` for standard input; without it the person's editor opens
    ask   the person is asked before it is approved; after a no it waits for approval in its turn
    """
    asked = await _plan_waits(delivery, of)
    before, ending, markdown = await plan_to_edit(delivery)
    kept = _kept(delivery.id, asked.target + ending)
    what = "items" if asked.gate == "items" else "plan"
    by_file = _by_file(delivery.id, what + ending)
    text = _read(file, what) if file is not None else _edited(before, kept, screen, by_file, what)
    source = kept if file is None else file
    return await _send(delivery, asked, before, text, source, screen, markdown=markdown, note=note, ask=ask)


def _by_file(id: str, name: str) -> str:
    """Say how a plan, or items, are edited where no editor can be opened: in a file of that name."""
    typed = f"perdure approve {shlex.quote(id)}"
    return f"{typed} --print > {name}; edit it; {typed} --file {name}"


async def _plan_waits(delivery: Delivery, of: str) -> PendingDecision:
    """Return what is asked. BadInput when it is no plan, or not the one that `of` names."""
    from perdure.cli.decide.asking import commands, waiting_words
    from perdure.models.rules.inbox import NotCounted

    try:
        asked = await delivery.waits_for()
    except NotCounted as error:
        raise BadInput(error.what, where=delivery.id, fix=error.fix) from None
    if "edit_plan" not in asked.options:
        fix = " or ".join(commands(asked, delivery.id))
        raise BadInput(f"no plan waits: {waiting_words(asked)}", where=delivery.id, fix=fix)
    if of and of != asked.target:
        raise BadInput(
            f"it waits for {waiting_words(asked)}; not for {of[:64]}", where="--of", fix=f"--of {asked.target}"
        )
    return asked


async def plan_to_edit(delivery: Delivery) -> tuple[str, str, bool]:
    """The plan to edit, its file's ending, and whether it is Markdown in somebody's own words."""
    from perdure.cli.decide.planfile import editable

    progress = await delivery.progress()
    written = (await delivery.artifact(progress.plan, progress.queue)).decode(errors="replace")
    text, ending = editable(written, delivery.id)
    return text, ending, ending == ".md"


async def _send(
    delivery: Delivery,
    asked: PendingDecision,
    before: str,
    text: str,
    source: Path,
    screen: Screen,
    *,
    markdown: bool,
    note: str,
    ask: bool,
) -> int:
    from perdure.cli.decide.planfile import blank, parsed
    from perdure.cli.keys import discard_typed
    from perdure.models.rules.inbox import NotCounted

    where = "standard input" if str(source) == "-" else str(source)

    if text == before or blank(text):
        screen.say("unchanged: nothing was sent" if text == before else "empty: nothing was sent")
        return 1
    try:
        plan, title = parsed(text, markdown=markdown)
    except BadInput as error:
        again = f"mend it, then perdure approve {shlex.quote(delivery.id)} --file {shlex.quote(str(source))}"
        raise BadInput(error.what, where=where, fix=again) from None
    try:
        answered = await delivery.edit_plan(plan, asked.target, title=title, by=who())
    except NotCounted as error:
        fix = f"perdure show {shlex.quote(delivery.id)}" + (
            f"; your text stays in {where}" if where != "standard input" else ""
        )
        raise BadInput(error.what, where=delivery.id, fix=fix) from None
    _kept(delivery.id, asked.target + (".md" if markdown else ".yaml")).unlink(missing_ok=True)
    facts = {"decided": "edit_plan", "gate": asked.gate, "of": asked.target}
    if answered.received:
        if not screen.json:
            screen.print_line(f"✓ {answered.message}")
        new = await put_again(delivery, asked)
        if ask:
            with handle_interrupts(interrupts=True):
                discard_typed()
                agreed = typer.confirm("approve the edited plan?")
            if not agreed:
                screen.say(f"not approved: it waits; perdure approve {shlex.quote(delivery.id)}")
                return 1
        answered = await delivery.approve(new.target, note=note, by=who())
        facts = {"decided": "approve", "gate": new.gate, "of": new.target}
    tell(screen, delivery.id, answered, facts, await delivery.hold_reason() if answered.received else "")
    return 0


async def put_again(delivery: Delivery, before: PendingDecision) -> PendingDecision:
    """The edited plan, as the delivery asks for it."""
    from perdure.models.rules.inbox import NotCounted

    end = time.monotonic() + NEW_QUESTION_S
    while time.monotonic() < end:
        try:
            asked = await delivery.waits_for()
        except NotCounted:
            asked = before
        if asked.target != before.target:
            return asked
        await asyncio.sleep(WATCH_EVERY_S)
    raise PerdureError(
        "the edited plan was counted, but does not wait for approval yet",
        where=delivery.id,
        fix=f"perdure approve {delivery.id}",
    )


def _kept(id: str, name: str) -> Path:
    """Return the place of an edited plan until it has been sent: closing a terminal, or a slip, must not lose it."""
    from perdure.adapters.system.home import Home

    return Home.find().root / "plans" / f"{delivery_key(id)}-{name}"


def _edited(before: str, path: Path, screen: Screen, by_file: str, what: str) -> str:
    """The plan after a person has edited it. BadInput where there is nobody who could, or no editor; it names
    `by_file`, another way."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput("there is no terminal to edit on", where="perdure approve --edit", fix=by_file)
    editor = _editor(os.environ)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.read_bytes() not in (before.encode(), b""):
        screen.say(f"going on with what you edited before: {path}")
    else:
        path.write_text(before, encoding="utf-8")
    try:
        with handle_interrupts(interrupts=False):
            code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise BadInput(f"the editor cannot be started: {error}", where=editor, fix="export EDITOR=nano") from None
    if code != 0:
        raise BadInput(f"the editor ended with {code}: nothing was sent", where=f"{editor} {path}", fix=by_file)
    text = _read(path, what)
    if text == before:
        path.unlink(missing_ok=True)
    return text


def _editor(env: Mapping[str, str]) -> str:
    named = next((env[name] for name in ("VISUAL", "EDITOR") if env.get(name, "").strip()), "")
    found = named or next((name for name in _EDITORS if shutil.which(name)), "")
    if not found:
        raise BadInput("there is no editor", where="VISUAL or EDITOR", fix="export EDITOR=nano, or use --file")
    return found


def _read(path: Path, what: str) -> str:
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(HANDED_IN_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(HANDED_IN_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        fix = "name a file of text, or - for standard input"
        raise BadInput(f"the {what} cannot be read: {words}", where=str(path), fix=fix) from None
    if len(data) > HANDED_IN_BYTES:
        raise BadInput(f"the {what} cannot be sent: longer than 64 KiB", where=str(path), fix="shorten it")
    return text
